package correlation

import (
	"strings"
	"unicode"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
)

// Cases of AH-C-077.
const (
	caseSameTarget = "target"
	caseDenied     = "denied"
	caseDeniedRan  = "ran"
)

// checkApprovalBypass: what waits for an approval, or was denied, must not be let through
// under another id or another name (AH-C-077, H-09).
func (j *judge) checkApprovalBypass(s *session, c *call, f *fact.Fact) {
	if f.Kind == fact.KindRequest || f.Approval.HasStatus(fact.StatusApproved) {
		return
	}
	if (len(s.open) < 2 || !s.sawAsk) && !s.sawDenial {
		return
	}
	// The verdict itself says when it rests on an approval, which it uses up.
	if c.directVerdict().verdict != events.Allow || f.Decision != nil && (f.Decision.Approval.HasStatus(fact.StatusApproved) || f.Decision.Approval.HasStatus(fact.StatusConsumed)) {
		return
	}
	if twin := s.findOpen(func(o *call) bool { return o.awaitsApproval(j.approvals) && o.isEquivalent(c) }); twin != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(twin.firstEvent(), c.firstEvent()).withEventsOf(twin))
		return
	}
	if twin := s.findOpen(func(o *call) bool {
		return o.awaitsApproval(j.approvals) && o.hasOtherIdentity(c) && o.targetSum == c.targetSum && c.targetSum != (fact.Sum{})
	}); twin != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(twin.firstEvent(), c.firstEvent()).withEventsOf(twin).withCase(caseSameTarget).withText("it is the same action on the same resource"))
		return
	}
	if twin := s.findDeniedEquivalent(c); twin != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(twin.firstEvent(), c.firstEvent()).withEventsOf(twin).withCase(caseDenied).
			withText("it had been denied, and was allowed under another id or name").withSeverity(events.SeverityLow))
	}
}

// checkDeniedBypass: what ran without a verdict had been denied under another id or
// name.
func (j *judge) checkDeniedBypass(c *call, f *fact.Fact) {
	if !rowOf(f.Protocol).rulesApprovals {
		return
	}
	if twin := c.session.findDeniedEquivalent(c); twin != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(twin.firstEvent(), c.firstEvent(), f.EventID).withEventsOf(twin).withCase(caseDeniedRan).
			withText("it had been denied, and ran under another id or name without a verdict"))
	}
}

// findDeniedEquivalent is the youngest call before c that is equivalent to it and was denied.
func (s *session) findDeniedEquivalent(c *call) *call {
	if !s.sawDenial {
		return nil
	}
	return s.findCall(func(o *call) bool { return o.order < c.order && o != c.retriedCall && o.wasDenied() },
		func(o *call) bool { return o.isEquivalent(c) })
}

// awaitsApproval reports whether a call still waits for an approval.
func (c *call) awaitsApproval(record *approvals) bool {
	st := c.effectiveVerdict()
	if st.verdict != events.Ask && st.verdict != events.Defer {
		return false
	}
	if st.recorded != nil {
		return !record.isApprovedOnRecord(c)
	}
	return !c.eventApproval.HasStatus(fact.StatusApproved)
}

// hasOtherIdentity tells calls apart that go by different ids or tools.
func (c *call) hasOtherIdentity(o *call) bool {
	return c != o && (c.group != o.group || c.tool != o.tool)
}

// isEquivalent reports whether two calls under different ids or names are the same
// tool with the same arguments (the strict key of H-09).
func (c *call) isEquivalent(o *call) bool {
	return c.hasOtherIdentity(o) && c.hasSameTool(o) && fact.CompareArguments(&c.args, &o.args) == fact.ArgsEqual
}

// hasSameTool: two names are one tool if its canonical name says so, or if they
// differ in nothing but case and punctuation.
func (x *details) hasSameTool(o *call) bool {
	return x.tool == o.tool || (x.canonicalTool != "" && x.canonicalTool == o.canonicalTool) ||
		(strings.EqualFold(x.tool, o.tool) || normaliseToolName(x.tool) == normaliseToolName(o.tool))
}

// normaliseToolName is a tool's name without what the same name may be written with.
func normaliseToolName(tool string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, tool)
}
