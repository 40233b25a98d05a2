package agenthook

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// governedCall is a call with an event of the action-governance profile.
type governedCall struct {
	preEvent         eventRef
	callID           string
	unstampedEvent   eventRef           // it lacks pre_commit or a verdict; zero if it does not, need not, or that was said
	claimsPreCommit  bool               // it claims pre_commit
	carriesVerdict   bool               // it has a verdict
	verdictRecorded  bool               // a verdict on it is on record
	validationFailed bool               // its validation failed
	ended            bool               // it was said how it ended
	unstampedFinding *catalogue.Finding // AH-C-032, if that was found of it
}

// handleError: an error about no call ends a model call, too (H-13 of the digest).
func (s *Session) handleError(x *Event) {
	if x.FailMode && x.CallID != "" {
		s.retractUnstamped(x)
	}
	s.checkFailedOpen(x)
	if x.CallID == "" {
		s.endModelCall(x)
	}
}

// checkFailedOpen: the fail mode let a call pass, and the session's attestation or
// contract says that it does not (SPEC 4, 6).
func (s *Session) checkFailedOpen(x *Event) {
	var documented eventRef
	switch {
	case !x.letCallPass:
		return
	case s.attestation != nil && s.attestation.failsClosed:
		documented = s.attestationEvent
	case s.contract != nil && s.contract.failsClosed:
		documented = s.contractEvent
	default:
		return
	}
	b := s.addFinding("AH-C-072", "a call was let pass without a verdict, and the session says that it fails closed", documented, x.eventRef())
	b.Case, b.Call = "fail_mode", x.CallID
}

// StatesFailMode tells whether the session's attestation or contract says what happens
// without a verdict.
func (s *Session) StatesFailMode() bool {
	return s.attestation != nil && s.attestation.statesFailMode || s.contract != nil && s.contract.statesFailMode
}

// retractUnstamped: the fail mode fired for a call, which then needs no verdict. Events
// overtake each other: the call may be announced later, or be over.
func (s *Session) retractUnstamped(x *Event) {
	g := s.governedCalls.get(x.CallID)
	switch {
	case g == nil || (g.ended && g.missingPart() == "" && g.unstampedFinding == nil):
		s.failModeFired.put(x.CallID, x.eventRef(), maxFailModeFired)
	case g.unstampedFinding != nil && len(g.unstampedFinding.Events) > 0:
		b := s.addFinding("AH-C-032", "its fail mode had fired", x.eventRef())
		b.Call, b.Replaces, b.RetractsOnly = x.CallID, g.unstampedFinding, true
	}
	if g != nil {
		g.unstampedEvent, g.unstampedFinding = eventRef{}, nil
	}
}

func (s *Session) announceCall(x *Event) {
	excused := s.failModeFired.removeKey(x.CallID)
	if s.firstCall == (eventRef{}) {
		s.firstCall = x.eventRef()
	}
	if s.attestation != nil && s.attestation.claimsGate && x.phase != agenthook.PhasePreCommit && !s.reportedUngated {
		s.reportedUngated = true
		s.addFinding("AH-C-124", "a call does not claim pre_commit", s.attestationEvent, x.eventRef()).Call = x.CallID
	}
	if !x.governed || x.CallID == "" {
		return
	}
	g := &governedCall{preEvent: x.eventRef(), callID: x.CallID, validationFailed: x.validationFailed, claimsPreCommit: x.phase == agenthook.PhasePreCommit, carriesVerdict: x.verdict != ""}
	if (!g.claimsPreCommit || !g.carriesVerdict) && !excused {
		g.unstampedEvent = x.eventRef()
	}
	if old := s.governedCalls.get(x.CallID); old != nil {
		s.reportUnstamped(old, x.eventRef())
	}
	s.governedCalls.put(x.CallID, g, maxGoverned)
}

