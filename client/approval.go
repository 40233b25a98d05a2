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
	"github.com/countersign-dev/countersign/events/subject"
)

// ReasonApprovalExpired is the reason of a deny of AdmitWaiting: nobody decided
// while the workflow was open.
const ReasonApprovalExpired = "approval_expired" // no reviewer decided while the workflow was open

// Defaults of Waiting.
const (
	DefaultFirstWait = time.Second
	DefaultMaxWait   = 30 * time.Second
)

// WaitOptions is how AdmitWaiting waits. The zero Waiting means the defaults.
type WaitOptions struct {
	FirstPause time.Duration // before the second time of asking; doubled every time
	MaxPause   time.Duration // between two times

	// Pending is told once of the verdict that made the call wait; it may be nil.
	Pending func(Verdict)
}

// AdmitWaiting is Admit for a publisher that keeps the call until a reviewer has
// decided: the resume policy publisher_waits, but it serves the others as well.
// While the answer is ask it asks again, with the same body and the name
// of the workflow; every time is a request and a decision on the log. The Verdict is what was
// decided in the end: allow, used up by this call, or deny. When the workflow
// expires undecided it is deny with ReasonApprovalExpired; when ctx ends, deny
// with ReasonCanceled or ReasonTimeout, and the workflow stays open: whoever asks
// again with the same call and Verdict.Workflow goes on waiting.
func (c *Client) AdmitWaiting(ctx context.Context, call Call, w WaitOptions) Verdict {
	v := c.Admit(ctx, call)
	if !v.isPending() {
		return v
	}
	if w.Pending != nil {
		w.Pending(v)
	}
	call.Workflow = v.Workflow
	pause, most := orDuration(w.FirstPause, DefaultFirstWait), orDuration(w.MaxPause, DefaultMaxWait)
	for v.isPending() {
		// Asking later than this would only open another workflow.
		latest := v.pendingUntil().Add(-expiryMargin)
		next := time.Now().Add(pause)
		last := !next.Before(latest)
		if last {
			next = latest
		}
		if err := sleep(ctx, time.Until(next)); err != nil {
			return v.abandonWait(err)
		}
		answer := c.Admit(ctx, call)
		if answer.isPending() && (last || answer.Workflow != call.Workflow) {
			return Verdict{Decision: events.Deny, Reason: ReasonApprovalExpired, DecisionID: answer.DecisionID, Workflow: answer.Workflow}
		}
		v, pause = answer, min(2*pause, most)
	}
	return v
}

// expiryMargin before a workflow expires is the last time to ask.
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

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// isPending reports whether a reviewer may still turn the verdict into allow. No
// approval lifts a defer.
func (v Verdict) isPending() bool { return v.Decision == events.Ask && v.Workflow != "" }

// pendingUntil is when the workflow expires, as the protocol's reply says; a
// reply that does not say is given the longest time that there is.
func (v Verdict) pendingUntil() time.Time {
	type pending struct {
		ExpiresAt events.Time `json:"expires_at"`
	}
	var body struct {
		Approval pending                    `json:"approval"`            // AAEP, AANA
		Metadata struct{ Approval pending } `json:"metadata"`            // AgentHook
		Required pending                    `json:"required_escalation"` // AUMP
		AIOC     events.Time                `json:"expiresAt"`
	}
	_ = json.Unmarshal(v.Reply, &body) // what cannot be read says nothing
	for _, t := range []events.Time{body.Approval.ExpiresAt, body.Metadata.Approval.ExpiresAt, body.Required.ExpiresAt, body.AIOC} {
		if !t.IsZero() {
			return t.Time
		}
	}
	return time.Now().Add(24 * time.Hour)
}

// Resolve is a reviewer's request: to list the workflows that wait, to look at
// one, to approve, deny or cancel it. nc must be a reviewer's own connection:
// the server vouches for who asks, and that name stands in the record. A refusal
// is a Reply that is not OK; the error is for answers that did not come.
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
