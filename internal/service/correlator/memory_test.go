package correlator

import "testing"

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: gcMost, 50 << 20: gcMost, 150 << 20: 250, garbageRoom: gcLeast, 4 << 30: gcLeast} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes: %d%%, want %d%%", live, got, want)
		}
	}
}