// missingPart says what an admission-bound call lacks, "" if nothing or if it is none. It
// is admission-bound if it claims so or if a verdict on it is on record, whatever it
// says itself.
func (g *governedCall) missingPart() string {
	switch {
	case g.unstampedEvent == (eventRef{}) || !g.claimsPreCommit && !g.verdictRecorded:
		return ""
	case !g.carriesVerdict:
		return "the verdict is missing"
	}
	return "a verdict on it is on record, and it does not claim pre_commit"
}

// markStamped notes that a copy of the event has the verdict.
func (g *governedCall) markStamped() {
	if g.carriesVerdict = true; g.claimsPreCommit {
		g.unstampedEvent = eventRef{}
	}
}

// reportUnstamped: phase and verdict must be on the event, unless the fail mode fired. x is
// what showed that they are not.
func (s *Session) reportUnstamped(g *governedCall, x eventRef) {
	if g == nil || g.missingPart() == "" {
		return
	}
	g.unstampedFinding = s.addFinding("AH-C-032", g.missingPart(), g.unstampedEvent, x)
	g.unstampedFinding.Call = g.callID
	g.unstampedEvent = eventRef{}
}

// NoteDecided notes that a verdict is on record on a call that the event pre announced,
// and gives what that proves: nothing before the call is over, as the copy with the
// verdict may come until then.
func (s *Session) NoteDecided(call, pre string) []*catalogue.Finding {
	s.out = nil
	if g := s.governedCalls.get(call); g != nil && g.preEvent.id == pre {
		if g.verdictRecorded = true; g.ended {
			s.reportUnstamped(g, eventRef{})
		}
	}
	return s.out
}

func (s *Session) endCall(x *Event) {
	g := s.governedCalls.get(x.CallID)
	if g == nil {
		if x.governed {
			s.checkEndedCall(x, x.eventRef())
		}
		return
	}
	s.reportUnstamped(g, x.eventRef())
	g.ended = true
	s.checkEndedCall(x, g.preEvent)
	if g.validationFailed && x.execution != nil && x.execution.Outcome == "succeeded" {
		s.addFinding("AH-C-037", "succeeded", g.preEvent, x.eventRef()).Call = x.CallID
	}
}

// checkEndedCall: what a governed call must say when it is over (AHP-013).
func (s *Session) checkEndedCall(x *Event, pre eventRef) {
	what := ""
	switch {
	case x.CallID == "":
		what = "tool_call_id"
	case x.execution == nil || x.execution.Outcome == "":
		what = "the outcome"
	case !x.hasExecuted && !x.execution.DidNotRun(false):
		what = "the executed input"
	}
	if what != "" {
		s.addFinding("AH-C-033", what+" is missing", pre, x.eventRef()).Call = x.CallID
	}
}

// checkAttestation checks a session's attestation (SPEC 6).
func (s *Session) checkAttestation(x *Event) {
	if a := x.attestation; a != nil {
		if s.firstBoundary != (eventRef{}) && s.attestation == nil && !s.restored {
			s.addFinding("AH-C-121", "", s.firstBoundary, x.eventRef())
		}
		s.checkAttestationValidity(x, a)
		s.attestation, s.attestationEvent = a, x.eventRef()
		if a.claimsGate && a.listsSubscribers && !a.canDeny {
			s.addFinding("AH-C-124", "no subscriber could deny", x.eventRef()).Case = "subscriber"
		}
	}
	switch x.Type {
	case agenthook.SessionStart, agenthook.PreLLMCall, agenthook.UserPromptSubmit:
		if s.firstBoundary == (eventRef{}) {
			s.firstBoundary = x.eventRef()
		}
	}
}

func (s *Session) checkAttestationValidity(x *Event, a *attestation) {
	if a.session != "" && a.session != x.Session {
		s.addFinding("AH-C-122", "it is for another session", x.eventRef()).Case = "session"
	}
	issued, expires := parseInstant(a.issued), parseInstant(a.expires)
	early := !issued.IsZero() && x.Time.Add(attestSkew).Before(issued)
	late := !expires.IsZero() && x.Time.After(expires)
	if !x.Time.IsZero() && (early || late) {
		s.addFinding("AH-C-122", "it is for another time", x.eventRef()).Case = "time"
	}
}
