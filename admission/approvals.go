package admission

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// approvalDecision applies approval workflows to one decision.
type approvalDecision struct {
	out      *Outcome
	native   call.Opinion
	policies policy.Result
	in       Inputs
	lifetime time.Duration
	keys     approval.Keys
	retry    approval.Retry

	forbidding []*approval.Workflow // see forbiddingWorkflows

	// unapprovable reports that a part of the verdict cannot be lifted by an approval.
	unapprovable bool
}

// applyApprovals applies the approval workflows to the combined verdict and returns the
// lifetime of the result. An ask or a defer joins the open workflow of its action or opens one;
// a denied workflow makes it a deny. An ask consumes an approved workflow; an approval lifts
// nothing else: no defer, and no ask that its evaluator declares unapprovable. An allow becomes
// what its action's workflow says while that waits for a person or is denied: what made the verdict
// an ask, such as a stated risk, need not be part of the action. It becomes an ask while another
// workflow of the session is about what would run, or about the same action on the same resource. A deny stays a deny,
// whatever was approved. Without an index no state is kept, and every ask opens a workflow of its
// own.
func (out *Outcome) applyApprovals(native call.Opinion, policies policy.Result, in Inputs, lifetime time.Duration) time.Duration {
	if in.Approvals == nil || native.Observational || native.Malformed {
		return lifetime
	}
	a := approvalDecision{out: out, native: native, policies: policies, in: in, lifetime: lifetime,
		unapprovable: native.Unapprovable != "" || policies.Verdict.Strictness() > events.Ask.Strictness()}
	switch out.Decision.Verdict {
	case events.Allow:
		a.holdAllow()
	case events.Ask, events.Defer:
		if native.Verdict != events.Allow && out.call.Unconfirmed != nil {
			// A reviewer cannot answer for the user: only a confirmation lifts this ask
			// (AAEP-C-100), so there is nothing to approve.
			out.Decision.Approval = nil
			return lifetime
		}
		if a.forbidding = a.forbiddingWorkflows(); a.evades() {
			a.addReason(approval.ReasonEvasion)
		}
		a.followWorkflow()
	}
	return a.lifetime
}

func (a *approvalDecision) addReason(code string) {
	d := &a.out.Decision
	d.Reasons = append(d.Reasons, events.Reason{Evaluator: approval.EvaluatorName, Code: code})
}

// approvalAction is the proposed action as approvals identify it.
func (out *Outcome) approvalAction() approval.Action {
	c, d := out.call, out.Decision
	a := approval.Action{
		Tenant: d.Tenant, Source: d.Source, Session: c.Session, Protocol: d.Protocol, Call: c.ToolCallID, Tool: canonicalTool(c), Action: c.Action,
		Kind: c.ResourceKind, Scope: c.ResourceScope, Resource: c.Resource, Dir: c.Dir, Agent: c.Agent, ApprovalScope: c.ApprovalScope, FromAgent: c.FromAgent, ToAgent: c.ToAgent,
		Args: c.ArgsCanonical, Event: c.Event, Body: d.RequestDigest, Mandated: c.Mandated,
	}
	if d.Mandate != nil {
		a.Mandate = d.Mandate.Hash
	}
	if c.Args != nil && c.ArgsClaims != nil {
		does := maps.Clone(c.Args)
		maps.DeleteFunc(does, func(member string, _ any) bool { return slices.Contains(c.ArgsClaims, member) })
		a.Does = canonicalArgs(does)
	}
	return a
}

func canonicalArgs(args map[string]any) []byte {
	b, err := strictjson.Canonical(args)
	if err != nil {
		panic(err) // cannot happen: everything in it came out of strictjson
	}
	return b
}

// canonicalTool is the tool's canonical name by the tenant's catalogue (AgentHook H-09), so
// that a retry under an alias is the same action. The canonical name that a publisher claims
// does not count: two tools that claim one name would share an approval.
func canonicalTool(c call.Call) string {
	if name, _ := c.Catalogue["name"].(string); name != "" {
		return name
	}
	return c.Tool
}

