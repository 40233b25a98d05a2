package gateclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/retry"
)

// Cause says why a call may not run, for programs. The values are stable.
type Cause string

// Causes of the admitter's verdicts.
const (
	CauseWaiting       Cause = "waiting"            // for a person
	CauseOtherArgs     Cause = "other_arguments"    // for a person, as an identical call but for its arguments does
	CauseReviewer      Cause = "denied_by_reviewer" // a person said no
	CauseExpired       Cause = "expired"            // the approval was not given, or not used, in time
	CauseCanceled      Cause = "cancelled"          // a person took the workflow back, or the policies changed
	CauseConsumed      Cause = "consumed"           // the approval was used
	CausePolicyChanged Cause = "policy_changed"     // the approval was asked for under other policies, or for other reasons
	CauseNotFound      Cause = "not_found"          // the gateway does not know the workflow any more
	CausePolicy        Cause = "denied_by_policy"   // the verdict is deny, and no reviewer gave it
	CauseNotApprovable Cause = "not_approvable"     // a part of the verdict that no person can lift
)

// Causes of a missing verdict.
const (
	CauseOutage        Cause = "outage"         // no gateway, no answer in time, or a gateway that has no admitter
	CauseNotAuthorized Cause = "not_authorized" // the gateway refuses the gate's token or publisher
	CauseBusy          Cause = "busy"           // the gateway takes no more of this token now
	CauseNotAccepted   Cause = "not_accepted"   // the gateway refuses the request
)

// cause is that of a verdict. status is the one of its workflow, if it has one.
func (r Reply) cause(status string) Cause {
	switch {
	case r.Verdict == events.Allow:
		return ""
	case r.Waits():
		return CauseWaiting
	case r.Verdict != events.Deny:
		return CauseNotApprovable
	case status == statusDenied:
		return CauseReviewer
	}
	return CausePolicy
}

// CauseOf is the cause of an error of Propose or Await.
func CauseOf(err error) Cause {
	var r refusedError
	switch {
	case !errors.As(err, &r) || r.status >= http.StatusInternalServerError:
		return CauseOutage
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden:
		return CauseNotAuthorized
	case r.status == http.StatusTooManyRequests:
		return CauseBusy
	}
	return CauseNotAccepted
}

// Statuses of a workflow, as the gateway answers.
const (
	statusPending   = "pending"
	statusApproved  = "approved"
	statusDenied    = "denied"
	statusExpired   = "expired"
	statusCancelled = "cancelled"
	statusConsumed  = "consumed"
)

// endings are the denials of calls whose workflow cannot permit them any more, by its status.
var endings = map[string]Reply{
	statusExpired:   {Verdict: events.Deny, Cause: CauseExpired, Reason: "the approval was not given, or not used, in time"},
	statusCancelled: {Verdict: events.Deny, Cause: CauseCanceled, Reason: "the request for approval was taken back by a person, or by a change of the policies"},
	statusConsumed:  {Verdict: events.Deny, Cause: CauseConsumed, Reason: "the approval was used up"},
}

// Denials of calls whose workflow is open, but not for what the policies ask now, or is not to be found.
var (
	policyChanged = Reply{Verdict: events.Deny, Cause: CausePolicyChanged, Reason: "the approval does not hold any more: the policies ask for another one"}
	notFound      = Reply{Verdict: events.Deny, Cause: CauseNotFound, Reason: "the approval is not known any more"}
)

// replaced is the denial of a call for which the admitter has opened another workflow than the one that the call
// waits for.
func (a *Asker) replaced(ctx context.Context, workflow string) (Reply, error) {
	status, err := a.status(ctx, workflow, 0)
	if isRefused(err, http.StatusNotFound) {
		return notFound, nil
	}
	if err != nil {
		return Reply{}, err
	}
	if r, ended := endings[status]; ended {
		return r, nil
	}
	return policyChanged, nil
}

