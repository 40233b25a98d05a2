package admission

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// approvalDecision is one decision on its way through its approval workflow.
type approvalDecision struct {
	out      *Outcome
	native   call.Opinion
	tools    policy.Verdicts
	in       Inputs
	lifetime time.Duration
	keys     approval.Keys
	retry    approval.Retry

	// unapprovable says that a part of the verdict is one that no approval lifts.
	unapprovable bool
}

// applyApprovals lets the workflows have their say on a verdict that stands
// otherwise, and gives the lifetime of what results. An ask or a defer joins the
// open workflow of its action or opens one; a denied one makes it a deny. An
// approved one is used up by an ask that it answers, and lifts nothing else: no
// defer, and no ask that its evaluator declares unapprovable. An allow becomes an ask
// while a workflow of the session is about doing the same to the same. A deny stays one, whatever was approved.
// Without a book nothing is kept, and every ask opens a workflow of its own.
func (out *Outcome) applyApprovals(native call.Opinion, tools policy.Verdicts, in Inputs, lifetime time.Duration) time.Duration {
	if in.Approvals == nil || native.Observational || native.Malformed {
		return lifetime
	}
	a := approvalDecision{out: out, native: native, tools: tools, in: in, lifetime: lifetime,
		unapprovable: native.Unapprovable != "" || tools.Verdict.Strictness() > events.Ask.Strictness()}
	switch out.Decision.Verdict {
	case events.Allow:
		if a.evadesWorkflow() {
			a.requireApproval()
			a.followWorkflow()
		}
	case events.Ask, events.Defer:
		if native.Verdict != events.Allow && out.call.Unconfirmed != nil {
			// A reviewer's word is not the user's: only a confirmation will do
			// (AAEP-C-100), and there is nothing that a reviewer could approve.
			out.Decision.Approval = nil
			return lifetime
		}
		if a.evadesWorkflow() {
			a.addReason(approval.ReasonEvasion)
		}
		a.followWorkflow()
	}
	return a.lifetime
}

func (a *approvalDecision) addReason(code string) {
	d := &a.out.Decision
	d.Reasons = append(d.Reasons, events.Reason{Evaluator: approval.Evaluator, Code: code})
}

// approvalTerms is how the policies that ask want an approval to be given.
func approvalTerms(tools policy.Verdicts) approval.Terms { return tools.Approval }

// approvalAction is what was proposed, as approvals see it.
func (out *Outcome) approvalAction() approval.Action {
	c, d := out.call, out.Decision
	a := approval.Action{
		Tenant: d.Tenant, Source: d.Source, Session: c.Session, Protocol: d.Protocol, Call: c.ToolCallID, Tool: canonicalTool(c), Action: c.Action,
		Kind: c.ResourceKind, Scope: c.ResourceScope, Resource: c.Resource, FromAgent: c.FromAgent, ToAgent: c.ToAgent,
		Args: c.ArgsCanonical, Event: c.Event, Body: d.RequestDigest, Mandated: c.Mandated,
	}
	if d.Mandate != nil {
		a.Mandate = d.Mandate.Hash
	}
	return a
}

// canonicalTool is the tool's canonical name by the tenant's catalogue (AgentHook H-09),
// so that a retry under an alias is the same action. What a publisher says is
// the canonical name does not count: two tools that claim one name would share
// an approval.
func canonicalTool(c call.Call) string {
	if name, _ := c.Catalogue["name"].(string); name != "" {
		return name
	}
	return c.Tool
}

