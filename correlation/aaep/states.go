package aaep

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
)

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

// states is what the session says that it does, and what its events show of that.
type states struct {
	current          string   // as the last change of state said; "" if none did
	unleftQuestion   eventRef // the question that was resolved in awaiting_input, which has not been left since; zero if none was
	actedSinceAnswer bool     // the session acted since that question was resolved
	explained        bool     // something happened since that explains another state
	phases           announcedPhases
}

// checkChange checks that a change of state follows the last one. complete says that
// everything since the session's start was seen.
func (s *states) checkChange(r *reports, e *Event, p *aaep.StateChanged, complete bool) {
	switch {
	case s.current == "" && complete && p.FromState != stateIdle:
		r.add("AAEP-C-068", "", e.eventRef())
	case s.current != "" && s.current != p.FromState && !s.explained:
		r.add("AAEP-C-069", "", e.eventRef())
	}
}

// leavesAwaiting tells whether a change of state ends the wait for the user.
func (s *states) leavesAwaiting(p *aaep.StateChanged) bool {
	return (p.FromState == stateAwaiting || s.isAwaiting()) && p.ToState != stateAwaiting
}

// enter takes the new state.
func (s *states) enter(p *aaep.StateChanged) {
	switch p.ToState {
	case stateCalling:
		s.phases |= announcedCalling
	case stateWriting:
		s.phases |= announcedWriting
	}
	if p.ToState != stateAwaiting {
		s.unleftQuestion = eventRef{}
	}
	s.current, s.explained = fact.BoundID(p.ToState), false
}

func (s *states) isAwaiting() bool { return s.current == stateAwaiting }

// noteActivity notes an event that explains another state.
func (s *states) noteActivity() { s.explained = true }

// noteAction notes that the session acts by itself: it calls a tool or writes.
func (s *states) noteAction() { s.explained, s.actedSinceAnswer = true, true }

// noteWriting notes a chunk of output.
func (s *states) noteWriting() {
	s.noteAction()
	s.phases |= provedWriting
}

// noteResolved notes a question that was resolved.
func (s *states) noteResolved(question eventRef) {
	if s.isAwaiting() {
		s.unleftQuestion, s.actedSinceAnswer = question, false
	}
}

// reportQuiet is said once: a question or its answer without its change of state, be
// it that awaiting_input is not entered for the question, or not left by a session
// that acts after the answer.
func (s *states) reportQuiet(r *reports, proof ...eventRef) {
	r.addOnce(reportedQuietState, "AAEP-C-123", proof...)
}

// checkLeft checks, at the end, that awaiting_input was left after the last answer.
func (s *states) checkLeft(r *reports, e *Event) {
	if s.unleftQuestion != (eventRef{}) && s.actedSinceAnswer {
		s.reportQuiet(r, s.unleftQuestion, e.eventRef())
	}
}

// checkPhases checks, at the end, that what the session did was announced. called says
// that it invoked a tool.
func (s *states) checkPhases(r *reports, e *Event, called bool) {
	if called && s.phases&announcedCalling == 0 {
		r.add("AAEP-C-070", "calling a tool", e.eventRef()).Case = stateCalling
	}
	if s.phases&(provedWriting|announcedWriting) == provedWriting {
		r.add("AAEP-C-070", "writing output", e.eventRef()).Case = stateWriting
	}
}
