package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/retry"
)

// ReasonApprovalExpired is the reason of a deny of AdmitWaiting: no reviewer decided
// while the workflow was open.
const ReasonApprovalExpired = "approval_expired" // no reviewer decided while the workflow was open

// Defaults of WaitOptions.
const (
	DefaultFirstWait = time.Second
	DefaultMaxWait   = 30 * time.Second
)

// WaitOptions configure AdmitWaiting. The zero WaitOptions means the defaults.
type WaitOptions struct {
	FirstPause time.Duration // before the second request; doubled each time
	MaxPause   time.Duration // maximum pause between two requests

	// Pending is called once with the verdict that made the call wait; it may be nil.
	Pending func(Verdict)
}

// AdmitWaiting is Admit for a publisher that keeps the call until a reviewer has decided: the
// resume policy publisher_waits, but it serves the others as well. While the answer is ask it
// asks again, with the same body and the name of the workflow; each time is a request and a
// decision on the log. The Verdict is the final decision: allow, consumed by this call, or
// deny. When the workflow expires undecided it is deny with ReasonApprovalExpired.
//
// It is also deny when ctx ends (ReasonCanceled or ReasonTimeout), when no admitter answers
// (another Reason of this package), and when one answers without a decision (its code, as
// audit_unavailable or overloaded; the SDKs of other languages wait on). The workflow then stays
// open: a later request with the same call and Verdict.Workflow continues to wait.
func (c *Client) AdmitWaiting(ctx context.Context, call Call, w WaitOptions) Verdict {
	v := c.Admit(ctx, call)
	if !v.isPending() {
		return v
	}
	if w.Pending != nil {
		w.Pending(v)
	}
	call.Workflow = v.Workflow
	pauses := retry.New(orDuration(w.FirstPause, DefaultFirstWait), orDuration(w.MaxPause, DefaultMaxWait))
	for v.isPending() {
		// A later request would only open another workflow.
		latest := pendingUntil(call.Protocol, v.Reply).Add(-expiryMargin)
		next := time.Now().Add(pauses.Next())
		last := !next.Before(latest)
		if last {
			next = latest
		}
		if err := retry.Sleep(ctx, time.Until(next)); err != nil {
			return v.abandonWait(err)
		}
		answer := c.Admit(ctx, call)
		if answer.isPending() && (last || answer.Workflow != call.Workflow) {
			return Verdict{Decision: events.Deny, Reason: ReasonApprovalExpired, DecisionID: answer.DecisionID, Workflow: answer.Workflow}
		}
		if v = answer; v.DecisionID == "" {
			v.Workflow = call.Workflow // no decision: the workflow is still open
		}
	}
	return v
}

// expiryMargin is the time before a workflow's expiry at which AdmitWaiting asks for the last
// time.
const expiryMargin = 500 * time.Millisecond

func (v Verdict) abandonWait(err error) Verdict {
	reason := ReasonCanceled
	if errors.Is(err, context.DeadlineExceeded) {
		reason = ReasonTimeout
	}
	return Verdict{Decision: events.Deny, Reason: reason, Err: err, DecisionID: v.DecisionID, Workflow: v.Workflow}
}

func orDuration(d, fallback time.Duration) time.Duration {
	if d <= 0 {
		return fallback
	}
	return d
}

// isPending reports whether a reviewer may still turn the verdict into allow. No approval lifts
// a defer.
func (v Verdict) isPending() bool { return v.Decision == events.Ask && v.Workflow != "" }

// pendingUntil is the expiry of the workflow by the reply of a protocol, or the longest possible
// time if the reply does not state it.
func pendingUntil(token string, reply []byte) time.Time {
	if t, stated := protocol.ReplyExpiry(token, reply); stated {
		return t
	}
	return time.Now().Add(24 * time.Hour)
}

// Resolve sends a reviewer's request: to list the waiting workflows, to show one, to approve,
// deny or cancel it. nc must be a reviewer's own connection: the server authenticates the user,
// and that name is in the record. A refusal is a Reply that is not OK; the error is for missing
// answers.
func Resolve(ctx context.Context, nc *nats.Conn, space subject.Space, tenant string, req approval.Request) (approval.Reply, error) {
	var r approval.Reply
	body, err := json.Marshal(req)
	if err != nil {
		return r, err
	}
	msg, err := nc.RequestWithContext(ctx, space.Resolve(tenant), body)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(msg.Data, &r); err != nil || r.Code == "" {
		return approval.Reply{}, fmt.Errorf("client: the answer to %s is not a reply of the admitter", req.Action)
	}
	return r, nil
}
