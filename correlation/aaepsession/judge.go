package aaepsession

import (
	"strings"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// judge holds an invocation against what the user was asked (AAEP 4.3.1, 6.1).
//
// A question names no call. It belongs to the one whose id it carries (see
// Prefix, or extra_context.tool_call_id); otherwise the latest accepted question
// that no invocation has used yet is the one that the next grave invocation
// uses, one each. A harmless invocation uses only what asks about something
// harmless.
func (s *Session) judge(e *Event, i *invocation) {
	a, explicit, candidates := s.binding(i)
	if a != nil && a.usable(i) {
		a.used, a.usedFor = i.ref, i.tool
		s.compare(a, i, explicit)
		if candidates > 1 {
			b := hint(s.breach("AAEP-C-100", "several questions could be meant", a.ref, i.ref))
			b.Case, b.Call = "ambiguous", i.id
		}
		return
	}
	if a == nil {
		a = s.obstacle(i)
	}
	if a == nil || !s.obstructs(a, i, explicit) {
		s.unrelated(e, i)
		if i.grave() {
			s.unasked(i, nil)
		}
		return
	}
	s.against(e, a, i)
	if i.grave() {
		s.unasked(i, a)
	}
	a.followed = true
}

// binding finds the question that an invocation may use, or the one that is
// explicitly about it.
func (s *Session) binding(i *invocation) (a *ask, explicit bool, candidates int) {
	for _, c := range s.asks {
		switch {
		case !c.isConfirmation():
		case c.bound != "" && c.bound == i.id:
			a, explicit = c, true
		case explicit || c.bound != "" || !c.usable(i) || c.late != nil:
		case i.grave() || !c.grave():
			a = c
			candidates++
		default:
			c.plain = firstOf(c.plain, i)
		}
	}
	if explicit {
		candidates = 1
	}
	return a, explicit, candidates
}

// usable tells whether a question stands behind an invocation: it was accepted,
// or took its default where that is enough, and was not used yet. Nobody accepts
// something grave by a yes to something harmless, unless the question says that it
// is about this call.
func (a *ask) usable(i *invocation) bool {
	yes := a.stage == accepted || (a.stage == defaultedAccept && !i.grave())
	return yes && a.used == (ref{}) && !(i.grave() && a.bound == "" && a.understates(i))
}

// understates tells whether a question said less than the invocation is (10.2,
// T3). What it does not say at all is no lie.
func (a *ask) understates(i *invocation) bool {
	return (i.final && a.finalSaid && !a.final) || (a.riskSaid && a.risk < i.risk)
}

func firstOf(a, b *invocation) *invocation {
	if a != nil {
		return a
	}
	return b
}

// obstacle is the latest question without a binding: what stands in the way of
// an invocation that has no acceptance to use.
func (s *Session) obstacle(i *invocation) *ask {
	for k := len(s.asks) - 1; k >= 0; k-- {
		a := s.asks[k]
		if a.isConfirmation() && a.bound == "" && a.late == nil && (i.grave() || !a.grave() || a.names(i)) {
			return a
		}
	}
	return nil
}

// names tells whether the question's text names the tool.
func (a *ask) names(i *invocation) bool {
	if a.tool != "" {
		return a.tool == i.tool
	}
	return len(i.tool) > 3 && strings.Contains(a.text, strings.ToLower(i.tool))
}

// obstructs tells whether an invocation is for what a question was about. A
// grave one is: it needs an acceptance and has none. A harmless one is if the
// question names it, or if it follows a rejection immediately.
func (s *Session) obstructs(a *ask, i *invocation, explicit bool) bool {
	switch {
	case explicit || i.grave():
		return true
	case a.stage == rejected || a.stage == defaultedReject:
		return a.names(i) || (!a.followed && a.tool == "")
	}
	return a.stage == pending && a.names(i) || a.stage == superseded && a.concerns(i)
}

// concerns tells whether a question says itself that it is about this call or tool.
// The wording of its text is not enough for a question that was withdrawn.
func (a *ask) concerns(i *invocation) bool {
	return a.bound != "" && a.bound == i.id || a.tool != "" && a.tool == i.tool
}

// against reports what an invocation without an acceptance does instead. A question
// that was withdrawn by leaving awaiting_input authorises nothing: until its time is
// over, its action is as early as while the question is pending.
func (s *Session) against(e *Event, a *ask, i *invocation) {
	say := func(check, what string) *catalogue.Breach {
		b := s.breach(check, what, a.ref, a.resolved, i.ref)
		b.Call = i.id
		return b
	}
	// What that breaks is said already; this is the same for whoever looks at replies.
	ignored := func(what string) { hint(say("AAEP-C-114", what)) }
	early := func(what string) {
		a.hasty = true
		say("AAEP-C-103", what)
		if a.acceptsByDefault {
			say("AAEP-C-105", "its time was not over")
		}
	}
	switch a.stage {
	case pending:
		early("")
	case rejected:
		say("AAEP-C-104", "")
		if a.notFirst {
			say("AAEP-C-115", "")
			ignored("another answer had come before it")
		}
	case defaultedReject:
		say("AAEP-C-104", "nobody answered in time")
		if a.lateAccept {
			say("AAEP-C-105", "the answer came after its time")
			ignored("it came when its time was over")
		}
	case superseded:
		switch {
		case a.tooLate:
			say("AAEP-C-109", "it was acted on")
			ignored("its question had been withdrawn")
		case a.concerns(i) && !a.over(e):
			early("the question had been withdrawn without an answer")
		}
	case accepted, defaultedAccept:
		switch {
		case a.used == (ref{}):
			a.used, a.usedFor = i.ref, i.tool
			s.compare(a, i, a.bound != "")
		case a.bound != "" || a.usedFor == i.tool: // another tool was not meant to use it
			s.breach("AAEP-C-102", "", a.ref, a.used, i.ref).Call = i.id
		}
	}
}

// unasked reports a grave invocation that no acceptance stands behind. a is the
// question that it may be about.
func (s *Session) unasked(i *invocation, a *ask) {
	byDefault := a != nil && a.stage == defaultedAccept && a.used == i.ref
	if !i.final {
		if !byDefault {
			b := s.breach("AAEP-C-101", "", i.ref)
			b.Call = i.id
			i.unasked = b
		}
		return
	}
	if byDefault { // legal for what carries little risk, and no acceptance (A-04 of the digest)
		b := s.breach("AAEP-C-100", "nobody answered, and the default was taken", a.ref, i.ref)
		b.Case, b.Call, b.Severity = "defaulted_accept", i.id, events.SeverityLow
		return
	}
	b := s.breach("AAEP-C-100", "", i.ref)
	b.Call = i.id
	i.unasked = b
}

// unrelated: an invocation that has nothing to do with a question that was
// rejected shows that the rejection was not taken note of.
func (s *Session) unrelated(e *Event, i *invocation) {
	for _, a := range s.asks {
		if (a.stage == rejected || a.stage == defaultedReject) && !a.followed {
			s.breach("AAEP-C-106", "", a.ref, a.resolved, e.ref())
			a.followed = true
		}
	}
}

// compare looks for a question that was answered for something else (10.2).
func (s *Session) compare(a *ask, i *invocation, explicit bool) {
	switch {
	case a.tool != "" && i.tool != "" && a.tool != i.tool:
		s.lesser(a, i, "it is another tool")
	case (a.final && !i.final && (explicit || i.grave())) || a.risk > i.risk && i.grave():
		s.lesser(a, i, "its risk is made smaller")
	case explicit && a.risk > i.risk:
		s.lesser(a, i, "its risk is made smaller")
	}
	if (explicit || i.grave()) && a.understates(i) {
		b := s.lesser(a, i, "the user was told of less than it is")
		b.Case, b.Severity = "understated", events.SeverityHigh
	}
}

// afterwards: a question that comes when the call has been invoked already is
// what upstream's own code does (A-22 of the digest), and one finding.
func (s *Session) afterwards(a *ask) {
	for k := len(s.open) - 1; k >= 0; k-- {
		i := s.open[k]
		if i.unasked == nil || i.late != nil || (a.bound != "" && a.bound != i.id) {
			continue
		}
		i.late, a.late = a, i
		if i.unasked.Check == "AAEP-C-100" {
			b := s.breach("AAEP-C-100", "late_confirmation, the user was asked only after the invocation", i.ref, a.ref)
			b.Case, b.Call, b.Withdraws = "late_confirmation", i.id, i.unasked
		}
		return
	}
}

// judgeLate holds a success against the question that came after its
// invocation.
func (s *Session) judgeLate(e *Event, i *invocation) {
	a := i.late
	say := func(check string) { s.breach(check, "", a.ref, a.resolved, e.ref()).Call = i.id }
	switch a.stage {
	case pending:
		say("AAEP-C-103")
	case rejected, defaultedReject:
		say("AAEP-C-104")
	}
}
