// Package agenthook is AgentHook as an admission protocol: it reads requests (the request form
// of an AgentHook event, AHP-013), makes the checks that the protocol demands of a subscriber,
// and writes its replies. Begin reading with Evaluator.Read; the checks are in checks.go.
//
// An event has one of two forms (H-02). The request form has no verdict yet. The evidence form
// carries a verdict, of this or another subscriber. Both are evaluated, and so is an event that
// was asked about before: an earlier answer is never reused (AH-C-051).
//
// What a publisher states about verdicts, approvals, trust or attestation is a claim. It never
// loosens a verdict and is hidden from policies (AH-C-082, AH-C-088, AH-C-105, AH-C-136).
// Statements against the publisher's own interest count: a hook that was tampered with, a
// runtime that lost its approval, a stricter verdict of another subscriber.
//
// The operator's declarations about the publisher apply: the types of events that its manifest
// excludes, and the profiles that its registration demands (admission-bound,
// action-governance).
package agenthook

import (
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/agenttool"
	"github.com/countersign-dev/countersign/events/strictjson"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

// Name of the protocol and of its evaluator.
const Name = "agenthook"

// Reason codes of this protocol, beside those of every protocol.
const (
	CodeObservational    = "observational"              // an event of this type only observes and cannot ask for admission
	CodeMissingTool      = "missing_tool_name"          // the event names no tool
	CodeNotPreCommit     = "not_pre_commit"             // the event says that it is already too late for a verdict
	CodeHumanApproval    = "human_approval_required"    // the event says that a person must approve (risk.requires_human_approval)
	CodeValidationFailed = "validation_failed"          // the event says that validation of the arguments failed (validation.status)
	CodeHashConflict     = "schema_hash_conflict"       // two blocks name different tool schemas
	CodeProfile          = "profile_invalid"            // the event falls short of the action-governance profile; denied only if a registration demands it
	CodeVerdictIgnored   = "publisher_verdict_ignored"  // changes no verdict: the event claims a verdict of its own
	CodeApprovalIgnored  = "publisher_approval_ignored" // changes no verdict: the event claims an approval
	CodeClaimsIgnored    = "publisher_claims_ignored"   // changes no verdict: the event makes other claims that count for nothing

	CodeEarlierVerdict  = "earlier_verdict"           // another subscriber has decided more strictly, as the event says
	CodeHookUntrusted   = "hook_not_trusted"          // the event says that its hook is not trusted (hook_trust.trust_status)
	CodeFingerprint     = "hook_fingerprint_mismatch" // the hook's fingerprint is not the one that the event or the manifest expects
	CodeRuntime         = "runtime_not_approved"      // the event says that its managed runtime is not approved
	CodeContract        = "runtime_contract_invalid"  // the signature of the event's runtime contract is invalid, as the event says
	CodeSurface         = "tool_surface_mismatch"     // changes no verdict: the event names two tool surfaces
	CodeFailMode        = "fail_mode_event"           // changes no verdict: the publisher decided by itself
	CodeFailModeUnclear = "fail_mode_incomplete"      // changes no verdict: the event does not say for which call the fail mode fired, or how
	CodeFailModeOther   = "fail_mode_contradicted"    // changes no verdict: the fail mode let a call pass, and the publisher is registered as fail_closed

	CodePublisher = "publisher_mismatch"     // the publisher is registered, but not as what the event says it is
	CodeEvent     = "event_type_not_exposed" // the manifest says that there is no such event
)

// Evaluator implements call.Protocol.
type Evaluator struct{}

// HasNativeEvaluator implements call.Protocol: tool policies decide.
func (Evaluator) HasNativeEvaluator() bool { return false }

// violationCodes are the reason codes of violations that have their own code.
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
		o.RefuseUndecodable(Name, err)
		return call.Call{}, o
	}
	c := readCall(e, r, &o)
	if e.OnlyReports() || wire.ClosesCall(e.EventType, c.ToolCallID) { // the answer must not look like one on a call
		c.Tool, c.ToolCallID, c.Args, c.ArgsCanonical = "", "", nil, nil
	}
	if e.OnlyReports() {
		o.RefuseViolations(Name, hookschema.Validate(e.Doc), violationCodes)
		if !o.Malformed {
			o.Observational, o.DecidingCode = true, CodeObservational
			o.AddReason(events.Allow, Name, CodeObservational, "")
			recordFailMode(e, declarationOf(r, e), &o)
		}
		return c, o
	}
	o.RefuseViolations(Name, hookschema.Strict(e.Doc), violationCodes)
	if err != nil && !o.Malformed {
		o.RefuseUndecodable(Name, err)
	}
	if !o.Malformed {
		runChecks(e, c, declarationOf(r, e), &o)
	}
	return c, o
}

// claimOf is what an event states about the identity of its tool (AHP-013).
func claimOf(event map[string]any) publisher.Claim {
	metadata, _ := event["metadata"].(map[string]any)
	field := func(block, member string) publisher.Field {
		b, _ := metadata[block].(map[string]any)
		text, _ := b[member].(string)
		return publisher.Field{Text: text, Path: "/metadata/" + block + "/" + member}
	}
	c := publisher.Claim{Canonical: field("tool_identity", "canonical_name"), Provider: field("tool_identity", "provider_name")}
	for _, block := range []string{"tool_identity", "provider_translation", "validation"} {
		c.Hashes = append(c.Hashes, field(block, "schema_hash"))
	}
	return c
}

func readCall(e *wire.Event, r call.Request, o *call.Opinion) call.Call {
	tree := e.Tree()
	c := call.Call{
		EventType: e.EventType, Session: o.BodyOrHeader(Name, r, events.HeaderSession, e.SessionID),
		Agent: o.BodyOrHeader(Name, r, events.HeaderAgent, e.AgentID), Tool: e.ToolName,
		Action: e.Action, ResourceKind: e.ResourceKind, ResourceScope: e.ResourceScope, Resource: tree["resource"],
		Risk: riskOf(e), Args: asObject(tree["tool_input"]), Event: withoutClaims(tree), Traceparent: call.FirstTraceparent(r, e.Trace()),
	}
	if events.NormaliseID(e.EventID) == e.EventID && validID(e.EventID) {
		c.EventID = e.EventID
		c.EventIDAsSent = e.Doc.MemberText("event_id")
	}
	c.Dir = agenttool.DirOf(tree)
	if scope := e.Doc.Get("metadata").Get("approval_scope"); scope.Kind() == strictjson.KindString {
		c.ApprovalScope = scope.Text()
	} else if scope.Exists() { // ignored, it would limit no approval
		o.Refuse(Name, call.CodeSchemaInvalid, "/metadata/approval_scope")
	}
	if c.Tool != "" {
		c.ToolCallID = o.BodyOrHeader(Name, r, events.HeaderToolCallID, e.ToolCallID())
	}
	if b := e.Approval; b != nil {
		c.NamedWorkflow = b.WorkflowID
	}
	if b := e.Retry; b != nil {
		c.PreviousCall = b.PreviousToolCallID
	}
	if r.Publishers != nil {
		c.Claim = claimOf(c.Event)
	}
	c.ArgsCanonical = e.InputCanonical()
	o.RefuseLongFields(Name, map[string]*string{
		"/session_id": &c.Session, "/agent_id": &c.Agent, "/tool_name": &c.Tool, "/metadata/tool_call_id": &c.ToolCallID,
		"/action": &c.Action, "/resource_kind": &c.ResourceKind, "/resource_scope": &c.ResourceScope, "/metadata/approval_scope": &c.ApprovalScope,
	})
	return c
}
