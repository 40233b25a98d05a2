package records

import (
	"encoding/json"
	"time"

	"github.com/countersign-dev/countersign/events"
)

type decisionRow struct {
	place
	DecisionID          string     `ch:"decision_id"`
	EventID             string     `ch:"event_id"`
	Protocol            string     `ch:"protocol"`
	Source              string     `ch:"source"`
	Gateway             string     `ch:"gateway"`
	Agent               string     `ch:"agent"`
	ToolCallID          string     `ch:"tool_call_id"`
	Occurrence          uint32     `ch:"occurrence"`
	Tool                string     `ch:"tool"`
	Action              string     `ch:"action"`
	ResourceKind        string     `ch:"resource_kind"`
	ArgsDigest          string     `ch:"args_digest"`
	RequestDigest       string     `ch:"request_digest"`
	Verdict             string     `ch:"verdict"`
	NativeVerdict       string     `ch:"native_verdict"`
	ReasonEvaluators    []string   `ch:"reasons.evaluator"`
	ReasonCodes         []string   `ch:"reasons.code"`
	ReasonPaths         []string   `ch:"reasons.path"`
	ReasonPolicies      []string   `ch:"reasons.policy"`
	PolicyName          string     `ch:"policy_name"`
	PolicyRevision      uint64     `ch:"policy_revision"`
	PolicyDigest        string     `ch:"policy_digest"`
	MandateID           string     `ch:"mandate_id"`
	MandateHash         string     `ch:"mandate_hash"`
	WorkflowID          string     `ch:"approval_workflow_id"`
	ApprovalStatus      string     `ch:"approval_status"`
	ApprovalActionID    string     `ch:"approval_action_id"`
	ApprovalRequestedAt *time.Time `ch:"approval_requested_at"`
	ApprovalExpiresAt   *time.Time `ch:"approval_expires_at"`
	ResumePolicy        string     `ch:"approval_resume_policy"`
	ReceivedAt          *time.Time `ch:"received_at"`
	DecidedAt           *time.Time `ch:"decided_at"`
	ExpiresAt           *time.Time `ch:"expires_at"`
	ReceiptHash         string     `ch:"receipt_hash"`
	Durability          string     `ch:"durability"`
	Trace               string     `ch:"trace"`
	ReasonActions       []string   `ch:"reasons.action"`
	ReasonWoulds        []string   `ch:"reasons.would"`
	CanonicalTool       string     `ch:"canonical_tool"`
	PublishersRevision  uint64     `ch:"publishers_revision"`
	PublishersDigest    string     `ch:"publishers_digest"`
	CountKeys           []string   `ch:"counts.key"`
	CountWindows        []int64    `ch:"counts.window_ms"`
	CountAmounts        []int64    `ch:"counts.amount"`
	CountTotals         []int64    `ch:"counts.total"`
	Inputs              string     `ch:"inputs"`
	Mode                string     `ch:"mode"`
	Would               string     `ch:"would"`
}

var decisionTable = recordTable[decisionRow, events.Decision]{
	name: "decisions",
	columns: []string{
		"decision_id", "event_id", "protocol", "source", "gateway", "agent", "tool_call_id", "occurrence", "tool", "action", "resource_kind",
		"args_digest", "request_digest", "verdict", "native_verdict",
		"reasons.evaluator", "reasons.code", "reasons.path", "reasons.policy", "policy_name", "policy_revision", "policy_digest",
		"mandate_id", "mandate_hash", "approval_workflow_id", "approval_status", "approval_action_id", "approval_requested_at",
		"approval_expires_at", "approval_resume_policy", "received_at", "decided_at", "expires_at", "receipt_hash", "durability", "trace",
		"reasons.action", "reasons.would", "canonical_tool", "publishers_revision", "publishers_digest",
		"counts.key", "counts.window_ms", "counts.amount", "counts.total", "inputs", "mode", "would",
	},
	place:  func(r decisionRow) place { return r.place },
	record: decisionRow.toDecision,
}

func (r decisionRow) toDecision() events.Decision {
	d := events.Decision{
		DecisionID: r.DecisionID, EventID: r.EventID, Tenant: r.Tenant, Protocol: r.Protocol, Source: r.Source, Gateway: r.Gateway, Agent: r.Agent,
		Session: r.Session, ToolCallID: r.ToolCallID, Occurrence: int(r.Occurrence), Tool: r.Tool, Action: r.Action,
		ResourceKind: r.ResourceKind, ArgsDigest: r.ArgsDigest, RequestDigest: r.RequestDigest,
		Verdict: events.Verdict(r.Verdict), NativeVerdict: r.NativeVerdict,
		ReceivedAt: eventTime(r.ReceivedAt), DecidedAt: eventTime(r.DecidedAt), ExpiresAt: eventTime(r.ExpiresAt),
		ReceiptHash: r.ReceiptHash, Durability: r.Durability, Traceparent: r.Trace, CanonicalTool: r.CanonicalTool,
		Mode: r.Mode, Would: events.Verdict(r.Would),
	}
	for i, code := range r.ReasonCodes {
		d.Reasons = append(d.Reasons, events.Reason{
			Evaluator: elementAt(r.ReasonEvaluators, i), Code: code, Path: elementAt(r.ReasonPaths, i), Policy: elementAt(r.ReasonPolicies, i),
			Action: elementAt(r.ReasonActions, i), WouldVerdict: events.Verdict(elementAt(r.ReasonWoulds, i)),
		})
	}
	if p := (events.PolicyRef{Name: r.PolicyName, Revision: r.PolicyRevision, Digest: r.PolicyDigest}); p != (events.PolicyRef{}) {
		d.Policy = &p
	}
	if m := (events.MandateRef{ID: r.MandateID, Hash: r.MandateHash}); m != (events.MandateRef{}) {
		d.Mandate = &m
	}
	if p := (events.SnapshotRef{Revision: r.PublishersRevision, Digest: r.PublishersDigest}); p != (events.SnapshotRef{}) {
		d.Publishers = &p
	}
	for i, key := range r.CountKeys {
		d.Counts = append(d.Counts, events.Count{
			Key: key, WindowMS: elementAt(r.CountWindows, i), Amount: elementAt(r.CountAmounts, i), Total: elementAt(r.CountTotals, i),
		})
	}
	if r.Inputs != "" {
		var in events.DecisionInputs
		if json.Unmarshal([]byte(r.Inputs), &in) == nil { // otherwise the record has no valid inputs
			d.Inputs = &in
		}
	}
	if r.WorkflowID != "" {
		d.Approval = &events.ApprovalRef{
			WorkflowID: r.WorkflowID, Status: r.ApprovalStatus, ActionID: r.ApprovalActionID,
			RequestedAt: eventTime(r.ApprovalRequestedAt), ExpiresAt: eventTime(r.ApprovalExpiresAt), ResumePolicy: r.ResumePolicy,
		}
	}
	return d
}
