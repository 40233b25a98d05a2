package correlate

import (
	"testing"
	"time"
)

// TestRate: the correlator's own messages and what came before its first cursor do not count.
func TestRate(t *testing.T) {
	w := written{own: []uint64{1, 11, 12, 50}, cursors: []cursor{{10, time.UnixMilli(0)}, {110, time.UnixMilli(100)}, {710, time.UnixMilli(500)}}}
	if got := w.rate(); got != (700-3)/0.5 {
		t.Errorf("%v/s", got)
	}
}
