package aaep

import (
	"strings"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// judgeInvocation holds an invocation against what the user was asked (AAEP 4.3.1, 6.1).
//
// A question names no call. It belongs to the one with the id that it carries (see
// Prefix, or extra_context.tool_call_id); otherwise the latest accepted question
// that no invocation has used yet is the one that the next grave invocation
// uses, one each. A harmless invocation uses only what asks about something
// harmless.
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
		if i.isRisky() {
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

// findForUse finds the question that an invocation may use, or the one that is
// explicitly about it.
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

// coversInvocation tells whether a question stands behind an invocation: it was accepted,
// or took its default where that is enough, and was not used yet. A user does not accept
// something grave by a yes to something harmless, unless the question says that it
// is about this call.
func (a *userQuestion) coversInvocation(i *invocation) bool {
	yes := a.stage == questionAccepted || (a.stage == questionDefaultedAccept && !i.isRisky())
	return yes && a.usedBy == (eventRef{}) && !(i.isRisky() && a.callID == "" && a.understatesRisk(i))
}

// understatesRisk tells whether a question said less than the invocation is (10.2,
// T3). What it does not say at all is no lie.
func (a *userQuestion) understatesRisk(i *invocation) bool {
	return (i.irreversible && a.statesReversibility && !a.irreversible) || (a.statesRisk && a.risk < i.risk)
}

func firstInvocation(a, b *invocation) *invocation {
	if a != nil {
		return a
	}
	return b
}

// latestUnbound is the latest question without a binding: what stands in the way of
// an invocation that has no acceptance to use.
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

// standsAgainst tells whether an invocation is for what a question was about. A
// grave one is: it needs an acceptance and has none. A harmless one is if the
// question names it, or if it follows a rejection immediately.
func (a *userQuestion) standsAgainst(i *invocation, explicit bool) bool {
	switch {
	case explicit || i.isRisky():
		return true
	case a.stage == questionRejected || a.stage == questionDefaultedReject:
		return a.namesTool(i) || (!a.outcomeNoted && a.tool == "")
	}
	return a.stage == questionPending && a.namesTool(i) || a.stage == questionSuperseded && a.isAbout(i)
}

// isAbout tells whether a question says itself that it is about this call or tool.
// The wording of its text is not enough for a question that was withdrawn.
func (a *userQuestion) isAbout(i *invocation) bool {
	return a.callID != "" && a.callID == i.id || a.tool != "" && a.tool == i.tool
}

// reportAgainst reports what an invocation without an acceptance does instead. A question
// that was withdrawn by leaving awaiting_input authorises nothing: until its time is
// over, its action is as early as while the question is pending.
func (a *userQuestion) reportAgainst(r *reports, e *Event, i *invocation) {
	say := func(check, what string) *catalogue.Finding {
		found := r.add(check, what, a.event, a.resolvedBy, i.event)
		found.Call = i.id
		return found
	}
	// What that breaks is said already; this is the same for a reader that looks at replies.
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
		case a.callID != "" || a.usedByTool == i.tool: // another tool was not meant to use it
			r.add("AAEP-C-102", "", a.event, a.usedBy, i.event).Call = i.id
		}
	}
}

// reportUnasked reports a grave invocation that no acceptance stands behind. a is the
// question that it may be about.
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
	if byDefault { // legal for what carries little risk, and no acceptance (A-04 of the digest)
		found := r.add("AAEP-C-100", "no answer came, and the default was taken", a.event, i.event)
		found.Case, found.Call, found.Severity = "defaulted_accept", i.id, events.SeverityLow
		return
	}
	found := r.add("AAEP-C-100", "", i.event)
	found.Call = i.id
	i.unaskedFinding = found
}

// reportIgnoredRejections: an invocation that has nothing to do with a question that was
// rejected shows that the rejection was not taken note of.
func (q *questions) reportIgnoredRejections(r *reports, e *Event) {
	for _, a := range q.list {
		if (a.stage == questionRejected || a.stage == questionDefaultedReject) && !a.outcomeNoted {
			r.add("AAEP-C-106", "", a.event, a.resolvedBy, e.eventRef())
			a.outcomeNoted = true
		}
	}
}

// compareWith looks for a question that was answered for something else (10.2).
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

// linkLateQuestion: a question that comes when the call has been invoked already is
// what upstream's own code does (A-22 of the digest), and one finding.
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

// judgeLateQuestion holds a success against the question that came after its
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
