package redact

import "slices"

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
	firstList  = 3
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
	for r := range rules {
		for _, lit := range rules[r].literals {
			p.add(set, anchor{rule: r, literal: lit, end: len(lit) - 1, fold: rules[r].fold, glued: rules[r].glued})
		}
	}
	return p
}()

func (p *pairs) add(set func(a, b byte, list uint8), a anchor) {
	x, y := a.literal[a.end-1], a.literal[a.end]
	forms := [][2]byte{{x, y}}
	if a.fold && classOf[x]&lower != 0 {
		forms = append(forms, [2]byte{x - 'a' + 'A', y})
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

// Scan finds the secrets in a text. The spans are in order and do not overlap.
// With more than maxSpans of them, one span covers the whole text.
func Scan(s string) []Span {
	if len(s) < minText {
		return nil
	}
	first := table.next(s, 1)
	if first == len(s) {
		return nil // most texts
	}
	sc := scanner{s: s}
	for i := first; i < len(s) && len(sc.spans) <= 2*maxSpans; i = table.next(s, i+1) {
		sc.at(i, table.list[pairOf(s[i-1], s[i])])
	}
	if len(sc.spans) == 0 {
		return nil
	}
	return sc.merged()
}

// next is where the next tell-tale pair at or after i ends; len(s) when there is
// none.
func (p *pairs) next(s string, i int) int {
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
	spans   []Span
	seen    [32]int            // by rule
	bare    extent             // the last unquoted value
	line    extent             // the last header value
	plain   extent             // the last run of what keys are written with
	quoted  [3][5]quotedExtent // by quote and depth of escaping
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

func (sc *scanner) at(i int, list uint8) {
	switch list {
	case listAssign:
		sc.assignment(i)
	case listFlag:
		sc.flag(i)
	default:
		anchors := table.lists[list]
		for k := range anchors {
			sc.literal(i, &anchors[k])
		}
	}
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
		start < sc.seen[a.rule],
		!equal(s[start:after], a.literal, a.fold):
		return
	}
	r := &rules[a.rule]
	if r.match != nil {
		from, to, next := r.match(s, start, after)
		sc.seen[a.rule] = next
		sc.add(from, to, r.detector)
		return
	}
	end := run(s, after, r.class)
	sc.seen[a.rule] = end
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
// rather than the assignment it stands in.
func (sc *scanner) merged() []Span {
	slices.SortStableFunc(sc.spans, func(a, b Span) int { return a.Start - b.Start })
	out := sc.spans[:1]
	for _, sp := range sc.spans[1:] {
		last := &out[len(out)-1]
		if sp.Start >= last.End {
			out = append(out, sp)
			continue
		}
		if sp.Start == last.Start && (last.Detector == Assignment || last.Detector == HighEntropy) {
			last.Detector = sp.Detector
		}
		last.End = max(last.End, sp.End)
	}
	if len(out) > maxSpans {
		return []Span{{0, len(sc.s), TooMany}}
	}
	return out
}
