package callplan

import (
	"slices"
	"testing"
	"time"
)

func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

// TestLags: a report counts until the first checkpoint whose size reaches its sequence.
func TestLags(t *testing.T) {
	c := Coverage{{10, at(1000)}, {20, at(2000)}, {25, at(3000)}}
	lags, missing := c.Lags([]StoredAt{{1, at(100)}, {10, at(900)}, {11, at(950)}, {20, at(2001)}, {25, at(2500)}, {26, at(2600)}})
	const ms = time.Millisecond
	want := []time.Duration{900 * ms, 100 * ms, 1050 * ms, 0, 500 * ms}
	if !slices.Equal(lags, want) || missing != 1 {
		t.Errorf("lags %v, %d missing", lags, missing)
	}
	if lags, missing := (Coverage{}).Lags([]StoredAt{{1, noon}}); len(lags) != 0 || missing != 1 {
		t.Error("without a checkpoint nothing is covered")
	}
}

func TestDurationAt(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i) // not in order
	}
	for _, tt := range []struct {
		list    []time.Duration
		percent float64
		want    time.Duration
	}{
		{nil, 99, 0}, {[]time.Duration{7}, 50, 7}, {[]time.Duration{7}, 99, 7}, {[]time.Duration{9, 1}, 50, 1}, {[]time.Duration{9, 1}, 99, 9},
		{hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred, 0, 1},
	} {
		if got := DurationAt(tt.list, tt.percent); got != tt.want {
			t.Errorf("percentile %v of %d values: %d, not %d", tt.percent, len(tt.list), got, tt.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("the list was sorted in place")
	}
}

// TestUnbounded: a constant lag is bounded, one of a rate that is 2 % too high is not, nor is a
// constant one of many seconds.
func TestUnbounded(t *testing.T) {
	lagsOf := func(first, growth time.Duration) (lags []time.Duration) {
		for i := range 6000 {
			lags = append(lags, first+growth*time.Duration(i)/6000)
		}
		return lags
	}
	for name, tt := range map[string]struct {
		lags []time.Duration
		want bool
	}{
		"steady":           {lagsOf(800*time.Millisecond, 0), true},
		"a little growth":  {lagsOf(800*time.Millisecond, 300*time.Millisecond), true},
		"2 % too fast":     {lagsOf(800*time.Millisecond, 1200*time.Millisecond), false},
		"steadily too old": {lagsOf(6*time.Second, 0), false},
		"nothing":          {nil, true},
	} {
		if why := Unbounded("lag", tt.lags); (why == "") != tt.want {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestRateSearch: it ends close below the limit, wherever it begins.
func TestRateSearch(t *testing.T) {
	for _, limit := range []float64{1.5, 90, 333, 2000} {
		s, tries := RateSearch{Next: 100}, 1
		for ; !s.Record(s.Next <= limit); tries++ {
			if tries > 30 {
				t.Fatalf("limit %v: no end, %+v", limit, s)
			}
		}
		if s.Good > limit || limit > s.bad || s.Good < limit/(1+2*SearchWithin) && s.Good >= 1 {
			t.Errorf("limit %v: %+v after %d", limit, s, tries)
		}
	}
	s := RateSearch{Next: 100}
	for !s.Record(false) {
	}
	if s.Good != 0 {
		t.Errorf("nothing is sustained: %+v", s)
	}
}
