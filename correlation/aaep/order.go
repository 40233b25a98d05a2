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
	unnumbered numbering = iota // not known yet
	withNumbers
	withoutNumbers
	mixedNumbers
)

// sequence is the order of the session's events: by their numbers, with at most maxGaps
// stretches of missing ones, and by the publisher's clock.
type sequence struct {
	numbering  numbering
	lastNumber int64
	gaps       []gap
	lastTime   time.Time
}

// restart expects the numbers to begin again.
func (s *sequence) restart() { s.numbering = unnumbered }

func (s *sequence) storedItems() int { return len(s.gaps) }

// checkNumber checks the sequence number. It tells whether the event stands where it
// was emitted: one with a lower number than the last came late.
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

// noteRefused notes the number of an event that does not count.
func (s *sequence) noteRefused(r *reports, e *Event) {
	switch n := *e.Number; {
	case s.numbering != withNumbers:
	case n == s.lastNumber+1:
		s.lastNumber = n
	case n <= s.lastNumber:
		s.fillGap(r, e)
	}
}

// gap are numbers that were left out and have not come since.
type gap struct {
	from, to int64
	finding  *catalogue.Finding // shared by the parts of one
}

// reportGap reports that numbers are missing; they may still come.
func (s *sequence) reportGap(r *reports, e *Event, g gap) {
	g.finding = r.add("AAEP-C-065", "numbers are missing", e.eventRef())
	if e.ID == "" || g.to-g.from >= maxGap {
		return // that is never filled, or nothing tells it from another
	}
	if len(s.gaps) >= maxGaps {
		s.forgetGap()
	}
	s.gaps = append(s.gaps, g)
}

// fillGap takes a number that was missing, and takes back that it was once none of
// those left out with it is missing any more.
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

// forgetGap forgets the oldest with all its parts.
func (s *sequence) forgetGap() {
	said := s.gaps[0].finding
	s.gaps = slices.DeleteFunc(s.gaps, func(g gap) bool { return g.finding == said })
}

// checkClock checks that time does not run backwards.
func (s *sequence) checkClock(r *reports, e *Event) {
	if e.Time.IsZero() {
		return
	}
	if e.Time.Before(s.lastTime) {
		r.add("AAEP-C-066", "", e.eventRef())
	}
	s.lastTime = e.Time
}
