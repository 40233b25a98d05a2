package retention

import "github.com/countersign-dev/countersign/events"

// JoinSpans joins sequences, which must be in order and without repetition, to
// spans.
func JoinSpans(seqs []uint64) []events.Span {
	out := []events.Span{}
	for _, s := range seqs {
		if n := len(out); n > 0 && out[n-1][1]+1 == s {
			out[n-1][1] = s
			continue
		}
		out = append(out, events.Span{s, s})
	}
	return out
}

// FirstUncovered gives the first sequence from one to another, both included, that
// none of the spans names; 0 if there is none. Spans need not be in order.
func FirstUncovered(list []events.Span, from, to uint64) uint64 {
	for at := from; at <= to; {
		next := at
		for _, s := range list {
			if s[0] <= at && at <= s[1] {
				next = max(next, s[1]+1)
			}
		}
		if next == at {
			return at
		}
		at = next
	}
	return 0
}
