// Package aaep is AAEP at the stage of correlation: how its messages are read into facts (Protocol), what
// one event breaks by itself (NewEvent), what a session breaks (Session) and what spans the
// sessions of a publisher (NegotiationTable). Begin reading with Protocol and Session.Apply.
//
// A session is checked by AAEP 1.0.0, chapters 4 and 6 and appendix A: the order of its events, its
// invocations, its questions to the user and its outputs. Apply takes the session's events in log
// order and returns the checks of the catalogue that they break.
//
// The package is pure: it has no clock and no randomness, and does not depend on the order of
// a map. The bounds below limit what a session stores (see StoredItems). Forgotten state leads
// to no finding, except that a forgotten question permits nothing.
package aaep

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/aaep"
)

// Bounds of one session.
const (
	maxOpenInvocations = 256 // open invocations; the oldest are forgotten
	maxQuestions       = 64  // questions; the oldest that permit nothing are forgotten first
	maxOutputs         = 64  // outputs; the oldest closed ones are forgotten first
	maxTools           = 256 // announced tools; a longer list is not checked
	maxGaps            = 16  // gaps of sequence numbers; the oldest are forgotten
	maxGap             = 256 // numbers in one gap; a longer gap cannot be filled
	maxAgents          = 16  // agents with a state of their own; the one that has announced nothing for longest is forgotten
	maxReplies         = 8   // replies to one question that are kept to recognise second deliveries
)

// Tolerances.
const (
	maxClockAhead  = 5 * time.Minute  // how far a publisher's clock may be ahead
	maxClockBehind = 24 * time.Hour   // how far a publisher's clock may be behind
	replyGrace     = 10 * time.Second // for a reply on its way, in broker time
	clockSkew      = time.Second      // between the clocks of publisher and subscriber
)

// Session is the state of one session. The zero value is a session without events. Apply
// passes an event to the parts in order. Each part has its own state; a part that needs
// another one gets it as an argument and calls its methods.
type Session struct {
	reports   reports
	lifecycle lifecycle
	sequence  sequence
	states    states
	tools     tools
	questions questions
	outputs   outputs
}

// eventRef refers to an event that proves a finding.
type eventRef struct {
	id  string
	seq uint64
}

func (e *Event) eventRef() eventRef { return eventRef{e.ID, e.Seq} }

// Apply applies the next event of the session, or a reply to one of its questions, and returns
// the findings in order.
func (s *Session) Apply(e *Event) []*catalogue.Finding {
	r := &s.reports
	r.findingList = nil
	switch p := e.Payload.(type) {
	case *aaep.ConfirmationReply:
		r.checkAutomaticReply(e, p.DecidedBy)
		s.questions.handleReply(r, &s.states, e, p.ReplyToken, replyContent{p.SubscriptionID, p.Decision, "", e.Time, p.ModifiedAction != nil})
		return r.findingList
	case *aaep.ClarificationReply:
		r.checkAutomaticReply(e, p.DecidedBy)
		s.questions.handleReply(r, &s.states, e, p.ReplyToken, replyContent{p.SubscriptionID, p.Response, p.ResponseKind, e.Time, false})
		return r.findingList
	}
	r.addHints(e)
	r.checkSkew(e)
	if !s.checkLifecycle(e) {
		return r.findingList
	}
	if inOrder := s.sequence.checkNumber(r, e); inOrder {
		s.sequence.checkClock(r, e)
	}
	if _, starts := e.Payload.(*aaep.SessionStarted); s.lifecycle.hasEnded() && !starts {
		s.applyOvertaken(e)
		return r.findingList
	}
	s.questions.expire(r, &s.states, e)
	s.questions.noteOutcomesSeen(e)
	s.applyPayload(e)
	if e.isTerminal() {
		s.endSession(e)
	}
	return r.findingList
}

// applyPayload passes an event to the parts for its type.
func (s *Session) applyPayload(e *Event) {
	r := &s.reports
	switch p := e.Payload.(type) {
	case *aaep.SessionStarted:
		s.lifecycle.start(r, e)
		s.tools.announce(p.ToolsAvailable)
	case *aaep.StateChanged:
		s.states.checkChange(r, e, p, s.lifecycle.isComplete())
		s.tools.checkLeftCalling(r, &s.states, e, p)
		s.enterState(e, p)
	case *aaep.ProgressUpdated:
		s.questions.noteProgress()
	case *aaep.ToolInvoked:
		s.states.noteAction(e.agent)
		s.tools.handleInvocation(r, &s.questions, e, p)
	case *aaep.ToolCompleted:
		s.states.noteActivity(e.agent)
		s.tools.handleCompletion(r, e, p)
	case *aaep.OutputStreaming:
		s.states.noteWriting(e.agent)
		s.outputs.handleChunk(r, e, p)
	case *aaep.AwaitingConfirmation:
		s.states.noteActivity(e.agent)
		s.questions.askConfirmation(r, &s.tools, e, p)
	case *aaep.AwaitingClarification:
		s.states.noteActivity(e.agent)
		s.questions.askClarification(e, p)
	case *aaep.HandoffRequested:
		s.states.noteActivity(e.agent)
	}
}