// holdAllow turns an allow into what the workflow of its own action says, or into an ask if it
// evades another one. It uses up an approval that the call could use: an approval is for one allow.
func (a *approvalDecision) holdAllow() {
	if a.forbidding = a.forbiddingWorkflows(); len(a.forbidding) == 0 {
		return
	}
	switch slot, w, revision := a.ownWorkflow(); {
	case w != nil && w.Status == approval.Denied:
		a.applyDenial(slot, w, revision)
	case w != nil && w.Status == approval.Pending:
		a.changeVerdict(events.Ask, approval.ReasonPending, DefaultApprovalLifetime)
		a.joinWorkflow(slot, w, revision)
	case a.evades():
		a.requireApproval()
		a.followWorkflow()
	case w != nil:
		a.consumeApproval(slot, w, revision)
	}
}

// forbiddingWorkflows returns the workflows of the session that stand against an allow; most
// sessions have none.
func (a *approvalDecision) forbiddingWorkflows() (list []*approval.Workflow) {
	d := a.out.Decision
	for _, w := range a.in.Approvals.SessionWorkflows(d.Tenant, d.Source, d.Session) {
		if a.isForbiddenBy(w) {
			list = append(list, w)
		}
	}
	return list
}

// isForbiddenBy reports whether a workflow stands against an allow: it is undecided, denied, or approved and
// not used, and of the policies in force. In mode observe one whose asks are all of policies does not. One of a
// defer, a policy's or an evaluator's, has no asks and does.
func (a *approvalDecision) isForbiddenBy(w *approval.Workflow) bool {
	if !w.InForce(a.out.policyInForce(), a.in.Now) {
		return false
	}
	native := func(code string) bool { return !strings.HasPrefix(code, policyAsk) }
	return a.out.Decision.Mode != events.ModeObserve || len(w.Asks) == 0 || slices.ContainsFunc(w.Asks, native)
}

// ownWorkflow returns the workflow of the action itself that holds an allow or is used up by it, nil if none
// is. The order is that of followWorkflow: the workflow of the call, one that is approved for the request, that of the
// action, and those of other calls.
func (a *approvalDecision) ownWorkflow() (slot string, w *approval.Workflow, revision uint64) {
	a.identify()
	for _, at := range append([]string{a.keys.CallSlot, a.keys.Slot}, a.slotsOfOtherCalls()...) {
		found, atRevision := a.in.Approvals.WorkflowAt(a.out.Decision.Tenant, at)
		if found == nil || !a.isForbiddenBy(found) || !a.appliesToAction(found) {
			continue
		}
		if w == nil || found.Status == approval.Approved {
			slot, w, revision = at, found, atRevision
		}
		if w.Status == approval.Approved || at == a.keys.CallSlot && !a.isOfOtherAgent(w) {
			break
		}
	}
	return slot, w, revision
}

// isOfOtherAgent reports whether a workflow in the slot of the call is undecided and not for the request: without a
// session, calls of several agents can have one id, or none.
func (a *approvalDecision) isOfOtherAgent(w *approval.Workflow) bool {
	return w.Status == approval.Pending && !w.CoversRequest(a.retry)
}

// appliesToAction reports whether a workflow of the action itself waits for a person or is denied, or is
// approved for the request.
func (a *approvalDecision) appliesToAction(w *approval.Workflow) bool {
	if w.Status == approval.Approved {
		return w.CoversRequest(a.retry)
	}
	return waitsForPerson(w)
}

