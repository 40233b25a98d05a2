package aaepsession

import (
	"slices"

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

// number checks the sequence number. It tells whether the event stands where it
// was emitted: one with a lower number than the last came late.
func (s *Session) number(e *Event) (inOrder bool) {
	if s.numbering == mixedNumbers || (e.Number != nil && *e.Number < 0) {
		return true
	}
	_, starts := e.Payload.(*aaep.SessionStarted)
	switch {
	case e.Number == nil && s.numbering == withNumbers, e.Number != nil && s.numbering == withoutNumbers:
		s.numbering = mixedNumbers
		s.breach("AAEP-C-065", "only some events have one", e.ref())
		return true
	case e.Number == nil:
		s.numbering = withoutNumbers
		return true
	case s.numbering == unnumbered:
		s.numbering, s.last = withNumbers, *e.Number
		if starts && *e.Number != 0 {
			s.breach("AAEP-C-065", "the session does not start at zero", e.ref())
		}
		return true
	case *e.Number == s.last+1:
		s.last++
		return true
	case *e.Number <= s.last:
		s.breach("AAEP-C-065", "a number comes again or late", e.ref())
		s.cameLate(e)
		return false
	}
	s.miss(e, gap{from: s.last + 1, to: *e.Number - 1})
	s.last = *e.Number
	return true
}

// Refused notes the number of an event that does not count, so that it is not taken
// for missing, and gives the findings that it takes back.
func (s *Session) Refused(number int64, id string, seq uint64) []*catalogue.Breach {
	s.out = nil
	switch {
	case s.numbering != withNumbers || s.ended:
	case number == s.last+1:
		s.last = number
	case number <= s.last:
		s.cameLate(&Event{ID: id, Seq: seq, Number: &number})
	}
	return s.out
}

// gap are numbers that were left out and have not come since.
type gap struct {
	from, to int64
	said     *catalogue.Breach // shared by the parts of one
}

// miss reports that numbers are missing; they may still come.
func (s *Session) miss(e *Event, g gap) {
	g.said = s.breach("AAEP-C-065", "numbers are missing", e.ref())
	if e.ID == "" || g.to-g.from >= maxGap {
		return // that is never filled, or nothing tells it from another
	}
	if len(s.gaps) >= maxGaps {
		s.forgetGap()
	}
	s.gaps = append(s.gaps, g)
}

// cameLate takes a number that was missing, and takes back that it was once none of
// those left out with it is missing any more.
func (s *Session) cameLate(e *Event) {
	n := *e.Number
	i := slices.IndexFunc(s.gaps, func(g gap) bool { return g.from <= n && n <= g.to })
	if i < 0 {
		return
	}
	g := s.gaps[i]
	var left []gap
	if g.from < n {
		left = append(left, gap{g.from, n - 1, g.said})
	}
	if n < g.to {
		left = append(left, gap{n + 1, g.to, g.said})
	}
	s.gaps = slices.Replace(s.gaps, i, i+1, left...)
	if len(s.gaps) > maxGaps {
		s.forgetGap()
		return
	}
	if !slices.ContainsFunc(s.gaps, func(o gap) bool { return o.said == g.said }) {
		s.retract(g.said, "the numbers came late", e)
	}
}

// forgetGap forgets the oldest with all its parts.
func (s *Session) forgetGap() {
	said := s.gaps[0].said
	s.gaps = slices.DeleteFunc(s.gaps, func(g gap) bool { return g.said == said })
}

// retract takes a breach back.
func (s *Session) retract(b *catalogue.Breach, why string, e *Event) {
	back := s.breach(b.Check, why, e.ref())
	back.Withdraws, back.Retracts = b, true
}

// clock checks that time does not run backwards.
func (s *Session) clock(e *Event) {
	if e.Time.IsZero() {
		return
	}
	if e.Time.Before(s.lastTime) {
		s.breach("AAEP-C-066", "", e.ref())
	}
	s.lastTime = e.Time
}

// States that the machine knows; the set is open (AAEP 4.2.1).
const (
	stateIdle     = "idle"
	stateCalling  = "calling_tool"
	stateWriting  = "writing_output"
	stateAwaiting = "awaiting_input"
)

// phase holds the states that were announced, and what proves that they were
// there.
type phase uint8

const (
	announcedCalling phase = 1 << iota
	announcedWriting
	provedWriting
)

func (s *Session) changed(e *Event, p *aaep.StateChanged) {
	switch {
	case s.state == "" && s.started && !s.restored && p.FromState != stateIdle:
		s.breach("AAEP-C-068", "", e.ref())
	case s.state != "" && s.state != p.FromState && !s.explained:
		s.breach("AAEP-C-069", "", e.ref())
	}
	if p.FromState == stateCalling && p.ToState != stateCalling && len(s.open) == 1 {
		s.breach("AAEP-C-087", "", s.open[0].ref, e.ref()).Call = s.open[0].id
	}
	if (p.FromState == stateAwaiting || s.state == stateAwaiting) && p.ToState != stateAwaiting {
		s.supersede()
	}
	switch p.ToState {
	case stateCalling:
		s.phases |= announcedCalling
	case stateWriting:
		s.phases |= announcedWriting
	}
	if p.ToState != stateAwaiting {
		s.unleft = ref{}
	}
	s.state, s.explained = bounded(p.ToState), false
}

// quietState is said once: a question or its answer without its change of state, be
// it that awaiting_input is not entered for the question, or not left by a session
// that acts after the answer.
func (s *Session) quietState(proof ...ref) {
	if s.said&saidQuietState == 0 {
		s.said |= saidQuietState
		s.breach("AAEP-C-123", "", proof...)
	}
}

// finish takes the terminal event.
func (s *Session) finish(e *Event) {
	_, cancelled := e.Payload.(*aaep.SessionCancelled)
	completed, _ := e.Payload.(*aaep.SessionCompleted)
	for _, a := range s.asks {
		s.closeAsk(e, a, cancelled)
	}
	if s.unleft != (ref{}) && s.wentOn && !cancelled {
		s.quietState(s.unleft, e.ref())
	}
	for _, o := range s.outputs {
		s.closeOutput(e, o, completed != nil)
	}
	if completed != nil {
		s.figures(e, completed)
	}
	if s.started && !s.restored {
		s.missingPhases(e)
	}
	s.ended, s.end = true, e.ref()
	s.open, s.outputs, s.tools = nil, nil, nil
}

func (s *Session) missingPhases(e *Event) {
	if s.invocations > 0 && s.phases&announcedCalling == 0 {
		s.breach("AAEP-C-070", "calling a tool", e.ref()).Case = stateCalling
	}
	if s.phases&(provedWriting|announcedWriting) == provedWriting {
		s.breach("AAEP-C-070", "writing output", e.ref()).Case = stateWriting
	}
}

// figures compares what the last event sums up with what was seen.
func (s *Session) figures(e *Event, p *aaep.SessionCompleted) {
	if s.restored || !s.started {
		return
	}
	if n := p.ToolInvocationsCount; n != nil && *n != s.invocations {
		s.breach("AAEP-C-071", "the number of invocations", e.ref()).Case = "count"
	}
	if ms := p.DurationMS; ms != nil && differs(*ms, e.when().Sub(s.startTime).Milliseconds()) {
		hint(s.breach("AAEP-C-071", "the duration", e.ref())).Case = "duration"
	}
}
