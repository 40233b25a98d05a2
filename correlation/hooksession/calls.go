package hooksession

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// governed is a call whose event is one of the action-governance profile.
type governed struct {
	pre       ref
	call      string
	unstamped ref               // it lacks pre_commit or a verdict; zero if it does not, need not, or that was said
	phased    bool              // it claims pre_commit
	stamped   bool              // it has a verdict
	decided   bool              // a verdict on it is on record
	failed    bool              // its validation failed
	over      bool              // it was said how it ended
	said      *catalogue.Breach // AH-C-032, if that was found of it
}

// failure: an error about no call ends a model call, too (H-13 of the digest).
func (s *Session) failure(x *Event) {
	if x.FailMode && x.Call != "" {
		s.excuse(x)
	}
	s.failedOpen(x)
	if x.Call == "" {
		s.endLLM(x)
	}
}

// failedOpen: the fail mode let a call pass, and the session's attestation or
// contract says that it does not (SPEC 4, 6).
func (s *Session) failedOpen(x *Event) {
	var documented ref
	switch {
	case !x.letPass:
		return
	case s.attested != nil && s.attested.closed:
		documented = s.attestation
	case s.contract != nil && s.contract.closed:
		documented = s.contracted
	default:
		return
	}
	b := s.breach("AH-C-072", "a call was let pass without a verdict, and the session says that it fails closed", documented, x.ref())
	b.Case, b.Call = "fail_mode", x.Call
}

// Documents tells whether the session's attestation or contract says what happens
// without a verdict.
func (s *Session) Documents() bool {
	return s.attested != nil && s.attested.documents || s.contract != nil && s.contract.documents
}

// excuse: the fail mode fired for a call, which then needs no verdict. Events
// overtake each other: the call may be announced later, or be over.
func (s *Session) excuse(x *Event) {
	g := s.governed.get(x.Call)
	switch {
	case g == nil || (g.over && g.lacks() == "" && g.said == nil):
		s.excused.put(x.Call, x.ref(), maxEarly)
	case g.said != nil && len(g.said.Events) > 0:
		b := s.breach("AH-C-032", "its fail mode had fired", x.ref())
		b.Call, b.Withdraws, b.Retracts = x.Call, g.said, true
	}
	if g != nil {
		g.unstamped, g.said = ref{}, nil
	}
}

func (s *Session) pre(x *Event) {
	excused := s.excused.take(x.Call)
	if s.acted == (ref{}) {
		s.acted = x.ref()
	}
	if s.attested != nil && s.attested.gated && x.phase != agenthook.PhasePreCommit && !s.ungated {
		s.ungated = true
		s.breach("AH-C-124", "a call does not claim pre_commit", s.attestation, x.ref()).Call = x.Call
	}
	if !x.governed || x.Call == "" {
		return
	}
	g := &governed{pre: x.ref(), call: x.Call, failed: x.failed, phased: x.phase == agenthook.PhasePreCommit, stamped: x.verdict != ""}
	if (!g.phased || !g.stamped) && !excused {
		g.unstamped = x.ref()
	}
	if old := s.governed.get(x.Call); old != nil {
		s.unstamped(old, x.ref())
	}
	s.governed.put(x.Call, g, maxGoverned)
}

// lacks says what an admission-bound call lacks, "" if nothing or if it is none. It
// is admission-bound if it claims so or if a verdict on it is on record, whatever it
// says itself.
func (g *governed) lacks() string {
	switch {
	case g.unstamped == (ref{}) || !g.phased && !g.decided:
		return ""
	case !g.stamped:
		return "the verdict is missing"
	}
	return "a verdict on it is on record, and it does not claim pre_commit"
}

// stamp notes that a copy of the event has the verdict.
func (g *governed) stamp() {
	if g.stamped = true; g.phased {
		g.unstamped = ref{}
	}
}

// unstamped: phase and verdict must be on the event, unless the fail mode fired. x is
// what showed that they are not.
func (s *Session) unstamped(g *governed, x ref) {
	if g == nil || g.lacks() == "" {
		return
	}
	g.said = s.breach("AH-C-032", g.lacks(), g.unstamped, x)
	g.said.Call = g.call
	g.unstamped = ref{}
}

// Decided notes that a verdict is on record on a call that the event pre announced,
// and gives what that proves: nothing before the call is over, as the copy with the
// verdict may come until then.
func (s *Session) Decided(call, pre string) []*catalogue.Breach {
	s.out = nil
	if g := s.governed.get(call); g != nil && g.pre.id == pre {
		if g.decided = true; g.over {
			s.unstamped(g, ref{})
		}
	}
	return s.out
}

func (s *Session) post(x *Event) {
	g := s.governed.get(x.Call)
	if g == nil {
		if x.governed {
			s.afterwards(x, x.ref())
		}
		return
	}
	s.unstamped(g, x.ref())
	g.over = true
	s.afterwards(x, g.pre)
	if g.failed && x.execution != nil && x.execution.Outcome == "succeeded" {
		s.breach("AH-C-037", "succeeded", g.pre, x.ref()).Call = x.Call
	}
}

// afterwards: what a governed call must say when it is over (AHP-013).
func (s *Session) afterwards(x *Event, pre ref) {
	what := ""
	switch {
	case x.Call == "":
		what = "tool_call_id"
	case x.execution == nil || x.execution.Outcome == "":
		what = "the outcome"
	case !x.executed && !x.execution.DidNotRun(false):
		what = "the executed input"
	}
	if what != "" {
		s.breach("AH-C-033", what+" is missing", pre, x.ref()).Call = x.Call
	}
}

// attest checks a session's attestation (SPEC 6).
func (s *Session) attest(x *Event) {
	if a := x.attest; a != nil {
		if s.worked != (ref{}) && s.attested == nil && !s.restored {
			s.breach("AH-C-121", "", s.worked, x.ref())
		}
		s.validity(x, a)
		s.attested, s.attestation = a, x.ref()
		if a.gated && a.hasList && !a.canDeny {
			s.breach("AH-C-124", "no subscriber could deny", x.ref()).Case = "subscriber"
		}
	}
	switch x.Type {
	case agenthook.SessionStart, agenthook.PreLLMCall, agenthook.UserPromptSubmit:
		if s.worked == (ref{}) {
			s.worked = x.ref()
		}
	}
}

func (s *Session) validity(x *Event, a *attestation) {
	if a.session != "" && a.session != x.Session {
		s.breach("AH-C-122", "it is for another session", x.ref()).Case = "session"
	}
	issued, expires := instant(a.issued), instant(a.expires)
	early := !issued.IsZero() && x.Time.Add(attestSkew).Before(issued)
	late := !expires.IsZero() && x.Time.After(expires)
	if !x.Time.IsZero() && (early || late) {
		s.breach("AH-C-122", "it is for another time", x.ref()).Case = "time"
	}
}
