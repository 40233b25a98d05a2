package records

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

type approvalRow struct {
	place
	WorkflowID   string     `ch:"workflow_id"`
	Status       string     `ch:"status"`
	ActionDigest string     `ch:"action_digest"`
	Source       string     `ch:"source"`
	ToolCallID   string     `ch:"tool_call_id"`
	DecisionID   string     `ch:"decision_id"`
	Approver     string     `ch:"approver"`
	Reason       string     `ch:"reason"`
	RequestedAt  *time.Time `ch:"requested_at"`
	DecidedAt    *time.Time `ch:"decided_at"`
	ExpiresAt    *time.Time `ch:"expires_at"`

	Step           uint32     `ch:"step"`
	Act            string     `ch:"act"`
	ActionID       string     `ch:"action_id"`
	Tool           string     `ch:"tool"`
	Calls          []string   `ch:"tool_call_ids"`
	PolicyName     string     `ch:"policy_name"`
	PolicyRevision uint64     `ch:"policy_revision"`
	PolicyDigest   string     `ch:"policy_digest"`
	MandateID      string     `ch:"mandate_id"`
	MandateHash    string     `ch:"mandate_hash"`
	ReviewerGroups []string   `ch:"reviewer_groups"`
	Quorum         uint32     `ch:"quorum"`
	Approvers      []string   `ch:"approvers"`
	PreviewDigest  string     `ch:"preview_digest"`
	ResumePolicy   string     `ch:"resume_policy"`
	ChangedAt      *time.Time `ch:"changed_at"`
	Refused        string     `ch:"refused"`
}

var approvalTable = recordTable[approvalRow, events.Approval]{
	name: "approvals",
	columns: []string{
		"workflow_id", "status", "action_digest", "source", "tool_call_id", "decision_id", "approver", "reason",
		"requested_at", "decided_at", "expires_at",
		"step", "act", "action_id", "tool", "tool_call_ids", "policy_name", "policy_revision", "policy_digest", "mandate_id", "mandate_hash",
		"reviewer_groups", "quorum", "approvers", "preview_digest", "resume_policy", "changed_at", "refused",
	},
	place:  func(r approvalRow) place { return r.place },
	record: approvalRow.toApproval,
}

func (r approvalRow) toApproval() events.Approval {
	a := events.Approval{
		WorkflowID: r.WorkflowID, Tenant: r.Tenant, Status: r.Status, ActionDigest: r.ActionDigest, Source: r.Source, Session: r.Session,
		ToolCallID: r.ToolCallID, DecisionID: r.DecisionID, Approver: r.Approver, Reason: r.Reason,
		RequestedAt: eventTime(r.RequestedAt), DecidedAt: eventTime(r.DecidedAt), ExpiresAt: eventTime(r.ExpiresAt),
		Step: int(r.Step), Act: r.Act, ActionID: r.ActionID, Tool: r.Tool, Calls: r.Calls, ReviewerGroups: r.ReviewerGroups,
		Quorum: int(r.Quorum), Approvers: r.Approvers, PreviewDigest: r.PreviewDigest, ResumePolicy: r.ResumePolicy,
		ChangedAt: eventTime(r.ChangedAt), Refused: r.Refused,
	}
	if p := (events.PolicyRef{Name: r.PolicyName, Revision: r.PolicyRevision, Digest: r.PolicyDigest}); p != (events.PolicyRef{}) {
		a.Policy = &p
	}
	if m := (events.MandateRef{ID: r.MandateID, Hash: r.MandateHash}); m != (events.MandateRef{}) {
		a.Mandate = &m
	}
	return a
}
