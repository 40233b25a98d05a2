package events

// Approval is the record of one step of an approval workflow.
type Approval struct {
	WorkflowID   string `json:"workflow_id"`            // of the workflow
	Tenant       string `json:"tenant"`                 // of the workflow
	Status       string `json:"status"`                 // pending approved denied expired cancelled consumed
	ActionDigest string `json:"action_digest"`          // keyed; of the whole proposal
	Source       string `json:"source,omitempty"`       // the publisher that asked
	Session      string `json:"session,omitempty"`      // of the request
	ToolCallID   string `json:"tool_call_id,omitempty"` // the first call that waits for it
	DecisionID   string `json:"decision_id,omitempty"`  // of the ask; of the allow once the approval is used
	Approver     string `json:"approver,omitempty"`     // the user of the act; absent if the service acted itself
	Reason       string `json:"reason,omitempty"`       // the user's reason
	RequestedAt  Time   `json:"requested_at"`           // when the workflow was opened
	DecidedAt    Time   `json:"decided_at,omitzero"`    // when it was approved, denied or cancelled
	ExpiresAt    Time   `json:"expires_at,omitzero"`    // when it ends

	Step           int         `json:"step,omitempty"`            // counts the changes of the workflow, from 1
	Act            string      `json:"act,omitempty"`             // open join vote approve deny cancel expire consume
	ActionID       string      `json:"action_id,omitempty"`       // short form of ActionDigest
	Tool           string      `json:"tool,omitempty"`            // the tool that is asked for
	Calls          []string    `json:"tool_call_ids,omitempty"`   // all calls that wait for it
	Policy         *PolicyRef  `json:"policy,omitempty"`          // of the ask
	Mandate        *MandateRef `json:"mandate,omitempty"`         // the AUMP mandate of the request
	ReviewerGroups []string    `json:"reviewer_groups,omitempty"` // groups; a reviewer must be in one of them
	Quorum         int         `json:"quorum,omitempty"`          // number of reviewers that must approve
	Approvers      []string    `json:"approvers,omitempty"`       // reviewers that have approved
	PreviewDigest  string      `json:"preview_digest,omitempty"`  // keyed; of the reviewer's preview
	ResumePolicy   string      `json:"resume_policy,omitempty"`   // how the runtime asks again after the approval
	ChangedAt      Time        `json:"changed_at,omitzero"`       // time of the act, by the admitter's clock
	// Refused is the reason why an attempt to resolve the workflow changed nothing: Approver
	// tried Act; Status is unchanged.
	Refused string `json:"refused,omitempty"`
}

// ResolveAttempt records a reviewer's request that names no known workflow, or cannot be read.
type ResolveAttempt struct {
	Tenant        string `json:"tenant"`                // of the reviewer
	User          string `json:"user"`                  // the reviewer, as the server stamps it
	Action        string `json:"action,omitempty"`      // what was asked, if it can be read
	WorkflowID    string `json:"workflow_id,omitempty"` // if it can be a workflow id
	RequestDigest string `json:"request_digest"`        // keyed
	Refused       string `json:"refused"`               // code of the refusal
	At            Time   `json:"at"`                    // by the admitter's clock
}

// ApprovalStatuses are the statuses of an approval workflow.
var ApprovalStatuses = []string{"pending", "approved", "denied", "expired", "cancelled", "consumed"}
