package redact

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Cleaner is the short way for documents that there is nothing to redact in,
// which are most: it walks over a JSON text once, looks at every key and value as
// Document does, and writes the RFC 8785 form as it goes, without making a tree.
//
// A yes is a proof that the long way (strictjson.Parse, Document, canonical form)
// accepts the text, finds nothing and gives the same bytes (FuzzCleaner); a no
// says nothing. It is not for concurrent use.
type Cleaner struct {
	s       string
	at      int
	work    int
	limit   int // of work
	m       meter
	rows    map[string]neverRow
	out     []byte
	spare   []byte // room to bring members into their order
	members []cleanMember
	keys    map[string]keyFacts
}

// cleanMember is a member of an object that is being written: its key, and where
// it stands in what was written.
type cleanMember struct {
	key      string
	from, to int
}

// keyFacts is what a key says of its value.
type keyFacts struct {
	ok       bool // it holds nothing that a detector finds, and is plain ASCII
	upper    bool // it has letters that another case could stand for
	work     int
	strength strength
	reply    bool                    // of AAEP's reply tokens
	check    func(value string) bool // of a field of personal data
	detector string                  // likewise
	list     bool                    // what stands in a list below it is personal data
}

const (
	cleanDepth   = 60 // a little less than what is parsed
	cleanKeys    = 2048
	cleanMembers = 256 // of one object
	cleanFolded  = 48  // of one object with letters of both cases in its keys
)

// Document gives the canonical form of a text in which there is nothing to
// redact. protocol and size are as in Config; what the policy names, and what is
// known to be secret from another place, the short way knows nothing of. The
// result is good until the next call.
func (c *Cleaner) Document(raw []byte, protocol string, size int) (canonical []byte, ok bool) {
	if protocol == protocolAANA || protocol == "aump" || !utf8.Valid(raw) {
		return nil, false
	}
	c.s, c.at, c.work, c.rows = string(raw), 0, 0, neverStored[protocol]
	c.m.tight, c.limit = true, workPerRecord+tightPerByte*len(raw)
	c.out, c.members = c.out[:0], c.members[:0]
	c.blank()
	if !c.value(keyFacts{ok: true}, 0) {
		return nil, false
	}
	c.blank()
	if c.at != len(c.s) || size > 0 && c.work > workPerRecord+workPerByte*size {
		return nil, false
	}
	return c.out, true
}

// Scan is Scan, with room that is there already.
func (c *Cleaner) Scan(s string) []Span {
	c.m.tight = false
	spans, _ := c.m.scan(s)
	return spans
}

// Texts reports whether there is nothing to redact in a list of texts that stand
// under a name, nor in the name.
func (c *Cleaner) Texts(name string, list []string) bool {
	k := c.key(name)
	if !k.ok {
		return false
	}
	c.m.tight, c.limit = false, 0
	for _, s := range list {
		if !utf8.ValidString(s) || !c.text(s, k) {
			return false
		}
	}
	return true
}

// key looks at a key; most are known from before.
func (c *Cleaner) key(name string) keyFacts {
	if k, known := c.keys[name]; known {
		return k
	}
	k := keyFacts{ok: name != "" && len(name) <= 4*maxIdent}
	for i := 0; i < len(name); i++ {
		k.ok = k.ok && name[i] < 0x80
		k.upper = k.upper || classOf[name[i]]&upper != 0
	}
	if !k.ok {
		return k
	}
	spans, work := c.m.scan(name)
	credential, private := find(name)
	k.ok, k.work = len(spans) == 0, work
	if credential > 0 {
		k.strength, k.reply = names[credential-1].s, names[credential-1].text == "replytoken"
	}
	if private > 0 {
		k.detector, k.check = personal[private-1].detector, personal[private-1].check
	}
	k.list = personalField(strings.TrimSuffix(name, "s")).detector != ""
	if c.keys == nil || len(c.keys) >= cleanKeys {
		c.keys = make(map[string]keyFacts, 64)
	}
	c.keys[strings.Clone(name)] = k
	return k
}

