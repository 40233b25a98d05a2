package correlate

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/bench/measure"
)

// TestUndisturbedWhole: five windows, of which in one the processor gave less, in one
// the disk stood still, and one was right after that.
func TestUndisturbedWhole(t *testing.T) {
	w := written{own: []uint64{1, 11, 12, 50}}
	for i, consumed := range []uint64{10, 110, 120, 310, 410, 510, 710} { // 120 comes too early to end a window
		w.cursors = append(w.cursors, cursor{consumed, milli([]int{0, 100, 110, 200, 300, 400, 500}[i])})
	}
	m := measure.Machine{Best: time.Millisecond, Stalls: []measure.Span{{Begun: milli(210), Ended: milli(240)}}}
	for at := 0; at < 500; at += 10 {
		took := 1
		if at < 100 {
			took = 2
		}
		m.Probes = append(m.Probes, measure.Span{Begun: milli(at), Ended: milli(at + took)})
	}
	// From 100 to 200 ms came 200 messages, from 400 to 500 ms 200.
	if got, share := w.undisturbed(m); got != 2000 || share != 0.4 {
		t.Errorf("%v/s in %v of the time", got, share)
	}
	if got := w.rate(); got != (700-3)/0.5 {
		t.Errorf("%v/s in all", got)
	}
	if got := m.Gave(); got != 1 {
		t.Errorf("the processor gave %v", got)
	}
	if got, share := w.undisturbed(measure.Machine{Best: time.Millisecond}); got != 0 || share != 0 {
		t.Errorf("nobody looked, and %v/s in %v of the time were undisturbed", got, share)
	}
}

func milli(n int) time.Time { return time.UnixMilli(int64(n)) }
