package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesGrow(t *testing.T) {
	p := New(time.Second, 5*time.Second)
	next := func() (list []time.Duration) {
		for range 5 {
			list = append(list, p.Next()/time.Second)
		}
		return list
	}
	want := []time.Duration{1, 2, 4, 5, 5}
	if got := next(); !slices.Equal(got, want) {
		t.Error(got)
	}
	p.Reset()
	if got := next(); !slices.Equal(got, want) {
		t.Errorf("after Reset %v", got)
	}
	p = New(time.Minute, time.Second)
	for range 2 {
		if d := p.Next(); d != time.Minute {
			t.Errorf("%v: a first pause that is longer than the longest one", d)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begun := New(time.Hour, time.Hour), time.Now()
		if err := p.Wait(t.Context()); err != nil || time.Since(begun) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Hour+time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// Loops that began at different moments wake up together, and none twice for one tick.
func TestTicksOfAllLoopsAreTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var woken [2][]time.Time
		for i, begin := range []time.Duration{300 * time.Millisecond, 999 * time.Millisecond} {
			go func() {
				time.Sleep(begin)
				for range 3 {
					time.Sleep(UntilTick(time.Second))
					woken[i] = append(woken[i], time.Now())
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(woken[0]) != 3 || !slices.EqualFunc(woken[0], woken[1], time.Time.Equal) || woken[0][2].Sub(woken[0][0]) != 2*time.Second {
			t.Error(woken)
		}
	})
}
