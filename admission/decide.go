package admission

import (
	"cmp"
	"errors"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Decide decides one request. It never panics and never returns an outcome without a verdict
// and a reason.
func Decide(req Request, config *Config, in Inputs) Outcome {
	out := Outcome{Decision: decisionRecord(req, in)}
	p, supported := protocols[req.Protocol]
	switch {
	case !in.KnownTenant || req.Tenant == "":
		return out.refuseRequest(req, in, CodeUnknownTenant)
	case !supported:
		return out.refuseRequest(req, in, CodeUnknownProtocol)
	case req.Source == "":
		out.protocol = p.Protocol
		return out.refuseRequest(req, in, CodeUnknownSource)
	case !in.isComplete():
		out.protocol = p.Protocol
		return out.refuseRequest(req, in, CodeInternal)
	}
	out.protocol = p.Protocol
	ok := runRecovered(func() { out.judgeRequest(req, p, config, in) })
	switch {
	case !ok:
		// What a panicking evaluator has written is not to be trusted.
		out = Outcome{Decision: decisionRecord(req, in), protocol: p.Protocol}
		return out.refuseRequest(req, in, CodeInternal)
	case out.secretMissing:
		out = Outcome{Decision: decisionRecord(req, in), protocol: p.Protocol, Session: out.Session, secretMissing: true}
		return out.refuseRequest(req, in, CodeInternal)
	}
	return out
}

// NeedsSessionSecret reports whether the secret of the call's session was not at hand, and which session's.
// The outcome is then deny internal_error and must not be recorded: the caller makes the secret
// and decides again.
func (out *Outcome) NeedsSessionSecret() (session string, wants bool) {
	return out.Session, out.secretMissing
}

func (in Inputs) isComplete() bool {
	return !in.Now.IsZero() && in.DecisionID != "" && in.Nonce != "" && len(in.Salt) == receipt.SaltSize &&
		(in.PlainDigests || len(in.TenantKey) > 0)
}

// decisionRecord is the part of a decision that does not depend on the body's content.
func decisionRecord(req Request, in Inputs) events.Decision {
	return events.Decision{
		DecisionID: in.DecisionID, Tenant: req.Tenant, Protocol: req.Protocol, Source: req.Source, Gateway: req.Gateway, Occurrence: in.Occurrence,
		ReceivedAt: events.At(req.ReceivedAt), DecidedAt: events.At(in.Now), Durability: in.Durability,
	}
}

// withSession returns the inputs for a call of a session. ready is false if the session's secret is not at
// hand.
func (in Inputs) withSession(tenant, session string) (with Inputs, ready bool) {
	ready = true
	switch {
	case session == "":
		in.Secret = nil
	case in.SessionSecret != nil:
		in.Secret, ready = in.SessionSecret(tenant, session)
	}
	return in, ready
}

// digest is "" without a key: no digest is better than one that reveals its input.
func (in Inputs) digest(b []byte) string {
	switch {
	case in.PlainDigests:
		return digest.Plain(b)
	case in.Secret != nil:
		return in.Secret.Digest(b)
	case len(in.TenantKey) == 0:
		return ""
	}
	return digest.Keyed(in.TenantKey, b)
}

// runRecovered runs f and reports whether it returned without a panic. The text of a panic may
// quote the request, so it is dropped.
func runRecovered(f func()) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	f()
	return true
}

// refuseRequest ends a decision that no evaluator can make.
func (out Outcome) refuseRequest(req Request, in Inputs, code string) Outcome {
	out.Decision.RequestDigest = in.digest(req.Body)
	out.Fail(code)
	out.Malformed = true
	out.ErrorCode, out.ErrorDescription = microError(events.Reason{Code: code})
	return out
}

