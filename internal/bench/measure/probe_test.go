package measure

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
	turns := []Turn{{64, 100, 1000}, {64, 120, 1050}, {64, 900, 1051}, {10, 30, 4000}}
	if sum, share := Undisturbed(turns, 1000); sum.Messages != 128 || sum.Took != 220 || share != 0.5 {
		t.Errorf("%+v, %v of the turns", sum, share)
	}
	if sum, share := Undisturbed(nil, 0); sum.Messages != 0 || share != 0 {
		t.Errorf("of none: %+v, %v", sum, share)
	}
}

// TestWatchMachine: nothing gives more than its best, and the disk's file is gone.
func TestWatchMachine(t *testing.T) {
	dir := t.TempDir()
	var m Machine
	for long := 50 * time.Millisecond; len(m.Probes) < 2; long *= 2 { // a busy machine may leave no time for two probes
		stop, err := WatchMachine(dir)
		servicetest.OK(t, err)
		time.Sleep(long)
		m, err = stop()
		servicetest.OK(t, err)
	}
	if m.Best <= 0 || m.Gave() <= 0 || m.Gave() > 1 {
		t.Errorf("%d probes, the shortest %v, %v of its best", len(m.Probes), m.Best, m.Gave())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := WatchMachine(filepath.Join(dir, "none")); err == nil {
		t.Error("watched a disk without its directory")
	}
}

// TestWatchFails: stop returns the error of a failed look.
func TestWatchFails(t *testing.T) {
	looks := 0
	stop := Watch(time.Millisecond, func() error { looks++; return ErrDone })
	time.Sleep(10 * time.Millisecond)
	if got, err := stop(); !errors.Is(err, ErrDone) || len(got) != 1 || looks != 1 {
		t.Errorf("%d looks, %d reported, %v", looks, len(got), err)
	}
}

func milli(n int) time.Time { return time.UnixMilli(int64(n)) }

func TestWithinAndDuring(t *testing.T) {
	looks := []Span{{milli(0), milli(1)}, {milli(10), milli(40)}, {milli(50), milli(51)}}
	if got := within(Span{milli(1), milli(50)}, looks); len(got) != 1 || got[0] != looks[1] {
		t.Errorf("within: %v", got)
	}
	if got := Stalls(looks); len(got) != 1 || got[0] != looks[1] {
		t.Errorf("stalls: %v", got)
	}
	for _, c := range []struct {
		begun, ended int
		want         bool
	}{{1, 10, false}, {1, 11, true}, {20, 30, true}, {39, 45, true}, {40, 50, false}} {
		if got := During(Span{milli(c.begun), milli(c.ended)}, looks[1:]); got != c.want {
			t.Errorf("from %d to %d: %v", c.begun, c.ended, got)
		}
	}
	if got := Percentile(slices.Clone(looks), 99); got != 30*time.Millisecond {
		t.Errorf("the longest is %v", got)
	}
}

// TestMeasure: a turn is as long as its work, and knows what the processor did.
func TestMeasure(t *testing.T) {
	calls := 0
	got := TakeTurn(3, func() { calls++; time.Sleep(20 * time.Millisecond) })
	if calls != 1 || got.Messages != 3 || got.Took < 20*time.Millisecond || got.Probe <= 0 {
		t.Errorf("%d calls, %+v", calls, got)
	}
}
