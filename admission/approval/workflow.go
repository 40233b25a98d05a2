package approval

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Status is where a workflow stands.
type Status string

// The states. Pending and approved end by themselves when they expire; the
// others are final.
const (
	Pending   Status = "pending"
	Approved  Status = "approved"
	Denied    Status = "denied"
	Expired   Status = "expired"
	Cancelled Status = "cancelled"
	Consumed  Status = "consumed"
)

// Act is what happens to a workflow.
type Act string

// The acts.
const (
	ActOpen    Act = "open"
	ActJoin    Act = "join"    // an equivalent retry of another call now waits for it, too
	ActVote    Act = "vote"    // a reviewer approved, and more must
	ActApprove Act = "approve" // the last reviewer that was needed approved
	ActDeny    Act = "deny"
	ActCancel  Act = "cancel" // by a reviewer, before it was used; or because the policies changed
	ActExpire  Act = "expire"
	ActConsume Act = "consume"
)

// transitions is the whole state machine: what is not in it cannot happen
// (AH-C-102). An approval that nobody has used can be taken back.
var transitions = map[Status]map[Act]Status{
	"":       {ActOpen: Pending},
	Pending:  {ActJoin: Pending, ActVote: Pending, ActApprove: Approved, ActDeny: Denied, ActCancel: Cancelled, ActExpire: Expired},
	Approved: {ActConsume: Consumed, ActCancel: Cancelled, ActExpire: Expired},
}

// Errors.
var (
	// ErrTransition says that an act is not possible where a workflow stands.
	ErrTransition = errors.New("approval: not possible in this state")
	// ErrRequest says that bytes are no Request. It does not quote them.
	ErrRequest = errors.New("approval: not a resolve request")
)

// Vote is one reviewer's approval.
type Vote struct {
	Reviewer string      `json:"reviewer"` // NATS user, by the server's word
	At       events.Time `json:"at"`
	Reason   string      `json:"reason,omitempty"`
}

// Workflow is the state of a workflow as it is stored. It holds no argument but
// what its Preview shows.
type Workflow struct {
	V      int    `json:"v"`
	ID     string `json:"workflow_id"`
	Slot   string `json:"slot"`
	Status Status `json:"status"`
	Step   int    `json:"step"` // counts the changes, from 1

	// What it is bound to.
	Tenant       string             `json:"tenant"`
	Source       string             `json:"source"` // who asked: the requester
	Session      string             `json:"session,omitempty"`
	Calls        []string           `json:"calls,omitempty"`  // tool call ids that wait for it
	Events       []string           `json:"events,omitempty"` // event ids that wait for it
	ActionID     string             `json:"action_id"`
	ActionDigest string             `json:"action_digest"`     // keyed; of everything that was proposed
	Evasion      string             `json:"evasion,omitempty"` // keyed; of what it was proposed to be done to
	ArgsDigest   string             `json:"args_digest,omitempty"`
	Policy       events.PolicyRef   `json:"policy"`
	Mandate      *events.MandateRef `json:"mandate,omitempty"`
	DecisionID   string             `json:"decision_id"` // that opened it

	// Unapprovable says that the verdict has a part that no approval lifts: the
	// workflow can be denied or cancelled only. Asks are the codes of the evaluators'
	// reasons that ask, which are all that an approval answers.
	Unapprovable bool     `json:"unapprovable,omitempty"`
	Asks         []string `json:"asks,omitempty"`

	Terms         Terms   `json:"terms"`
	Preview       Preview `json:"preview"`
	PreviewDigest string  `json:"preview_digest"` // keyed
	Votes         []Vote  `json:"votes,omitempty"`

	RequestedAt events.Time `json:"requested_at"`
	ExpiresAt   events.Time `json:"expires_at"`
	DecidedAt   events.Time `json:"decided_at,omitzero"` // approved, denied or cancelled
	ChangedAt   events.Time `json:"changed_at"`
	LastAct     Act         `json:"last_act"`
	By          string      `json:"by,omitempty"` // who did the last act; "" for the service itself
	Reason      string      `json:"reason,omitempty"`
	ConsumedBy  string      `json:"consumed_by,omitempty"` // decision id
}

// storedVersion is the version of the stored form.
const storedVersion = 1

// Decode reads a stored workflow. It must be in the slot that it says.
func Decode(b []byte) (Workflow, error) {
	w, err := events.DecodeRecord[Workflow](b)
	switch {
	case err != nil:
		return w, fmt.Errorf("approval: a stored workflow: %w", err)
	case w.V != storedVersion || w.ID == "" || w.Tenant == "" || w.Slot == "" || w.Source == "" || w.ExpiresAt.IsZero() || w.Step < 1 || !w.hasKnownStatus():
		return w, errors.New("approval: a stored workflow is of another version, or not whole")
	}
	return w, nil
}

