package redact

import (
	"slices"
	"strings"
)

// The scanner looks at every pair of neighbouring bytes once; only pairs that
// occur at a fixed place in a literal of the table, or before a separator that
// a credential's name may precede, lead anywhere. That is the prefilter. Every
// matcher then either stops after a bounded number of bytes or tells how far it
// has seen, and nothing is looked at twice by the same rule. That is what keeps
// text sprinkled with half-secrets about as fast as clean text.

// anchor is one literal of one rule, and where in it the tell-tale pair ends.
type anchor struct {
	rule        int
	literal     string
	end         int // index in literal of the pair's second byte
	fold, glued bool
}

const (
	listAssign = 1 // pairs before = and :
	listFlag   = 2 // --
	listDigits = 3 // two digits
	listAt     = 4 // before @
	firstList  = 5
	maxLists   = 256 // numbers of lists are bytes
)

type pairs struct {
	bits  [1 << 13]byte // the prefilter: one bit for each pair
	list  [1 << 16]uint8
	lists [][]anchor // by list number
}

var table = func() *pairs {
	p := &pairs{lists: make([][]anchor, firstList)}
	set := func(a, b byte, list uint8) {
		i := uint16(a)<<8 | uint16(b)
		p.bits[i>>3] |= 1 << (i & 7)
		p.list[i] = list
	}
	for c := range 256 {
		if endingBits[c] || classOf[c]&quoteChar != 0 || c == ' ' || c == ']' {
			set(byte(c), '=', listAssign)
			set(byte(c), ':', listAssign)
		}
	}
	set('-', '-', listFlag)
	for a := '0'; a <= '9'; a++ {
		for b := '0'; b <= '9'; b++ {
			set(byte(a), byte(b), listDigits)
		}
	}
	for c := range 256 {
		if classOf[c]&mailLocal != 0 {
			set(byte(c), '@', listAt)
		}
	}
	for r := range rules {
		for _, lit := range rules[r].literals {
			a := anchor{rule: r, literal: lit, fold: rules[r].fold, glued: rules[r].glued}
			a.end = p.rarest(lit)
			p.add(set, a)
		}
	}
	if len(p.lists) > maxLists {
		panic("redact: more lists than a byte can number")
	}
	return p
}()

// rarest is where in a literal the pair ends that ordinary text has least
// often, and that fewest other literals use.
func (p *pairs) rarest(lit string) (end int) {
	best := -1
	for i := len(lit) - 1; i > 0; i-- {
		pair := pairOf(lit[i-1], lit[i])
		if list := p.list[pair]; list != 0 && list < firstList {
			continue
		}
		cost := 8*strings.Count(ordinary, lit[i-1:i+1]) + len(p.lists[p.list[pair]])
		if best < 0 || cost < best {
			best, end = cost, i
		}
	}
	if best < 0 {
		panic("redact: no pair of " + lit + " can be looked for")
	}
	return end
}

// ordinary is text of the kind that most events hold.
const ordinary = `{"event_id":"evt_b8c4e9a2f5d1a8c4","event_type":"PreToolUse","schema_version":1,"timestamp":"2026-11-20T06:42:00.123Z",` +
	`"session_id":"sess_2c91a7b4d23f1e88","tool_call_id":"call_3f8d","tool_name":"send_email","tool_input":{"path":"/workspace/src/main.go"},` +
	`"metadata":{"risk":{"risk_class":"read_only","requires_human_approval":false},"tool_input_executed":null,"exit_code":0,"is_error":false}}` +
	` The agent looked at the pages of the report, chose two of them and wrote a short summary for the user who had asked about the` +
	` shipping options, their prices, and whether something else would be better; nothing was sent yet. See the docs over there. We did,` +
	` however, ask for more. Is it so? "Yes," she said: that is what they have always done with every order. func main() { return err }` +
	` if err != nil { log.Printf("open %s: %v", name, err) } GET /api/v1/users?limit=10&offset=20 HTTP/1.1 200 OK error: file not found` +
	` user_id customer_name created_at updated_at order_status last_error max_results file_path source_ref job_type is_open has_more`

func (p *pairs) add(set func(a, b byte, list uint8), a anchor) {
	x, y := a.literal[a.end-1], a.literal[a.end]
	forms := [][2]byte{{x, y}}
	if a.fold {
		for _, f := range [...][2]byte{{upperASCII(x), y}, {x, upperASCII(y)}, {upperASCII(x), upperASCII(y)}} {
			if !slices.Contains(forms, f) {
				forms = append(forms, f)
			}
		}
	}
	for _, f := range forms {
		i := uint16(f[0])<<8 | uint16(f[1])
		if p.list[i] == 0 {
			p.lists = append(p.lists, nil)
			set(f[0], f[1], uint8(len(p.lists)-1))
		}
		p.lists[p.list[i]] = append(p.lists[p.list[i]], a)
	}
}

// Scan finds what the detectors know in a text, encoded parts included. The
// spans are in order and do not overlap. With more than maxSpans of them, or
// with more near misses than a text is worth, one span covers the whole text.
func Scan(s string) []Span {
	spans, _ := scan(s)
	return spans
}

// scan also tells how much work it was.
func scan(s string) (found []Span, work int) {
	if len(s) < minText {
		return nil, 0
	}
	m := newMeter(len(s))
	work = m.left
	spans := encoded(s, plain(s, &m), maxDecodings, &m, plain)
	switch {
	case m.left < 0:
		return []Span{{0, len(s), TooMany}}, work - m.left
	case len(spans) == 0:
		return nil, work - m.left
	}
	return merged(s, spans), work - m.left
}

