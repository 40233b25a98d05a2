// Package aaep is the state machine of one AAEP session (AAEP 1.0.0,
// chapters 4 and 6, appendix A): what may follow what, which tool is open, who
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
// nothing was seen.
type Session struct {
	out []*catalogue.Finding `snapshot:"-"` // of one event

	hasEvents, started, ended bool
	restored                  bool // known from before it was forgotten: counts and tables are not complete
	startEvent, endEvent      eventRef
	overtakenStart            *overtakenFinding
	startTime                 time.Time

	numbering  numbering
	lastNumber int64 // sequence number
	gaps       []gap
	lastTime   time.Time

	state            string   // as the last change of state said; "" if none did
	unleftQuestion   eventRef // the question that was resolved in awaiting_input, which has not been left since; zero if none was
	actedSinceAnswer bool     // the session acted since that question was resolved
	stateExplained   bool     // something happened since that explains another state
	announcedPhases  announcedPhases

	announcedTools  map[string]bool
	openInvocations []*invocation
	invocationCount int64
	questions       []*userQuestion
	outputs         []*streamedOutput
	streamNaming    namingSet

	givenHints   hintSet
	reportedOnce onceFlags
}

// eventRef is an event as evidence.
type eventRef struct {
	id  string
	seq uint64
}

func (e *Event) eventRef() eventRef { return eventRef{e.ID, e.Seq} }

// onceFlags holds what is said once a session.
type onceFlags uint8

const (
	reportedSkew onceFlags = 1 << iota
	reportedQuietState
	reportedMixedOutputs
)

// addFinding notes a violation that these events prove. The caller may complete it
// before the next one is noted.
func (s *Session) addFinding(check, what string, proof ...eventRef) *catalogue.Finding {
	b := &catalogue.Finding{Check: check, Text: what}
	for _, p := range proof {
		if p.id != "" {
			b.Events = append(b.Events, p.id)
		}
		if p.seq != 0 {
			b.Seqs = append(b.Seqs, p.seq)
		}
	}
	s.out = append(s.out, b)
	return b
}

// Apply takes the next event of the session, or a reply to one of its
// questions, and gives the violations that it proves, in order.
func (s *Session) Apply(e *Event) []*catalogue.Finding {
	s.out = nil
	switch p := e.Payload.(type) {
	case *aaep.ConfirmationReply:
		s.checkAutomaticReply(e, p.DecidedBy)
		s.handleReply(e, p.ReplyToken, replyContent{p.SubscriptionID, p.Decision, "", e.Time})
		return s.out
	case *aaep.ClarificationReply:
		s.checkAutomaticReply(e, p.DecidedBy)
		s.handleReply(e, p.ReplyToken, replyContent{p.SubscriptionID, p.Response, p.ResponseKind, e.Time})
		return s.out
	}
	s.reportHints(e)
	s.checkSkew(e)
	if !s.checkLifecycle(e) {
		return s.out
	}
	if inOrder := s.checkNumber(e); inOrder {
		s.checkClock(e)
	}
	s.expireQuestions(e)
	s.noteOutcomesSeen(e)
	switch p := e.Payload.(type) {
	case *aaep.SessionStarted:
		s.startSession(e, p)
	case *aaep.StateChanged:
		s.handleStateChange(e, p)
	case *aaep.ProgressUpdated:
		s.noteProgress()
	case *aaep.ToolInvoked:
		s.handleInvocation(e, p)
	case *aaep.ToolCompleted:
		s.handleCompletion(e, p)
	case *aaep.OutputStreaming:
		s.handleChunk(e, p)
	case *aaep.AwaitingConfirmation:
		s.askConfirmation(e, p)
	case *aaep.AwaitingClarification:
		s.askClarification(e, p)
	case *aaep.HandoffRequested:
		s.stateExplained = true
	}
	if e.isTerminal() {
		s.endSession(e)
	}
	return s.out
}

