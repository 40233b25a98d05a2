package retention

import (
	"cmp"
	"slices"
	"sort"

	"github.com/countersign-dev/countersign/events"
)

// JoinSpans joins sequences, in increasing order and without repetition, to spans.
func JoinSpans(seqs []uint64) []events.Span {
	out := []events.Span{}
	for _, s := range seqs {
		out = appendSpan(out, events.Span{s, s})
	}
	return out
}

// appendSpan adds a span that does not begin before the last one of a list.
func appendSpan(list []events.Span, s events.Span) []events.Span {
	if n := len(list); n > 0 && s[0] <= list[n-1][1]+1 {
		list[n-1][1] = max(list[n-1][1], s[1])
		return list
	}
	return append(list, s)
}

// SpanSet is a set of sequences. Its zero value is empty. It keeps 16 bytes for each span, and finds one by binary
// search: a log whose policies erase for months has millions of spans.
type SpanSet struct {
	spans []events.Span // in order; between two of them a sequence is missing
}

// Add adds spans in any order. It costs as much as the spans behind the first added one: add many at once.
func (s *SpanSet) Add(list []events.Span) {
	if len(list) == 0 {
		return
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b events.Span) int { return cmp.Compare(a[0], b[0]) })
	first := s.find(list[0][0])
	behind := slices.Clone(s.spans[first:])
	s.spans = s.spans[:first]
	for len(list) > 0 || len(behind) > 0 {
		from := &list
		if len(list) == 0 || len(behind) > 0 && behind[0][0] < list[0][0] {
			from = &behind
		}
		s.spans = appendSpan(s.spans, (*from)[0])
		*from = (*from)[1:]
	}
}

// find returns the index of the first span that ends at or after a sequence.
func (s *SpanSet) find(seq uint64) int {
	return sort.Search(len(s.spans), func(i int) bool { return s.spans[i][1] >= seq })
}

// Covers reports whether the set contains a sequence.
func (s *SpanSet) Covers(seq uint64) bool { return s.FirstUncovered(seq, seq) == 0 }

// FirstUncovered returns the first sequence between from and to (both included) that the set does not contain, or 0 if
// it contains them all.
func (s *SpanSet) FirstUncovered(from, to uint64) uint64 {
	if i := s.find(from); i < len(s.spans) && s.spans[i][0] <= from {
		from = s.spans[i][1] + 1
	}
	if from > to {
		return 0
	}
	return from
}
