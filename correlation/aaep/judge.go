package aaep

import (
	"strings"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// judgeInvocation compares an invocation with the questions to the user (AAEP 4.3.1, 6.1).
//
// A question belongs to the call whose id it carries (see ExtensionPrefix, or
// extra_context.tool_call_id). A question without an id belongs to the next grave invocation:
// each invocation uses the latest accepted question that is unused. A harmless invocation only
// uses a question about a harmless action.
func (q *questions) judgeInvocation(r *reports, e *Event, i *invocation) {
	a, explicit, candidates := q.findForUse(i)
	if a != nil && a.coversInvocation(i) {
		a.usedBy, a.usedByTool = i.event, i.tool
		a.compareWith(r, i, explicit)
		if candidates > 1 {
			found := asHint(r.add("AAEP-C-100", "several questions could be meant", a.event, i.event))
			found.Case, found.Call = "ambiguous", i.id
		}
		return
	}
	if a == nil {
		a = q.latestUnbound(i)
	}
	if a == nil || !a.standsAgainst(i, explicit) {
		q.reportIgnoredRejections(r, e)
		if i.isRisky() && !q.incomplete {
			i.reportUnasked(r, nil)
		}
		return
	}
	a.reportAgainst(r, e, i)
	if i.isRisky() {
		i.reportUnasked(r, a)
	}
	a.outcomeNoted = true
}

// findForUse returns the question that an invocation may use; explicit says that it names the
// call.
func (q *questions) findForUse(i *invocation) (a *userQuestion, explicit bool, candidates int) {
	for _, c := range q.list {
		switch {
		case !c.isConfirmation():
		case c.callID != "" && c.callID == i.id:
			a, explicit = c, true
		case explicit || c.callID != "" || !c.coversInvocation(i) || c.earlierInvocation != nil:
		case i.isRisky() || !c.isRisky():
			a = c
			candidates++
		default:
			c.harmlessInvocation = firstInvocation(c.harmlessInvocation, i)
		}
	}
	if explicit {
		candidates = 1
	}
	return a, explicit, candidates
}

// coversInvocation reports whether a question permits an invocation: it was accepted, or took
// its default where that suffices, and is unused. A question about a harmless action does not
// permit a grave invocation, unless it names the call.
func (a *userQuestion) coversInvocation(i *invocation) bool {
	yes := a.stage == questionAccepted || (a.stage == questionDefaultedAccept && !i.isRisky())
	return yes && a.usedBy == (eventRef{}) && !(i.isRisky() && a.callID == "" && a.understatesRisk(i))
}

// understatesRisk reports whether a question names a lower risk than the invocation has (AAEP
// 10.2, T3). A missing statement is no understatement.
func (a *userQuestion) understatesRisk(i *invocation) bool {
	return (i.irreversible && a.statesReversibility && !a.irreversible) || (a.statesRisk && a.risk < i.risk)
}

func firstInvocation(a, b *invocation) *invocation {
	if a != nil {
		return a
	}
	return b
}

// latestUnbound is the latest question without a call. It is reported if an invocation needs
// an acceptance and has none.
func (q *questions) latestUnbound(i *invocation) *userQuestion {
	for k := len(q.list) - 1; k >= 0; k-- {
		a := q.list[k]
		if a.isConfirmation() && a.callID == "" && a.earlierInvocation == nil && (i.isRisky() || !a.isRisky() || a.namesTool(i)) {
			return a
		}
	}
	return nil
}

// namesTool tells whether the question's text names the tool.
func (a *userQuestion) namesTool(i *invocation) bool {
	if a.tool != "" {
		return a.tool == i.tool
	}
	return len(i.tool) > 3 && strings.Contains(a.actionText, strings.ToLower(i.tool))
}

// standsAgainst reports whether an invocation ignores a question's answer. A grave invocation
// does if it has no acceptance. A harmless one does if the question names it, or if it
// directly follows a rejection.
func (a *userQuestion) standsAgainst(i *invocation, explicit bool) bool {
	switch {
	case explicit || i.isRisky():
		return true
	case a.stage == questionRejected || a.stage == questionDefaultedReject:
		return a.namesTool(i) || (!a.outcomeNoted && a.tool == "")
	}
	return a.stage == questionPending && a.namesTool(i) || a.stage == questionSuperseded && a.isAbout(i)
}

// isAbout reports whether a question names the call or the tool. For a withdrawn question, its
// text does not count as a name.
func (a *userQuestion) isAbout(i *invocation) bool {
	return a.callID != "" && a.callID == i.id || a.tool != "" && a.tool == i.tool
}

// reportAgainst reports an invocation that ignores a question's state. A question that was
// withdrawn by leaving awaiting_input permits nothing: until its deadline, its action is as
// early as while the question is pending.
func (a *userQuestion) reportAgainst(r *reports, e *Event, i *invocation) {
	say := func(check, what string) *catalogue.Finding {
		found := r.add(check, what, a.event, a.resolvedBy, i.event)
		found.Call = i.id
		return found
	}
	// AAEP-C-114 reports the same from the side of the replies, as a hint.
	ignored := func(what string) { asHint(say("AAEP-C-114", what)) }
	early := func(what string) {
		a.actedOnEarly = true
		say("AAEP-C-103", what)
		if a.acceptsByDefault {
			say("AAEP-C-105", "its time was not over")
		}
	}
	switch a.stage {
	case questionPending:
		early("")
	case questionRejected:
		say("AAEP-C-104", "")
		if a.acceptedSecond {
			say("AAEP-C-115", "")
			ignored("another answer had come before it")
		}
	case questionDefaultedReject:
		say("AAEP-C-104", "no answer came in time")
		if a.acceptedLate {
			say("AAEP-C-105", "the answer came after its time")
			ignored("it came when its time was over")
		}
	case questionSuperseded:
		switch {
		case a.acceptedAfterWithdrawal:
			say("AAEP-C-109", "it was acted on")
			ignored("its question had been withdrawn")
		case a.isAbout(i) && !a.isTimeOver(e):
			early("the question had been withdrawn without an answer")
		}
	case questionAccepted, questionDefaultedAccept:
		switch {
		case a.usedBy == (eventRef{}):
			a.usedBy, a.usedByTool = i.event, i.tool
			a.compareWith(r, i, a.callID != "")
		case a.callID != "" || a.usedByTool == i.tool: // the question was meant for another tool
			r.add("AAEP-C-102", "", a.event, a.usedBy, i.event).Call = i.id
		}
	}
}

// reportUnasked reports a grave invocation without an acceptance. a is the question that it
// may be about.
func (i *invocation) reportUnasked(r *reports, a *userQuestion) {
	byDefault := a != nil && a.stage == questionDefaultedAccept && a.usedBy == i.event
	if !i.irreversible {
		if !byDefault {
			found := r.add("AAEP-C-101", "", i.event)
			found.Call = i.id
			i.unaskedFinding = found
		}
		return
	}
	if byDefault { // permitted for low risk, though it is no acceptance (A-04 of the digest)
		found := r.add("AAEP-C-100", "no answer came, and the default was taken", a.event, i.event)
		found.Case, found.Call, found.Severity = "defaulted_accept", i.id, events.SeverityLow
		return
	}
	found := r.add("AAEP-C-100", "", i.event)
	found.Call = i.id
	i.unaskedFinding = found
}

// reportIgnoredRejections reports that a rejection was not acknowledged, because an unrelated
// invocation follows it.
func (q *questions) reportIgnoredRejections(r *reports, e *Event) {
	for _, a := range q.list {
		if (a.stage == questionRejected || a.stage == questionDefaultedReject) && !a.outcomeNoted {
			r.add("AAEP-C-106", "", a.event, a.resolvedBy, e.eventRef())
			a.outcomeNoted = true
		}
	}
}

// compareWith reports that a question was answered for something else than its invocation
// (AAEP 10.2).
func (a *userQuestion) compareWith(r *reports, i *invocation, explicit bool) {
	switch {
	case a.tool != "" && i.tool != "" && a.tool != i.tool:
		a.reportUnderstated(r, i, "it is another tool")
	case (a.irreversible && !i.irreversible && (explicit || i.isRisky())) || a.risk > i.risk && i.isRisky():
		a.reportUnderstated(r, i, "its risk is made smaller")
	case explicit && a.risk > i.risk:
		a.reportUnderstated(r, i, "its risk is made smaller")
	}
	if (explicit || i.isRisky()) && a.understatesRisk(i) {
		found := a.reportUnderstated(r, i, "the user was told of less than it is")
		found.Case, found.Severity = "understated", events.SeverityHigh
	}
}

// linkLateQuestion reports a question that came after its invocation, as upstream's own code
// does (A-22 of the digest). It is one finding.
func (t *tools) linkLateQuestion(r *reports, a *userQuestion) {
	for k := len(t.open) - 1; k >= 0; k-- {
		i := t.open[k]
		if i.unaskedFinding == nil || i.laterQuestion != nil || (a.callID != "" && a.callID != i.id) {
			continue
		}
		i.laterQuestion, a.earlierInvocation = a, i
		if i.unaskedFinding.Check == "AAEP-C-100" {
			found := r.add("AAEP-C-100", "late_confirmation, the user was asked only after the invocation", i.event, a.event)
			found.Case, found.Call, found.Replaces = "late_confirmation", i.id, i.unaskedFinding
		}
		return
	}
}

// judgeLateQuestion compares a successful completion with the question that came after its
// invocation.
func (i *invocation) judgeLateQuestion(r *reports, e *Event) {
	a := i.laterQuestion
	say := func(check string) { r.add(check, "", a.event, a.resolvedBy, e.eventRef()).Call = i.id }
	switch a.stage {
	case questionPending:
		say("AAEP-C-103")
	case questionRejected, questionDefaultedReject:
		say("AAEP-C-104")
	}
}
