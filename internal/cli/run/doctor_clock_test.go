package run

import (
	"testing"
	"time"
)

// A record that was late is not taken for a wrong clock, as far as it may be late.
func TestCompareClocks(t *testing.T) {
	for skew, want := range map[time.Duration]string{
		-3 * time.Second: levelUnsafe, -time.Second: levelOK, 0: levelOK, 1900 * time.Millisecond: levelOK,
		2100 * time.Millisecond: levelWarn, 6 * time.Second: levelWarn, 7 * time.Second: levelUnsafe, 3 * time.Hour: levelUnsafe,
	} {
		if got := compareClocks(skew); got[0].Level != want {
			t.Errorf("%v: %+v, want %s", skew, got, want)
		}
	}
}
