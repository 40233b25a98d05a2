package admission

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
)

// open puts a new workflow in a slot. What was there is over, or ends now.
func (a *approving) open(slot string, old *approval.Workflow, revision uint64) {
	out, d, now := a.out, &a.out.Decision, a.in.Now
	superseded := supersedes[old.Answer(a.retry)]
	if superseded != "" {
		a.say(superseded)
	}
	a.explainName()
	if a.in.Approvals.Open(d.Tenant, d.Source) >= approval.MaxOpen {
		a.say(approval.ReasonBacklog)
		a.become(events.Deny, approval.ReasonBacklog, a.lifetime)
		d.Approval = nil
		return
	}
	preview, digest, err := a.preview()
	if err != nil {
		panic(err) // cannot happen: everything in it came out of strictjson
	}
	o := approval.Opening{
		Slot: slot, ID: d.Approval.WorkflowID, Tenant: d.Tenant, Source: d.Source, Session: d.Session, DecisionID: d.DecisionID, Keys: a.keys,
		ArgsDigest: d.ArgsDigest, Mandate: d.Mandate, Terms: terms(a.tools), Preview: preview, PreviewDigest: digest,
		Call: out.call.ToolCallID, Event: out.call.EventID, Now: now, ExpiresAt: d.ExpiresAt.Time,
		Unapprovable: a.unapprovable, Asks: a.native.Asks,
	}
	if d.Policy != nil {
		o.Policy = *d.Policy
	}
	w := approval.Open(o)
	out.Takes.Approval = &approval.Step{Slot: slot, Revision: revision, Next: w, Records: append(ending(old, superseded, now), w.Record())}
	d.Approval = w.Ref(now)
}

// supersedes are the reasons for which a workflow is taken back and a new one takes
// its place.
var supersedes = map[approval.Standing]string{approval.Outdated: approval.ReasonPolicyChanged, approval.OtherAsk: approval.ReasonOtherAsk}

// ending is the record of the end of what stood in a slot.
func ending(old *approval.Workflow, reason string, now time.Time) []events.Approval {
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

// explainName says why the workflow that a request names, or that its call waits
// for, does not help it.
func (a *approving) explainName() {
	d, book := a.out.Decision, a.in.Approvals
	if name := a.retry.Named; name != "" {
		switch w := book.Find(d.Tenant, name); {
		case w == nil || w.Source != d.Source:
			a.say(approval.ReasonUnknown)
			return
		case w.ActionDigest != a.keys.Action:
			a.say(approval.ReasonOtherAction)
			return
		}
	}
	waits := func(w *approval.Workflow) bool {
		return w.ActionDigest != a.keys.Action && !w.Over(a.in.Now) && slices.Contains(w.Calls, a.retry.Call)
	}
	if a.retry.Call != "" && slices.ContainsFunc(book.Session(d.Tenant, d.Source, d.Session), waits) {
		a.say(approval.ReasonOtherAction)
	}
}

func (a *approving) preview() (approval.Preview, string, error) {
	c, d := a.out.call, a.out.Decision
	p := approval.Preview{
		Protocol: d.Protocol, Source: d.Source, Agent: d.Agent, Session: d.Session, ToolCallID: d.ToolCallID, Tool: c.Tool, Action: c.Action,
		Kind: c.ResourceKind, Scope: c.ResourceScope, FromAgent: c.FromAgent, ToAgent: c.ToAgent,
		Policy: a.tools.Policy, Verdict: string(d.Verdict), Message: a.tools.Message, Reasons: []string{},
	}
	if d.Mandate != nil {
		p.Mandate = d.Mandate.ID
	}
	for _, r := range d.Reasons {
		p.Reasons = append(p.Reasons, r.Code)
	}
	p = p.Describe(c.Resource, c.Args, terms(a.tools).Show)
	digest, err := p.Digest(a.in.digest)
	return p, digest, err
}
