package aump

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// RequestSchema is the name of the schema that requests must satisfy.
const RequestSchema = "aump/action-evaluation.request"

// readState is the state that Read passes to Reply.
type readState struct {
	ref     wire.ResponseRef
	result  Result
	channel string // the contact channel, if the result is an escalation and the mandate has one
}

// Read implements call.Protocol.
func (Evaluator) Read(r call.Request) (call.Call, call.Opinion) {
	o := call.Opinion{Verdict: events.Allow}
	req, err := wire.DecodeRequest(r.Body, r.Limits)
	if req == nil {
		o.RefuseUndecodable(Name, err)
		return call.Call{ProtocolState: refusedState("$", wire.Ref{})}, o
	}
	if r.Publishers != nil && r.Publishers.IrreversibleAction(r.Tenant, r.Source, req.Action.Type) {
		req.Action.Commitment = true // whatever the request says; its Tree stays
	}
	c := readCall(req, r, &o)
	o.RefuseViolations(Name, schemas.Default().Validate(RequestSchema, req.Doc), nil)
	if err != nil && !o.Malformed {
		o.RefuseUndecodable(Name, err)
	}
	at := "$"
	if !o.Malformed {
		at = checkReference(req, r, &o)
	}
	if o.Malformed {
		c.ProtocolState = refusedState(at, req.Ref)
		return c, o
	}
	judgeAction(req, r, &c, &o)
	return c, o
}

// checkReference makes the checks of a reference that the schema cannot, and returns the path
// of the defect.
func checkReference(req *wire.Request, r call.Request, o *call.Opinion) string {
	if req.Version != wire.Version {
		o.Refuse(Name, call.CodeUnknownVersion, "/aump/version")
	}
	o.BodyOrHeader(Name, r, wire.HeaderMandateID, req.Ref.ID)
	o.BodyOrHeader(Name, r, wire.HeaderMandateHash, req.Ref.Hash)
	named := o.BodyOrHeader(Name, r, wire.HeaderMandateVersion, req.Ref.Version)
	if named != "" && named != wire.Version {
		o.Refuse(Name, call.CodeUnknownVersion, "/mandate_ref/version")
	}
	if len(named) <= call.MaxField {
		req.Ref.Version = named // the reply repeats it
	}
	if o.Malformed {
		return "$"
	}
	if _, ok := wire.NormaliseHash(req.Ref.Hash); !ok && !rulesFor(r.Profile).acceptsAnyHash {
		o.Refuse(Name, CodeSchemaInvalid, "$.mandate_ref.hash")
	}
	return "$.mandate_ref.hash"
}

// readCall returns the call. The action is its arguments, to which the receipt is bound.
func readCall(req *wire.Request, r call.Request, o *call.Opinion) call.Call {
	a := req.Action
	c := call.Call{
		EventType: req.Type,
		Session:   o.BodyOrHeader(Name, r, events.HeaderSession, ""), Agent: o.BodyOrHeader(Name, r, events.HeaderAgent, ""),
		ToolCallID: o.BodyOrHeader(Name, r, events.HeaderToolCallID, ""), Tool: a.Type,
		Risk: map[string]any{"commitment": commitsPrincipal(a)}, Args: a.Tree, ArgsClaims: actionClaims, Event: withoutClaims(req.Tree()), Traceparent: call.FirstTraceparent(r),
	}
	if commitsPrincipal(a) {
		c.Action = ActionCommit
	}
	if a.Counterparty != nil {
		c.Resource = *a.Counterparty
	}
	if a.Tree != nil {
		canonical, err := strictjson.Canonical(a.Tree)
		if err != nil {
			o.Refuse(Name, CodeSchemaInvalid, "/proposed_action")
		}
		c.ArgsCanonical = canonical
	}
	o.RefuseLongFields(Name, map[string]*string{
		"/proposed_action/type": &c.Tool, "/mandate_ref/id": &req.Ref.ID, "/mandate_ref/hash": &req.Ref.Hash,
		"/mandate_ref/version": &req.Ref.Version,
	})
	for _, header := range []*string{&c.Session, &c.Agent, &c.ToolCallID} {
		o.RefuseLongFields(Name, map[string]*string{"": header})
	}
	return c
}

// actionClaims are the members of a proposed action that the runtime can choose without proposing
// another one.
var actionClaims = []string{"commitment", "summary"}

