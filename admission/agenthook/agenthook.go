// Package agenthook is AgentHook as an admission protocol: it reads requests
// (the request form of an AgentHook event, AHP-013), makes the checks that the
// protocol asks of whoever answers them, and writes its replies.
//
// What a publisher says about verdicts, approvals, trust or attestation is a
// claim. It never loosens anything here and is hidden from policies (AH-C-082,
// AH-C-088, AH-C-105, AH-C-136).
package agenthook

import (
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/schemas"
)

// Name of the protocol and of its evaluator.
const Name = "agenthook"

// Reason codes of this evaluator, beside those of package call.
const (
	CodeObservational    = "observational"
	CodeMissingTool      = "missing_tool_name"
	CodeNotPreCommit     = "not_pre_commit"            // the event says that it is already too late for a verdict
	CodeHumanApproval    = "human_approval_required"   // risk.requires_human_approval
	CodeValidationFailed = "validation_failed"         // validation.status
	CodeHashConflict     = "schema_hash_conflict"      // two blocks name different tool schemas
	CodeProfile          = "profile_invalid"           // short of the action-governance profile; no verdict
	CodeVerdictIgnored   = "publisher_verdict_ignored" // no verdict
	CodeApprovalIgnored  = "publisher_approval_ignored"
	CodeClaimsIgnored    = "publisher_claims_ignored"
)

// Evaluator implements call.Protocol.
type Evaluator struct{}

// Tightens implements call.Protocol: tool policies decide.
func (Evaluator) Tightens() bool { return false }

// violationCodes are the reason codes of violations that have one of their own.
var violationCodes = map[string]string{
	"unknown_schema_version": call.CodeUnknownVersion,
	"tool_name_absent":       CodeMissingTool,
	"tool_name_empty":        CodeMissingTool,
}

// Read implements call.Protocol.
func (Evaluator) Read(r call.Request) (call.Call, call.Opinion) {
	o := call.Opinion{Verdict: events.Allow}
	e, err := wire.Decode(r.Body, r.Limits)
	if e == nil {
		o.Undecodable(Name, err)
		return call.Call{}, o
	}
	c := read(e, r, &o)
	if observational(e) {
		o.Invalid(Name, schemas.Default().AgentHook(e.Tree), violationCodes)
		if !o.Malformed {
			o.Observational, o.Because = true, CodeObservational
			o.Say(events.Allow, Name, CodeObservational, "")
		}
		// The answer must not be mistakable for one on a call.
		c.Tool, c.ToolCallID, c.Args, c.ArgsCanonical = "", "", nil, nil
		return c, o
	}
	o.Invalid(Name, schemas.Default().StrictAgentHook(e.Tree), violationCodes)
	if err != nil && !o.Malformed {
		o.Undecodable(Name, err)
	}
	if !o.Malformed {
		judge(e, c, &o)
	}
	return c, o
}

// observational reports whether an event only tells of something. Types that
// propose something never do, whatever phase they claim; named types that do
// not, and unknown ones, do unless they are said to wait for a verdict.
func observational(e *wire.Event) bool {
	switch {
	case wire.AdmissionCapable(e.EventType):
		return false
	case wire.Known(e.EventType):
		return e.EvidencePhase != wire.PhasePreCommit
	default:
		return e.EvidencePhase == wire.PhaseObservational || e.EvidencePhase == wire.PhasePostHoc
	}
}

func read(e *wire.Event, r call.Request, o *call.Opinion) call.Call {
	c := call.Call{
		EventType: e.EventType, Session: o.Fallback(Name, r, events.HeaderSession, e.SessionID),
		Agent: o.Fallback(Name, r, events.HeaderAgent, e.AgentID), Tool: e.ToolName,
		Action: e.Action, ResourceKind: e.ResourceKind, ResourceScope: e.ResourceScope, Resource: e.Tree["resource"],
		Risk: risk(e), Args: e.ToolInput, Event: withoutClaims(e.Tree), Trace: call.TraceOf(r, e.Trace()),
	}
	if wire.NormaliseID(e.EventID) == e.EventID && validID(e.EventID) {
		c.EventID = e.EventID
		c.EventIDAsSent, _ = e.Tree["event_id"].(string)
	}
	if c.Tool != "" {
		c.ToolCallID = o.Fallback(Name, r, events.HeaderToolCallID, e.ToolCallID())
	}
	canonical, _, err := e.InputCanonical()
	if err != nil {
		o.Refuse(Name, call.CodeSchemaInvalid, "/tool_input")
	}
	c.ArgsCanonical = canonical
	o.Bound(Name, map[string]*string{
		"/session_id": &c.Session, "/agent_id": &c.Agent, "/tool_name": &c.Tool, "/metadata/tool_call_id": &c.ToolCallID,
		"/action": &c.Action, "/resource_kind": &c.ResourceKind, "/resource_scope": &c.ResourceScope,
	})
	return c
}
