package calls

import (
	"errors"
	"testing"
	"time"
)

// TestRepeatFails: stop returns the error of a failed look, which was the last one.
func TestRepeatFails(t *testing.T) {
	failed, second := errors.New("failed"), make(chan struct{})
	looks := 0
	stop := repeat(time.Millisecond, func() error {
		if looks++; looks < 2 {
			return nil
		}
		close(second)
		return failed
	})
	<-second
	if n, err := stop(); !errors.Is(err, failed) || n != 2 || looks != 2 {
		t.Errorf("%d looks, %d reported, %v", looks, n, err)
	}
}

// TestRepeatStops: stop waits for the look that runs.
func TestRepeatStops(t *testing.T) {
	begun, done := make(chan struct{}), false
	stop := repeat(time.Hour, func() error { close(begun); done = true; return nil })
	<-begun
	if n, err := stop(); n != 1 || err != nil || !done {
		t.Errorf("%d looks, %v, done: %v", n, err, done)
	}
}
