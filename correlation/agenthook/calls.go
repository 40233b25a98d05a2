package agenthook

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// governedCall is a call under the action-governance profile.
type governedCall struct {
	preEvent         eventRef
	callID           string
	unstampedEvent   eventRef           // the event that lacks pre_commit or a verdict; zero if none does, or if it was reported
	claimsPreCommit  bool               // it claims pre_commit
	carriesVerdict   bool               // one of its events has a verdict
	verdictRecorded  bool               // a verdict is recorded
	ended            bool               // its end was reported
	unstampedFinding *catalogue.Finding // the AH-C-032 finding, if it was made
}

// governedCalls are a session's calls under the action-governance profile (AHP-013): at most
// maxGoverned, and at most maxFailModeFired calls whose fail mode fired before their
// announcement.
type governedCalls struct {
	byCall        fifoMap[*governedCall]
	failModeFired fifoMap[eventRef] // the event of the fail mode, by call
}

// noteFailMode records that the fail mode fired for a call, which then needs no verdict. The
// call may be announced later, or be over: events may overtake each other.
func (cs *governedCalls) noteFailMode(out *findingList, x *Event) {
	g := cs.byCall.get(x.CallID)
	switch {
	case g == nil || (g.ended && g.missingPart() == "" && g.unstampedFinding == nil):
		cs.failModeFired.put(x.CallID, x.eventRef(), maxFailModeFired)
	case g.unstampedFinding != nil && len(g.unstampedFinding.Events) > 0:
		out.retract(g.unstampedFinding, "its fail mode had fired", x.eventRef()).Call = x.CallID
	}
	if g != nil {
		g.unstampedEvent, g.unstampedFinding = eventRef{}, nil
	}
}

// announce applies the announcement of a call.
func (cs *governedCalls) announce(out *findingList, x *Event) {
	excused := cs.failModeFired.removeKey(x.CallID)
	if !x.governed || x.CallID == "" {
		return
	}
	g := &governedCall{preEvent: x.eventRef(), callID: x.CallID, claimsPreCommit: x.phase == agenthook.PhasePreCommit, carriesVerdict: x.verdict != ""}
	if (!g.claimsPreCommit || !g.carriesVerdict) && !excused {
		g.unstampedEvent = x.eventRef()
	}
	if old := cs.byCall.get(x.CallID); old != nil {
		old.reportUnstamped(out, x.eventRef())
	}
	cs.byCall.put(x.CallID, g, maxGoverned)
}

// missingPart is what an admission-bound call lacks; "" if it lacks nothing, or is not
// admission-bound. It is admission-bound if it claims so, or if a verdict on it is recorded.
func (g *governedCall) missingPart() string {
	switch {
	case g.unstampedEvent == (eventRef{}) || !g.claimsPreCommit && !g.verdictRecorded:
		return ""
	case !g.carriesVerdict:
		return "the verdict is missing"
	}
	return "a verdict on it is on record, and it does not claim pre_commit"
}

// markStamped records that a copy of the event has the verdict.
func (g *governedCall) markStamped() {
	if g.carriesVerdict = true; g.claimsPreCommit {
		g.unstampedEvent = eventRef{}
	}
}

// reportUnstamped reports once that a call's event lacks its phase or verdict (AH-C-032). x is
// the event that shows it, or zero.
func (g *governedCall) reportUnstamped(out *findingList, x eventRef) {
	if g.missingPart() == "" {
		return
	}
	g.unstampedFinding = out.add("AH-C-032", g.missingPart(), g.unstampedEvent, x)
	g.unstampedFinding.Call = g.callID
	g.unstampedEvent = eventRef{}
}

// noteAmended applies another copy of a call's event, with the verdict.
func (cs *governedCalls) noteAmended(x *Event) {
	if g := cs.byCall.get(x.CallID); g != nil && x.verdict != "" {
		g.markStamped()
	}
}

// noteDecided records that a verdict is recorded on the call of event pre. A missing stamp is
// reported at the call's end only, because the copy with the verdict may come until then.
func (cs *governedCalls) noteDecided(out *findingList, call, pre string) {
	if g := cs.byCall.get(call); g != nil && g.preEvent.id == pre {
		if g.verdictRecorded = true; g.ended {
			g.reportUnstamped(out, eventRef{})
		}
	}
}

// end applies an event that ends a call.
func (cs *governedCalls) end(out *findingList, x *Event) {
	g := cs.byCall.get(x.CallID)
	if g == nil {
		if x.governed {
			checkEndedCall(out, x, x.eventRef())
		}
		return
	}
	g.reportUnstamped(out, x.eventRef())
	g.ended = true
	checkEndedCall(out, x, g.preEvent)
}

// endSession reports calls without a stamp at the session's end, x.
func (cs *governedCalls) endSession(out *findingList, x *Event) {
	for _, call := range cs.byCall.keys() {
		cs.byCall.get(call).reportUnstamped(out, x.eventRef())
	}
}

func (cs *governedCalls) storedItems() int { return cs.byCall.len() + cs.failModeFired.len() }

// checkEndedCall checks what a governed call must say at its end (AHP-013).
func checkEndedCall(out *findingList, x *Event, pre eventRef) {
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
		out.add("AH-C-033", what+" is missing", pre, x.eventRef()).Call = x.CallID
	}
}
