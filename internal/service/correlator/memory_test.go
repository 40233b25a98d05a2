package correlator

import "testing"

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: gcMaxPercent, 50 << 20: gcMaxPercent, 150 << 20: 250, garbageBytes: gcMinPercent, 4 << 30: gcMinPercent} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes: %d%%, want %d%%", live, got, want)
		}
	}
}
