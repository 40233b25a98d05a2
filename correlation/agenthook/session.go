// Package agenthook is the state machine of one AgentHook session (SPEC
// sections 3 to 10, AHP-007, AHP-012, AHP-013): order, model calls, attestation,
// approvals as events tell of them, governed calls and web evidence. It is fed a
// session's events in the order of the log and says which checks of the
// catalogue they break. Verdicts and executions are correlated elsewhere.
//
// It is pure: no clock, no randomness, and nothing depends on the order of a
// map. What a session remembers is bounded: see below, and Weight. What the
// bounds make it forget it does not judge.
package agenthook

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// Bounds of one session.
const (
	maxOpenModelCalls = 64
	maxWorkflows      = 64
	maxGoverned       = 256
	maxFingerprints   = 64
	maxWebIDs         = 256 // of each kind of web id
	maxResultSets     = 16  // result sets
	maxOutputs        = 64  // outputs that evidence can be used in
	maxFailModeFired  = 64  // calls with a fail mode that fired before they were announced
)

const attestSkew = 5 * time.Minute

// Session is the state of one session. The zero value is a session of which
// nothing was seen. It checks the order and the identity of its events; each other
// subject is a part, which Apply gives the events.
type Session struct {
	findings findingList `snapshot:"-"` // of one event

	hasEvents, ended       bool
	restored               bool // known from before it was forgotten
	startEvent, endEvent   eventRef
	lastTime               time.Time
	instance               string
	firstCall              eventRef // the first call
	reportedInstance       bool
	reportedRuntimeSession bool
	givenHints             map[string]bool

	gate      gateClaims
	models    modelCalls
	workflows approvalWorkflows
	calls     governedCalls
	hooks     hookClaims
	web       webEvidence
}

// ClaimsGate tells whether the session's attestation claims that calls do not get
// around its gate.
func (s *Session) ClaimsGate() bool { return s.gate.claimsGate() }

// StatesFailMode tells whether the session's attestation or contract says what happens
// without a verdict.
func (s *Session) StatesFailMode() bool { return s.gate.statesFailMode() || s.hooks.statesFailMode() }

// Apply takes the next event of the session and gives the violations that it
// proves, in order.
func (s *Session) Apply(x *Event) []*catalogue.Finding {
	s.findings = nil
	out := &s.findings
	s.reportEventFindings(x)
	s.checkOrder(x)
	s.hooks.noteSeen(x)
	s.checkIdentity(x)
	s.gate.checkAttestation(out, x)
	s.web.noteOutput(out, x)
	s.applyType(x)
	s.workflows.track(out, x)
	s.hooks.checkTrust(out, x)
	s.hooks.checkRequired(out, x)
	if x.webBlock != nil {
		s.web.handle(out, x)
	}
	return s.findings
}

// applyType takes what an event says by its type.
func (s *Session) applyType(x *Event) {
	out := &s.findings
	switch x.Type {
	case agenthook.PreLLMCall:
		s.models.announce(x)
	case agenthook.PostLLMCall:
		s.models.endReported(out, x)
	case agenthook.ErrorOccurred:
		s.applyError(x)
	case agenthook.PreToolUse:
		if s.firstCall == (eventRef{}) {
			s.firstCall = x.eventRef()
		}
		s.gate.checkCall(out, x)
		s.calls.announce(out, x)
	case agenthook.PostToolUse:
		s.calls.end(out, x)
	case agenthook.RuntimeContractLoaded:
		if s.firstCall != (eventRef{}) {
			out.add("AH-C-132", "it came after the call", s.firstCall, x.eventRef())
		}
	case agenthook.SessionEnd:
		s.endSession(x)
	}
}

// applyError takes an error. One about no call ends a model call, too (H-13 of the digest).
func (s *Session) applyError(x *Event) {
	if x.FailMode && x.CallID != "" {
		s.calls.noteFailMode(&s.findings, x)
	}
	s.checkFailedOpen(x)
	if x.CallID == "" {
		s.models.endOldest(&s.findings, x)
	}
}

// checkFailedOpen reports that the fail mode let a call pass although the session's attestation or
// contract says that it does not (SPEC 4, 6).
func (s *Session) checkFailedOpen(x *Event) {
	if !x.letCallPass {
		return
	}
	documented, closed := s.gate.failsClosed()
	if !closed {
		documented, closed = s.hooks.failsClosed()
	}
	if closed {
		found := s.findings.add("AH-C-072", "a call was let pass without a verdict, and the session says that it fails closed", documented, x.eventRef())
		found.Case, found.Call = "fail_mode", x.CallID
	}
}

// ApplyAmended takes another copy of an event that was applied, which differs in what
// it says of verdict and approval.
func (s *Session) ApplyAmended(x *Event) {
	s.calls.noteAmended(x)
	s.web.noteAmended(x)
}