// withoutClaims is the document for policies: without a request's claims in its own favour.
func withoutClaims(tree map[string]any) map[string]any {
	context, _ := tree["context"].(map[string]any)
	claims := []string{"trusted_ui_approved", "approval"}
	if !slices.ContainsFunc(claims, func(k string) bool { _, there := context[k]; return there }) {
		return tree
	}
	kept := maps.Clone(context)
	maps.DeleteFunc(kept, func(k string, _ any) bool { return slices.Contains(claims, k) })
	clean := maps.Clone(tree)
	clean["context"] = kept
	return clean
}

func judgeAction(req *wire.Request, r call.Request, c *call.Call, o *call.Opinion) {
	hash, _ := wire.NormaliseHash(req.Ref.Hash)
	var agents []string
	if r.Publishers != nil {
		agents = r.Publishers.Agents(r.Tenant, r.Source)
	}
	m := r.Records.Find(r.Tenant, req.Ref.ID, hash)
	if m != nil && !mayKnow(m, hash, agents, r.Profile) {
		m = nil
	}
	in := Input{
		Mandate: m, Ref: req.Ref, Action: req.Action, Context: req.Context, Now: r.Now, Profile: r.Profile, Signatures: r.Records.Signatures,
		Agent: c.Agent,
	}
	ref := wire.ResponseRef{ID: req.Ref.ID, Hash: hash, Version: replyVersion(req.Ref)}
	var spends *mandate.Reservation
	if m != nil {
		if rulesFor(r.Profile).acceptsAnyHash {
			ref.Hash = m.Hash
		}
		c.Mandate = &events.MandateRef{ID: m.ID, Hash: m.Hash}
		p := newProposal(req, r, *c, m)
		in.Revoked, in.Facts, in.Spend = r.Records.Revoked(r.Tenant, m), r.Records.Consent(p), r.Records.Spent(p)
		if a := req.Action.Amount; a != nil {
			spends = p.Reservation(m, a.Total)
		}
	}
	result := Evaluate(in)
	for _, f := range result.Findings {
		o.AddReason(decisionVerdicts[f.Decision], Name, f.Code, f.Path)
	}
	if result.Decision == wire.Allowed {
		o.AddReason(events.Allow, Name, CodeWithinMandate, "")
	}
	if c.ToolCallID == "" {
		o.AddReason(events.Allow, Name, call.CodeNoToolCallID, "")
	}
	if c.Session == "" {
		o.AddReason(events.Allow, Name, call.CodeWeakScope, "")
	}
	if result.Decision != wire.Denied {
		o.NotAfter = m.ExpiresAt
	}
	if result.Decision == wire.RequiresEscalation {
		o.ApprovalWindow = approvalWindow(m, r.Now)
		o.AskCodes = append(o.AskCodes, conditionCodes(in.metConditions())...)
	}
	c.ProtocolState = readState{ref: ref, result: result, channel: contactChannel(result, m)}
	c.Reservation = spends
}

// maxConditionCodes is the number of met conditions that have a code each: a workflow keeps them.
const maxConditionCodes = 64

// conditionCodes are the codes of the asks of met conditions. The conditions are not in the action: an approval is for
// these, or fewer of them. Of more than maxConditionCodes there is one code for the whole list.
func conditionCodes(met []string) (codes []string) {
	slices.Sort(met)
	met = slices.Compact(met)
	if len(met) > maxConditionCodes {
		b, _ := json.Marshal(met) // texts: cannot fail
		met = []string{string(b)}
	}
	for _, condition := range met {
		codes = append(codes, CodeEscalation+" "+digest.Plain([]byte(condition)))
	}
	return codes
}

// mayKnow reports whether a request may learn that the mandate exists: AUMP has a server authorise before it
// reveals that. A publisher that is registered for agents is authorised by the mandate's agent being among them,
// every other by the mandate's hash. TestNoAnswerTellsThatAMandateExists holds it.
func mayKnow(m *mandate.Mandate, hash string, agents []string, profile call.Profile) bool {
	switch {
	case rulesFor(profile).acceptsAnyHash: // an offline comparison with the published evaluators
		return true
	case len(agents) > 0:
		return slices.Contains(agents, m.Agent.ID)
	}
	return hash != "" && hash == m.Hash
}

func newProposal(req *wire.Request, r call.Request, c call.Call, m *mandate.Mandate) mandate.Proposal {
	p := mandate.Proposal{
		Tenant: r.Tenant, Source: r.Source, Session: c.Session, ToolCallID: c.ToolCallID,
		MandateID: m.ID, MandateHash: m.Hash, Action: c.ArgsCanonical,
	}
	if req.Action.Amount != nil {
		p.Currency = req.Action.Amount.Currency
	}
	return p
}
