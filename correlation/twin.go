package correlation

import (
	"strings"
	"unicode"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// Cases of AH-C-077.
const (
	detailSameTarget = "target"
	detailDenied     = "denied"
	detailDeniedRan  = "ran"
)

// targetOf is what an event is done to, whatever the tool and its arguments: the
// key by which AgentHook H-09 finds attempts to get around a question. It is known
// only where action, resource kind and resource are, as they are for the admitter.
func targetOf(e *agenthook.Event) sum {
	const nobodyKnows = "unknown"
	if e.Action == "" || e.ResourceKind == "" || e.ResourceKind == nobodyKnows || e.Resource == "" || e.Resource == nobodyKnows {
		return sum{}
	}
	return sumOf("target", e.Action, e.ResourceKind, e.Resource)
}

// comeback: what waits for an approval, or was denied, must not be let through
// under another id or another name (AH-C-077, H-09).
func (m *machine) comeback(s *session, c *call, f *fact) {
	if f.kind == kindRequest || f.approval.is(statusApproved) {
		return
	}
	if (len(s.open) < 2 || !s.asked) && !s.refusals {
		return
	}
	// The verdict itself says when it rests on an approval, which it uses up.
	if c.own().verdict != events.Allow || f.decision != nil && (f.decision.pending.is(statusApproved) || f.decision.pending.is(statusConsumed)) {
		return
	}
	if twin := s.findOpen(func(o *call) bool { return o.waits() && o.equivalent(c) }); twin != nil {
		m.check("AH-C-077", c, f, about(twin.firstEvent(), c.firstEvent()).in(twin))
		return
	}
	if twin := s.findOpen(func(o *call) bool { return o.waits() && o.elsewhere(c) && o.target == c.target && c.target != (sum{}) }); twin != nil {
		m.check("AH-C-077", c, f, about(twin.firstEvent(), c.firstEvent()).in(twin).detail(detailSameTarget).saying("it is the same action on the same resource"))
		return
	}
	if twin := s.denied(c); twin != nil {
		m.check("AH-C-077", c, f, about(twin.firstEvent(), c.firstEvent()).in(twin).detail(detailDenied).
			saying("it had been denied, and was allowed under another id or name").grade(events.SeverityLow))
	}
}

// ranDenied: what ran without a verdict had been denied under another id or
// name.
func (m *machine) ranDenied(c *call, f *fact) {
	if f.protocol != protoAgentHook {
		return
	}
	if twin := c.session.denied(c); twin != nil {
		m.check("AH-C-077", c, f, about(twin.firstEvent(), c.firstEvent(), f.eventID).in(twin).detail(detailDeniedRan).
			saying("it had been denied, and ran under another id or name without a verdict"))
	}
}

// denied is the youngest call before c that is equivalent to it and was denied.
func (s *session) denied(c *call) *call {
	if !s.refusals {
		return nil
	}
	return s.findWhere(func(o *call) bool { return o.order < c.order && o != c.previous && o.wasDenied() },
		func(o *call) bool { return o.equivalent(c) })
}

// waits tells whether a call still waits for an approval.
func (c *call) waits() bool {
	st := c.standing()
	if st.verdict != events.Ask && st.verdict != events.Defer {
		return false
	}
	if st.ledger != nil {
		return !c.session.machine.approvedOnRecord(c)
	}
	return !c.granted.is(statusApproved)
}

// elsewhere tells calls apart that go by different ids or tools.
func (c *call) elsewhere(o *call) bool { return c != o && (c.slot != o.slot || c.tool != o.tool) }

// equivalent tells whether two calls under different ids or names are the same
// tool with the same arguments (the strict key of H-09).
func (c *call) equivalent(o *call) bool {
	return c.elsewhere(o) && c.sameTool(o) && compare(&c.args, &o.args) == equal
}

// sameTool: two names are one tool if its canonical name says so, or if they
// differ in nothing but case and punctuation.
func (c *call) sameTool(o *call) bool {
	return c.tool == o.tool || (c.canonical != "" && c.canonical == o.canonical) ||
		(strings.EqualFold(c.tool, o.tool) || spelling(c.tool) == spelling(o.tool))
}

// spelling is a tool's name without what the same name may be written with.
func spelling(tool string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, tool)
}
