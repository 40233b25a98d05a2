package recorded

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever a broker's clock does, as long as it does not go back by more than
// ClockBack, the first message of a time is found.
func TestFirstAtWithAClockThatJumps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zero := time.Unix(1_700_000_000, 0)
		var list []time.Time
		most := zero
		for range rapid.IntRange(0, 80).Draw(t, "messages") {
			step := time.Duration(rapid.Int64Range(-int64(ClockBack), int64(ClockBack)).Draw(t, "step"))
			next := most.Add(step)
			list = append(list, next)
			if next.After(most) {
				most = next
			}
		}
		at := zero.Add(time.Duration(rapid.Int64Range(-int64(ClockBack), int64(most.Sub(zero)+ClockBack)).Draw(t, "at")))
		want := 0
		for want < len(list) && list[want].Before(at) {
			want++
		}
		got, err := searchFirstAt(len(list), at, func(i int) (time.Time, error) { return list[i], nil })
		if err != nil || got != want {
			t.Fatalf("%d, %v; the first is %d of %v", got, err, want, list)
		}
	})
}

// Where times do not go back, few messages are asked for, however long the log is;
// what cannot be read is an error.
func TestFirstAtAsksLittle(t *testing.T) {
	const n = 1 << 20
	asked := 0
	at := func(i int) time.Time { return time.Unix(int64(i), 0) }
	got, err := searchAnyAt(n, at(777_777), func(i int) (time.Time, error) { asked++; return at(i), nil })
	if err != nil || got != 777_777 || asked > 21 {
		t.Errorf("%d, %v, asked %d times", got, err, asked)
	}
	broken := errors.New("broken")
	for _, from := range []int{499, 495, 0} {
		if _, err := searchFirstAt(1000, at(500), func(i int) (time.Time, error) {
			if i >= from && i < 500 {
				return time.Time{}, broken
			}
			return at(i), nil
		}); !errors.Is(err, broken) {
			t.Errorf("from %d on: %v", from, err)
		}
	}
}