// text reports whether nothing is found in a text.
func (c *Cleaner) text(s string, k keyFacts) bool {
	switch {
	case s == "" || IsPlaceholder(s):
		return true
	case k.strength == strong, k.strength == weak && random(s):
		return false
	case k.reply && replyToken(s):
		return true
	case k.detector != "" && k.check(s):
		return false
	}
	spans, work := c.m.scan(s)
	c.work += work
	return len(spans) == 0 && (c.work <= c.limit || c.limit == 0)
}

func (c *Cleaner) peek() byte {
	if c.at < len(c.s) {
		return c.s[c.at]
	}
	return 0
}

// blank passes over white space.
func (c *Cleaner) blank() {
	for c.at < len(c.s) {
		switch c.s[c.at] {
		case ' ', '\n', '\r', '\t':
			c.at++
		default:
			return
		}
	}
}

func (c *Cleaner) value(k keyFacts, depth int) bool {
	switch c.peek() {
	case '"':
		_, ok := c.str(k, true)
		return ok
	case '{':
		return depth < cleanDepth && c.object(k, depth+1)
	case '[':
		return depth < cleanDepth && c.array(k, depth+1)
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	}
	return c.number(k)
}

func (c *Cleaner) word(w string) bool {
	if !strings.HasPrefix(c.s[c.at:], w) {
		return false
	}
	c.at += len(w)
	c.out = append(c.out, w...)
	return true
}

// str takes a text, looks at it if it is a value, and writes it.
func (c *Cleaner) str(k keyFacts, look bool) (value string, ok bool) {
	start := c.at + 1
	i, escaped := start, false
	for ; ; i++ {
		if i >= len(c.s) || c.s[i] < ' ' {
			return "", false
		}
		if c.s[i] == '"' {
			break
		}
		if c.s[i] == '\\' {
			escaped = true
			i++
		}
	}
	value, c.at = c.s[start:i], i+1
	if escaped {
		if value, ok = unquoted(value); !ok {
			return "", false
		}
	}
	if look && !c.text(value, k) {
		return "", false
	}
	if !escaped {
		c.out = append(c.out, c.s[start-1:i+1]...)
		return value, true
	}
	c.out = append(c.out, '"')
	for j := 0; j < len(value); j++ {
		if short := strings.IndexByte("\"\\\b\f\n\r\t", value[j]); short >= 0 {
			c.out = append(c.out, '\\', `"\bfnrt`[short])
			continue
		}
		c.out = append(c.out, value[j])
	}
	c.out = append(c.out, '"')
	return value, true
}

// unquoted undoes the escapes of a text that has those of two characters only.
func unquoted(s string) (string, bool) {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i >= len(s) {
			return "", false
		}
		at := strings.IndexByte(`"\/bfnrt`, s[i])
		if at < 0 {
			return "", false
		}
		b.WriteByte("\"\\/\b\f\n\r\t"[at])
	}
	return b.String(), true
}

// number takes a number that has one spelling only and that every reader takes
// for the same value: at most 15 digits, no exponent, and of a fraction no zero at
// its end and a digit among the first six.
func (c *Cleaner) number(k keyFacts) bool {
	start := c.at
	if c.peek() == '-' {
		c.at++
	}
	whole := run(c.s, c.at, digit)
	digits, zero := whole-c.at, c.peek() == '0'
	if digits == 0 || zero && digits > 1 {
		return false
	}
	c.at = whole
	if c.peek() == '.' {
		end := run(c.s, whole+1, digit)
		fraction := c.s[whole+1 : end]
		if fraction == "" || fraction[len(fraction)-1] == '0' || zero && strings.Trim(fraction[:min(6, len(fraction))], "0") == "" {
			return false
		}
		digits, zero, c.at = digits+len(fraction), false, end
	}
	switch c.peek() {
	case '.', 'e', 'E':
		return false
	}
	lit := c.s[start:c.at]
	if digits > 15 || zero && lit[0] == '-' || !c.figures(lit, k) {
		return false
	}
	c.out = append(c.out, lit...)
	return true
}

// figures reports whether nothing is found in a number.
func (c *Cleaner) figures(lit string, k keyFacts) bool {
	if k.strength == strong || k.detector != "" && k.check(lit) {
		return false
	}
	if len(lit) < 13 {
		return true
	}
	spans, work := c.m.scan(lit)
	c.work += work
	return len(spans) == 0
}