// evadesWorkflow reports whether another workflow of the session is undecided or denied
// and about the same action on the same resource (AgentHook H-09, AH-C-077).
func (a *approvalDecision) evadesWorkflow() bool {
	d := a.out.Decision
	open := a.in.Approvals.SessionWorkflows(d.Tenant, d.Source, d.Session)
	if len(open) == 0 {
		return false
	}
	action := a.out.approvalAction()
	evasion, err := approval.EvasionKey(action, a.in.digest)
	if err != nil || evasion == "" {
		return false
	}
	same := func(w *approval.Workflow) bool {
		return w.Evasion == evasion && !w.Over(a.in.Now) && w.Status != approval.Approved
	}
	if !slices.ContainsFunc(open, same) {
		return false
	}
	// A workflow may be older than the catalogue that the tool is in now: under its
	// own name it is the same action, too.
	asSaid := action
	asSaid.Tool = a.out.call.Tool
	keys, err := approval.KeysOf(action, a.in.digest)
	said, saidErr := approval.KeysOf(asSaid, a.in.digest)
	return err == nil && saidErr == nil && slices.ContainsFunc(open, func(w *approval.Workflow) bool {
		return same(w) && w.ActionDigest != keys.Action && w.ActionDigest != said.Action
	})
}

// requireApproval makes an ask of an allow.
func (a *approvalDecision) requireApproval() {
	a.addReason(approval.ReasonEvasion)
	a.changeVerdict(events.Ask, approval.ReasonEvasion, DefaultApprovalLifetime)
	a.out.Decision.Approval = a.out.newApprovalRef(a.in)
}

// changeVerdict changes the verdict, and everything that follows from it.
func (a *approvalDecision) changeVerdict(v events.Verdict, code string, lifetime time.Duration) {
	out, d := a.out, &a.out.Decision
	d.Verdict, d.NativeVerdict = v, out.protocol.NativeVerdict(v)
	out.explanation, a.lifetime = code, lifetime
	d.ExpiresAt = events.At(a.in.Now.Add(lifetime))
	if v == events.Deny {
		d.ExpiresAt = events.Time{}
	}
	r := &out.ruling
	r.Policies.Verdict, r.Policies.Code, r.Policies.Message = v, code, ""
	if v == events.Allow {
		r.NativeOpinion.Verdict, r.NativeOpinion.DecidingCode = events.Allow, ""
	}
}

// followWorkflow looks for the workflow of the action and follows it.
func (a *approvalDecision) followWorkflow() {
	d, book := &a.out.Decision, a.in.Approvals
	keys, err := approval.KeysOf(a.out.approvalAction(), a.in.digest)
	if err != nil {
		panic(err) // cannot happen: everything in it came out of strictjson
	}
	a.keys, a.retry = keys, a.out.approvalRetry(a.in)
	a.retry.Unapprovable, a.retry.Asks, a.retry.Terms = a.unapprovable, a.native.AskCodes, approvalTerms(a.tools)
	slot, w, revision := keys.CallSlot, (*approval.Workflow)(nil), uint64(0)
	if w, revision = book.WorkflowAt(d.Tenant, slot); w.MatchRetry(a.retry) == approval.Vacant {
		slot = keys.Slot
		if w, revision = book.WorkflowAt(d.Tenant, slot); w.MatchRetry(a.retry) == approval.OtherCall {
			a.addReason(approval.ReasonNotOurs) // it is left to those it was given for
			slot = keys.CallSlot
			w, revision = book.WorkflowAt(d.Tenant, slot)
		}
	}
	answerHandlers[w.MatchRetry(a.retry)](a, slot, w, revision)
}

// approvalRetry says who asks.
func (out *Outcome) approvalRetry(in Inputs) approval.Retry {
	c, d := out.call, out.Decision
	r := approval.Retry{Call: c.ToolCallID, Event: c.EventID, Now: in.Now}
	if d.Policy != nil {
		r.Policy = *d.Policy
	}
	if v := call.HeaderValues(out.request.Header, events.HeaderWorkflow); len(v) == 1 {
		r.Named = v[0]
	}
	if d.Protocol != agenthook.Name {
		return r
	}
	e, err := wire.Decode(out.request.Body, strictjson.DefaultLimits)
	if err != nil {
		return r
	}
	if b, ok := e.Approval(); ok && r.Named == "" {
		r.Named = b.WorkflowID
	}
	if b, ok := e.Retry(); ok {
		r.Previous = b.PreviousToolCallID
	}
	return r
}

