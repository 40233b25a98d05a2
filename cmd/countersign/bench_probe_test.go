package main

import (
	"testing"
	"time"
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

// TestWatchProcessor: nothing gives more than its best.
func TestWatchProcessor(t *testing.T) {
	stop := watchProcessor()
	time.Sleep(20 * time.Millisecond)
	if shortest, median := stop(); shortest <= 0 || shortest > median {
		t.Errorf("the shortest probe is %v, the median %v", shortest, median)
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
