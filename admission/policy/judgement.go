package policy

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// say keeps a reason, and lets it decide if its policy does. r is the rule that
// spoke, or nil.
func (j *judgement) say(p *policy, verdict events.Verdict, reason events.Reason, r *rule) {
	if p.action == "" {
		j.out.add(verdict, reason, p.name, r)
		j.tenant = j.tenant || p.level == ScopeTenant
		if r != nil && r.approval != nil && verdict != events.Allow && verdict != events.Deny {
			j.terms = append(j.terms, r.approval)
		}
		return
	}
	reason.Action, reason.Would = p.action, verdict
	j.aside = append(j.aside, reason)
	if p.action == ActionWarn && verdict != events.Allow {
		warning := WarningUnsaid
		if r != nil && r.message != "" {
			warning = r.message
		}
		if !slices.Contains(j.out.Warnings, warning) {
			j.out.Warnings = append(j.out.Warnings, warning)
		}
	}
}

// nobody is the rule of what no rule said.
var nobody rule

// add keeps the reason and, if the verdict is stricter than what there is, lets
// it stand. Among equals the first rule that has a message speaks, and one that
// is not soft makes the whole verdict hard. r is the rule that spoke, or nil.
func (v *Verdicts) add(verdict events.Verdict, reason events.Reason, policy string, r *rule) {
	if r == nil {
		r = &nobody
	}
	first := len(v.Reasons) == 0
	v.Reasons = append(v.Reasons, reason)
	switch stricter := verdict.Strictness() - v.Verdict.Strictness(); {
	case first || stricter > 0:
		v.Verdict, v.Policy, v.Code, v.Message, v.Mode = verdict, policy, r.reason, r.message, ModeThrow
		if r.soft {
			v.Mode = ModeToolResult
		}
	case stricter == 0:
		if v.Message == "" && r.message != "" {
			v.Policy, v.Code, v.Message = policy, r.reason, r.message
		}
		if !r.soft {
			v.Mode = ModeThrow
		}
	}
}