// answerHandlers is what follows from each.
var answerHandlers = map[approval.RetryStatus]func(a *approvalDecision, slot string, w *approval.Workflow, revision uint64){
	approval.Vacant:    (*approvalDecision).openWorkflow,
	approval.OtherCall: (*approvalDecision).openWorkflow, // cannot be: the slot of a call is its own
	approval.Outdated:  (*approvalDecision).openWorkflow,
	approval.OtherAsk:  (*approvalDecision).openWorkflow,
	approval.Waiting:   (*approvalDecision).joinWorkflow,
	approval.NotNamed:  (*approvalDecision).reportUnnamed,
	approval.Refused:   (*approvalDecision).applyDenial,
	approval.Granted:   (*approvalDecision).consumeApproval,

	approval.NotEnough: (*approvalDecision).reportNotEnough,
}

// linkWorkflow lets the decision name a workflow that was there before.
func (a *approvalDecision) linkWorkflow(w *approval.Workflow) {
	d := &a.out.Decision
	d.Approval, d.ExpiresAt = w.Ref(a.in.Now), w.ExpiresAt
	a.lifetime = max(receipt.MinLifetime, min(a.lifetime, w.ExpiresAt.Sub(a.in.Now)))
}

func (a *approvalDecision) joinWorkflow(slot string, w *approval.Workflow, revision uint64) {
	a.addReason(approval.ReasonPending)
	a.requireUnchanged(slot, w, revision)
	if next, joined := w.Join(a.retry); joined {
		a.out.Reservations.Approval = &approval.Step{Slot: slot, Revision: revision, Next: next, Records: []events.Approval{next.Record()}}
	}
	a.linkWorkflow(w)
}

// requireUnchanged demands that the workflow is still as it was seen: whoever asks right
// after a reviewer's word must not be told of the time before it.
func (a *approvalDecision) requireUnchanged(slot string, w *approval.Workflow, revision uint64) {
	a.out.Reservations.Approval = &approval.Step{Slot: slot, Revision: revision, Next: *w, Unchanged: true}
}

// reportNotEnough leaves the verdict, and the approval unused.
func (a *approvalDecision) reportNotEnough(slot string, w *approval.Workflow, revision uint64) {
	a.addReason(approval.ReasonNotEnough)
	a.requireUnchanged(slot, w, revision)
	a.linkWorkflow(w)
}

func (a *approvalDecision) reportUnnamed(slot string, w *approval.Workflow, revision uint64) {
	a.addReason(approval.ReasonNotNamed)
	a.requireUnchanged(slot, w, revision)
	a.linkWorkflow(w)
}

func (a *approvalDecision) applyDenial(slot string, w *approval.Workflow, revision uint64) {
	a.addReason(approval.ReasonDenied)
	a.requireUnchanged(slot, w, revision)
	a.changeVerdict(events.Deny, approval.ReasonDenied, a.lifetime)
	a.out.Decision.Approval = w.Ref(a.in.Now)
}

// consumeApproval uses the approval up. The receipt does not outlive it.
func (a *approvalDecision) consumeApproval(slot string, w *approval.Workflow, revision uint64) {
	out, now := a.out, a.in.Now
	next, err := w.Consume(out.Decision.DecisionID, now)
	if err != nil {
		panic(err) // cannot happen: it is approved and has not expired
	}
	a.addReason(approval.ReasonGranted)
	a.changeVerdict(events.Allow, approval.ReasonGranted,
		max(receipt.MinLifetime, min(verdictLifetime(events.Allow, a.native, a.tools, now), w.ExpiresAt.Sub(now))))
	out.Decision.Approval = next.Ref(now)
	out.Reservations.Approval = &approval.Step{Slot: slot, Revision: revision, Next: next, Consumes: true, Records: []events.Approval{next.Record()}}
}
