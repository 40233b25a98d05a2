package retention

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

func TestSpans(t *testing.T) {
	list := JoinSpans([]uint64{1, 2, 3, 7, 9, 10})
	if want := []events.Span{{1, 3}, {7, 7}, {9, 10}}; !slices.Equal(list, want) {
		t.Fatalf("%v", list)
	}
	slices.Reverse(list)
	var set SpanSet
	if got := set.FirstUncovered(1, 3); got != 1 || set.Covers(1) {
		t.Errorf("an empty set covers 1 to %d", got)
	}
	set.Add(list)
	if list[0] != (events.Span{9, 10}) {
		t.Errorf("the caller's list is changed: %v", list)
	}
	for _, tt := range []struct{ from, to, want uint64 }{{1, 3, 0}, {1, 4, 4}, {2, 2, 0}, {7, 10, 8}, {9, 10, 0}, {11, 12, 11}} {
		if got := set.FirstUncovered(tt.from, tt.to); got != tt.want {
			t.Errorf("%d to %d: %d, want %d", tt.from, tt.to, got, tt.want)
		}
	}
}

// A set has what was added, in whatever order and however it overlaps, and stays as short as can be.
func TestSpanSet(t *testing.T) {
	const last = 200
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var set SpanSet
		var has [last + 2]bool
		for range random.IntN(12) {
			var list []events.Span
			for range random.IntN(8) {
				from := 1 + random.Uint64N(last)
				to := min(last, from+random.Uint64N(6))
				list = append(list, events.Span{from, to})
				for seq := from; seq <= to; seq++ {
					has[seq] = true
				}
			}
			set.Add(list)
		}
		shortest := 0
		for seq := uint64(1); seq <= last; seq++ {
			if set.Covers(seq) != has[seq] {
				t.Fatalf("%d: %v, want %v (%v)", seq, !has[seq], has[seq], set.spans)
			}
			if has[seq] && !has[seq+1] {
				shortest++
			}
			want := uint64(slices.Index(has[seq:], false)) + seq
			if got := set.FirstUncovered(seq, last+1); got != want {
				t.Fatalf("from %d: %d, want %d (%v)", seq, got, want, set.spans)
			}
		}
		if len(set.spans) != shortest {
			t.Fatalf("%d spans, want %d: %v", len(set.spans), shortest, set.spans)
		}
	}
}

// A gap of the log is explained by one of a million spans.
func BenchmarkFirstUncovered(b *testing.B) {
	var list []events.Span
	for i := range uint64(1_000_000) {
		list = append(list, events.Span{3*i + 1, 3*i + 2})
	}
	var set SpanSet
	set.Add(list)
	for i := 0; b.Loop(); i++ {
		at := list[i*7919%len(list)]
		if set.FirstUncovered(at[0], at[1]) != 0 {
			b.Fatal(at)
		}
	}
}

// An hour's erasures are added to those of weeks.
func BenchmarkSpanSetAdd(b *testing.B) {
	var set SpanSet
	for at := uint64(1); b.Loop(); {
		var list []events.Span
		for range 4000 {
			list = append(list, events.Span{at, at})
			at += 3
		}
		set.Add(list)
	}
}
