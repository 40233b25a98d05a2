package redact

import (
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/evidence/internal/protocol"
)

// CleanChecker is the fast path for documents without anything to redact, which are most: it
// walks over a JSON text once, checks every key and value as Document does, and writes the
// RFC 8785 form as it goes, without making a tree.
//
// If it accepts a text, the full path (strictjson.Parse, Document, canonical form) accepts it
// too, finds nothing and gives the same bytes (FuzzCleaner). If it rejects a text, the full
// path has to decide. It is not safe for concurrent use.
type CleanChecker struct {
	s          string
	at         int
	work       int
	limit      int // of work
	budget     workBudget
	scanCache  ScanCache
	rows       map[string]protocol.Rule
	out        []byte
	sortBuffer []byte // buffer for sorting members
	members    []cleanMember
	keys       map[string]keyFacts
}

// cleanMember is a member of the object being written: its key, and its position in the output.
type cleanMember struct {
	key      string
	from, to int
}

// keyFacts is what a key says about its value.
type keyFacts struct {
	plainKey    bool // no detector finds anything in it, and it is ASCII
	hasUpper    bool // it has upper-case letters, so another key may differ from it only in case
	work        int
	credential  nameRule                // the rule for the key
	replyToken  bool                    // an AAEP reply token is allowed
	check       func(value string) bool // of a field of personal data
	detector    string                  // the detector of that field
	list        bool                    // items of a list below it are personal data
	isPairName  bool                    // it is in pairNames
	isPairValue bool                    // it is in pairValues
	isPassword  bool                    // see isUserPasswordKey
}

const (
	cleanDepth   = 60 // a little less than the parser allows
	cleanKeys    = 2048
	cleanMembers = 256 // of one object
	cleanFolded  = 48  // in one object with upper-case letters in its keys
)

// CheckDocument returns the canonical form of a text if there is nothing to redact in it.
// The token of the protocol and size are as in Config. It does not know the fields that a policy names or the
// Echoes; a caller that has those must not use it. The result is valid until the next call.
func (c *CleanChecker) CheckDocument(raw []byte, token string, size int) (canonical []byte, ok bool) {
	row := protocol.Of(token)
	if !row.OneParse() || !utf8.Valid(raw) {
		return nil, false
	}
	c.s, c.at, c.work, c.rows = string(raw), 0, 0, row.NeverStore
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

// Scan is the function Scan with the checker's buffers.
func (c *CleanChecker) Scan(s string) []Span {
	spans, _ := c.budget.scanText(s)
	return spans
}

// ScanCache holds what the last CheckDocument found, for Config.ScanCache of the same record.
func (c *CleanChecker) ScanCache() *ScanCache { return &c.scanCache }

// CheckTexts reports whether there is nothing to redact in the values of a header, nor in its
// name.
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

// factsFor returns the facts of a key. It caches them.
func (c *CleanChecker) factsFor(name string) keyFacts {
	if k, known := c.keys[name]; known {
		return k
	}
	k := keyFacts{plainKey: name != "" && len(name) <= 4*maxIdent}
	for i := range len(name) {
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

// checkText reports whether no detector finds anything in a value.
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
