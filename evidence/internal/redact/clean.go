package redact

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/internal/protocol"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/storable"
)

// CleanChecker finds the members of documents in which there may be something to redact; most
// documents have none. It checks every key and value of a parsed document as Document does, without a
// tree.
//
// Document finds nothing outside these members, and in each of them what Unclean.Redact finds
// (FuzzCleaner). It is not safe for concurrent use.
type CleanChecker struct {
	unclean []uncleanMember
	work    int
	limit   int // of work
	budget  workBudget
	rows    map[string]storable.Rule
	keys    map[string]keyFacts
}

// keyFacts is what a key says about its value.
type keyFacts struct {
	plainKey    bool // no detector finds anything in it, and it is ASCII
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

// cleanKeys is the greatest number of keys with cached facts.
const cleanKeys = 2048

// CheckDocument finds the unclean members of a document; the result is valid until the next call. The
// token of the protocol and size are as in Config. false means that Document has to redact the
// whole. It does not know the fields that a policy names or the Echoes; a caller that has
// those must not use it.
func (c *CleanChecker) CheckDocument(root strictjson.Value, token string, size int) (Unclean, bool) {
	row := protocol.Of(token)
	if !row.OneParse() || root.Get("metadata").Get("redaction").Get("fields").Len() > 0 { // DeclaredFields
		return Unclean{}, false
	}
	clear(c.unclean)
	c.unclean = c.unclean[:0]
	c.work, c.limit, c.rows = 0, workPerRecord+workPerByte*size, row.NeverStore
	ok := c.checkValue(root, keyFacts{plainKey: true}) && c.work <= c.limit
	return Unclean{members: c.unclean, work: c.work, row: row}, ok
}

// Scan is the function Scan with the checker's buffers.
func (c *CleanChecker) Scan(s string) []Span {
	spans, _ := c.budget.scanText(s)
	return spans
}

// CheckTexts reports whether there is nothing to redact in the values of a header, nor in its
// name.
func (c *CleanChecker) CheckTexts(name string, list []string) bool {
	k := c.factsFor(name)
	c.work, c.limit = 0, math.MaxInt // the limit for each text is enough
	return k.plainKey && !slices.ContainsFunc(list, func(s string) bool { return !utf8.ValidString(s) || !c.checkText(s, k) })
}

// factsFor returns the facts of a key. It caches them.
func (c *CleanChecker) factsFor(name string) keyFacts {
	if k, known := c.keys[name]; known {
		return k
	}
	k := keyFacts{plainKey: name != "" && len(name) <= 4*maxIdent}
	for i := range len(name) {
		k.plainKey = k.plainKey && name[i] < 0x80
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

// checkValue reports whether there is nothing to redact in the value of a key, outside of the
// members that it adds to c.unclean.
func (c *CleanChecker) checkValue(v strictjson.Value, k keyFacts) bool {
	switch v.Kind() {
	case strictjson.KindString:
		return c.checkText(v.Text(), k)
	case strictjson.KindNumber:
		written := strictjson.CanonicalNumber(v.Text())
		return c.checkDigits(written, k) && (written == v.Text() || c.checkDigits(v.Text(), k))
	case strictjson.KindObject:
		return v.Len() == 0 || k.credential.strength != strongName && k.detector != Address && c.checkObject(v)
	case strictjson.KindArray:
		return v.Len() == 0 || k.credential.strength != strongName && !k.list && c.checkArray(v)
	}
	return true
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
	c.work += work
	return len(spans) == 0 && c.work <= c.limit
}

// checkDigits reports whether no detector finds anything in a number.
func (c *CleanChecker) checkDigits(lit string, k keyFacts) bool {
	if k.credential.strength == strongName || k.detector != "" && k.check(lit) {
		return false
	}
	if !isLongInteger(lit) {
		return true
	}
	spans, work := c.budget.scanText(lit)
	c.work += work
	return len(spans) == 0
}

// checkArray accepts only a list without anything to redact: its items may say what others hold.
func (c *CleanChecker) checkArray(list strictjson.Value) bool {
	found := len(c.unclean)
	announced := false
	for v := range list.All() {
		if !c.checkValue(v, keyFacts{plainKey: true}) || len(c.unclean) > found {
			c.unclean = c.unclean[:found]
			return false
		}
		isText := v.Kind() == strictjson.KindString
		if isText && (announced || len(v.Text()) <= 4*maxIdent && programs[programName(v.Text())]) {
			return false
		}
		announced = isText && len(v.Text()) <= maxIdent && lookupName(v.Text()).strength == strongName
	}
	return true
}

// checkObject rejects every object in which one member may say what another holds.
func (c *CleanChecker) checkObject(object strictjson.Value) bool {
	found := len(c.unclean)
	said, holds, calls, listed := false, false, false, false
	for v := range object.All() {
		k := c.factsFor(v.Key())
		holds = holds || k.isPairValue
		said = said || k.isPairName && v.Text() != "" && len(v.Text()) <= maxIdent && credentialName(v.Text())
		calls = calls || slices.Contains(commandKeys, v.Key())
		listed = listed || v.Kind() == strictjson.KindArray && slices.Contains(argumentKeys, v.Key())
		if _, never := c.rows[v.Key()]; never || !k.plainKey || k.isPassword || said && holds || calls && listed {
			c.unclean = c.unclean[:found]
			return false
		}
		c.work += k.work
		c.checkMember(v, k)
	}
	return true
}

// checkMember adds a member to c.unclean if there may be something to redact in it, or those
// members below it with something to redact. Their work is not counted: Redact does it again.
func (c *CleanChecker) checkMember(v strictjson.Value, k keyFacts) {
	found, work := len(c.unclean), c.work
	if !c.checkValue(v, k) {
		c.work = work
		c.unclean = append(c.unclean, uncleanMember{value: v})
		return
	}
	for i := found; i < len(c.unclean); i++ {
		c.unclean[i].above = "/" + strictjson.EscapePointer(v.Key()) + c.unclean[i].above
	}
}
