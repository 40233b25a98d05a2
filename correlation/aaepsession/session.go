// Package aaepsession is the state machine of one AAEP session (AAEP 1.0.0,
// chapters 4 and 6, appendix A): what may follow what, which tool is open, who
// was asked what, and which output is complete. It is fed a session's events in
// the order of the log and says which checks of the catalogue they break.
//
// It is pure: no clock, no randomness, and nothing depends on the order of a
// map. What a session remembers is bounded: see below, and Weight. What the
// bounds make it forget it does not judge.
package aaepsession

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/aaep"
)

// Bounds of one session.
const (
	maxOpen    = 256 // invocations that are open; the oldest are forgotten
	maxAsks    = 64  // questions; the oldest that are resolved are forgotten first
	maxOutputs = 64  // outputs; the oldest that are closed are forgotten first
	maxTools   = 256 // announced tools; of longer lists nothing is checked
	maxGaps    = 16  // stretches of missing sequence numbers; the oldest are forgotten
	maxGap     = 256 // numbers in one; of longer ones it is not noticed that they came late
	maxAnswers = 8   // answers to one question that are told from repeated deliveries
)

// Tolerances.
const (
	maxAhead  = 5 * time.Minute  // of a publisher's clock
	maxBehind = 24 * time.Hour   // likewise
	grace     = 10 * time.Second // for a reply on its way, in broker time
	clockSkew = time.Second      // between the clocks of publisher and subscriber
)

// Session is the state of one session. The zero value is a session of which
// nothing was seen.
type Session struct {
	out []*catalogue.Breach `snapshot:"-"` // of one event

	begun, started, ended bool
	restored              bool // known from before it was forgotten: counts and tables are not complete
	start, end            ref
	overtook              *overtaking
	startTime             time.Time

	numbering numbering
	last      int64 // sequence number
	gaps      []gap
	lastTime  time.Time

	state     string // as the last change of state said; "" if none did
	unleft    ref    // the question that was resolved in awaiting_input, which has not been left since; zero if none was
	wentOn    bool   // the session acted since that question was resolved
	explained bool   // something happened since that explains another state
	phases    phase

	tools       map[string]bool
	open        []*invocation
	invocations int64
	asks        []*ask
	outputs     []*output
	streams     stream

	hinted hints
	said   said
}

// ref is an event as evidence.
type ref struct {
	id  string
	seq uint64
}

func (e *Event) ref() ref { return ref{e.ID, e.Seq} }

// said holds what is said once a session.
type said uint8

const (
	saidSkew said = 1 << iota
	saidQuietState
	saidMixedOutputs
)

