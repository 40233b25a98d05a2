package agenthook

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// gateClaims are the claims of a session's attestation about the runtime's gate (SPEC 6).
type gateClaims struct {
	incomplete      bool // earlier events of the session are forgotten
	reportedUngated bool // AH-C-124 was reported, which is done once a session
	attestation     *attestation
	firstBoundary   eventRef // the first event that the attestation should have preceded
}

// checkAttestation checks the attestation of an event, and records its claims.
func (gc *gateClaims) checkAttestation(out *findingList, x *Event) {
	if a := x.attestation; a != nil {
		if gc.firstBoundary != (eventRef{}) && gc.attestation == nil && !gc.incomplete {
			out.add("AH-C-121", "", gc.firstBoundary, x.eventRef())
		}
		checkAttestationValidity(out, x, a)
		gc.attestation, a.event = a, x.eventRef()
		if a.claimsGate && a.listsSubscribers && !a.canDeny {
			out.add("AH-C-124", "no subscriber could deny", x.eventRef()).Case = "subscriber"
		}
	}
	switch x.Type {
	case agenthook.SessionStart, agenthook.UserPromptSubmit, agenthook.PreLLMCall, agenthook.PreToolUse:
		if gc.firstBoundary == (eventRef{}) {
			gc.firstBoundary = x.eventRef()
		}
	}
}

// checkCall reports an announced call that does not wait for its verdict, although the
// attestation claims a gate.
func (gc *gateClaims) checkCall(out *findingList, x *Event) {
	if gc.attestation != nil && gc.attestation.claimsGate && x.phase != agenthook.PhasePreCommit && !gc.reportedUngated {
		gc.reportedUngated = true
		out.add("AH-C-124", "a call does not claim pre_commit", gc.attestation.event, x.eventRef()).Call = x.CallID
	}
}

// claimsGate reports whether the attestation claims that calls cannot bypass the gate.
func (gc *gateClaims) claimsGate() bool {
	return gc.attestation != nil && (gc.attestation.claimsGate || gc.attestation.claimsNoBypass)
}

// failsClosed reports whether the attestation says that nothing runs without a verdict, and in
// which event.
func (gc *gateClaims) failsClosed() (eventRef, bool) {
	if gc.attestation == nil {
		return eventRef{}, false
	}
	return gc.attestation.event, gc.attestation.failsClosed
}

// statesFailMode reports whether the attestation says what happens without a verdict.
func (gc *gateClaims) statesFailMode() bool {
	return gc.attestation != nil && gc.attestation.statesFailMode
}

func checkAttestationValidity(out *findingList, x *Event, a *attestation) {
	if a.session != "" && a.session != x.Session {
		out.add("AH-C-122", "it is for another session", x.eventRef()).Case = "session"
	}
	issued, expires := fact.ParseInstant(a.issued), fact.ParseInstant(a.expires)
	early := !issued.IsZero() && x.Time.Add(attestSkew).Before(issued)
	late := !expires.IsZero() && x.Time.After(expires)
	if !x.Time.IsZero() && (early || late) {
		out.add("AH-C-122", "it is for another time", x.eventRef()).Case = "time"
	}
}
