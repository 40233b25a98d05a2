package bench

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

func TestUndisturbed(t *testing.T) {
	turns := []turn{{64, 100, 1000}, {64, 120, 1050}, {64, 900, 1051}, {10, 30, 4000}}
	if sum, share := undisturbed(turns, 1000); sum.messages != 128 || sum.took != 220 || share != 0.5 {
		t.Errorf("%+v, %v of the turns", sum, share)
	}
	if sum, share := undisturbed(nil, 0); sum.messages != 0 || share != 0 {
		t.Errorf("of none: %+v, %v", sum, share)
	}
}

// TestWatchMachine: nothing gives more than its best, and the disk's file is gone.
func TestWatchMachine(t *testing.T) {
	dir := t.TempDir()
	var m machine
	for long := 50 * time.Millisecond; len(m.probes) < 2; long *= 2 { // a busy machine may leave no time for two probes
		stop, err := watchMachine(dir)
		servicetest.OK(t, err)
		time.Sleep(long)
		m, err = stop()
		servicetest.OK(t, err)
	}
	if m.best <= 0 || m.gave() <= 0 || m.gave() > 1 {
		t.Errorf("%d probes, the shortest %v, %v of its best", len(m.probes), m.best, m.gave())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := watchMachine(filepath.Join(dir, "none")); err == nil {
		t.Error("watched a disk without its directory")
	}
}

// TestWatchFails: stop returns the error of a failed look.
func TestWatchFails(t *testing.T) {
	looks := 0
	stop := watch(time.Millisecond, func() error { looks++; return errDone })
	time.Sleep(10 * time.Millisecond)
	if got, err := stop(); !errors.Is(err, errDone) || len(got) != 1 || looks != 1 {
		t.Errorf("%d looks, %d reported, %v", looks, len(got), err)
	}
}

func milli(n int) time.Time { return time.UnixMilli(int64(n)) }

func TestWithinAndDuring(t *testing.T) {
	looks := []span{{milli(0), milli(1)}, {milli(10), milli(40)}, {milli(50), milli(51)}}
	if got := within(span{milli(1), milli(50)}, looks); len(got) != 1 || got[0] != looks[1] {
		t.Errorf("within: %v", got)
	}
	if got := stalls(looks); len(got) != 1 || got[0] != looks[1] {
		t.Errorf("stalls: %v", got)
	}
	for _, c := range []struct {
		begun, ended int
		want         bool
	}{{1, 10, false}, {1, 11, true}, {20, 30, true}, {39, 45, true}, {40, 50, false}} {
		if got := during(span{milli(c.begun), milli(c.ended)}, looks[1:]); got != c.want {
			t.Errorf("from %d to %d: %v", c.begun, c.ended, got)
		}
	}
	if got := percentile(slices.Clone(looks), 99); got != 30*time.Millisecond {
		t.Errorf("the longest is %v", got)
	}
}

// TestUndisturbedWhole: five windows, of which in one the processor gave less, in one
// the disk stood still, and one was right after that.
func TestUndisturbedWhole(t *testing.T) {
	w := written{own: []uint64{1, 11, 12, 50}}
	for i, consumed := range []uint64{10, 110, 120, 310, 410, 510, 710} { // 120 comes too early to end a window
		w.cursors = append(w.cursors, cursor{consumed, milli([]int{0, 100, 110, 200, 300, 400, 500}[i])})
	}
	m := machine{best: time.Millisecond, stalls: []span{{milli(210), milli(240)}}}
	for at := 0; at < 500; at += 10 {
		took := 1
		if at < 100 {
			took = 2
		}
		m.probes = append(m.probes, span{milli(at), milli(at + took)})
	}
	// From 100 to 200 ms came 200 messages, from 400 to 500 ms 200.
	if got, share := w.undisturbed(m); got != 2000 || share != 0.4 {
		t.Errorf("%v/s in %v of the time", got, share)
	}
	if got := w.rate(); got != (700-3)/0.5 {
		t.Errorf("%v/s in all", got)
	}
	if got := m.gave(); got != 1 {
		t.Errorf("the processor gave %v", got)
	}
	if got, share := w.undisturbed(machine{best: time.Millisecond}); got != 0 || share != 0 {
		t.Errorf("nobody looked, and %v/s in %v of the time were undisturbed", got, share)
	}
}

// TestMeasure: a turn is as long as its work, and knows what the processor did.
func TestMeasure(t *testing.T) {
	calls := 0
	got := measure(3, func() { calls++; time.Sleep(20 * time.Millisecond) })
	if calls != 1 || got.messages != 3 || got.took < 20*time.Millisecond || got.probe <= 0 {
		t.Errorf("%d calls, %+v", calls, got)
	}
}
