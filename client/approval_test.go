package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// pending is an ask that waits for a workflow.
func pending(workflow string, until time.Time) *nats.Msg {
	m := nats.NewMsg("")
	m.Header.Set(events.HeaderVerdict, string(events.Ask))
	m.Header.Set(events.HeaderWorkflow, workflow)
	m.Data = []byte(`{"decision":"ask","reason":"external","metadata":{"approval":{"required":true,"status":"pending","expires_at":"` + events.At(until).String() + `"}}}`)
	return m
}

func quick() client.WaitOptions {
	return client.WaitOptions{FirstPause: time.Millisecond, MaxPause: 2 * time.Millisecond}
}

func TestAdmitWaiting(t *testing.T) {
	w := start(t, streams.Shard{})
	var asked atomic.Int32
	var named atomic.Value
	ok(t, w.answer(func(m *nats.Msg) *nats.Msg {
		named.Store(m.Header.Get(events.HeaderWorkflow))
		if asked.Add(1) < 4 {
			return pending("wf-1", time.Now().Add(time.Hour))
		}
		return w.allow(nil)
	}))
	c, told := w.client(t, testTimeout), 0
	wait := quick()
	wait.Pending = func(v client.Verdict) {
		if told++; v.Workflow != "wf-1" || v.Decision != events.Ask {
			t.Errorf("%+v", v)
		}
	}
	v := c.AdmitWaiting(t.Context(), theCall, wait)
	if !v.Allowed() || asked.Load() != 4 || told != 1 || named.Load() != "wf-1" {
		t.Errorf("%+v after %d, told %d times, named %v", v, asked.Load(), told, named.Load())
	}
	ok(t, v.Permits(arguments))
}

func TestAdmitWaitingEnds(t *testing.T) {
	w := start(t, streams.Shard{})
	var answer atomic.Pointer[func() *nats.Msg] // a late request of one case may meet the answer of the next
	ok(t, w.answer(func(*nats.Msg) *nats.Msg { return (*answer.Load())() }))
	c := w.client(t, testTimeout)
	var n atomic.Int32
	for name, tc := range map[string]struct {
		answer func() *nats.Msg
		limit  time.Duration
		reason string
	}{
		"denied": {func() *nats.Msg {
			if n.Add(1) == 1 {
				return pending("wf-1", time.Now().Add(time.Hour))
			}
			m := pending("wf-1", time.Now())
			m.Header.Set(events.HeaderVerdict, "deny")
			m.Data = []byte(`{"decision":"deny","reason":"approval_denied"}`)
			return m
		}, testTimeout, "approval_denied"},
		"an admitter that goes meanwhile": {func() *nats.Msg {
			if n.Add(1) == 1 {
				return pending("wf-1", time.Now().Add(time.Hour))
			}
			return nats.NewMsg("")
		}, testTimeout, client.ReasonBadReply},
		"a log that goes meanwhile": {func() *nats.Msg {
			if n.Add(1) == 1 {
				return pending("wf-1", time.Now().Add(time.Hour))
			}
			m := nats.NewMsg("")
			m.Header.Set(events.HeaderVerdict, "deny")
			m.Data = []byte(`{"decision":"deny","reason":"audit_unavailable"}`)
			return m
		}, testTimeout, "audit_unavailable"},
		"expired":         {func() *nats.Msg { return pending("wf-1", time.Now()) }, testTimeout, client.ReasonApprovalExpired},
		"another's":       {func() *nats.Msg { n.Add(1); return pending(string('a'+n.Load()), time.Now().Add(time.Hour)) }, testTimeout, client.ReasonApprovalExpired},
		"nobody decides":  {func() *nats.Msg { return pending("wf-1", time.Now().Add(time.Hour)) }, 50 * time.Millisecond, client.ReasonTimeout},
		"an ask for ever": {func() *nats.Msg { m := pending("", time.Now()); m.Header.Del(events.HeaderWorkflow); return m }, testTimeout, "external"},
	} {
		n.Store(0)
		answer.Store(&tc.answer)
		ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
		v := c.AdmitWaiting(ctx, theCall, quick())
		cancel()
		if v.Allowed() || v.Reason != tc.reason || v.Permits(arguments) == nil {
			t.Errorf("%s: %+v", name, v)
		}
		if open := []string{client.ReasonBadReply, "audit_unavailable"}; slices.Contains(open, tc.reason) && v.Workflow != "wf-1" {
			t.Errorf("%s: the workflow is forgotten: %+v", name, v)
		}
	}
}

func TestResolve(t *testing.T) {
	w := start(t, streams.Shard{})
	nc, err := w.conn("admitter")
	ok(t, err)
	reply := `{"ok":true,"code":"approved","message":"m"}`
	_, err = nc.Subscribe("gov.resolve.>", func(m *nats.Msg) {
		var r approval.Request
		if json.Unmarshal(m.Data, &r) != nil || r.WorkflowID != "wf-1" {
			reply = `{}`
		}
		_ = m.Respond([]byte(reply))
	})
	ok(t, err)
	ok(t, nc.Flush())
	req := approval.Request{Action: approval.CommandApprove, WorkflowID: "wf-1", PreviewDigest: "p"}
	reviewer, err := w.conn("dana")
	ok(t, err)
	if r, err := client.Resolve(t.Context(), reviewer, subject.Space{}, "acme", req); err != nil || !r.OK || r.Code != approval.CodeApproved {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := client.Resolve(t.Context(), reviewer, subject.Space{}, "acme", approval.Request{}); err == nil {
		t.Errorf("%+v", r)
	}
	// A runtime may not even ask.
	runtime, err := w.conn("rt1")
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Resolve(ctx, runtime, subject.Space{}, "acme", req); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
