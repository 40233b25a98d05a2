// Package aaep is the state machine of one AAEP session (AAEP 1.0.0,
// chapters 4 and 6, appendix A): what may follow what, which tool is open, which user
// was asked what, and which output is complete. It is fed a session's events in
// the order of the log and says which checks of the catalogue they break.
//
// It is pure: no clock, no randomness, and nothing depends on the order of a
// map. What a session remembers is bounded: see below, and Weight. What the
// bounds make it forget it does not judge.
package aaep

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/aaep"
)

// Bounds of one session.
const (
	maxOpenInvocations = 256 // invocations that are open; the oldest are forgotten
	maxQuestions       = 64  // questions; the oldest that are resolved are forgotten first
	maxOutputs         = 64  // outputs; the oldest that are closed are forgotten first
	maxTools           = 256 // announced tools; of longer lists nothing is checked
	maxGaps            = 16  // stretches of missing sequence numbers; the oldest are forgotten
	maxGap             = 256 // numbers in one; of longer ones it is not noticed that they came late
	maxReplies         = 8   // answers to one question that are told from repeated deliveries
)

// Tolerances.
const (
	maxClockAhead  = 5 * time.Minute  // of a publisher's clock
	maxClockBehind = 24 * time.Hour   // likewise
	replyGrace     = 10 * time.Second // for a reply on its way, in broker time
	clockSkew      = time.Second      // between the clocks of publisher and subscriber
)

// Session is the state of one session. The zero value is a session of which
// nothing was seen. Each part keeps its own state: the session passes an event to the parts in
// order, and a part that needs another is handed it and calls its methods.
type Session struct {
	reports   reports
	lifecycle lifecycle
	sequence  sequence
	states    states
	tools     tools
	questions questions
	outputs   outputs
}

// eventRef is an event as evidence.
type eventRef struct {
	id  string
	seq uint64
}

func (e *Event) eventRef() eventRef { return eventRef{e.ID, e.Seq} }

// Apply takes the next event of the session, or a reply to one of its
// questions, and gives the violations that it proves, in order.
func (s *Session) Apply(e *Event) []*catalogue.Finding {
	r := &s.reports
	r.findingList = nil
	switch p := e.Payload.(type) {
	case *aaep.ConfirmationReply:
		r.checkAutomaticReply(e, p.DecidedBy)
		s.questions.handleReply(r, &s.states, e, p.ReplyToken, replyContent{p.SubscriptionID, p.Decision, "", e.Time})
		return r.findingList
	case *aaep.ClarificationReply:
		r.checkAutomaticReply(e, p.DecidedBy)
		s.questions.handleReply(r, &s.states, e, p.ReplyToken, replyContent{p.SubscriptionID, p.Response, p.ResponseKind, e.Time})
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
	s.questions.expire(r, &s.states, e)
	s.questions.noteOutcomesSeen(e)
	s.applyPayload(e)
	if e.isTerminal() {
		s.endSession(e)
	}
	return r.findingList
}

// applyPayload passes an event to the parts that it concerns.
func (s *Session) applyPayload(e *Event) {
	r := &s.reports
	switch p := e.Payload.(type) {
	case *aaep.SessionStarted:
		s.lifecycle.start(r, e)
		s.tools.announce(p.ToolsAvailable)
	case *aaep.StateChanged:
		s.states.checkChange(r, e, p, s.lifecycle.isComplete())
		s.tools.checkLeftCalling(r, e, p)
		if s.states.leavesAwaiting(p) {
			s.questions.supersedePending()
		}
		s.states.enter(p)
	case *aaep.ProgressUpdated:
		s.questions.noteProgress()
	case *aaep.ToolInvoked:
		s.states.noteAction()
		s.tools.handleInvocation(r, &s.questions, e, p)
	case *aaep.ToolCompleted:
		s.states.noteActivity()
		s.tools.handleCompletion(r, e, p)
	case *aaep.OutputStreaming:
		s.states.noteWriting()
		s.outputs.handleChunk(r, e, p)
	case *aaep.AwaitingConfirmation:
		s.states.noteActivity()
		s.questions.askConfirmation(r, &s.tools, e, p)
	case *aaep.AwaitingClarification:
		s.states.noteActivity()
		s.questions.askClarification(e, p)
	case *aaep.HandoffRequested:
		s.states.noteActivity()
	}
}

// checkLifecycle tells whether there is more to say about the event than that it
// comes at the wrong time (AAEP 4.1, 4.5.1).
func (s *Session) checkLifecycle(e *Event) bool {
	if s.lifecycle.checkSecondStart(&s.reports, e) {
		if s.lifecycle.hasEnded() { // take it for the session that it says it is
			*s = Session{reports: s.reports}
		}
		if e.Number != nil && *e.Number == 0 {
			s.sequence.restart() // it counts from the beginning, too
		}
	}
	return s.lifecycle.check(&s.reports, e)
}

// endSession takes the terminal event.
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

// NoteRefusedNumber notes the number of an event that does not count, so that it is not taken
// for missing, and gives the findings that it takes back.
func (s *Session) NoteRefusedNumber(number int64, id string, seq uint64) []*catalogue.Finding {
	s.reports.findingList = nil
	if !s.lifecycle.hasEnded() {
		s.sequence.noteRefused(&s.reports, &Event{ID: id, Seq: seq, Number: &number})
	}
	return s.reports.findingList
}

// NeverStarted tells whether the session has events and never started.
func (s *Session) NeverStarted() bool { return s.lifecycle.neverStarted() }

// IsRunning tells whether the session has started and not ended.
func (s *Session) IsRunning() bool { return s.lifecycle.isRunning() }

// SilenceFinding gives the finding of a session that fell silent without an end
// (AAEP-C-064), nil if it has ended or never began.
func (s *Session) SilenceFinding() *catalogue.Finding { return s.lifecycle.silenceFinding() }

// StoredItems is how many things the session remembers, each of at most a few KB and
// usually of 100 bytes.
func (s *Session) StoredItems() int {
	return 1 + s.sequence.storedItems() + s.tools.storedItems() + s.questions.storedItems() + s.outputs.storedItems()
}

// Tombstone is what is kept of a session that is forgotten otherwise.
type Tombstone uint8

const (
	tombstoneKnown Tombstone = 1 << iota
	tombstoneStarted
	tombstoneEnded
)

// Tombstone gives what to keep of the session.
func (s *Session) Tombstone() Tombstone { return s.lifecycle.tombstone() }

// Restore makes a session of what was kept of it; of zero, a new one.
func Restore(m Tombstone) *Session {
	if m == 0 {
		return &Session{}
	}
	return &Session{lifecycle: restoreLifecycle(m)}
}
