package events

// Approval is the record of one step of an approval workflow.
type Approval struct {
	WorkflowID   string `json:"workflow_id"`
	Tenant       string `json:"tenant"`
	Status       string `json:"status"` // pending approved denied expired cancelled consumed
	ActionDigest string `json:"action_digest"`
	Source       string `json:"source,omitempty"`
	Session      string `json:"session,omitempty"`
	ToolCallID   string `json:"tool_call_id,omitempty"`
	DecisionID   string `json:"decision_id,omitempty"`
	Approver     string `json:"approver,omitempty"`
	Reason       string `json:"reason,omitempty"`
	RequestedAt  Time   `json:"requested_at"`
	DecidedAt    Time   `json:"decided_at,omitzero"`
	ExpiresAt    Time   `json:"expires_at,omitzero"`

	Step           int         `json:"step,omitempty"`            // counts the changes of the workflow, from 1
	Act            string      `json:"act,omitempty"`             // open join vote approve deny cancel expire consume
	ActionID       string      `json:"action_id,omitempty"`       // short form of ActionDigest
	Tool           string      `json:"tool,omitempty"`            //
	Calls          []string    `json:"tool_call_ids,omitempty"`   // all calls that wait for it
	Policy         *PolicyRef  `json:"policy,omitempty"`          // of the ask
	Mandate        *MandateRef `json:"mandate,omitempty"`         //
	ReviewerGroups []string    `json:"reviewer_groups,omitempty"` // groups; a reviewer must be in one of them
	Quorum         int         `json:"quorum,omitempty"`          // number of reviewers that must approve
	Approvers      []string    `json:"approvers,omitempty"`       // reviewers that have approved
	PreviewDigest  string      `json:"preview_digest,omitempty"`  // keyed; of the reviewer's preview
	ResumePolicy   string      `json:"resume_policy,omitempty"`   //
	ChangedAt      Time        `json:"changed_at,omitzero"`       // time of the act, by the admitter's clock
	// Refused is the reason why an attempt to resolve the workflow changed nothing: Approver
	// tried Act; Status is unchanged.
	Refused string `json:"refused,omitempty"`
}

// ResolveAttempt records a reviewer's request that names no known workflow, or cannot be read.
type ResolveAttempt struct {
	Tenant        string `json:"tenant"`
	User          string `json:"user"`
	Action        string `json:"action,omitempty"`
	WorkflowID    string `json:"workflow_id,omitempty"` // if it can be a workflow id
	RequestDigest string `json:"request_digest"`        // keyed
	Refused       string `json:"refused"`
	At            Time   `json:"at"`
}

// ApprovalStatuses are the statuses of an approval workflow.
var ApprovalStatuses = []string{"pending", "approved", "denied", "expired", "cancelled", "consumed"}
