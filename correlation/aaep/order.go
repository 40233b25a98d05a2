package aaep

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

// checkNumber checks the sequence number. It tells whether the event stands where it
// was emitted: one with a lower number than the last came late.
func (s *Session) checkNumber(e *Event) (inOrder bool) {
	if s.numbering == mixedNumbers || (e.Number != nil && *e.Number < 0) {
		return true
	}
	_, starts := e.Payload.(*aaep.SessionStarted)
	switch {
	case e.Number == nil && s.numbering == withNumbers, e.Number != nil && s.numbering == withoutNumbers:
		s.numbering = mixedNumbers
		s.addFinding("AAEP-C-065", "only some events have one", e.eventRef())
		return true
	case e.Number == nil:
		s.numbering = withoutNumbers
		return true
	case s.numbering == unnumbered:
		s.numbering, s.lastNumber = withNumbers, *e.Number
		if starts && *e.Number != 0 {
			s.addFinding("AAEP-C-065", "the session does not start at zero", e.eventRef())
		}
		return true
	case *e.Number == s.lastNumber+1:
		s.lastNumber++
		return true
	case *e.Number <= s.lastNumber:
		s.addFinding("AAEP-C-065", "a number comes again or late", e.eventRef())
		s.fillGap(e)
		return false
	}
	s.reportGap(e, gap{from: s.lastNumber + 1, to: *e.Number - 1})
	s.lastNumber = *e.Number
	return true
}

// NoteRefusedNumber notes the number of an event that does not count, so that it is not taken
// for missing, and gives the findings that it takes back.
func (s *Session) NoteRefusedNumber(number int64, id string, seq uint64) []*catalogue.Finding {
	s.out = nil
	switch {
	case s.numbering != withNumbers || s.ended:
	case number == s.lastNumber+1:
		s.lastNumber = number
	case number <= s.lastNumber:
		s.fillGap(&Event{ID: id, Seq: seq, Number: &number})
	}
	return s.out
}

// gap are numbers that were left out and have not come since.
type gap struct {
	from, to int64
	finding  *catalogue.Finding // shared by the parts of one
}

// reportGap reports that numbers are missing; they may still come.
func (s *Session) reportGap(e *Event, g gap) {
	g.finding = s.addFinding("AAEP-C-065", "numbers are missing", e.eventRef())
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
func (s *Session) fillGap(e *Event) {
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
		s.retractFinding(g.finding, "the numbers came late", e)
	}
}

// forgetGap forgets the oldest with all its parts.
func (s *Session) forgetGap() {
	said := s.gaps[0].finding
	s.gaps = slices.DeleteFunc(s.gaps, func(g gap) bool { return g.finding == said })
}

// retractFinding takes a breach back.
func (s *Session) retractFinding(b *catalogue.Finding, why string, e *Event) {
	back := s.addFinding(b.Check, why, e.eventRef())
	back.Replaces, back.RetractsOnly = b, true
}

// checkClock checks that time does not run backwards.
func (s *Session) checkClock(e *Event) {
	if e.Time.IsZero() {
		return
	}
	if e.Time.Before(s.lastTime) {
		s.addFinding("AAEP-C-066", "", e.eventRef())
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

// announcedPhases holds the states that were announced, and what proves that they were
// there.
type announcedPhases uint8

const (
	announcedCalling announcedPhases = 1 << iota
	announcedWriting
	provedWriting
)

func (s *Session) handleStateChange(e *Event, p *aaep.StateChanged) {
	switch {
	case s.state == "" && s.started && !s.restored && p.FromState != stateIdle:
		s.addFinding("AAEP-C-068", "", e.eventRef())
	case s.state != "" && s.state != p.FromState && !s.stateExplained:
		s.addFinding("AAEP-C-069", "", e.eventRef())
	}
	if p.FromState == stateCalling && p.ToState != stateCalling && len(s.openInvocations) == 1 {
		s.addFinding("AAEP-C-087", "", s.openInvocations[0].event, e.eventRef()).Call = s.openInvocations[0].id
	}
	if (p.FromState == stateAwaiting || s.state == stateAwaiting) && p.ToState != stateAwaiting {
		s.supersedeQuestions()
	}
	switch p.ToState {
	case stateCalling:
		s.announcedPhases |= announcedCalling
	case stateWriting:
		s.announcedPhases |= announcedWriting
	}
	if p.ToState != stateAwaiting {
		s.unleftQuestion = eventRef{}
	}
	s.state, s.stateExplained = boundID(p.ToState), false
}

// reportQuietState is said once: a question or its answer without its change of state, be
// it that awaiting_input is not entered for the question, or not left by a session
// that acts after the answer.
func (s *Session) reportQuietState(proof ...eventRef) {
	if s.reportedOnce&reportedQuietState == 0 {
		s.reportedOnce |= reportedQuietState
		s.addFinding("AAEP-C-123", "", proof...)
	}
}

// endSession takes the terminal event.
func (s *Session) endSession(e *Event) {
	_, cancelled := e.Payload.(*aaep.SessionCancelled)
	completed, _ := e.Payload.(*aaep.SessionCompleted)
	for _, a := range s.questions {
		s.closeQuestion(e, a, cancelled)
	}
	if s.unleftQuestion != (eventRef{}) && s.actedSinceAnswer && !cancelled {
		s.reportQuietState(s.unleftQuestion, e.eventRef())
	}
	for _, o := range s.outputs {
		s.closeOutput(e, o, completed != nil)
	}
	if completed != nil {
		s.checkFigures(e, completed)
	}
	if s.started && !s.restored {
		s.checkPhases(e)
	}
	s.ended, s.endEvent = true, e.eventRef()
	s.openInvocations, s.outputs, s.announcedTools = nil, nil, nil
}

func (s *Session) checkPhases(e *Event) {
	if s.invocationCount > 0 && s.announcedPhases&announcedCalling == 0 {
		s.addFinding("AAEP-C-070", "calling a tool", e.eventRef()).Case = stateCalling
	}
	if s.announcedPhases&(provedWriting|announcedWriting) == provedWriting {
		s.addFinding("AAEP-C-070", "writing output", e.eventRef()).Case = stateWriting
	}
}

// checkFigures compares what the last event sums up with what was seen.
func (s *Session) checkFigures(e *Event, p *aaep.SessionCompleted) {
	if s.restored || !s.started {
		return
	}
	if n := p.ToolInvocationsCount; n != nil && *n != s.invocationCount {
		s.addFinding("AAEP-C-071", "the number of invocations", e.eventRef()).Case = "count"
	}
	if ms := p.DurationMS; ms != nil && durationsDiffer(*ms, e.producerTime().Sub(s.startTime).Milliseconds()) {
		asHint(s.addFinding("AAEP-C-071", "the duration", e.eventRef())).Case = "duration"
	}
}