// checkLifecycle tells whether there is more to say about the event than that it
// comes at the wrong time (AAEP 4.1, 4.5.1).
func (s *Session) checkLifecycle(e *Event) bool {
	_, starts := e.Payload.(*aaep.SessionStarted)
	switch {
	case starts && s.started:
		s.addFinding("AAEP-C-061", "", s.startEvent, e.eventRef())
		s.addFinding("AAEP-C-051", "", s.startEvent, e.eventRef())
		if s.ended { // take it for the session that it says it is
			*s = Session{out: s.out, hasEvents: true, givenHints: s.givenHints, reportedOnce: s.reportedOnce}
		}
		if e.Number != nil && *e.Number == 0 {
			s.numbering = unnumbered // it counts from the beginning, too
		}
	case starts || s.restored:
	case !s.started && !s.hasEvents:
		if b := s.addFinding("AAEP-C-060", "", e.eventRef()); e.ID != "" {
			s.overtakenStart = &overtakenFinding{b, e.Time, e.Number}
		}
	}
	s.hasEvents = true
	if !s.ended || starts {
		return true
	}
	if e.isTerminal() {
		s.addFinding("AAEP-C-062", "", s.endEvent, e.eventRef())
	} else {
		s.addFinding("AAEP-C-063", "", s.endEvent, e.eventRef())
	}
	return false
}

// overtakenFinding is an event that came before another, and what was said of it for that.
type overtakenFinding struct {
	finding *catalogue.Finding
	time    time.Time
	number  *int64
}

// isEarlier tells whether the other was emitted before it, by its number or else its time.
func (o *overtakenFinding) isEarlier(other *Event) bool {
	if o.number != nil && other.Number != nil {
		return *other.Number < *o.number
	}
	return !other.Time.IsZero() && other.Time.Before(o.time)
}

func (s *Session) startSession(e *Event, p *aaep.SessionStarted) {
	if !s.started {
		s.startEvent, s.startTime = e.eventRef(), e.producerTime()
	}
	if o := s.overtakenStart; o != nil && o.isEarlier(e) {
		s.retractFinding(o.finding, "its start was under way", e)
	}
	s.overtakenStart = nil
	s.started = true
	if len(p.ToolsAvailable) > 0 && len(p.ToolsAvailable) <= maxTools {
		s.announcedTools = make(map[string]bool, len(p.ToolsAvailable))
		for _, t := range p.ToolsAvailable {
			s.announcedTools[boundID(t)] = true
		}
	}
}

// NeverStarted tells whether the session has events and never started.
func (s *Session) NeverStarted() bool { return s.hasEvents && !s.started && !s.restored }

// IsRunning tells whether the session has started and not ended.
func (s *Session) IsRunning() bool { return s.started && !s.ended }

// SilenceFinding gives the breach of a session that fell silent without an end
// (AAEP-C-064), nil if it has ended or never began.
func (s *Session) SilenceFinding() *catalogue.Finding {
	if !s.IsRunning() {
		return nil
	}
	q := Session{}
	return q.addFinding("AAEP-C-064", "", s.startEvent)
}

// StoredItems is how many things the session remembers, each of at most a few KB and
// usually of 100 bytes.
func (s *Session) StoredItems() int {
	return 1 + len(s.gaps) + len(s.announcedTools) + len(s.openInvocations) + len(s.questions) + len(s.outputs)
}

// Tombstone is what is kept of a session that is forgotten otherwise.
type Tombstone uint8

const (
	tombstoneKnown Tombstone = 1 << iota
	tombstoneStarted
	tombstoneEnded
)

// Tombstone gives what to keep of the session.
func (s *Session) Tombstone() Tombstone {
	m := tombstoneKnown
	if s.started {
		m |= tombstoneStarted
	}
	if s.ended {
		m |= tombstoneEnded
	}
	return m
}

// Restore makes a session of what was kept of it; of zero, a new one.
func Restore(m Tombstone) *Session {
	if m == 0 {
		return &Session{}
	}
	return &Session{hasEvents: true, restored: true, started: m&tombstoneStarted != 0, ended: m&tombstoneEnded != 0}
}