func (w Workflow) hasKnownStatus() bool {
	return slices.Contains([]Status{Pending, Approved, Denied, Expired, Cancelled, Consumed}, w.Status)
}

// StatusAt is where a workflow stands at a time: what is past its expiry has expired,
// whether or not anybody has noted it.
func (w Workflow) StatusAt(now time.Time) Status {
	if (w.Status == Pending || w.Status == Approved) && !now.Before(w.ExpiresAt.Time) {
		return Expired
	}
	return w.Status
}

// Over reports whether nothing of a workflow matters any more for a decision: it
// was used, taken back, or its time is past. A denial matters until then.
func (w Workflow) Over(now time.Time) bool {
	switch w.StatusAt(now) {
	case Pending, Approved:
		return false
	case Denied:
		return !now.Before(w.ExpiresAt.Time)
	}
	return true
}

// applyAct makes one transition. The receiver is not changed.
func (w Workflow) applyAct(act Act, by, reason string, now time.Time) (Workflow, error) {
	from := w.StatusAt(now)
	if act == ActExpire {
		if from != Expired {
			return w, fmt.Errorf("%w: %s before its time", ErrTransition, act)
		}
		from = w.Status
	}
	to, possible := transitions[from][act]
	if !possible {
		return w, fmt.Errorf("%w: %s when %s", ErrTransition, act, from)
	}
	w.Status, w.LastAct, w.By, w.Reason, w.ChangedAt = to, act, by, reason, events.At(now)
	w.Step++
	switch act {
	case ActApprove, ActDeny, ActCancel:
		w.DecidedAt = events.At(now)
	}
	w.Calls, w.Events, w.Votes = slices.Clip(w.Calls), slices.Clip(w.Events), slices.Clip(w.Votes)
	return w, nil
}

// Expire notes that a workflow's time is past.
func (w Workflow) Expire(now time.Time) (Workflow, error) { return w.applyAct(ActExpire, "", "", now) }

// Supersede takes back a workflow that can never be used again, for a reason of
// the service's.
func (w Workflow) Supersede(reason string, now time.Time) (Workflow, error) {
	return w.applyAct(ActCancel, "", reason, now)
}

// Consume uses an approved workflow up for a decision.
func (w Workflow) Consume(decisionID string, now time.Time) (Workflow, error) {
	n, err := w.applyAct(ActConsume, "", "", now)
	if err == nil {
		n.ConsumedBy = decisionID
	}
	return n, err
}

// Ref is the workflow as decisions and replies name it.
func (w Workflow) Ref(now time.Time) *events.ApprovalRef {
	return &events.ApprovalRef{
		WorkflowID: w.ID, Status: string(w.StatusAt(now)), ActionID: w.ActionID, RequestedAt: w.RequestedAt, ExpiresAt: w.ExpiresAt, ResumePolicy: w.Terms.Resume,
	}
}

// Record is the workflow's last change as it goes onto the log.
func (w Workflow) Record() events.Approval {
	policy := w.Policy
	r := events.Approval{
		WorkflowID: w.ID, Tenant: w.Tenant, Status: string(w.Status), ActionDigest: w.ActionDigest, Source: w.Source, Session: w.Session,
		DecisionID: w.DecisionID, Approver: w.By, Reason: w.Reason, RequestedAt: w.RequestedAt, DecidedAt: w.DecidedAt, ExpiresAt: w.ExpiresAt,
		Step: w.Step, Act: string(w.LastAct), ActionID: w.ActionID, Tool: w.Preview.Tool, Calls: w.Calls, Policy: &policy, Mandate: w.Mandate,
		ReviewerGroups: w.Terms.Reviewers, Quorum: w.Terms.Quorum, Approvers: voterNames(w.Votes), PreviewDigest: w.PreviewDigest,
		ResumePolicy: w.Terms.Resume, ChangedAt: w.ChangedAt,
	}
	if len(w.Calls) > 0 {
		r.ToolCallID = w.Calls[0]
	}
	if w.Status == Consumed {
		r.DecisionID = w.ConsumedBy
	}
	return r
}

// Refusal is the record of an attempt to resolve the workflow that changed
// nothing.
func (w Workflow) Refusal(c Command, code Code) events.Approval {
	r := w.Record()
	r.Act, r.Approver, r.Reason, r.Refused, r.ChangedAt = string(c.Act), c.Reviewer, c.Reason, string(code), events.At(c.At)
	return r
}

func voterNames(votes []Vote) (list []string) {
	for _, v := range votes {
		list = append(list, v.Reviewer)
	}
	return list
}
