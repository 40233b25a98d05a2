package callplan

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

// Lags and what follows from them.

// StoredAt is a message of the log and a time that concerns it.
type StoredAt struct {
	Seq uint64
	At  time.Time
}

// Coverage are the checkpoints of one shard in their order: each covers the sequences up to its
// size from the time at which it could be read.
type Coverage []StoredAt

// coveredAt is the time from which a checkpoint covers a sequence; false if none does.
func (c Coverage) coveredAt(seq uint64) (time.Time, bool) {
	i := sort.Search(len(c), func(i int) bool { return c[i].Seq >= seq })
	if i == len(c) {
		return time.Time{}, false
	}
	return c[i].At, true
}

// Lags are the times from each report's acknowledgement to the checkpoint that covers it, in the
// order of the reports. missing counts the reports that no checkpoint covers. The clocks of an
// acknowledgement and of the log are one machine's; a checkpoint that is stored before the
// acknowledgement is read gives zero.
func (c Coverage) Lags(acks []StoredAt) (lags []time.Duration, missing int) {
	for _, a := range acks {
		at, ok := c.coveredAt(a.Seq)
		if !ok {
			missing++
			continue
		}
		lags = append(lags, max(0, at.Sub(a.At)))
	}
	return lags, missing
}

// Since counts the checkpoints from a time on.
func (c Coverage) Since(t time.Time) (n int) {
	for _, p := range c {
		if !p.At.Before(t) {
			n++
		}
	}
	return n
}

// DurationAt is the value at a percentile, the smallest that so many percent do not exceed; zero
// of none. It does not change the list.
func DurationAt(list []time.Duration, percent float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	n := int(float64(len(sorted))*percent/100 + 0.999999)
	return sorted[min(max(n, 1), len(sorted))-1]
}

// Bounds of a lag that counts as bounded. lagMost is for every percentile but the last; lagGrowth
// is by how much the median of a run's last quarter may exceed that of its second one. At a rate
// that is 2 % too high, a backlog of 60 s grows by 1.2 s, and by 0.6 s between these quarters.
const (
	lagMost   = 5 * time.Second
	lagGrowth = 400 * time.Millisecond
)

// Unbounded says why a lag, in the order of the calls, is not bounded; "" if it is.
func Unbounded(what string, lags []time.Duration) string {
	if p := DurationAt(lags, 99); p > lagMost {
		return fmt.Sprintf("the %s's 99th percentile is %s, more than %s", what, p.Round(time.Millisecond), lagMost)
	}
	quarter := len(lags) / 4
	if quarter == 0 {
		return ""
	}
	early, late := DurationAt(lags[quarter:2*quarter], 50), DurationAt(lags[3*quarter:], 50)
	if late > early+lagGrowth {
		return fmt.Sprintf("the %s grows: its median is %s in the second quarter and %s in the last", what, early.Round(time.Millisecond), late.Round(time.Millisecond))
	}
	return ""
}

// RateSearch looks for the highest sustained rate: it doubles until a rate is not sustained, then
// halves the interval until it is narrower than SearchWithin.
type RateSearch struct {
	Good, bad float64 // zero: none yet
	Next      float64
}

// SearchWithin is the width of the interval at which the search ends, relative to its lower end.
const SearchWithin = 0.1

// Record notes the result of the rate next and chooses another. done is true when good is the
// answer, to be confirmed.
func (s *RateSearch) Record(sustained bool) (done bool) {
	if sustained {
		s.Good = max(s.Good, s.Next)
	} else {
		s.bad = s.Next
	}
	switch {
	case s.bad == 0:
		s.Next = 2 * s.Good
	case s.Good == 0:
		s.Next = s.bad / 2
	default:
		s.Next = (s.Good + s.bad) / 2
	}
	return s.Good > 0 && s.bad > 0 && s.bad-s.Good <= SearchWithin*s.Good || s.Next < 1
}