// breach notes a violation that these events prove. The caller may complete it
// before the next one is noted.
func (s *Session) breach(check, what string, proof ...ref) *catalogue.Breach {
	b := &catalogue.Breach{Check: check, What: what}
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
func (s *Session) Apply(e *Event) []*catalogue.Breach {
	s.out = nil
	switch p := e.Payload.(type) {
	case *aaep.ConfirmationReply:
		s.automatic(e, p.DecidedBy)
		s.reply(e, p.ReplyToken, answer{p.SubscriptionID, p.Decision, "", e.Time})
		return s.out
	case *aaep.ClarificationReply:
		s.automatic(e, p.DecidedBy)
		s.reply(e, p.ReplyToken, answer{p.SubscriptionID, p.Response, p.ResponseKind, e.Time})
		return s.out
	}
	s.hint(e)
	s.skew(e)
	if !s.lifecycle(e) {
		return s.out
	}
	if inOrder := s.number(e); inOrder {
		s.clock(e)
	}
	s.elapse(e)
	s.follow(e)
	switch p := e.Payload.(type) {
	case *aaep.SessionStarted:
		s.begin(e, p)
	case *aaep.StateChanged:
		s.changed(e, p)
	case *aaep.ProgressUpdated:
		s.progressed()
	case *aaep.ToolInvoked:
		s.invoked(e, p)
	case *aaep.ToolCompleted:
		s.completed(e, p)
	case *aaep.OutputStreaming:
		s.streamed(e, p)
	case *aaep.AwaitingConfirmation:
		s.confirm(e, p)
	case *aaep.AwaitingClarification:
		s.clarify(e, p)
	case *aaep.HandoffRequested:
		s.explained = true
	}
	if e.terminal() {
		s.finish(e)
	}
	return s.out
}

// lifecycle tells whether there is more to say about the event than that it
// comes at the wrong time (AAEP 4.1, 4.5.1).
func (s *Session) lifecycle(e *Event) bool {
	_, starts := e.Payload.(*aaep.SessionStarted)
	switch {
	case starts && s.started:
		s.breach("AAEP-C-061", "", s.start, e.ref())
		s.breach("AAEP-C-051", "", s.start, e.ref())
		if s.ended { // take it for the session that it says it is
			*s = Session{out: s.out, begun: true, hinted: s.hinted, said: s.said}
		}
		if e.Number != nil && *e.Number == 0 {
			s.numbering = unnumbered // it counts from the beginning, too
		}
	case starts || s.restored:
	case !s.started && !s.begun:
		if b := s.breach("AAEP-C-060", "", e.ref()); e.ID != "" {
			s.overtook = &overtaking{b, e.Time, e.Number}
		}
	}
	s.begun = true
	if !s.ended || starts {
		return true
	}
	if e.terminal() {
		s.breach("AAEP-C-062", "", s.end, e.ref())
	} else {
		s.breach("AAEP-C-063", "", s.end, e.ref())
	}
	return false
}

// overtaking is an event that came before another, and what was said of it for that.
type overtaking struct {
	said   *catalogue.Breach
	time   time.Time
	number *int64
}

// by tells whether the other was emitted before it, by its number or else its time.
func (o *overtaking) by(other *Event) bool {
	if o.number != nil && other.Number != nil {
		return *other.Number < *o.number
	}
	return !other.Time.IsZero() && other.Time.Before(o.time)
}

func (s *Session) begin(e *Event, p *aaep.SessionStarted) {
	if !s.started {
		s.start, s.startTime = e.ref(), e.when()
	}
	if o := s.overtook; o != nil && o.by(e) {
		s.retract(o.said, "its start was under way", e)
	}
	s.overtook = nil
	s.started = true
	if len(p.ToolsAvailable) > 0 && len(p.ToolsAvailable) <= maxTools {
		s.tools = make(map[string]bool, len(p.ToolsAvailable))
		for _, t := range p.ToolsAvailable {
			s.tools[bounded(t)] = true
		}
	}
}

// Unstarted tells whether the session has events and never started.
func (s *Session) Unstarted() bool { return s.begun && !s.started && !s.restored }

// Running tells whether the session has started and not ended.
func (s *Session) Running() bool { return s.started && !s.ended }

// Silent gives the breach of a session that fell silent without an end
// (AAEP-C-064), nil if it has ended or never began.
func (s *Session) Silent() *catalogue.Breach {
	if !s.Running() {
		return nil
	}
	q := Session{}
	return q.breach("AAEP-C-064", "", s.start)
}

// Weight is how many things the session remembers, each of at most a few KB and
// usually of 100 bytes.
func (s *Session) Weight() int {
	return 1 + len(s.gaps) + len(s.tools) + len(s.open) + len(s.asks) + len(s.outputs)
}

// Memory is what is kept of a session that is forgotten otherwise.
type Memory uint8

const (
	memoryKnown Memory = 1 << iota
	memoryStarted
	memoryEnded
)

// Memory gives what to keep of the session.
func (s *Session) Memory() Memory {
	m := memoryKnown
	if s.started {
		m |= memoryStarted
	}
	if s.ended {
		m |= memoryEnded
	}
	return m
}

// Restore makes a session of what was kept of it; of zero, a new one.
func Restore(m Memory) *Session {
	if m == 0 {
		return &Session{}
	}
	return &Session{begun: true, restored: true, started: m&memoryStarted != 0, ended: m&memoryEnded != 0}
}