func (c *Cleaner) array(k keyFacts, depth int) bool {
	if c.at++; !c.open('[', ']') {
		return c.close(']')
	}
	if k.strength == strong || k.list {
		return false
	}
	announced := false
	for {
		if c.peek() == '"' {
			text, ok := c.str(keyFacts{ok: true}, true)
			if !ok || announced {
				return false
			}
			announced = len(text) <= maxIdent && lookup(text).s == strong
		} else if announced = false; !c.value(keyFacts{ok: true}, depth) {
			return false
		}
		if c.blank(); c.peek() != ',' {
			return c.close(']')
		}
		c.at++
		c.out = append(c.out, ',')
		c.blank()
	}
}

// open writes a bracket and reports whether something stands behind it.
func (c *Cleaner) open(bracket, end byte) bool {
	c.out = append(c.out, bracket)
	c.blank()
	return c.peek() != end
}

func (c *Cleaner) close(bracket byte) bool {
	if c.peek() != bracket {
		return false
	}
	c.at++
	c.out = append(c.out, bracket)
	return true
}

func (c *Cleaner) object(k keyFacts, depth int) bool {
	if c.at++; !c.open('{', '}') {
		return c.close('}')
	}
	if k.strength == strong || k.detector == Address {
		return false
	}
	first, begin := len(c.members), len(c.out)
	sorted, folded, said, holds := true, false, false, false
	for {
		m := cleanMember{from: len(c.out)}
		member, value, ok := c.member(&m, depth)
		if !ok {
			return false
		}
		m.to = len(c.out)
		if n := len(c.members); n > first {
			sorted = sorted && c.members[n-1].key < m.key
		}
		folded = folded || member.upper
		holds = holds || m.key == "value" && value != ""
		said = said || value != "" && names4[m.key] && len(value) <= maxIdent && CredentialName(value)
		if c.members = append(c.members, m); len(c.members)-first > cleanMembers || said && holds {
			return false
		}
		if c.blank(); c.peek() != ',' {
			break
		}
		c.at++
		c.out = append(c.out, ',')
		c.blank()
	}
	list := c.members[first:]
	c.members = c.members[:first]
	if folded && twice(list) || !sorted && !c.sort(list, begin) {
		return false
	}
	return c.close('}')
}

// names4 are the keys beside which the name of a value stands.
var names4 = map[string]bool{"name": true, "key": true, "header": true, "field": true}

// member takes a key and its value; value is the text, where it is one.
func (c *Cleaner) member(m *cleanMember, depth int) (k keyFacts, value string, ok bool) {
	if c.peek() != '"' {
		return k, "", false
	}
	if m.key, ok = c.str(k, false); !ok {
		return k, "", false
	}
	if len(m.key)+2 != len(c.out)-m.from { // it has escapes
		return k, "", false
	}
	if k = c.key(m.key); !k.ok || m.key == "redaction" {
		return k, "", false
	}
	if _, listed := c.rows[m.key]; listed {
		return k, "", false
	}
	c.work += k.work
	if c.blank(); c.peek() != ':' {
		return k, "", false
	}
	c.at++
	c.out = append(c.out, ':')
	if c.blank(); c.peek() == '"' {
		value, ok = c.str(k, true)
		return k, value, ok
	}
	return k, "", c.value(k, depth)
}

// twice reports whether two keys differ in case only, or too many might.
func twice(list []cleanMember) bool {
	if len(list) > cleanFolded {
		return true
	}
	for i := range list {
		for j := range list[:i] {
			if len(list[i].key) == len(list[j].key) && strings.EqualFold(list[i].key, list[j].key) {
				return true
			}
		}
	}
	return false
}

// sort brings the members that were written from begin on into the order of their
// keys. It reports false if a key is there twice.
func (c *Cleaner) sort(list []cleanMember, begin int) bool {
	c.spare = append(c.spare[:0], c.out[begin:]...)
	slices.SortFunc(list, func(a, b cleanMember) int { return strings.Compare(a.key, b.key) })
	c.out = c.out[:begin]
	for i, m := range list {
		if i > 0 {
			if list[i-1].key == m.key {
				return false
			}
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.spare[m.from-begin:m.to-begin]...)
	}
	return true
}
