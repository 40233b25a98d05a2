package aaep

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
)

// States that the checks know. Others are permitted (AAEP 4.2.1).
const (
	stateIdle     = "idle"
	stateCalling  = "calling_tool"
	stateWriting  = "writing_output"
	stateAwaiting = "awaiting_input"
)

// announcedPhases are the phases that the session announced, or that its events prove.
type announcedPhases uint8

const (
	announcedCalling announcedPhases = 1 << iota
	announcedWriting
	provedWriting
)

// states holds the session's announced state, and what its events show of it.
type states struct {
	current          string   // as the last change of state said; "" if none did
	unleftQuestion   eventRef // the question that was resolved in awaiting_input, while that was not left; else zero
	actedSinceAnswer bool     // the session acted after that question was resolved
	explained        bool     // an event since explains another state
	phases           announcedPhases
}

// checkChange checks that a change of state continues from the last state. complete says that
// all events since the session's start were seen.
func (s *states) checkChange(r *reports, e *Event, p *aaep.StateChanged, complete bool) {
	switch {
	case s.current == "" && complete && p.FromState != stateIdle:
		r.add("AAEP-C-068", "", e.eventRef())
	case s.current != "" && s.current != p.FromState && !s.explained:
		r.add("AAEP-C-069", "", e.eventRef())
	}
}

// enter sets the state.
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

// noteActivity records an event that explains another state.
func (s *states) noteActivity() { s.explained = true }

// noteAction records an action of the session itself: a tool call or output.
func (s *states) noteAction() { s.explained, s.actedSinceAnswer = true, true }

// noteWriting records a chunk of output.
func (s *states) noteWriting() {
	s.noteAction()
	s.phases |= provedWriting
}

// noteResolved records that a question was resolved.
func (s *states) noteResolved(question eventRef) {
	if s.isAwaiting() {
		s.unleftQuestion, s.actedSinceAnswer = question, false
	}
}

// reportQuiet reports, once, a missing change of state: awaiting_input is not entered for a
// question, or not left by a session that acts after the answer.
func reportQuiet(r *reports, proof ...eventRef) {
	r.addOnce(reportedQuietState, "AAEP-C-123", proof...)
}

// checkLeft reports, at the end, that awaiting_input was not left after the last answer.
func (s *states) checkLeft(r *reports, e *Event) {
	if s.unleftQuestion != (eventRef{}) && s.actedSinceAnswer {
		reportQuiet(r, s.unleftQuestion, e.eventRef())
	}
}

// checkPhases reports, at the end, phases that were not announced. called says that the
// session invoked a tool.
func (s *states) checkPhases(r *reports, e *Event, called bool) {
	if called && s.phases&announcedCalling == 0 {
		r.add("AAEP-C-070", "calling a tool", e.eventRef()).Case = stateCalling
	}
	if s.phases&(provedWriting|announcedWriting) == provedWriting {
		r.add("AAEP-C-070", "writing output", e.eventRef()).Case = stateWriting
	}
}
