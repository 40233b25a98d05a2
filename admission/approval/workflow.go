package approval

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Status is the state of a workflow.
type Status string

// The states. Pending and approved workflows end when they expire; the others are final.
const (
	Pending   Status = "pending"
	Approved  Status = "approved"
	Denied    Status = "denied"
	Expired   Status = "expired"
	Cancelled Status = "cancelled"
	Consumed  Status = "consumed"
)

// Act is a transition of a workflow.
type Act string

// The acts.
const (
	ActOpen    Act = "open"
	ActJoin    Act = "join"    // an equivalent retry of another call waits for it, too
	ActVote    Act = "vote"    // a reviewer approved; more must
	ActApprove Act = "approve" // the last required reviewer approved
	ActDeny    Act = "deny"
	ActCancel  Act = "cancel" // by a reviewer, before it was used; or because the policies changed
	ActExpire  Act = "expire"
	ActConsume Act = "consume"
)

// transitions is the whole state machine: other transitions are impossible (AH-C-102). An
// unused approval can be cancelled.
var transitions = map[Status]map[Act]Status{
	"":       {ActOpen: Pending},
	Pending:  {ActJoin: Pending, ActVote: Pending, ActApprove: Approved, ActDeny: Denied, ActCancel: Cancelled, ActExpire: Expired},
	Approved: {ActConsume: Consumed, ActCancel: Cancelled, ActExpire: Expired},
}

// Errors.
var (
	// ErrTransition reports that an act is not possible in a workflow's state.
	ErrTransition = errors.New("approval: not possible in this state")
	// ErrRequest reports that bytes are not a Request. It does not quote them.
	ErrRequest = errors.New("approval: not a resolve request")
)

// Vote is one reviewer's approval.
type Vote struct {
	Reviewer string      `json:"reviewer"` // NATS user, as authenticated by the server
	At       events.Time `json:"at"`
	Reason   string      `json:"reason,omitempty"`
}

// Workflow is the stored state of a workflow. It holds no arguments except those shown in its
// Preview.
type Workflow struct {
	V      int    `json:"v"`
	ID     string `json:"workflow_id"`
	Slot   string `json:"slot"`
	Status Status `json:"status"`
	Step   int    `json:"step"` // counts the changes, from 1

	// The workflow is bound to these.
	Tenant       string             `json:"tenant"`
	Source       string             `json:"source"` // the publisher that asked: the requester
	Session      string             `json:"session,omitempty"`
	Calls        []string           `json:"calls,omitempty"`  // tool call ids that wait for it
	Events       []string           `json:"events,omitempty"` // event ids that wait for it
	Agents       []string           `json:"agents,omitempty"` // that asked for it; without a session there may be several
	ActionID     string             `json:"action_id"`
	ActionDigest string             `json:"action_digest"`      // keyed; of the whole proposal
	Evasion      string             `json:"evasion,omitempty"`  // keyed; of the action and the resource, whatever the tool and the arguments
	Runs         string             `json:"runs,omitempty"`     // keyed; of the tool and the arguments that would run; see Keys
	Tool         string             `json:"tool_key,omitempty"` // keyed; of the tool
	ArgsDigest   string             `json:"args_digest,omitempty"`
	Policy       events.PolicyRef   `json:"policy"`
	Mandate      *events.MandateRef `json:"mandate,omitempty"`
	DecisionID   string             `json:"decision_id"` // that opened it

	// Unapprovable reports that the verdict has a part that no approval lifts: the workflow can
	// only be denied or cancelled. Asks are the codes of the evaluators' reasons to ask and the
	// rules of policies that ask; an approval covers these only.
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
	By          string      `json:"by,omitempty"` // user of the last act; "" for the service itself
	Reason      string      `json:"reason,omitempty"`
	ConsumedBy  string      `json:"consumed_by,omitempty"` // decision id
}

// storedVersion is the version of the stored form.
const storedVersion = 1

// Decode reads a stored workflow. Its content must name the slot.
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

// StatusAt is the state of a workflow at a time: a workflow past its expiry is expired, whether
// or not that is recorded.
func (w Workflow) StatusAt(now time.Time) Status {
	if (w.Status == Pending || w.Status == Approved) && !now.Before(w.ExpiresAt.Time) {
		return Expired
	}
	return w.Status
}

// Over reports whether a workflow no longer affects decisions: it was used, cancelled, or has
// expired. A denial has effect until then.
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

// Expire records that a workflow has expired.
func (w Workflow) Expire(now time.Time) (Workflow, error) { return w.applyAct(ActExpire, "", "", now) }

// Supersede cancels a workflow that can never be used again, for a reason of the service's own.
func (w Workflow) Supersede(reason string, now time.Time) (Workflow, error) {
	return w.applyAct(ActCancel, "", reason, now)
}

// SupersededFor is the reason for which the service itself cancelled a workflow, "" if it did not.
func (w *Workflow) SupersededFor() string {
	if w == nil || w.Status != Cancelled || w.By != "" {
		return ""
	}
	return w.Reason
}

// WaitsForCall reports whether a call waits for the workflow, or may do so: there is no room for all.
func (w Workflow) WaitsForCall(id string) bool {
	return id != "" && (slices.Contains(w.Calls, id) || len(w.Calls) >= MaxCalls)
}

// Consume consumes an approved workflow for a decision.
func (w Workflow) Consume(decisionID string, now time.Time) (Workflow, error) {
	n, err := w.applyAct(ActConsume, "", "", now)
	if err == nil {
		n.ConsumedBy = decisionID
	}
	return n, err
}

// Ref is the reference to the workflow in decisions and replies.
func (w Workflow) Ref(now time.Time) *events.ApprovalRef {
	return &events.ApprovalRef{
		WorkflowID: w.ID, Status: string(w.StatusAt(now)), ActionID: w.ActionID, RequestedAt: w.RequestedAt, ExpiresAt: w.ExpiresAt, ResumePolicy: w.Terms.Resume,
	}
}

// Record is the log record of the workflow's last change.
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

// Refusal is the record of a command that was refused and changed nothing.
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
