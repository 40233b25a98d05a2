// Package approval is the workflow that an ask or a defer opens: its states and
// what leads from one to the next, the keys under which equivalent retries find
// it, what a reviewer is shown, and what a reviewer's word is worth.
//
// Everything here is data and pure functions. A workflow is bound to what was
// asked (tenant, source, session, call, action, arguments, mandate, policy
// revision) and used up by the first decision that rests on it. What a
// publisher says about approvals finds a workflow, and proves nothing.
package approval

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Evaluator is the name under which approvals give their reasons.
const Evaluator = "approval"

// Resume policies (AgentHook SPEC section 10): what a publisher does once its
// workflow is approved.
const (
	ResumeSameEvent  = "retry_same_event"       // asks again with the same event or call
	ResumeWorkflowID = "retry_with_workflow_id" // asks again and names the workflow; nothing else will do
	ResumeWaits      = "publisher_waits"        // keeps the call and asks again until it is decided
	ResumeManual     = "manual_retry"           // somebody starts it anew: another call of the same session will do
)

// ResumePolicies lists the resume policies.
var ResumePolicies = []string{ResumeSameEvent, ResumeWorkflowID, ResumeWaits, ResumeManual}

// Bounds of a workflow.
const (
	MaxCalls      = 16   // calls that can wait for one workflow
	MaxReason     = 512  // characters of a reviewer's reason
	MaxOpen       = 1000 // undecided workflows of one source; further asks are denied
	MaxWorkflowID = 128  // bytes
	maxVotes      = 256  // of reviewers who may have left since
	maxShown      = 64   // entries of Terms.Show
)

// Terms is how a policy wants an approval to be given. The zero Terms means one
// reviewer, whoever may review for the tenant.
type Terms struct {
	Reviewers []string      `json:"reviewers,omitempty"` // groups, of which a reviewer must be in one; empty: every reviewer of the tenant
	Quorum    int           `json:"quorum,omitempty"`    // how many different reviewers must approve; 0 is 1
	Resume    string        `json:"resume,omitempty"`    // retry_same_event retry_with_workflow_id publisher_waits manual_retry; "" is the first
	Lifetime  time.Duration `json:"-"`                   // how long the workflow stays open; 0: the default

	// Show lists what of the arguments a reviewer may see in plain: JSON pointers
	// into them ("/to", "/items/0/price"), or "resource". Everything else is shown
	// as its type and size only.
	Show []string `json:"show,omitempty"`
}

// withDefaults gives the terms with defaults and bounds applied.
func (t Terms) withDefaults() Terms {
	t.Quorum, t.Lifetime = max(t.Quorum, 1), 0 // the workflow says when it ends
	if !slices.Contains(ResumePolicies, t.Resume) {
		t.Resume = ResumeSameEvent
	}
	t.Reviewers = slices.Clone(t.Reviewers)
	t.Show = slices.Clone(t.Show[:min(len(t.Show), maxShown)])
	return t
}

// sameReviewers reports whether two settled terms want the approval of the same
// reviewers, and of as many.
func (t Terms) sameReviewers(o Terms) bool {
	return t.Quorum == o.Quorum && slices.Equal(t.Reviewers, o.Reviewers)
}

// Index knows the workflows of every tenant as they were a moment ago. What it
// gives must not be changed. A decision that changes a workflow names the
// revision that it saw; if there is a newer one, it is made again.
type Index interface {
	// WorkflowAt gives the workflow in a slot and its revision in the store; nil and 0
	// if the slot is empty.
	WorkflowAt(tenant, slot string) (*Workflow, uint64)
	// Find gives the workflow with an id, nil if there is none.
	Find(tenant, id string) *Workflow
	// SessionWorkflows gives the workflows of a session that are not over, in no order.
	SessionWorkflows(tenant, source, session string) []*Workflow
	// PendingCount counts the pending workflows of a source.
	PendingCount(tenant, source string) int
}

// Step is what a decision does to a workflow. The service does it, by
// compare-and-set, before it records the decision.
type Step struct {
	Slot      string
	Revision  uint64   // of what was in the slot; 0: nothing
	Next      Workflow // what is to be there
	Consumes  bool     // Next is used up; the record of its approval must be in the log before
	Unchanged bool     // Next is what was there: nothing changes, but it must still be so

	// Records go to the log right after the decision, in order.
	Records []events.Approval
}
