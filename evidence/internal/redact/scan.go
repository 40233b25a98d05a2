package redact

import "slices"

// The scanner looks at every pair of neighbouring bytes once; only pairs that
// occur at a fixed place in a literal of the table, or before a separator that
// a credential's name may precede, lead anywhere. That is the prefilter. Every
// matcher then either stops after a bounded number of bytes or tells how far it
// has seen, and nothing is looked at twice by the same rule. That is what keeps
// text sprinkled with half-secrets about as fast as clean text.

// Scan finds what the detectors know in a text, encoded parts included. The
// spans are in order and do not overlap. With more than maxSpans of them, or
// with more near misses than a text is worth, one span covers the whole text.
func Scan(s string) []Span {
	if len(s) < minText {
		return nil
	}
	var m workBudget
	spans, _ := m.scanText(s)
	return spans
}

// scanText also tells how much work it was.
func (m *workBudget) scanText(s string) (found []Span, work int) {
	if len(s) < minText {
		return nil, 0
	}
	work = workPerText + workPerByte*len(s)
	m.left = work
	spans := findEncoded(s, findPlain(s, m), maxDecodings, m, findPlain)
	switch {
	case m.left < 0:
		return []Span{{0, len(s), TooMany}}, work - m.left
	case len(spans) == 0:
		return nil, work - m.left
	}
	return mergeSpans(s, spans), work - m.left
}

// workBudget bounds the work that a text is worth: hostile text, which looks like
// secrets again and again, must not hold up what is behind it. Its unit is about
// a nanosecond.
// It also lends the scanner that is used for one text after the other.
type workBudget struct {
	left int
	sc   *textScanner
}

const (
	workPerByte   = 7
	workPerText   = 2000
	workPerRecord = 4000 // besides workPerByte for each byte of a record's body
)

func (m *workBudget) charge(work int) { m.left -= work }

// findPlain finds what stands in a text as it is, in no order.
func findPlain(s string, m *workBudget) []Span {
	first := pairTable.next(s, 1)
	if first >= len(s) {
		return nil // most texts
	}
	if m.sc == nil {
		m.sc = new(textScanner)
	}
	sc := m.sc
	*sc = textScanner{s: s, budget: m}
	for i := first; i < len(s) && len(sc.spans) <= 2*maxSpans && m.left >= 0; {
		i = pairTable.next(s, sc.scanPair(i, pairTable.list[pairOf(s[i-1], s[i])]))
	}
	spans := sc.spans
	sc.spans = nil
	return spans
}

// textScanner is the state of one text's scan: what was found, and how far each
// rule has seen.
type textScanner struct {
	s             string
	budget        *workBudget
	spans         []Span
	seen          [maxRules]int32       // by rule
	groups        [maxGroups]digitGroup // of run
	run           digitRun              // the number that is looked at
	figures       [maxWindow * maxGroup]byte
	mail          int                             // up to where e-mail addresses were looked for
	number        int                             // up to where numbers were taken
	bare          extent                          // the last unquoted value
	line          extent                          // the last header value
	plain         extent                          // the last run of what keys are written with
	quoted        [3][maxSlashes + 1]quotedExtent // by quote and depth of escaping
	inside        int                             // up to where a list or object was taken as a value
	notRandomUpTo int                             // up to where no random value begins
	command       int                             // up to where a command's arguments were looked at
	options       int                             // up to where commands were looked for
	lineHit       bool
}

// extent is a part of the text for which an end was found: whatever begins in
// it ends where it ends.
type extent struct{ from, to int }

// quotedExtent is an extent without a closing quote but at end (-1: none).
type quotedExtent struct {
	extent
	end int
}

func (e extent) contains(i int) bool { return i >= e.from && i < e.to }

// scanPair follows up on the tell-tale pair that ends at i, and says where to look
// for the next one.
func (sc *textScanner) scanPair(i int, list uint8) (next int) {
	switch list {
	case listAssign:
		sc.scanAssignment(i)
	case listFlag:
		sc.scanFlag(i)
	case listDigits:
		return sc.scanDigits(i)
	case listAt:
		sc.scanEmail(i)
	case listOption:
		sc.scanOption(i)
	case listTag:
		sc.scanClosingTag(i)
	case listWide:
		sc.scanWideSeparator(i)
	default:
		anchors := pairTable.lists[list]
		sc.budget.charge(5 + 4*len(anchors))
		for k := range anchors {
			sc.tryAnchor(i, &anchors[k])
		}
	}
	return i + 1
}

func (sc *textScanner) addSpan(from, to int, detector string) {
	if to > from {
		sc.spans = append(sc.spans, Span{from, to, detector})
	}
}

// tryAnchor tries one anchor whose tell-tale pair ends at i.
func (sc *textScanner) tryAnchor(i int, a *anchor) {
	s := sc.s
	start := i - a.end
	after := start + len(a.literal)
	switch { // the cheapest first: most anchors fail here
	case start < 0 || after > len(s),
		!a.fold && s[start] != a.literal[0],
		!a.glued && start > 0 && byteClass[s[start-1]]&alnum != 0,
		start < int(sc.seen[a.rule]),
		!matchesLiteral(s[start:after], a.literal, a.fold):
		return
	}
	r := &rules[a.rule]
	sc.budget.charge(15)
	if r.match != nil {
		from, to, next := r.match(s, start, after)
		sc.seen[a.rule] = int32(next)
		sc.budget.charge(next - start)
		sc.addSpan(from, to, r.detector)
		return
	}
	end := runEnd(s, after, r.class)
	sc.seen[a.rule] = int32(end)
	sc.budget.charge(end - after)
	for end > after && s[end-1] == '.' { // ends a sentence
		end--
	}
	if end-after >= r.min && (r.check == nil || r.check(s[after:end])) {
		sc.addSpan(start, end, r.detector)
	}
}

func matchesLiteral(s, literal string, fold bool) bool {
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

// mergeSpans sorts the spans and joins those that overlap. A named shape is told
// rather than the assignment it stands in, and a secret rather than personal
// data: what stands for both may never be released.
func mergeSpans(s string, spans []Span) []Span {
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
