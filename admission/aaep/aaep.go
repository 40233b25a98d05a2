// Package aaep is AAEP as an admission protocol. AAEP has no verdict of its own: a request is
// an unchanged agent.tool.invoked or agent.awaiting.confirmation event, and the reply is
// Countersign's decision record. Begin reading with Evaluator.Read.
//
// AAEP's only gate is the user's confirmation. This package checks whether there was one (see
// checkConfirmation, and package confirm, which reads the log for it). It never answers for the
// user (sections 4.4.1, 9.4.2): allowing an awaiting.confirmation means that the user may be
// asked. Clarifications (section 4.4.2) permit nothing and are not read.
//
// An irreversible invocation needs an accepted confirmation (AAEP-C-100), and so does a
// high-risk one (AAEP-C-101, section 2.3.5). The specification's chapters differ on the latter:
// the digest that this package otherwise follows makes it a warning. Profile reference-sdk does
// that too, unless the configuration is strict.
package aaep

import (
	"regexp"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aaep"
	aaepschema "github.com/countersign-dev/countersign/schemas/aaep"
)

// Name of the protocol and of its evaluator.
const Name = "aaep"

// ActionConfirm is the action of an awaiting.confirmation request, for policies.
const ActionConfirm = "confirm"

// Reason codes of this protocol, beside those of every protocol.
const (
	CodeNotARequest  = "not_a_request"         // the event is neither tool.invoked nor awaiting.confirmation
	CodeConfirmation = "confirmation_required" // the action needs a confirmation by the user and has none (AAEP-C-100)
	CodeHighRisk     = "high_risk_unconfirmed" // an action of high risk without a confirmation (AAEP-C-101); changes no verdict in profile reference-sdk
	CodeUnsafe       = "unsafe_default"        // silence of the user would accept what cannot be undone (AAEP-C-032)
	CodeRiskyDefault = "risky_default"         // changes no verdict: silence of the user would accept a risk (AAEP-C-033)
)

// Evaluator implements call.Protocol.
type Evaluator struct{}

// HasNativeEvaluator implements call.Protocol: tool policies decide.
func (Evaluator) HasNativeEvaluator() bool { return false }

var violationCodes = map[string]string{
	"unpublished_version": call.CodeUnknownVersion,
	"AAEP-C-032":          CodeUnsafe,
}

// Read implements call.Protocol.
func (Evaluator) Read(r call.Request) (call.Call, call.Opinion) {
	o := call.Opinion{Verdict: events.Allow}
	e, err := wire.Decode(r.Body, r.Limits)
	if e == nil {
		o.RefuseUndecodable(Name, err)
		return call.Call{}, o
	}
	c := readCall(e, r, &o)
	if !isAdmissible(e.Payload) {
		o.Refuse(Name, CodeNotARequest, "/type")
		return c, o
	}
	o.RefuseViolations(Name, aaepschema.Strict(e.Doc), violationCodes)
	if err != nil && !o.Malformed {
		o.RefuseUndecodable(Name, err)
	}
	if o.Malformed {
		return c, o
	}
	switch p := e.Payload.(type) {
	case *wire.ToolInvoked:
		checkInvocation(r, &c, &o)
	case *wire.AwaitingConfirmation:
		checkDefault(p, &o)
	}
	return c, o
}

func isAdmissible(payload any) bool {
	switch payload.(type) {
	case *wire.ToolInvoked, *wire.AwaitingConfirmation:
		return true
	}
	return false
}

func readCall(e *wire.Event, r call.Request, o *call.Opinion) call.Call {
	c := call.Call{
		EventType: e.Type,
		Session:   o.BodyOrHeader(Name, r, events.HeaderSession, e.SessionID),
		Agent:     o.BodyOrHeader(Name, r, events.HeaderAgent, e.Producer.AgentID),
		Event:     e.Tree(), Traceparent: call.FirstTraceparent(r, e.CorrelationID), Risk: map[string]any{},
	}
	if eventID.MatchString(e.EventID) {
		c.EventID, c.EventIDAsSent = e.EventID, e.EventID
	}
	switch p := e.Payload.(type) {
	case *wire.ToolInvoked:
		c.Tool = p.Tool
		c.ToolCallID = o.BodyOrHeader(Name, r, events.HeaderToolCallID, p.ToolCallID)
		c.Risk["level"], c.Risk["irreversible"] = orLow(p.RiskLevel), p.Irreversible != nil && *p.Irreversible
	case *wire.AwaitingConfirmation:
		// The text of the action belongs to the user and is in no record. Policies see it in
		// event.
		c.Action = ActionConfirm
		if p.RiskLevel != "" {
			c.Risk["level"] = p.RiskLevel
		}
		c.Risk["irreversible"] = p.IsIrreversible()
	}
	o.RefuseLongFields(Name, map[string]*string{
		"/session_id": &c.Session, "/producer/agent_id": &c.Agent, "/tool": &c.Tool, "/tool_call_id": &c.ToolCallID,
	})
	return c
}

var eventID = regexp.MustCompile(`^evt_[A-Za-z0-9]{1,64}$`)

// orLow applies the protocol's default of an invocation's risk_level.
func orLow(level string) string {
	if level == "" {
		return "low"
	}
	return level
}

// checkInvocation holds an invocation against its confirmation. What the operator's catalogue says of the
// tool counts where it is stricter: a runtime may leave the event's own members out.
func checkInvocation(r call.Request, c *call.Call, o *call.Opinion) {
	i := call.Invocation{Tenant: r.Tenant, Source: r.Source, Session: c.Session, ToolCallID: c.ToolCallID, Tool: c.Tool, Now: r.Now}
	i.Risk, _ = c.Risk["level"].(string)
	i.Irreversible, _ = c.Risk["irreversible"].(bool)
	if r.Publishers != nil {
		i = i.RaisedBy(r.Publishers.Lookup(r.Tenant, r.Source, c.Tool).Entry)
	}
	checkConfirmation(i, r, c, o)
	if c.ToolCallID == "" {
		o.AddReason(events.Allow, Name, call.CodeNoToolCallID, "/tool_call_id")
	}
}

func checkDefault(p *wire.AwaitingConfirmation, o *call.Opinion) {
	if p.DefaultDecision == "accept" && (p.IsIrreversible() || p.RiskLevel == "high") {
		o.AddReason(events.Allow, Name, CodeRiskyDefault, "/default_decision")
	}
}

// NativeVerdict implements call.Protocol: AAEP has no verdicts.
func (Evaluator) NativeVerdict(events.Verdict) string { return "" }

// Reply implements call.Protocol: the decision record, in canonical form.
func (Evaluator) Reply(_ call.Call, d events.Decision, _ string) ([]byte, error) {
	return events.Encode(d)
}