// meter bounds the work that a text is worth: hostile text, which looks like
// secrets again and again, must not hold up what is behind it. Its unit is about
// a nanosecond.
type meter struct{ left int }

const (
	workPerByte   = 7
	workPerText   = 2000
	workPerRecord = 4000 // besides workPerByte for each byte of a record's body
)

func newMeter(length int) meter { return meter{workPerText + workPerByte*length} }

func (m *meter) charge(work int) { m.left -= work }

// plain finds what stands in a text as it is, in no order.
func plain(s string, m *meter) []Span {
	first := table.next(s, 1)
	if first >= len(s) {
		return nil // most texts
	}
	sc := scanner{s: s, m: m}
	for i := first; i < len(s) && len(sc.spans) <= 2*maxSpans && m.left >= 0; {
		i = table.next(s, sc.at(i, table.list[pairOf(s[i-1], s[i])]))
	}
	return sc.spans
}

// next is where the next tell-tale pair at or after i ends; len(s) when there is
// none.
func (p *pairs) next(s string, i int) int {
	if i >= len(s) {
		return len(s)
	}
	prev := s[i-1]
	for ; i < len(s); i++ {
		pair := pairOf(prev, s[i])
		if p.bits[pair>>3]&(1<<(pair&7)) != 0 {
			return i
		}
		prev = s[i]
	}
	return i
}

// scanner is the state of one text's scan: what was found, and how far each
// rule has seen.
type scanner struct {
	s       string
	m       *meter
	spans   []Span
	seen    [maxRules]int32    // by rule
	groups  [maxGroups]group   // of run
	run     digitRun           // the number that is looked at
	mail    int                // up to where e-mail addresses were looked for
	number  int                // up to where numbers were taken
	bare    extent             // the last unquoted value
	line    extent             // the last header value
	plain   extent             // the last run of what keys are written with
	quoted  [3][5]quotedExtent // by quote and depth of escaping
	dull    int                // up to where no random value begins
	lineHit bool
}

// extent is a part of the text for which an end was found: whatever begins in
// it ends where it ends.
type extent struct{ from, to int }

// quotedExtent is an extent without a closing quote but at end (-1: none).
type quotedExtent struct {
	extent
	end int
}

func (e extent) has(i int) bool { return i >= e.from && i < e.to }

// at follows up on the tell-tale pair that ends at i, and says where to look
// for the next one.
func (sc *scanner) at(i int, list uint8) (next int) {
	switch list {
	case listAssign:
		sc.assignment(i)
	case listFlag:
		sc.flag(i)
	case listDigits:
		return sc.digits(i)
	case listAt:
		sc.email(i)
	default:
		anchors := table.lists[list]
		sc.m.charge(5 + 4*len(anchors))
		for k := range anchors {
			sc.literal(i, &anchors[k])
		}
	}
	return i + 1
}

func (sc *scanner) add(from, to int, detector string) {
	if to > from {
		sc.spans = append(sc.spans, Span{from, to, detector})
	}
}

// literal tries one anchor whose tell-tale pair ends at i.
func (sc *scanner) literal(i int, a *anchor) {
	s := sc.s
	start := i - a.end
	after := start + len(a.literal)
	switch { // the cheapest first: most anchors fail here
	case start < 0 || after > len(s),
		!a.fold && s[start] != a.literal[0],
		!a.glued && start > 0 && classOf[s[start-1]]&alnum != 0,
		start < int(sc.seen[a.rule]),
		!equal(s[start:after], a.literal, a.fold):
		return
	}
	r := &rules[a.rule]
	sc.m.charge(15)
	if r.match != nil {
		from, to, next := r.match(s, start, after)
		sc.seen[a.rule] = int32(next)
		sc.m.charge(next - start)
		sc.add(from, to, r.detector)
		return
	}
	end := run(s, after, r.class)
	sc.seen[a.rule] = int32(end)
	sc.m.charge(end - after)
	for end > after && s[end-1] == '.' { // ends a sentence
		end--
	}
	if end-after >= r.min && (r.check == nil || r.check(s[after:end])) {
		sc.add(start, end, r.detector)
	}
}

func equal(s, literal string, fold bool) bool {
	if !fold {
		return s == literal
	}
	for i := len(s) - 1; i >= 0; i-- {
		if lowerASCII(s[i]) != literal[i] {
			return false
		}
	}
	return true
}

// merged sorts the spans and joins those that overlap. A named shape is told
// rather than the assignment it stands in, and a secret rather than personal
// data: what stands for both may never be released.
func merged(s string, spans []Span) []Span {
	if len(spans) > 1 {
		slices.SortStableFunc(spans, func(a, b Span) int { return a.Start - b.Start })
	}
	out := spans[:1]
	for _, sp := range spans[1:] {
		last := &out[len(out)-1]
		if sp.Start >= last.End {
			out = append(out, sp)
			continue
		}
		switch {
		case Releasable(last.Detector) && !Releasable(sp.Detector):
			last.Detector = sp.Detector
		case sp.Start == last.Start && last.Detector == Assignment && !Releasable(sp.Detector):
			last.Detector = sp.Detector
		}
		last.End = max(last.End, sp.End)
	}
	if len(out) > maxSpans {
		return []Span{{0, len(s), TooMany}}
	}
	return out
}