// slotsOfOtherCalls returns the slots of other calls whose workflows are about the action itself and apply to
// the request, the denied ones first. Such a call could not use the approval in the action's own slot.
func (a *approvalDecision) slotsOfOtherCalls() (slots []string) {
	var list []*approval.Workflow
	for _, w := range a.forbidding {
		if w.ActionDigest == a.keys.Action && w.Slot != a.keys.CallSlot && w.Slot != a.keys.Slot && a.appliesToAction(w) {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(x, y *approval.Workflow) int { return strings.Compare(x.Slot, y.Slot) })
	for _, denied := range []bool{true, false} {
		for _, w := range list {
			if (w.Status == approval.Denied) == denied {
				slots = append(slots, w.Slot)
			}
		}
	}
	return slots
}

// waitsForPerson reports whether a workflow holds an allow of its own action: it is denied, or only
// a reviewer's approval can remove one of its asks. Evidence that its protocol asks for removes
// others, and so does the end of the workflow that it seemed to evade. A defer beside such an ask
// does not end it: the runtime could add one by a contract.
func waitsForPerson(w *approval.Workflow) bool {
	return w.Status == approval.Denied || slices.ContainsFunc(w.Asks, needsPerson)
}

// needsPerson reports whether no protocol lets the runtime remove an ask by better evidence.
func needsPerson(ask string) bool {
	return !slices.ContainsFunc(companions, func(c call.Companion) bool { return c.EvidenceCodes[ask] })
}

// evades reports whether one of the workflows that forbid an allow is another one about the same
// action on the same resource (AgentHook H-09, AH-C-077), or waits for a person about what would run:
// the requester chooses what else is in an action's key, such as its mandate.
func (a *approvalDecision) evades() bool {
	if len(a.forbidding) == 0 {
		return false
	}
	// A workflow may be older than the tool's catalogue entry: the tool's own name identifies
	// the same action, too.
	action := a.out.approvalAction()
	asSaid := action
	asSaid.Tool = a.out.call.Tool
	keys, err := approval.KeysOf(action, a.in.digest)
	said, saidErr := approval.KeysOf(asSaid, a.in.digest)
	return err == nil && saidErr == nil && slices.ContainsFunc(a.forbidding, func(w *approval.Workflow) bool {
		if w.Status == approval.Approved && !a.runsTwice(w, keys, said) {
			return false
		}
		switch w.ActionDigest {
		case keys.Action, said.Action:
			return false
		}
		return w.Evasion != "" && w.Evasion == keys.Evasion || waitsForPerson(w) && (runsWhatWaits(w, keys, action.Call) || runsWhatWaits(w, said, action.Call))
	})
}

// runsWhatWaits reports whether a workflow is about what a request would run: the same tool with the same
// arguments or, where one of them has none, the same tool under the same call id. A request with arguments
// tells more than a workflow without any, and they may be why it is allowed: only a denial holds it.
func runsWhatWaits(w *approval.Workflow, k approval.Keys, id string) bool {
	switch {
	case w.Runs != "" && k.Runs != "":
		return w.Runs == k.Runs
	case k.Runs != "" && w.Status != approval.Denied:
		return false
	}
	return w.Tool != "" && w.Tool == k.Tool && w.WaitsForCall(id)
}

// requireApproval turns an allow into an ask.
func (a *approvalDecision) requireApproval() {
	a.addReason(approval.ReasonEvasion)
	a.changeVerdict(events.Ask, approval.ReasonEvasion, DefaultApprovalLifetime)
	a.out.Decision.Approval = a.out.newApprovalRef(a.in)
}

// runsTwice reports whether one call would be allowed to run the same twice: now, and by an approval of
// another action's key, which it has not used yet.
func (a *approvalDecision) runsTwice(w *approval.Workflow, keys, said approval.Keys) bool {
	return a.out.Decision.Verdict == events.Allow && w.Runs != "" && (w.Runs == keys.Runs || w.Runs == said.Runs) && w.CoversRequest(a.retry)
}

// changeVerdict changes the verdict and everything that follows from it.
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

// identify sets the keys of the action, and what the request is to its workflow.
func (a *approvalDecision) identify() {
	keys, err := approval.KeysOf(a.out.approvalAction(), a.in.digest)
	if err != nil {
		panic(err) // cannot happen: everything in it came out of strictjson
	}
	a.keys, a.retry = keys, a.out.approvalRetry(a.in)
	a.retry.Unapprovable, a.retry.Asks, a.retry.Terms = a.unapprovable, a.asks(), a.policies.Approval
}

// followWorkflow finds the workflow of the action and applies its status. An approval for the request in another slot
// goes before what the action's own slot says about other calls.
func (a *approvalDecision) followWorkflow() {
	d, index := &a.out.Decision, a.in.Approvals
	a.identify()
	keys := a.keys
	slot := keys.CallSlot
	w, revision := index.WorkflowAt(d.Tenant, slot)
	status := a.matchRetry(w)
	free := status == approval.Vacant || status == approval.OtherCall
	if free || status == approval.Waiting {
		for _, other := range append([]string{keys.Slot}, a.slotsOfOtherCalls()...) {
			if o, at := index.WorkflowAt(d.Tenant, other); a.matchRetry(o) == approval.Granted {
				a.consumeApproval(other, o, at)
				return
			}
		}
	}
	if free {
		slot = keys.Slot
		if w, revision = index.WorkflowAt(d.Tenant, slot); a.matchRetry(w) == approval.OtherCall {
			a.addReason(approval.ReasonNotTransferable) // the workflow stays with the calls it was opened for
			slot = keys.CallSlot
			w, revision = index.WorkflowAt(d.Tenant, slot)
		}
	}
	if a.matchRetry(w) == approval.Vacant {
		for _, other := range a.slotsOfOtherCalls() {
			if o, at := index.WorkflowAt(d.Tenant, other); settledStatuses[a.matchRetry(o)] {
				slot, w, revision = other, o, at
				break
			}
		}
	}
	answerHandlers[a.matchRetry(w)](a, slot, w, revision)
}

// matchRetry returns the status of a workflow for the request. A pending workflow is not replaced by a request that
// leaves out an ask for a person on account of which it waits: the action would then wait for less, or for nobody. It is
// replaced by one that adds such an ask to them, though no approval would lift all of that request's verdict.
func (a *approvalDecision) matchRetry(w *approval.Workflow) approval.RetryStatus {
	status := w.MatchRetry(a.retry)
	if status != approval.OtherAsk && status != approval.Waiting || w.Status != approval.Pending || !a.isForbiddenBy(w) {
		return status
	}
	switch {
	case lacksPerson(a.retry.Asks, w.Asks):
		return approval.Waiting
	case lacksPerson(w.Asks, a.retry.Asks):
		return approval.OtherAsk
	}
	return status
}

// lacksPerson reports whether asks lack one of others that only a person can answer.
func lacksPerson(asks, others []string) bool {
	return slices.ContainsFunc(others, func(ask string) bool { return needsPerson(ask) && !slices.Contains(asks, ask) })
}

// asks are the codes of the evaluators' reasons to ask, and the rules of policies that ask. No
// code begins with policyAsk.
func (a *approvalDecision) asks() []string {
	list := slices.Clone(a.native.AskCodes)
	for _, rule := range a.policies.Asks {
		list = append(list, policyAsk+rule)
	}
	return list
}

// policyAsk begins the name of a policy's rule among the asks.
const policyAsk = policy.EvaluatorName + ":"

// approvalRetry describes the request for matching with a workflow.
func (out *Outcome) approvalRetry(in Inputs) approval.Retry {
	c := out.call
	r := approval.Retry{Call: c.ToolCallID, Event: c.EventID, Agent: out.Decision.Agent, Previous: c.PreviousCall, Now: in.Now, Policy: out.policyInForce()}
	if v := call.HeaderValues(out.request.Header, events.HeaderWorkflow); len(v) == 1 {
		r.Named = v[0]
	}
	if r.Named == "" {
		r.Named = c.NamedWorkflow
	}
	return r
}

// policyInForce is the policy snapshot of the decision, zero without policies.
func (out *Outcome) policyInForce() events.PolicyRef {
	if p := out.Decision.Policy; p != nil {
		return *p
	}
	return events.PolicyRef{}
}

// answerHandlers maps the status of a workflow to the step that follows.
var answerHandlers = map[approval.RetryStatus]func(a *approvalDecision, slot string, w *approval.Workflow, revision uint64){
	approval.Vacant:    (*approvalDecision).openWorkflow,
	approval.OtherCall: (*approvalDecision).openWorkflow, // replaces: without a session, the slot of a call can hold an approval of another agent
	approval.Outdated:  (*approvalDecision).openWorkflow,
	approval.OtherAsk:  (*approvalDecision).openWorkflow,
	approval.Waiting:   (*approvalDecision).joinWorkflow,
	approval.NotNamed:  leaveUnused(approval.ReasonNotNamed),
	approval.Refused:   (*approvalDecision).applyDenial,
	approval.Granted:   (*approvalDecision).consumeApproval,

	approval.NotEnough: leaveUnused(approval.ReasonNotEnough),
}

// settledStatuses are the statuses of another call's workflow that a request takes instead of opening one.
var settledStatuses = map[approval.RetryStatus]bool{approval.Waiting: true, approval.NotNamed: true, approval.Refused: true, approval.Granted: true, approval.NotEnough: true}

// linkWorkflow makes the decision name an existing workflow.
func (a *approvalDecision) linkWorkflow(w *approval.Workflow) {
	d := &a.out.Decision
	d.Approval, d.ExpiresAt = w.Ref(a.in.Now), w.ExpiresAt
	a.lifetime = max(receipt.MinLifetime, min(a.lifetime, w.ExpiresAt.Sub(a.in.Now)))
}

func (a *approvalDecision) joinWorkflow(slot string, w *approval.Workflow, revision uint64) {
	a.addReason(approval.ReasonPending)
	a.requireUnchanged(slot, w, revision)
	if next, joined := w.Join(a.retry); joined {
		a.out.Consumption.Approval = &approval.Change{Slot: slot, Revision: revision, Next: next, Records: []events.Approval{next.Record()}}
	}
	a.linkWorkflow(w)
}

// requireUnchanged makes the reservation fail if the workflow has changed since it was read: a
// caller that asks right after a reviewer's decision must not get an older answer.
func (a *approvalDecision) requireUnchanged(slot string, w *approval.Workflow, revision uint64) {
	a.out.Consumption.Approval = &approval.Change{Slot: slot, Revision: revision, Next: *w, Unchanged: true}
}

// leaveUnused keeps the verdict, leaves the approval unused and says why.
func leaveUnused(reason string) func(a *approvalDecision, slot string, w *approval.Workflow, revision uint64) {
	return func(a *approvalDecision, slot string, w *approval.Workflow, revision uint64) {
		a.addReason(reason)
		a.requireUnchanged(slot, w, revision)
		a.linkWorkflow(w)
	}
}

func (a *approvalDecision) applyDenial(slot string, w *approval.Workflow, revision uint64) {
	a.addReason(approval.ReasonDenied)
	a.requireUnchanged(slot, w, revision)
	a.changeVerdict(events.Deny, approval.ReasonDenied, a.lifetime)
	a.out.Decision.Approval = w.Ref(a.in.Now)
}

// consumeApproval consumes the approval. The receipt does not outlive it.
func (a *approvalDecision) consumeApproval(slot string, w *approval.Workflow, revision uint64) {
	out, now := a.out, a.in.Now
	next, err := w.Consume(out.Decision.DecisionID, now)
	if err != nil {
		panic(err) // cannot happen: it is approved and has not expired
	}
	a.addReason(approval.ReasonGranted)
	a.changeVerdict(events.Allow, approval.ReasonGranted,
		max(receipt.MinLifetime, min(verdictLifetime(events.Allow, a.native, a.policies, now), w.ExpiresAt.Sub(now))))
	out.Decision.Approval = next.Ref(now)
	out.Consumption.Approval = &approval.Change{Slot: slot, Revision: revision, Next: next, Consumes: true, Records: []events.Approval{next.Record()}}
}
