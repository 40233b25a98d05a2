// Package agenthook is AgentHook at the stage of correlation: how its messages are read into facts
// (Protocol), what one event breaks by itself (NewEvent), what a session breaks (Session) and what
// spans the sessions of a publisher (Attestations, Declarations). Begin reading with Protocol and
// Session.Apply.
//
// A session is checked by SPEC sections 3 to 10, AHP-007, AHP-012 and AHP-013: its order, model calls,
// attestation, approval events, governed calls and web evidence. Apply takes the session's events
// in log order and returns the checks of the catalogue that they break. Verdicts and executions are
// correlated elsewhere.
//
// The package is pure: it has no clock and no randomness, and does not depend on the order of
// a map. The bounds below limit what a session stores (see StoredItems). Forgotten state leads
// to no finding.
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
	maxResultSets     = 16
	maxOutputs        = 64  // outputs that evidence can be used in
	maxDecided        = 256 // verdicts on events that name no call
	maxFailModeFired  = 64  // calls whose fail mode fired before they were announced
)

const attestSkew = 5 * time.Minute

// crossingTime is how far an event's time must lie before that of an earlier one to be a finding:
// each hook of a coding agent is a process of its own, and those of parallel calls overtake each
// other by less.
const crossingTime = time.Second

// lateReport is how much later than other events the report of a call's end may come: a publisher
// repeats it while nothing stores it, the Go client for the longest, some 100 s.
const lateReport = 2 * time.Minute

// Session is the state of one session. The zero value is a session without events. Session
// itself checks the order and the identity of events; Apply passes each event to the parts for
// everything else.
type Session struct {
	findings findingList `snapshot:"-"` // of the current event

	hasEvents, ended       bool
	restored               bool // made from a tombstone
	reportedInstance       bool
	reportedRuntimeSession bool
	startEvent, endEvent   eventRef
	lastTime               time.Time
	instance               string
	firstCall              eventRef
	givenHints             map[string]bool

	decided fifoMap[string] // recorded verdicts on events that name no call, by event id

	gateClaims  gateClaims
	models      modelCalls
	workflows   approvalWorkflows
	calls       governedCalls
	validations failedValidations
	hooks       hookClaims
	web         webEvidence
}

// ClaimsGate reports whether the session's attestation claims that calls cannot bypass its
// gate.
func (s *Session) ClaimsGate() bool { return s.gateClaims.claimsGate() }

// StatesFailMode reports whether the session's attestation or contract says what happens
// without a verdict.
func (s *Session) StatesFailMode() bool {
	return s.gateClaims.statesFailMode() || s.hooks.statesFailMode()
}

// Apply applies the next event of the session and returns its findings, in order.
func (s *Session) Apply(x *Event) []*catalogue.Finding {
	s.findings = nil
	out := &s.findings
	if verdict, known := s.decided.find(x.ID); known {
		x.SetRecordedVerdict(verdict)
	}
	s.reportEventFindings(x)
	s.checkOrder(x)
	s.hooks.noteSeen(x)
	s.checkIdentity(x)
	s.gateClaims.checkAttestation(out, x)
	s.web.noteOutput(out, x)
	s.applyType(x)
	s.validations.track(out, x)
	s.workflows.track(out, x)
	s.hooks.checkTrust(out, x)
	s.hooks.checkRequired(out, x)
	if x.webBlock != nil {
		s.web.handle(out, x)
	}
	return s.findings
}