// NoteDecided notes that a verdict is on record on a call that the event pre announced,
// and gives what that proves: nothing before the call is over, as the copy with the
// verdict may come until then.
func (s *Session) NoteDecided(call, pre string) []*catalogue.Finding {
	s.findings = nil
	s.calls.noteDecided(&s.findings, call, pre)
	return s.findings
}

// NoteCallRequested notes that the copy of a request of a call is on the log.
func (s *Session) NoteCallRequested() { s.NoteRequested(agenthook.PreToolUse) }

// NoteRequested notes that the hook of an event asked for admission: the copy of its
// request is not the event, but shows that the hook was there.
func (s *Session) NoteRequested(eventType string) { s.hooks.noteRequested(eventType) }

// EventFindings reports what is wrong with an event of no session.
func EventFindings(x *Event) []*catalogue.Finding {
	s := Session{}
	s.reportEventFindings(x)
	return s.findings
}

// reportEventFindings reports the checks that an event fails by itself; hints once a session.
func (s *Session) reportEventFindings(x *Event) {
	for _, f := range x.eventFindings {
		if f.hint && s.givenHints[f.check] || x.partlyExposed && f.check == "AH-C-031" {
			continue
		}
		found := s.findings.add(f.check, f.text, x.eventRef())
		found.Call = x.CallID
		if found.Case = f.text; f.hint {
			if s.givenHints == nil {
				s.givenHints = map[string]bool{}
			}
			s.givenHints[f.check] = true
			found.Severity = events.SeverityInfo
		}
	}
}

// checkOrder checks that a session's events lie between its start and its end, and
// that its time does not run backwards (CONFORMANCE, Bronze).
func (s *Session) checkOrder(x *Event) {
	switch {
	case s.ended && x.Type == agenthook.SessionStart:
		*s = Session{findings: s.findings, hasEvents: true, givenHints: s.givenHints} // the id is used again
		s.startEvent = x.eventRef()
	case s.ended:
		s.findings.add("AH-C-056", "it came after the end", s.endEvent, x.eventRef())
	case x.Type == agenthook.SessionStart && s.hasEvents && !s.restored:
		s.findings.add("AH-C-056", "the start did not come first", s.startEvent, x.eventRef())
	case !s.hasEvents:
		s.startEvent = x.eventRef()
	}
	// A runtime may load its contract before it has a session to speak of.
	s.hasEvents = s.hasEvents || x.Type != agenthook.RuntimeContractLoaded
	if x.Time.IsZero() {
		return
	}
	if x.Time.Before(s.lastTime) {
		s.findings.add("AH-C-054", "", x.eventRef())
	}
	s.lastTime = x.Time
}

func (s *Session) checkIdentity(x *Event) {
	if x.runtimeSession != "" && x.runtimeSession != x.Session && !s.reportedRuntimeSession {
		s.reportedRuntimeSession = true
		s.findings.add("AH-C-055", "the runtime names another session", x.eventRef()).Case = "session"
	}
	for _, id := range x.instances {
		if s.instance == "" {
			s.instance = id
		}
		if s.instance != id && !s.reportedInstance {
			s.reportedInstance = true
			s.findings.add("AH-C-055", "another instance takes part", x.eventRef()).Case = "instance"
		}
	}
}

// endSession takes the end of the session.
func (s *Session) endSession(x *Event) {
	s.models.reportUnended(&s.findings, x)
	s.calls.endSession(&s.findings, x)
	s.hooks.checkUnseen(&s.findings, x)
	s.ended, s.endEvent = true, x.eventRef()
}

// StoredItems is how many things the session remembers, each of at most about 1 KB
// and usually of 100 bytes.
func (s *Session) StoredItems() int {
	return 1 + s.models.storedItems() + s.workflows.byID.len() + s.calls.storedItems() + s.hooks.storedItems() + s.web.storedItems()
}

// Tombstone is what is kept of a session that is forgotten otherwise.
type Tombstone uint8

const (
	tombstoneKnown Tombstone = 1 << iota
	tombstoneEnded
)

// Tombstone gives what to keep of the session.
func (s *Session) Tombstone() Tombstone {
	if s.ended {
		return tombstoneKnown | tombstoneEnded
	}
	return tombstoneKnown
}

// Restore makes a session of what was kept of it; of zero, a new one.
func Restore(m Tombstone) *Session {
	if m == 0 {
		return &Session{}
	}
	return &Session{
		hasEvents: true, restored: true, ended: m&tombstoneEnded != 0,
		gate: gateClaims{incomplete: true}, models: modelCalls{incomplete: true}, hooks: hookClaims{incomplete: true}, web: webEvidence{incomplete: true},
	}
}
