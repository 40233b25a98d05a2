package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
)

const approvalPattern = "GET /v1/approvals/{workflow}"

// approvals tells callers what has become of their approval workflows.
type approvals struct {
	server  *server
	streams *outputStreams
}

// answer answers with the state of an approval workflow, and waits while it is pending. A workflow
// that the caller may not see, and one that does not exist, are answered alike and at once. A request
// that waits counts as a stream of its token.
func (v *approvals) answer(w http.ResponseWriter, r *http.Request) endpoint.Response {
	who, id, p := v.server.admitCaller(r, func(token.Record) bool { return true })
	if p != nil {
		return p.Response()
	}
	wait, p := gateway.ReadWait(r.URL.RawQuery)
	if p != nil {
		return p.Response()
	}
	if !v.streams.count.open(id) {
		return gateway.ProblemOf(gateway.TooManyStreams).Response()
	}
	defer v.streams.count.close(id)
	control := http.NewResponseController(w)
	if control.SetReadDeadline(time.Time{}) != nil || control.SetWriteDeadline(time.Now().Add(wait+pageTimeout+writeTimeout)) != nil {
		return gateway.ProblemOf(gateway.Panicked).Response()
	}
	defer func() { _ = control.SetReadDeadline(time.Now().Add(v.server.flags.ReadTimeout)) }() // for a body that never ends
	a, p := v.await(r.Context(), who, r.PathValue("workflow"), wait)
	if p != nil {
		return p.Response()
	}
	_, now, p := v.server.signIn(r)
	if p == nil && now != id { // mapped otherwise meanwhile
		p = gateway.ProblemOf(gateway.BadToken)
	}
	if p != nil {
		return p.Response()
	}
	return gateway.ApprovalAnswer(a, time.Now())
}

// await returns the state of a workflow once it is not pending, or when the time is over.
func (v *approvals) await(ctx context.Context, who token.Record, workflow string, wait time.Duration) (events.Approval, *endpoint.Problem) {
	a, at, p := v.read(ctx, who, workflow)
	if p != nil {
		return a, p
	}
	timer := time.NewTimer(min(wait, time.Until(a.ExpiresAt.Time)))
	defer timer.Stop()
	for wait > 0 && gateway.IsPending(a, time.Now()) {
		list, next, ok := v.streams.nextOutputs(ctx, v.streams.followedKind(string(subject.Approvals)), at, timer.C)
		switch {
		case v.server.stopping.Load():
			return a, gateway.ProblemOf(gateway.Stopping)
		case !ok:
			return a, gateway.ProblemOf(gateway.NATSAway)
		case len(list) == 0:
			return a, nil
		}
		at = next
		for _, out := range list {
			// The record of an attempt that changed nothing can be written late.
			if changed, ok := gateway.ReadApproval(out.Record, workflow, who); ok && changed.Step >= a.Step {
				a = changed
			}
		}
	}
	return a, nil
}

// read reads the record of a workflow with the most steps, and the position of the log behind which a newer
// one is.
func (v *approvals) read(ctx context.Context, who token.Record, workflow string) (a events.Approval, at client.Position, p *endpoint.Problem) {
	if !gateway.IsWorkflow(workflow) {
		return a, at, gateway.ProblemOf(gateway.NoSuchWorkflow)
	}
	page, err := v.streams.outputs.request(ctx, events.FollowRequest{Workflow: workflow})
	if err != nil {
		return a, at, gateway.ProblemOf(gateway.NATSAway)
	}
	known := false
	for _, out := range page.Outputs {
		if read, ok := gateway.ReadApproval(out.Record, workflow, who); ok && (!known || read.Step >= a.Step) {
			a, known = read, true
		}
	}
	if !known {
		return a, at, gateway.ProblemOf(gateway.NoSuchWorkflow)
	}
	return a, client.Position{Log: page.Log, After: page.End}, nil
}
