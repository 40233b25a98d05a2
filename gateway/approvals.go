package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
)

// MaxWait is the longest time for which a request waits for an approval workflow.
const MaxWait = events.FollowMaxWait

var workflowForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// IsWorkflow reports whether a text can name an approval workflow.
func IsWorkflow(text string) bool { return workflowForm.MatchString(text) }

// ReadWait reads how long a request waits: wait=SECONDS, whole seconds up to MaxWait, 0 without it. A
// query that has anything else is refused.
func ReadWait(query string) (time.Duration, *endpoint.Problem) {
	values, err := url.ParseQuery(query)
	if err != nil || len(values) > 1 || len(values) == 1 && len(values["wait"]) != 1 {
		return 0, badQuery(`it reads "wait" alone, once`)
	}
	if len(values) == 0 {
		return 0, nil
	}
	seconds, err := strconv.ParseUint(values.Get("wait"), 10, 16)
	wait := time.Duration(seconds) * time.Second
	if err != nil || wait > MaxWait {
		return 0, badQuery(fmt.Sprintf(`"wait" is whole seconds, at most %d`, int(MaxWait/time.Second)))
	}
	return wait, nil
}

// ReadApproval reads the record of a workflow for a caller. ok is false for a record that the caller may
// not see: a runtime sees the workflows that its publisher asked for, subscribers and reviewers those of
// their tenant.
func ReadApproval(record []byte, workflow string, who token.Record) (a events.Approval, ok bool) {
	if json.Unmarshal(record, &a) != nil || a.WorkflowID != workflow || a.Tenant != who.Tenant {
		return events.Approval{}, false
	}
	switch who.Role {
	case token.Runtime:
		return a, a.Source == who.User
	case token.Subscriber, token.Reviewer:
		return a, true
	}
	return events.Approval{}, false
}

// Statuses of an approval workflow, as admission/approval has them.
const (
	approvalPending  = "pending"
	approvalApproved = "approved"
	approvalExpired  = "expired"
)

// approvalStatus is the status of a workflow at a time. A workflow past its expiry is expired, whether or
// not that is recorded.
func approvalStatus(a events.Approval, now time.Time) string {
	open := slices.Contains([]string{approvalPending, approvalApproved}, a.Status)
	if open && !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt.Time) {
		return approvalExpired
	}
	return a.Status
}

// IsPending reports whether a workflow waits for its reviewers at a time.
func IsPending(a events.Approval, now time.Time) bool {
	return approvalStatus(a, now) == approvalPending
}

// ApprovalAnswer is the answer of GET /v1/approvals/{workflow}. It names no reviewer and repeats no
// reason: the caller may be the agent that asked.
func ApprovalAnswer(a events.Approval, now time.Time) endpoint.Response {
	return endpoint.JSON(http.StatusOK, struct {
		WorkflowID   string      `json:"workflow_id"`
		Status       string      `json:"status"`
		Tool         string      `json:"tool,omitempty"`
		Session      string      `json:"session,omitempty"`
		Calls        []string    `json:"tool_call_ids,omitempty"`
		ResumePolicy string      `json:"resume_policy,omitempty"`
		RequestedAt  events.Time `json:"requested_at,omitzero"`
		DecidedAt    events.Time `json:"decided_at,omitzero"`
		ExpiresAt    events.Time `json:"expires_at,omitzero"`
	}{a.WorkflowID, approvalStatus(a, now), a.Tool, a.Session, a.Calls, a.ResumePolicy, a.RequestedAt, a.DecidedAt, a.ExpiresAt})
}
