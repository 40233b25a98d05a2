package policy

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// addReason adds a reason, which decides if its policy decides. r is the rule that matched, or
// nil.
func (j *judgement) addReason(p *policy, verdict events.Verdict, reason events.Reason, r *rule) {
	if p.action == "" {
		if j.in.Observe {
			reason.WouldVerdict = verdict
		}
		j.out.addVerdict(verdict, reason, p.name, r)
		j.tenantGaveReason = j.tenantGaveReason || p.level == ScopeTenant
		if verdict == events.Ask {
			j.out.Asks = append(j.out.Asks, reason.Policy)
		}
		if r != nil && r.approval != nil && verdict != events.Allow && verdict != events.Deny {
			j.approvalTerms = append(j.approvalTerms, r.approval)
		}
		return
	}
	reason.Action, reason.WouldVerdict = p.action, verdict
	j.advisory = append(j.advisory, reason)
	if p.action == ActionWarn && verdict != events.Allow {
		warning := DefaultWarning
		if r != nil && r.message != "" {
			warning = r.message
		}
		if !slices.Contains(j.out.Warnings, warning) {
			j.out.Warnings = append(j.out.Warnings, warning)
		}
	}
}

// noRule stands for the rule of a reason that no rule gave.
var noRule rule

// addVerdict adds the reason and, if the verdict is stricter than the current one, replaces it.
// Among equal verdicts the message is that of the first rule that has one, and one rule that is
// not soft makes the verdict hard. r is the rule that matched, or nil.
func (res *Result) addVerdict(verdict events.Verdict, reason events.Reason, policy string, r *rule) {
	if r == nil {
		r = &noRule
	}
	first := len(res.Reasons) == 0
	res.Reasons = append(res.Reasons, reason)
	switch stricter := verdict.Strictness() - res.Verdict.Strictness(); {
	case first || stricter > 0:
		res.Verdict, res.Policy, res.Code, res.Message, res.ResultMode = verdict, policy, r.reason, r.message, ModeThrow
		if r.toolResultMode {
			res.ResultMode = ModeToolResult
		}
	case stricter == 0:
		if res.Message == "" && r.message != "" {
			res.Policy, res.Code, res.Message = policy, r.reason, r.message
		}
		if !r.toolResultMode {
			res.ResultMode = ModeThrow
		}
	}
}
