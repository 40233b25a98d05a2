package aaep

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/aaep"
)

// numbering says whether a session's events have sequence numbers (AAEP 3.4.1).
type numbering uint8

const (
	unnumbered numbering = iota // unknown
	withNumbers
	withoutNumbers
	mixedNumbers
)

// sequence checks the order of the session's events: by their numbers, with at most maxGaps
// gaps, and by the publisher's clock.
type sequence struct {
	numbering  numbering
	lastNumber int64
	gaps       []gap
	lastTime   time.Time
}

// restart makes the next number the first one.
func (s *sequence) restart() { s.numbering = unnumbered }

func (s *sequence) storedItems() int { return len(s.gaps) }

// checkNumber checks an event's sequence number. inOrder is false for an event that came late:
// its number is lower than the last one.
func (s *sequence) checkNumber(r *reports, e *Event) (inOrder bool) {
	if s.numbering == mixedNumbers || (e.Number != nil && *e.Number < 0) {
		return true
	}
	_, starts := e.Payload.(*aaep.SessionStarted)
	switch {
	case e.Number == nil && s.numbering == withNumbers, e.Number != nil && s.numbering == withoutNumbers:
		s.numbering = mixedNumbers
		r.add("AAEP-C-065", "only some events have one", e.eventRef())
		return true
	case e.Number == nil:
		s.numbering = withoutNumbers
		return true
	case s.numbering == unnumbered:
		s.numbering, s.lastNumber = withNumbers, *e.Number
		if starts && *e.Number != 0 {
			r.add("AAEP-C-065", "the session does not start at zero", e.eventRef())
		}
		return true
	case *e.Number == s.lastNumber+1:
		s.lastNumber++
		return true
	case *e.Number <= s.lastNumber:
		r.add("AAEP-C-065", "a number comes again or late", e.eventRef())
		s.fillGap(r, e)
		return false
	}
	s.reportGap(r, e, gap{from: s.lastNumber + 1, to: *e.Number - 1})
	s.lastNumber = *e.Number
	return true
}

// noteRefused records the number of an invalid event. A number far ahead may be what is wrong
// with the event: it does not count.
func (s *sequence) noteRefused(r *reports, e *Event) {
	switch n := *e.Number; {
	case s.numbering != withNumbers:
	case n <= s.lastNumber:
		s.fillGap(r, e)
	case n == s.lastNumber+1:
		s.lastNumber = n
	case n-s.lastNumber <= maxGap:
		s.reportGap(r, e, gap{from: s.lastNumber + 1, to: n - 1})
		s.lastNumber = n
	}
}

// gap is a range of missing numbers.
type gap struct {
	from, to int64
	finding  *catalogue.Finding // the parts of one gap share it
}

// reportGap reports missing numbers, which may still come.
func (s *sequence) reportGap(r *reports, e *Event, g gap) {
	g.finding = r.add("AAEP-C-065", "numbers are missing", e.eventRef())
	if e.ID == "" || g.to-g.from >= maxGap {
		return // it can never be filled, or not be told from another gap
	}
	if len(s.gaps) >= maxGaps {
		s.forgetGap()
	}
	s.gaps = append(s.gaps, g)
}

// fillGap applies a missing number that came late. The finding is retracted when no number of
// it is missing any more.
func (s *sequence) fillGap(r *reports, e *Event) {
	n := *e.Number
	i := slices.IndexFunc(s.gaps, func(g gap) bool { return g.from <= n && n <= g.to })
	if i < 0 {
		return
	}
	g := s.gaps[i]
	var left []gap
	if g.from < n {
		left = append(left, gap{g.from, n - 1, g.finding})
	}
	if n < g.to {
		left = append(left, gap{n + 1, g.to, g.finding})
	}
	s.gaps = slices.Replace(s.gaps, i, i+1, left...)
	if len(s.gaps) > maxGaps {
		s.forgetGap()
		return
	}
	if !slices.ContainsFunc(s.gaps, func(o gap) bool { return o.finding == g.finding }) {
		r.retract(g.finding, "the numbers came late", e)
	}
}

// forgetGap forgets the oldest gap with all its parts.
func (s *sequence) forgetGap() {
	said := s.gaps[0].finding
	s.gaps = slices.DeleteFunc(s.gaps, func(g gap) bool { return g.finding == said })
}

// checkClock reports a publisher's clock that runs back.
func (s *sequence) checkClock(r *reports, e *Event) {
	if e.Time.IsZero() {
		return
	}
	if e.Time.Before(s.lastTime) {
		r.add("AAEP-C-066", "", e.eventRef())
	}
	s.lastTime = e.Time
}
