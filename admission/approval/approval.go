// Package approval is the workflow that an ask or a defer opens: its states and transitions,
// the keys under which equivalent retries find it, the preview that a reviewer sees, and the
// rules by which a reviewer's decision counts.
//
// Everything here is data and pure functions; the admitter stores workflows. A workflow is
// bound to what was asked (tenant, source, session, call, action, arguments, mandate, policy
// revision) and consumed by the first decision that rests on it. A publisher's claims about
// approvals can find a workflow but prove nothing. Begin reading with Workflow.
package approval

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// EvaluatorName is the name under which approvals give their reasons.
const EvaluatorName = "approval"

// Resume policies (AgentHook SPEC section 10): how a publisher resumes once its workflow is
// approved.
const (
	ResumeSameEvent  = "retry_same_event"       // asks again with the same event or call
	ResumeWorkflowID = "retry_with_workflow_id" // asks again and must name the workflow
	ResumeWaits      = "publisher_waits"        // keeps the call and asks again until it is decided
	ResumeManual     = "manual_retry"           // is started anew by hand: another call of the same session will do
)

// ResumePolicies lists the resume policies.
var ResumePolicies = []string{ResumeSameEvent, ResumeWorkflowID, ResumeWaits, ResumeManual}

// Bounds of a workflow.
const (
	MaxCalls      = 16   // calls that can wait for one workflow
	MaxReason     = 512  // characters of a reviewer's reason
	MaxOpen       = 1000 // undecided workflows of one source; further asks are denied
	MaxWorkflowID = 128  // bytes
	maxVotes      = 256  // includes those of reviewers that have left since
	maxShown      = 64   // entries of Terms.Show
)

// Terms is how an approval must be given. The zero Terms means one reviewer, any that may
// review for the tenant.
type Terms struct {
	Reviewers []string      `json:"reviewers,omitempty"` // groups; a reviewer must be in one of them; empty: every reviewer of the tenant
	Quorum    int           `json:"quorum,omitempty"`    // how many different reviewers must approve; 0 is 1
	Resume    string        `json:"resume,omitempty"`    // retry_same_event retry_with_workflow_id publisher_waits manual_retry; "" is the first
	Lifetime  time.Duration `json:"-"`                   // how long the workflow stays open; 0: the default

	// Show lists what a reviewer may see in plain: JSON pointers into the arguments ("/to",
	// "/items/0/price"), or "resource". Everything else is shown as its type and size only.
	Show []string `json:"show,omitempty"`
}

// withDefaults returns the terms with defaults and bounds applied.
func (t Terms) withDefaults() Terms {
	t.Quorum, t.Lifetime = max(t.Quorum, 1), 0 // the workflow says when it ends
	if !slices.Contains(ResumePolicies, t.Resume) {
		t.Resume = ResumeSameEvent
	}
	t.Reviewers = slices.Clone(t.Reviewers)
	t.Show = slices.Clone(t.Show[:min(len(t.Show), maxShown)])
	return t
}

// sameReviewers reports whether two terms with defaults demand the same reviewers and the same
// quorum.
func (t Terms) sameReviewers(o Terms) bool {
	return t.Quorum == o.Quorum && slices.Equal(t.Reviewers, o.Reviewers)
}

// Index returns the workflows of every tenant, possibly slightly stale. Callers must not change
// what it returns. A decision that changes a workflow names the revision that it saw; if there
// is a newer one, the decision is made again.
type Index interface {
	// WorkflowAt returns the workflow in a slot and its revision in the store; nil and 0 if the
	// slot is empty.
	WorkflowAt(tenant, slot string) (*Workflow, uint64)
	// Find returns the workflow with an id, nil if there is none.
	Find(tenant, id string) *Workflow
	// SessionWorkflows returns the workflows of a session that are not over, unordered.
	SessionWorkflows(tenant, source, session string) []*Workflow
	// PendingCount counts the pending workflows of a source.
	PendingCount(tenant, source string) int
}

// Change is a change that a decision makes to a workflow. The service applies it by
// compare-and-set before it records the decision.
type Change struct {
	Slot      string
	Revision  uint64   // of the slot's old content; 0: none
	Next      Workflow // new content of the slot
	Consumes  bool     // Next is consumed; the record of its approval must be in the log before
	Unchanged bool     // Next is the old content: nothing changes, but the revision must still be current

	// Records are appended to the log right after the decision, in order.
	Records []events.Approval
}
