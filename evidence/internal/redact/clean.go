package redact

import (
	"strings"
	"unicode/utf8"
)

// CleanChecker is the short way for documents that there is nothing to redact in,
// which are most: it walks over a JSON text once, looks at every key and value as
// Document does, and writes the RFC 8785 form as it goes, without making a tree.
//
// A yes is a proof that the long way (strictjson.Parse, Document, canonical form)
// accepts the text, finds nothing and gives the same bytes (FuzzCleaner); a no
// says nothing. It is not for concurrent use.
type CleanChecker struct {
	s          string
	at         int
	work       int
	limit      int // of work
	budget     workBudget
	scanCache  ScanCache
	rows       map[string]neverStoreRule
	out        []byte
	sortBuffer []byte // room to bring members into their order
	members    []cleanMember
	keys       map[string]keyFacts
}

// cleanMember is a member of an object that is being written: its key, and where
// it stands in what was written.
type cleanMember struct {
	key      string
	from, to int
}

// keyFacts is what a key says of its value.
type keyFacts struct {
	plainKey    bool // it holds nothing that a detector finds, and is plain ASCII
	hasUpper    bool // it has letters that another case could stand for
	work        int
	credential  nameRule                // its row
	replyToken  bool                    // of AAEP's reply tokens
	check       func(value string) bool // of a field of personal data
	detector    string                  // likewise
	list        bool                    // what stands in a list below it is personal data
	isPairName  bool                    // it is one of pairNames
	isPairValue bool                    // it is one of pairValues
	isPassword  bool                    // it is besideUser
}

const (
	cleanDepth   = 60 // a little less than what is parsed
	cleanKeys    = 2048
	cleanMembers = 256 // of one object
	cleanFolded  = 48  // of one object with letters of both cases in its keys
)

// CheckDocument gives the canonical form of a text in which there is nothing to
// redact. protocol and size are as in Config; what the policy names, and what is
// known to be secret from another place, the short way knows nothing of. The
// result is good until the next call.
func (c *CleanChecker) CheckDocument(raw []byte, protocol string, size int) (canonical []byte, ok bool) {
	if protocol == protocolAANA || protocol == "aump" || !utf8.Valid(raw) {
		return nil, false
	}
	c.s, c.at, c.work, c.rows = string(raw), 0, 0, neverStoreTable[protocol]
	c.limit = workPerRecord + workPerByte*len(raw)
	c.scanCache.clear()
	c.out, c.members = c.out[:0], c.members[:0]
	c.skipBlank()
	if !c.checkValue(keyFacts{plainKey: true}, 0) {
		return nil, false
	}
	c.skipBlank()
	if c.at != len(c.s) || size > 0 && c.work > workPerRecord+workPerByte*size {
		return nil, false
	}
	return c.out, true
}

// Scan is Scan, with room that is there already.
func (c *CleanChecker) Scan(s string) []Span {
	spans, _ := c.budget.scanText(s)
	return spans
}

// ScanCache is what the last Document found, for Config.Memory of the same record.
func (c *CleanChecker) ScanCache() *ScanCache { return &c.scanCache }

// CheckTexts reports whether there is nothing to redact in a list of texts that stand
// under a name, nor in the name.
func (c *CleanChecker) CheckTexts(name string, list []string) bool {
	k := c.factsFor(name)
	if !k.plainKey {
		return false
	}
	c.limit = 0
	for _, s := range list {
		if !utf8.ValidString(s) || !c.checkText(s, k) {
			return false
		}
	}
	return true
}

// factsFor looks at a key; most are known from before.
func (c *CleanChecker) factsFor(name string) keyFacts {
	if k, known := c.keys[name]; known {
		return k
	}
	k := keyFacts{plainKey: name != "" && len(name) <= 4*maxIdent}
	for i := 0; i < len(name); i++ {
		k.plainKey = k.plainKey && name[i] < 0x80
		k.hasUpper = k.hasUpper || byteClass[name[i]]&upper != 0
	}
	if !k.plainKey {
		return k
	}
	spans, work := c.budget.scanText(name)
	credential, private := findRules(name)
	k.plainKey, k.work = len(spans) == 0, work
	if credential > 0 {
		k.credential, k.replyToken = nameRules[credential-1], nameRules[credential-1].text == "replytoken"
	}
	if private > 0 {
		k.detector, k.check = personalFields[private-1].detector, personalFields[private-1].check
	}
	k.list = personalField(strings.TrimSuffix(name, "s")).detector != ""
	pair := pairKey(name)
	k.isPairName, k.isPairValue, k.isPassword = pairNames[pair], pairValues[pair], isUserPasswordKey(name)
	if c.keys == nil || len(c.keys) >= cleanKeys {
		c.keys = make(map[string]keyFacts, 64)
	}
	c.keys[strings.Clone(name)] = k
	return k
}

// checkText reports whether nothing is found in a text.
func (c *CleanChecker) checkText(s string, k keyFacts) bool {
	switch {
	case s == "" || IsPlaceholder(s):
		return true
	case k.credential.proves(s), k.credential.strength == weakName && isRandom(s):
		return false
	case k.replyToken && isReplyToken(s):
		return true
	case k.detector != "" && k.check(s):
		return false
	}
	spans, work := c.budget.scanText(s)
	c.scanCache.store(s, spans, work)
	c.work += work
	return len(spans) == 0 && (c.work <= c.limit || c.limit == 0)
}