// applyType passes an event to the parts for its type.
func (s *Session) applyType(x *Event) {
	out := &s.findings
	switch x.Type {
	case agenthook.PreLLMCall:
		s.models.announce(x)
	case agenthook.PostLLMCall:
		s.models.endReported(out, x)
	case agenthook.ToolUseBlocked:
		s.models.endDenied(x.correlation)
	case agenthook.ErrorOccurred:
		s.applyError(x)
	case agenthook.PreToolUse:
		if s.firstCall == (eventRef{}) {
			s.firstCall = x.eventRef()
		}
		s.gateClaims.checkCall(out, x)
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

// applyError applies an error. An error without a call also ends a model call (H-13 of the
// digest).
func (s *Session) applyError(x *Event) {
	if x.FailMode && x.CallID != "" {
		s.calls.noteFailMode(&s.findings, x)
	}
	s.checkFailedOpen(x)
	if x.CallID == "" {
		s.models.endFailed(&s.findings, x)
	}
}

// checkFailedOpen reports a call that the fail mode let pass, although the attestation or the
// contract says that nothing runs without a verdict (SPEC 4, 6).
func (s *Session) checkFailedOpen(x *Event) {
	if !x.letCallPass {
		return
	}
	documented, closed := s.gateClaims.failsClosed()
	if !closed {
		documented, closed = s.hooks.failsClosed()
	}
	if closed {
		found := s.findings.add("AH-C-072", "a call was let pass without a verdict, and the session says that it fails closed", documented, x.eventRef())
		found.Case, found.Call = "fail_mode", x.CallID
	}
}

// ApplyAmended applies another copy of an applied event, with another verdict or approval.
func (s *Session) ApplyAmended(x *Event) {
	s.calls.noteAmended(x)
	s.web.noteAmended(x)
	if x.verdict == string(events.Deny) {
		s.models.endDenied(x.ID)
	}
}

// NoteDecidedEvent records a verdict on an event that names no call: a model call, a web action.
func (s *Session) NoteDecidedEvent(eventID string, v events.Verdict) {
	s.decided.put(eventID, string(v), maxDecided)
	s.web.noteDecided(eventID, string(v))
	if v == events.Deny {
		s.models.endDenied(eventID)
	}
}

// NoteDecided records that a verdict is recorded on the call of event pre, and returns the
// findings of that. That the event lacks the verdict is none while the call is open, because the
// copy with the verdict may still come.
func (s *Session) NoteDecided(call, pre string, allowed bool) []*catalogue.Finding {
	s.findings = nil
	s.calls.noteDecided(&s.findings, call, pre)
	if allowed {
		s.validations.noteAllowed(&s.findings, call, pre)
	}
	return s.findings
}

// NoteCallRequested records that the copy of a call's request is on the log.
func (s *Session) NoteCallRequested() { s.NoteRequested(agenthook.PreToolUse) }

// NoteRequested records that an event's hook asked for admission. The request copy is not the
// event, but it shows that the hook exists.
func (s *Session) NoteRequested(eventType string) { s.hooks.noteRequested(eventType) }

// EventFindings are the checks that an event without a session breaks by itself.
func EventFindings(x *Event) []*catalogue.Finding {
	s := Session{}
	s.reportEventFindings(x)
	return s.findings
}

// reportEventFindings reports the checks that an event breaks by itself. A hint is reported
// once a session.
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

// checkOrder reports events outside the session's start and end, and times that run back
// (CONFORMANCE, Bronze). The report of a call's end that was repeated breaks no order.
func (s *Session) checkOrder(x *Event) {
	back := s.lastTime.Sub(x.Time)
	late := agenthook.ClosesCall(x.Type, x.CallID) && !x.Time.IsZero() && 0 < back && back < lateReport
	switch {
	case s.ended && x.Type == agenthook.SessionStart:
		*s = Session{findings: s.findings, hasEvents: true, givenHints: s.givenHints, decided: s.decided} // a new session under the same id
		s.startEvent = x.eventRef()
	case s.ended && !late:
		s.findings.add("AH-C-056", "it came after the end", s.endEvent, x.eventRef())
	case x.Type == agenthook.SessionStart && s.hasEvents && !s.restored:
		s.findings.add("AH-C-056", "the start did not come first", s.startEvent, x.eventRef())
	case !s.hasEvents:
		s.startEvent = x.eventRef()
	}
	// A runtime may load its contract before its session starts.
	s.hasEvents = s.hasEvents || x.Type != agenthook.RuntimeContractLoaded
	if x.Time.IsZero() || late {
		return
	}
	if s.lastTime.IsZero() || back <= 0 {
		s.lastTime = x.Time
	} else if back >= crossingTime {
		s.findings.add("AH-C-054", "", x.eventRef())
		s.lastTime = x.Time // the next events are held against the clock as it is now
	}
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

// endSession applies the end of the session.
func (s *Session) endSession(x *Event) {
	s.models.reportUnended(&s.findings, x)
	s.calls.endSession(&s.findings, x)
	s.hooks.checkUnseen(&s.findings, x)
	s.ended, s.endEvent = true, x.eventRef()
}

// StoredItems is how many items the session stores, each of at most about 1 KB and usually of
// 100 bytes.
func (s *Session) StoredItems() int {
	return 1 + s.decided.len() + s.models.storedItems() + s.workflows.byID.len() + s.calls.storedItems() + s.validations.byCall.len() + s.hooks.storedItems() + s.web.storedItems()
}

// Tombstone is what is kept of a forgotten session.
type Tombstone uint8

const (
	tombstoneKnown Tombstone = 1 << iota
	tombstoneEnded
)

// Tombstone returns what to keep of the session.
func (s *Session) Tombstone() Tombstone {
	if s.ended {
		return tombstoneKnown | tombstoneEnded
	}
	return tombstoneKnown
}

// Restore makes a session from a tombstone. The zero Tombstone makes a new session.
func Restore(m Tombstone) *Session {
	if m == 0 {
		return &Session{}
	}
	return &Session{
		hasEvents: true, restored: true, ended: m&tombstoneEnded != 0,
		gateClaims: gateClaims{incomplete: true}, models: modelCalls{incomplete: true}, hooks: hookClaims{incomplete: true}, web: webEvidence{incomplete: true},
	}
}
