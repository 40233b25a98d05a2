package approval

import (
	"regexp"

	"github.com/countersign-dev/countersign/events"
)

// Actions of a Request.
const (
	CommandList    = "list"
	CommandShow    = "show"
	CommandApprove = "approve"
	CommandDeny    = "deny"
	CommandCancel  = "cancel"
)

// Acts are the actions that change a workflow.
var Acts = map[string]Act{CommandApprove: ActApprove, CommandDeny: ActDeny, CommandCancel: ActCancel}

// Bounds of a Request.
const (
	MaxRequest   = 8 << 10 // bytes
	DefaultLimit = 100     // workflows of one list
	MaxLimit     = 500
)

// Request is a reviewer's message to gov.resolve.<tenant>. The server's authentication gives
// the sender; the body has no sender.
type Request struct {
	Action     string `json:"action"`
	WorkflowID string `json:"workflow_id,omitempty"` // all but list
	Reason     string `json:"reason,omitempty"`      // approve deny cancel; it becomes part of the record

	// PreviewDigest names the preview that the reviewer saw; approve needs it.
	PreviewDigest string `json:"preview_digest,omitempty"`

	All   bool   `json:"all,omitempty"`   // list: decided ones too, while they are kept
	Limit int    `json:"limit,omitempty"` // list: at most so many; 0 is DefaultLimit
	After string `json:"after,omitempty"` // list: Reply.Next of the page before
}

// Outcomes of list and show.
const (
	CodeListed Code = "listed"
	CodeShown  Code = "shown"
)

// Reply answers a Request. OK means that the request was carried out and is durable in the log.
type Reply struct {
	OK        bool   `json:"ok"`
	Code      Code   `json:"code"`
	Message   string `json:"message"`
	Workflow  *View  `json:"workflow,omitempty"`
	Workflows []View `json:"workflows,omitempty"`
	Next      string `json:"next,omitempty"` // set if there are more
}

// View is a workflow as a reviewer sees it. Preview is left out of lists.
type View struct {
	WorkflowID     string            `json:"workflow_id"`
	Status         Status            `json:"status"`
	Tool           string            `json:"tool,omitempty"`
	Source         string            `json:"source"`
	Agent          string            `json:"agent,omitempty"`
	Session        string            `json:"session,omitempty"`
	Calls          []string          `json:"tool_call_ids,omitempty"`
	ActionID       string            `json:"action_id"`
	Policy         *events.PolicyRef `json:"policy,omitempty"`
	Reasons        []string          `json:"reasons"`
	RequestedAt    events.Time       `json:"requested_at"`
	ExpiresAt      events.Time       `json:"expires_at"`
	DecidedAt      events.Time       `json:"decided_at,omitzero"`
	Unapprovable   bool              `json:"unapprovable,omitempty"` // approve is refused with not_approvable
	Quorum         int               `json:"quorum"`
	Approvers      []string          `json:"approvers"`
	ReviewerGroups []string          `json:"reviewer_groups,omitempty"`
	ResumePolicy   string            `json:"resume_policy"`
	By             string            `json:"by,omitempty"` // user of the denial, the cancellation or the last approval
	Reason         string            `json:"reason,omitempty"`
	ConsumedBy     string            `json:"consumed_by,omitempty"` // decision id
	PreviewDigest  string            `json:"preview_digest,omitempty"`
	Preview        *Preview          `json:"preview,omitempty"`
}

// View returns a reviewer's view, with the preview only if whole is true.
func (w Workflow) View(now events.Time, whole bool) View {
	policy := w.Policy
	v := View{
		WorkflowID: w.ID, Status: w.StatusAt(now.Time), Tool: w.Preview.Tool, Source: w.Source, Agent: w.Preview.Agent, Session: w.Session, Calls: w.Calls,
		ActionID: w.ActionID, Policy: &policy, Reasons: w.Preview.Reasons, RequestedAt: w.RequestedAt, ExpiresAt: w.ExpiresAt, DecidedAt: w.DecidedAt,
		Unapprovable: w.Unapprovable, Quorum: w.Terms.Quorum, Approvers: append([]string{}, voterNames(w.Votes)...), ReviewerGroups: w.Terms.Reviewers,
		ResumePolicy: w.Terms.Resume, By: w.By, Reason: w.Reason, ConsumedBy: w.ConsumedBy,
	}
	if whole {
		preview := w.Preview
		v.Preview, v.PreviewDigest = &preview, w.PreviewDigest
	}
	return v
}

// DecodeRequest reads a request, strictly.
func DecodeRequest(b []byte) (Request, error) {
	if len(b) > MaxRequest {
		return Request{}, ErrRequest
	}
	r, err := events.DecodeRecord[Request](b)
	_, acts := Acts[r.Action]
	switch {
	case err != nil:
		return Request{}, ErrRequest
	case acts || r.Action == CommandShow:
		if !ValidID(r.WorkflowID) || r.All || r.Limit != 0 || r.After != "" {
			return r, ErrRequest
		}
	case r.Action != CommandList || r.WorkflowID != "" || r.Limit < 0 || r.Limit > MaxLimit || r.After != "" && !ValidID(r.After):
		return r, ErrRequest
	}
	return r, nil
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// ValidID reports whether a text can be the id of a workflow.
func ValidID(id string) bool { return len(id) <= MaxWorkflowID && idForm.MatchString(id) }

// messages explain outcomes and what to do next.
var messages = map[Code]string{
	CodeListed:           "the workflows that you may decide",
	CodeShown:            "what you would decide on",
	CodeApproved:         "approved; the agent may now ask again, once",
	CodeRecorded:         "your approval is recorded; more reviewers must approve",
	CodeDenied:           "denied; the agent is refused exactly this until the workflow's time is up or the policies change",
	CodeCancelled:        "cancelled; the agent must ask anew",
	CodeInvalid:          "the request cannot be read; docs/approvals.md has its form",
	CodeUnknown:          "no such workflow: it was never there, or it ended a while ago (its records are in the log)",
	CodeSelf:             "the caller that asked for this call cannot decide it; another reviewer must",
	CodeNotReviewer:      "the policy names reviewer groups, and you are in none of them",
	CodePreviewRequired:  "an approval must name the digest of the preview that you looked at (preview_digest of show)",
	CodePreviewMismatch:  "this is not the preview of that workflow; look at it again with show",
	CodeVoted:            "you have approved it before; another reviewer must approve it, too",
	CodeResolved:         "it is decided already",
	CodeExpired:          "its time is up; the agent must ask anew",
	CodeStalePolicy:      "the policies have changed since; the agent must ask anew",
	CodeUnapprovable:     "an approval lifts an ask only; this verdict is also deferred or blocked, and the agent must propose something else (deny it, cancel it or let it expire)",
	CodeReasonNotAllowed: "the reason must be printable text of at most 512 characters",
	CodeUnavailable:      "the log did not confirm in time that it is recorded, so it may count or not; look with show, and cancel an approval that must not count",
}

// NewReply returns the reply for an outcome.
func NewReply(code Code, v *View) Reply {
	return Reply{OK: successes[code], Code: code, Message: messages[code], Workflow: v}
}

var successes = map[Code]bool{CodeListed: true, CodeShown: true, CodeApproved: true, CodeRecorded: true, CodeDenied: true, CodeCancelled: true}
