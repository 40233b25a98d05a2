package admission

import (
	"errors"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Decide judges one request. It never panics and never returns an outcome
// without a verdict and a reason.
func Decide(req Request, snap *Snapshot, in Inputs) Outcome {
	out := Outcome{Decision: record(req, in)}
	p, known := protocols[req.Protocol]
	switch {
	case !in.KnownTenant || req.Tenant == "":
		return out.refuse(req, in, CodeUnknownTenant)
	case !known:
		return out.refuse(req, in, CodeUnknownProtocol)
	case req.Source == "":
		out.protocol = p
		return out.refuse(req, in, CodeUnknownSource)
	case !in.complete():
		out.protocol = p
		return out.refuse(req, in, CodeInternal)
	}
	out.protocol = p
	ok := guard(func() { out.judge(req, snap, in) })
	switch {
	case !ok:
		// What the panicking evaluator left behind is not to be trusted.
		out = Outcome{Decision: record(req, in), protocol: p}
		return out.refuse(req, in, CodeInternal)
	case out.wants:
		out = Outcome{Decision: record(req, in), protocol: p, Session: out.Session, wants: true}
		return out.refuse(req, in, CodeInternal)
	}
	return out
}

// Wants tells whether Inputs.SessionKey had the key of the session not ready. The
// outcome is then deny internal_error and is not to be recorded: make the key, and
// decide again.
func (out *Outcome) Wants() (session string, wants bool) { return out.Session, out.wants }

func (in Inputs) complete() bool {
	return !in.Now.IsZero() && in.DecisionID != "" && in.Nonce != "" && len(in.Salt) == receipt.SaltSize &&
		(in.Unkeyed || len(in.TenantKey) > 0)
}

// record is the part of a decision that does not depend on the body's content.
func record(req Request, in Inputs) events.Decision {
	return events.Decision{
		DecisionID: in.DecisionID, Tenant: req.Tenant, Protocol: req.Protocol, Source: req.Source, Occurrence: in.Occurrence,
		ReceivedAt: events.At(req.ReceivedAt), DecidedAt: events.At(in.Now), Durability: in.Durability,
	}
}

// of are the inputs for a call of a session. It reports whether they are all there.
func (in Inputs) of(tenant, session string) (Inputs, bool) {
	ready := true
	switch {
	case session == "":
		in.Session = nil
	case in.SessionKey != nil:
		in.Session, ready = in.SessionKey(tenant, session)
	}
	return in, ready
}

// digest is "" without a key: no digest is better than one that gives away what
// it hashes.
func (in Inputs) digest(b []byte) string {
	switch {
	case in.Unkeyed:
		return digest.Plain(b)
	case in.Session != nil:
		return in.Session.Digest(b)
	case len(in.TenantKey) == 0:
		return ""
	}
	return digest.Keyed(in.TenantKey, b)
}

// guard runs f and reports whether it came back. The text of a panic may quote
// the request, so it goes nowhere.
func guard(f func()) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	f()
	return true
}

// refuse ends a decision that no evaluator could make.
func (out Outcome) refuse(req Request, in Inputs, code string) Outcome {
	out.Decision.RequestDigest = in.digest(req.Body)
	out.Fail(code)
	out.Malformed = true
	out.ErrorCode, out.ErrorDescription = microError(events.Reason{Code: code})
	return out
}

