package redact

import "slices"

// The scanner reads every pair of neighbouring bytes once. Only pairs at a chosen place in a
// literal of the table, or before a separator that a credential's name may precede, start a
// matcher; this is the prefilter. Every matcher stops after a bounded number of bytes or
// records how far it has read, and no rule reads a byte twice. Therefore text with many near
// misses is about as fast as clean text.

// Scan finds what the detectors know in a text, encoded parts included. The spans are in order
// and do not overlap. With more than maxSpans findings, or with more near misses than the
// work budget allows, one span covers the whole text.
func Scan(s string) []Span {
	if len(s) < minText {
		return nil
	}
	var m workBudget
	spans, _ := m.scanText(s)
	return spans
}

// scanText is Scan, and also returns the work that it took.
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

// workBudget bounds the work for a text: hostile text with many near misses must not delay what
// comes after it. Its unit is about a nanosecond. It also keeps a scanner that is reused for
// one text after the other.
type workBudget struct {
	left int
	sc   *textScanner
}

const (
	workPerByte   = 7
	workPerText   = 2000
	workPerRecord = 4000 // in addition to workPerByte for each byte of a record's body
)

func (m *workBudget) charge(work int) { m.left -= work }

// findPlain finds spans in a text without decoding, in no order.
func findPlain(s string, m *workBudget) []Span {
	first := pairTable.next(s, 1)
	if first >= len(s) {
		return nil // true for most texts
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

// textScanner is the state of one text's scan: the findings, and how far each rule has read.
type textScanner struct {
	s             string
	budget        *workBudget
	spans         []Span
	seen          [maxRules]int32       // by rule
	groups        [maxGroups]digitGroup // the groups of run
	run           digitRun              // the current number
	figures       [maxWindow * maxGroup]byte
	mail          int                             // end of the text that was read for e-mail addresses
	number        int                             // end of the last number
	bare          extent                          // the last unquoted value
	line          extent                          // the last header value
	plain         extent                          // the last run of characters that keys consist of
	quoted        [3][maxSlashes + 1]quotedExtent // by quote and depth of escaping
	inside        int                             // end of the last list or object that was added as a value
	notRandomUpTo int                             // no random value begins before this position
	commands      [2]commandRead                  // by reading of quotes
	cuts          int                             // end of the text that was read for inner commands
	inner         int                             // end of the arguments that were read for an inner command
	lineHit       bool
}

// extent is a part of the text with a known end: everything that begins in it ends at to.
type extent struct{ from, to int }

// quotedExtent is an extent with its closing quote at end, or without one (-1).
type quotedExtent struct {
	extent
	end int
}

func (e extent) contains(i int) bool { return i >= e.from && i < e.to }

// scanPair handles the pair that ends at i, and returns where to look for the next one.
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

// tryAnchor compares one anchor with the text, where its pair ends at i.
func (sc *textScanner) tryAnchor(i int, a *anchor) {
	s := sc.s
	start := i - a.end
	after := start + len(a.literal)
	switch { // the cheapest first: most anchors fail here
	case start < 0 || after > len(s),
		!a.fold && s[start] != a.literal[0],
		!a.glued && start > 0 && byteClass[s[start-1]]&alnum != 0 && !afterEscape(s, start),
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
	for end > after && s[end-1] == '.' { // the end of a sentence
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

// mergeSpans sorts the spans and joins those that overlap. The joined span has the detector of a
// named shape rather than that of the assignment around it, and that of a secret rather than
// that of personal data, because it must not be released.
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