func (out *Outcome) judgeRequest(req Request, p protocol, config *Config, in Inputs) {
	recorder := &inputRecorder{stores: in}
	request := call.Request{
		Tenant: req.Tenant, Source: req.Source, Header: req.Header, Body: req.Body, Now: in.Now,
		Limits: strictjson.DefaultLimits, Confirmations: recorder, Records: recorder.mandateRecords(), Publishers: in.Publishers, Digest: in.digest,
	}
	if config != nil {
		request.Strict, request.Profile = config.Strict, config.Profile
	}
	c, native := out.protocol.Read(request)
	in, ready := in.withSession(req.Tenant, c.Session)
	if !ready {
		out.Session, out.secretMissing = c.Session, true
		return
	}
	request.Digest, out.secret = in.digest, in.Secret
	out.Decision.RequestDigest = in.digest(req.Body)
	if config.observes(req.Tenant) {
		out.Decision.Mode = events.ModeObserve
	}
	judged := !native.Malformed && !native.Observational
	if judged && !nativeOnly(&request, req.Protocol, p, &c) {
		c, native = runEvaluators(request, req.Protocol, p, c, native)
	}
	out.request = req
	out.call, out.Session = c, c.Session
	out.describeCall(c, in)
	out.Decision.Inputs = recorder.decisionInputs(request, c.Mandate)
	policies := policy.Result{Verdict: events.Allow}
	if judged {
		policies = evaluatePolicies(config, req, c, in)
		if out.protocol.HasNativeEvaluator() && policies.NoRuleMatched() {
			policies = policies.AdvisoryOnly()
		}
		if config.observes(req.Tenant) {
			policies, out.Decision.Would = policies.Observed()
		}
		out.Decision.Policy = policyRef(config, policies.Policy)
		out.DeadlineExceeded = policies.DeadlineExceeded
	}
	out.ruling = call.Ruling{NativeOpinion: native, Policies: policies}
	out.concludeDecision(native, policies, in)
	if out.Decision.Verdict == events.Allow && !out.NoReceipt {
		out.Consumption.Spend = c.Reservation
	}
	out.Consumption.Unconfirmed = c.Unconfirmed
	out.Decision.Counts = policy.RecordCounts(policies.Counts)
	if out.Decision.Verdict == events.Allow {
		out.Consumption.Counts = policy.KnownCounts(policies.Counts)
		out.Consumption.Confirmation = c.Confirmed
		out.Consumption.ConfirmedInvocation = c.ConfirmedInvocation
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

// describeCall copies the recordable fields of the call into the record.
func (out *Outcome) describeCall(c call.Call, in Inputs) {
	d := &out.Decision
	d.EventID, d.Agent, d.Session, d.ToolCallID, d.Tool = c.EventID, c.Agent, c.Session, c.ToolCallID, c.Tool
	d.Action, d.ResourceKind, d.Traceparent, d.Mandate = c.Action, c.ResourceKind, c.Traceparent, c.Mandate
	d.CanonicalTool = c.CanonicalTool
	if in.Publishers != nil {
		d.Publishers = in.Publishers.State(d.Tenant)
	}
	if c.ArgsCanonical != nil {
		d.ArgsDigest = in.digest(c.ArgsCanonical)
	}
}

// evaluatePolicies evaluates the tool policies.
func evaluatePolicies(config *Config, req Request, c call.Call, in Inputs) policy.Result {
	seen := policy.Input{
		Tenant: req.Tenant, Source: req.Source, Protocol: req.Protocol, EventType: c.EventType, Tool: cmp.Or(c.CanonicalTool, c.Tool), Action: c.Action,
		ResourceKind: c.ResourceKind, ResourceScope: c.ResourceScope, Resource: c.Resource, Session: c.Session, Agent: c.Agent,
		FromAgent: c.FromAgent, ToAgent: c.ToAgent, RawArguments: c.RawArguments,
		Risk: c.Risk, Args: c.Args, Event: c.Event, Catalog: c.Catalogue, Now: in.Now, Counters: in.Counters, Context: in.Context,
		Observe: config.observes(req.Tenant),
	}
	if in.Inspect != nil {
		in.Inspect(seen)
	}
	switch {
	case config == nil || errors.Is(config.PolicyErr, policy.ErrNoPolicies):
		return policyRefusal(policy.CodeNoPolicy)
	case config.PolicyErr != nil:
		failed := policyRefusal(policy.CodePolicyError)
		failed.Failed = true
		return failed
	}
	return config.Policies.Evaluate(seen)
}

func policyRefusal(code string) policy.Result {
	return policy.Result{Verdict: events.Deny, Reasons: []events.Reason{{Evaluator: policy.EvaluatorName, Code: code}}}
}

func policyRef(config *Config, name string) *events.PolicyRef {
	if config == nil {
		return nil
	}
	return &events.PolicyRef{Name: name, Revision: config.Revision, Digest: config.Policies.Digest()}
}