// status is that of a workflow, once it is not pending or when wait is over: whole seconds, up to events.FollowMaxWait.
func (a *Asker) status(ctx context.Context, workflow string, wait time.Duration) (string, error) {
	text, err := a.get(ctx, fmt.Sprintf("/v1/approvals/%s?wait=%d", url.PathEscape(workflow), int(wait.Seconds())), wait)
	if err != nil {
		return "", err
	}
	var w struct {
		ID     string `json:"workflow_id"`
		Status string `json:"status"`
	}
	known := []string{statusPending, statusApproved, statusDenied, statusExpired, statusCancelled, statusConsumed}
	if json.Unmarshal(text, &w) != nil || w.ID != workflow || !slices.Contains(known, w.Status) {
		return "", errors.New("the gateway's answer makes no sense")
	}
	return w.Status, nil
}

const (
	lastAnswer = time.Second // kept of the budget for the last question and the refusal
	minWait    = time.Second // the gateway waits for whole seconds

	firstPause, maxPause = 300 * time.Millisecond, 2 * time.Second // between two tries to wait
)

// Await waits until there is a decision about a call whose reply r waits for a person, and then asks once more.
// It returns a reply that still waits when the budget, ctx's deadline, is nearly used up, when ctx ends, and when
// giveUp, which may be nil, is closed. A gateway that restarts meanwhile is asked again. Waiting leaves nothing on
// record.
func (a *Asker) Await(ctx context.Context, giveUp <-chan struct{}, event []byte, r Reply) (Reply, error) {
	status, err := a.awaitDecision(ctx, giveUp, r.Workflow)
	if err != nil {
		return Reply{}, err
	}
	if status == statusPending {
		return r, nil
	}
	if ended, is := endings[status]; is {
		return ended, nil
	}
	return a.Propose(ctx, event, r.Workflow)
}

// awaitDecision returns the status of a workflow as soon as it is not pending, and statusPending where Await gives up.
func (a *Asker) awaitDecision(ctx context.Context, giveUp <-chan struct{}, workflow string) (string, error) {
	deadline, _ := ctx.Deadline()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-giveUp:
			cancel()
		case <-waiting.Done():
		}
	}()
	for pauses := retry.New(firstPause, maxPause); ; {
		left := min(time.Until(deadline)-lastAnswer, events.FollowMaxWait)
		if left < minWait {
			return statusPending, nil
		}
		status, err := a.status(waiting, workflow, left)
		if err != nil && !mayFollowLater(err) || err == nil && status != statusPending {
			return status, err
		}
		if pauses.Wait(waiting) != nil {
			return statusPending, nil
		}
	}
}

// mayFollowLater reports whether an error of status may be over soon: the gateway restarts, has no place to wait, or
// does not know the workflow yet.
func mayFollowLater(err error) bool {
	return IsPassing(err) || isRefused(err, http.StatusNotFound)
}

// isRefused reports whether an error is the gateway's answer with one of these statuses.
func isRefused(err error, statuses ...int) bool {
	var r refusedError
	return errors.As(err, &r) && slices.Contains(statuses, r.status)
}

// Page is the address of a page where a person decides about the workflow of a reply; empty if there is none. In
// template {workflow} stands for the workflow's id.
func (r Reply) Page(template string) string {
	return cmp.Or(r.ApprovalURL, strings.ReplaceAll(template, "{workflow}", url.PathEscape(r.Workflow)))
}

// Pending is what a model is told of a call that waits for a person, without a full stop; Where is the last sentence.
func (r Reply) Pending() string {
	return fmt.Sprintf("Countersign: this call needs a person's approval. Workflow %s: %s", Clean(r.Workflow), strings.TrimRight(Clean(r.Reason), "."))
}

// Where says where a person decides about the workflow of a reply: on a page, or by the command that shows it.
func (r Reply) Where(template string) string {
	return "Where a person decides: " + Clean(cmp.Or(r.Page(template), "countersign approvals show "+r.Workflow))
}
