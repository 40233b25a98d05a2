package admission

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
)

// openWorkflow puts a new workflow in a slot. The old workflow there has ended, or ends now.
func (a *approvalDecision) openWorkflow(slot string, old *approval.Workflow, revision uint64) {
	out, d, now := a.out, &a.out.Decision, a.in.Now
	superseded := cmp.Or(supersedeReasons[a.matchRetry(old)], old.SupersededFor())
	if superseded != "" {
		a.addReason(superseded)
	}
	a.explainNamedWorkflow()
	if a.in.Approvals.PendingCount(d.Tenant, d.Source) >= approval.MaxOpen {
		a.addReason(approval.ReasonBacklog)
		a.changeVerdict(events.Deny, approval.ReasonBacklog, a.lifetime)
		d.Approval = nil
		return
	}
	preview, digest, err := a.buildPreview()
	if err != nil {
		panic(err) // cannot happen: everything in it came out of strictjson
	}
	o := approval.Opening{
		Slot: slot, ID: d.Approval.WorkflowID, Tenant: d.Tenant, Source: d.Source, Session: d.Session, DecisionID: d.DecisionID, Keys: a.keys,
		ArgsDigest: d.ArgsDigest, Mandate: d.Mandate, Terms: a.policies.Approval, Preview: preview, PreviewDigest: digest,
		Call: out.call.ToolCallID, Event: out.call.EventID, Agent: d.Agent, Now: now, ExpiresAt: d.ExpiresAt.Time,
		Unapprovable: a.unapprovable, Asks: a.retry.Asks, Policy: out.policyInForce(),
	}
	w := approval.Open(o)
	out.Consumption.Approval = &approval.Change{Slot: slot, Revision: revision, Next: w, Records: append(closingRecords(old, superseded, now), w.Record())}
	d.Approval = w.Ref(now)
}

// supersedeReasons are the reasons for which a new workflow replaces an old one.
var supersedeReasons = map[approval.RetryStatus]string{approval.Outdated: approval.ReasonPolicyChanged, approval.OtherAsk: approval.ReasonOtherAsk}

// closingRecords returns the record that a slot's old workflow has ended.
func closingRecords(old *approval.Workflow, reason string, now time.Time) []events.Approval {
	if old == nil {
		return nil
	}
	if w, err := old.Expire(now); err == nil {
		return []events.Approval{w.Record()}
	}
	if w, err := old.Supersede(reason, now); err == nil {
		return []events.Approval{w.Record()}
	}
	return nil
}

// explainNamedWorkflow adds the reason why the workflow that a request names, or that its call
// waits for, does not apply.
func (a *approvalDecision) explainNamedWorkflow() {
	d, index := a.out.Decision, a.in.Approvals
	if name := a.retry.Named; name != "" {
		switch w := index.Find(d.Tenant, name); {
		case w == nil || w.Source != d.Source:
			a.addReason(approval.ReasonUnknown)
			return
		case w.ActionDigest != a.keys.Action:
			a.addReason(approval.ReasonOtherCall)
			return
		}
	}
	waits := func(w *approval.Workflow) bool {
		return w.ActionDigest != a.keys.Action && !w.Over(a.in.Now) && slices.Contains(w.Calls, a.retry.Call)
	}
	if a.retry.Call != "" && slices.ContainsFunc(index.SessionWorkflows(d.Tenant, d.Source, d.Session), waits) {
		a.addReason(approval.ReasonOtherCall)
	}
}

func (a *approvalDecision) buildPreview() (approval.Preview, string, error) {
	c, d := a.out.call, a.out.Decision
	p := approval.Preview{
		Protocol: d.Protocol, Source: d.Source, Agent: d.Agent, Session: d.Session, ToolCallID: d.ToolCallID, Tool: c.Tool, Action: c.Action,
		Kind: c.ResourceKind, Scope: c.ResourceScope, Dir: c.Dir, ApprovalScope: c.ApprovalScope, FromAgent: c.FromAgent, ToAgent: c.ToAgent,
		Policy: a.policies.Policy, Verdict: string(d.Verdict), Message: a.policies.Message, Reasons: []string{},
	}
	if d.Mandate != nil {
		p.Mandate = d.Mandate.ID
	}
	for _, r := range d.Reasons {
		p.Reasons = append(p.Reasons, r.Code)
	}
	p = p.Describe(c.Resource, c.Args, a.policies.Approval.Show)
	digest, err := p.Digest(a.in.digest)
	return p, digest, err
}