// enterState applies a change of state.
func (s *Session) enterState(e *Event, p *aaep.StateChanged) {
	s.states.enter(e.agent, p)
	if p.FromState == stateAwaiting && p.ToState != stateAwaiting {
		s.questions.leaveAwaiting(&s.states, e)
	}
}

// checkLifecycle reports whether the event is checked further. An event outside the session's
// life is only reported (AAEP 4.1, 4.5.1).
func (s *Session) checkLifecycle(e *Event) bool {
	if s.lifecycle.checkSecondStart(&s.reports, e) {
		if s.lifecycle.hasEnded() { // it begins a new session under the same id
			*s = Session{reports: s.reports}
		}
		if e.Number != nil && *e.Number == 0 {
			s.sequence.restart() // it begins a new count
		}
	}
	return s.lifecycle.check(&s.reports, e)
}

// endSession applies the terminal event.
func (s *Session) endSession(e *Event) {
	r := &s.reports
	_, cancelled := e.Payload.(*aaep.SessionCancelled)
	completed, _ := e.Payload.(*aaep.SessionCompleted)
	s.questions.closeAll(r, e, cancelled)
	if !cancelled {
		s.states.checkLeft(r, e)
	}
	s.outputs.closeAll(r, e, completed != nil)
	if s.lifecycle.isComplete() {
		if completed != nil {
			s.tools.checkCount(r, e, completed)
			s.lifecycle.checkDuration(r, e, completed)
		}
		s.states.checkPhases(r, e, s.tools.wereInvoked())
	}
	s.lifecycle.end(e)
	s.tools.drop()
}

// applyOvertaken applies an event that the session's end has overtaken. The parts are closed: it retracts what the end
// found to be missing, and judges invocations by the questions, of which some may be overtaken, too.
func (s *Session) applyOvertaken(e *Event) {
	r := &s.reports
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		s.tools.countOvertaken(r, e)
		s.questions.judgeOvertaken(r, e, newInvocation(e, p))
	case *aaep.OutputStreaming:
		s.outputs.closeOvertaken(r, e, p)
	case *aaep.StateChanged:
		s.enterState(e, p)
	case *aaep.AwaitingConfirmation:
		s.questions.askConfirmation(r, &s.tools, e, p)
	}
	if showsOutcomes(e) {
		s.questions.retractAtEnd(r, e, nil, "AAEP-C-106", "AAEP-C-121")
	}
}

// overtakenReason is why what the end found to be missing is retracted.
const overtakenReason = "the end had overtaken it"

// NoteDecided records whether admission allowed a call of the session.
func (s *Session) NoteDecided(callID, tool string, allowed bool) {
	s.questions.noteDecided(callID, tool, allowed)
}

// NoteRefusedNumber records the number of an invalid event, so that it does not seem to be
// missing. It returns the findings that follow.
func (s *Session) NoteRefusedNumber(number int64, id string, seq uint64) []*catalogue.Finding {
	s.reports.findingList = nil
	if e := (&Event{ID: id, Seq: seq, Number: &number}); !s.lifecycle.hasEnded() || s.lifecycle.endOrder.isAfter(e) {
		s.sequence.noteRefused(&s.reports, e)
	}
	return s.reports.findingList
}

// ReportStray returns the finding that the session's first event, which is no start, came while
// another session of the publisher runs.
func (s *Session) ReportStray(e *Event) []*catalogue.Finding {
	s.reports.findingList = nil
	s.lifecycle.reportStray(&s.reports, e)
	return s.reports.findingList
}

// NeverStarted reports whether the session has events and no start.
func (s *Session) NeverStarted() bool { return s.lifecycle.neverStarted() }

// IsRunning reports whether the session has started and has not ended.
func (s *Session) IsRunning() bool { return s.lifecycle.isRunning() }

// SilenceFinding is the finding of a session that stopped without an end (AAEP-C-064); nil if
// it ended or never started.
func (s *Session) SilenceFinding() *catalogue.Finding { return s.lifecycle.silenceFinding() }

// StoredItems is how many items the session stores, each of at most a few KB and usually of
// 100 bytes.
func (s *Session) StoredItems() int {
	return 1 + s.sequence.storedItems() + s.states.storedItems() + s.tools.storedItems() + s.questions.storedItems() + s.outputs.storedItems()
}

// Tombstone is what is kept of a forgotten session.
type Tombstone uint8

const (
	tombstoneKnown Tombstone = 1 << iota
	tombstoneStarted
	tombstoneEnded
)

// Tombstone returns what to keep of the session.
func (s *Session) Tombstone() Tombstone { return s.lifecycle.tombstone() }

// Restore makes a session from a tombstone, for the event with this id and sequence. The zero
// Tombstone makes a new session.
func Restore(m Tombstone, id string, seq uint64) *Session {
	if m == 0 {
		return &Session{}
	}
	return &Session{lifecycle: restoreLifecycle(m, eventRef{id, seq}), questions: questions{incomplete: true}}
}