func (out *Outcome) judge(req Request, snap *Snapshot, in Inputs) {
	known := &witness{stores: in}
	ask := call.Request{
		Tenant: req.Tenant, Source: req.Source, Header: req.Header, Body: req.Body, Now: in.Now,
		Limits: strictjson.DefaultLimits, Confirmations: known, Records: known.records(), Publishers: in.Publishers, Digest: in.digest,
	}
	if snap != nil {
		ask.Strict, ask.Profile = snap.Strict, snap.Profile
	}
	c, native := out.protocol.Read(ask)
	in, ready := in.of(req.Tenant, c.Session)
	if !ready {
		out.Session, out.wants = c.Session, true
		return
	}
	ask.Digest, out.session = in.digest, in.Session
	out.Decision.RequestDigest = in.digest(req.Body)
	judged := !native.Malformed && !native.Observational
	if judged && !alone(&ask, req.Protocol, &c) {
		var m *matter
		m, native = further(ask, req.Protocol, c, native)
		c, out.under = m.call, m.under
	}
	out.asked = req
	out.call, out.Session = c, c.Session
	out.describe(c, in)
	out.Decision.Inputs = known.inputs(ask, c.Mandate)
	tools := policy.Verdicts{Verdict: events.Allow}
	if judged {
		tools = consult(snap, req, c, in)
		if out.protocol.Tightens() && tools.Silent() {
			tools = tools.Aside()
		}
		out.Decision.Policy = policyRef(snap, tools.Policy)
		out.Expired = tools.Expired
	}
	out.ruling = call.Ruling{Own: native, Policies: tools}
	out.consolidate(native, tools, in)
	out.Takes.Spend = out.spend()
	out.Takes.Unconfirmed = c.Unconfirmed
	out.Decision.Counts = policy.Record(tools.Counts)
	if out.Decision.Verdict == events.Allow {
		out.Takes.Counts = tools.Counts
		out.Takes.Confirmation = c.Confirmed
	}
	switch {
	case len(out.Decision.Reasons) == 0:
		panic("a verdict without a reason") // Decide makes a deny of it
	case native.Malformed:
		out.Malformed = true
		out.ErrorCode, out.ErrorDescription = microError(native.Reasons[0])
	case native.Observational:
		out.Claims, out.NoReceipt = receipt.Claims{}, true
		out.Decision.ExpiresAt = events.Time{}
	}
}

// describe copies into the record what it may hold of the call.
func (out *Outcome) describe(c call.Call, in Inputs) {
	d := &out.Decision
	d.EventID, d.Agent, d.Session, d.ToolCallID, d.Tool = c.EventID, c.Agent, c.Session, c.ToolCallID, c.Tool
	d.Action, d.ResourceKind, d.Trace, d.Mandate = c.Action, c.ResourceKind, c.Trace, c.Mandate
	d.CanonicalTool = c.CanonicalTool
	if in.Publishers != nil {
		d.Publishers = in.Publishers.State(d.Tenant)
	}
	if c.ArgsCanonical != nil {
		d.ArgsDigest = in.digest(c.ArgsCanonical)
	}
}

// consult asks the tool policies.
func consult(snap *Snapshot, req Request, c call.Call, in Inputs) policy.Verdicts {
	switch {
	case snap == nil || errors.Is(snap.PolicyErr, policy.ErrNoPolicies):
		return policyRefusal(policy.CodeNoPolicy)
	case snap.PolicyErr != nil:
		return policyRefusal(policy.CodePolicyError)
	}
	return snap.Policies.Evaluate(policy.Input{
		Tenant: req.Tenant, Source: req.Source, Protocol: req.Protocol, EventType: c.EventType, Tool: or(c.CanonicalTool, c.Tool), Action: c.Action,
		ResourceKind: c.ResourceKind, ResourceScope: c.ResourceScope, Resource: c.Resource, Session: c.Session, Agent: c.Agent,
		FromAgent: c.FromAgent, ToAgent: c.ToAgent, RawArguments: c.RawArguments,
		Risk: c.Risk, Args: c.Args, Event: c.Event, Catalog: c.Catalogue, Now: in.Now, Counters: in.Counters, Context: in.Context,
	})
}

func policyRefusal(code string) policy.Verdicts {
	return policy.Verdicts{Verdict: events.Deny, Reasons: []events.Reason{{Evaluator: policy.Evaluator, Code: code}}}
}

func policyRef(snap *Snapshot, name string) *events.PolicyRef {
	if snap == nil {
		return nil
	}
	return &events.PolicyRef{Name: name, Revision: snap.Revision, Digest: snap.Policies.Digest()}
}
