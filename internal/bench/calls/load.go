package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/bench/callplan"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/retry"
)

// callLoad makes calls as an agent runtime makes them, and approves as a reviewer.
type callLoad struct {
	conns             []*nats.Conn // of the runtime, shared by all calls
	reviewer          *nats.Conn
	tenant, publisher string
}

// Bounds of a load. A call that has no answer within callTimeout has failed. More than
// mostOutstanding times the rate are not left unanswered: the rate is then far too high.
const (
	callTimeout     = 30 * time.Second
	mostOutstanding = 10 // seconds
	loadConnections = 8
)

func openLoad(ctx context.Context, ready target.Ready) (*callLoad, error) {
	t := target.FromReady(ready)
	l := &callLoad{tenant: ready.Tenant, publisher: ready.Roles[target.Runtime].Publisher}
	for range loadConnections {
		nc, err := t.Connect(ctx, target.Runtime)
		if err != nil {
			l.close()
			return nil, err
		}
		l.conns = append(l.conns, nc)
	}
	var err error
	if l.reviewer, err = t.Connect(ctx, target.Reviewer); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *callLoad) close() {
	for _, nc := range l.conns {
		nc.Close()
	}
	if l.reviewer != nil {
		l.reviewer.Close()
	}
}

// callOutcome is what became of a call. Times count from when it was due, so a call that the
// generator itself makes late, or that waits behind others, is not measured shorter.
type callOutcome struct {
	late    time.Duration       // of the generator
	verdict time.Duration       // of the first verdict
	reports []callplan.StoredAt // by their acknowledgement
	ended   time.Time
	err     error
}

var errOverrun = errors.New("too many calls are unanswered")

// run makes n calls, each when it is due, and returns when all have ended. It stops making calls
// when too many are unanswered; the outcomes are those of the calls that were made.
func (l *callLoad) run(ctx context.Context, texts callplan.Texts, s callplan.Schedule, n int, tell func(made int)) ([]callOutcome, error) {
	outcomes := make([]callOutcome, n)
	var open atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	for i := range n {
		if err := sleepUntil(ctx, s.Due(i)); err != nil {
			return nil, err
		}
		if open.Load() > int64(max(mostOutstanding*s.PerSecond, 100)) {
			all.Wait()
			return outcomes[:i], errOverrun
		}
		tell(i)
		open.Add(1)
		all.Go(func() {
			defer open.Add(-1)
			l.call(ctx, texts, i, s.Due(i), &outcomes[i])
		})
	}
	all.Wait()
	return outcomes, ctx.Err()
}

// sleepUntil returns at once if t is over.
func sleepUntil(ctx context.Context, t time.Time) error {
	if wait := time.Until(t); wait > 0 {
		return retry.Sleep(ctx, wait)
	}
	return ctx.Err()
}

// call makes call i.
func (l *callLoad) call(ctx context.Context, texts callplan.Texts, i int, due time.Time, out *callOutcome) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nc, kind, now := l.conns[i%len(l.conns)], callplan.KindOf(i), time.Now()
	out.late = now.Sub(due)
	defer func() { out.ended = time.Now() }()
	request := texts.Request(i, now)
	reply, err := l.ask(ctx, nc, client.Call{Protocol: subject.ProtoAgentHook, Body: request}, firstVerdict[kind])
	out.verdict = time.Since(due)
	r := callplan.Ruling{Verdict: firstVerdict[kind]}
	if err == nil && kind == callplan.Approved {
		r, err = l.approve(ctx, nc, request, reply.Header.Get(events.HeaderWorkflow))
	}
	if err == nil {
		err = l.report(ctx, nc, texts.Announcement(i, now, r), out)
	}
	if err == nil && kind != callplan.Denied {
		err = l.report(ctx, nc, texts.Post(i, time.Now(), r), out)
	}
	out.err = err
}

// firstVerdict is the answer to the first request of a call.
var firstVerdict = map[callplan.Kind]events.Verdict{
	callplan.Allowed: events.Allow, callplan.Denied: events.Deny, callplan.Approved: events.Ask, callplan.Drifted: events.Allow,
}

func (l *callLoad) ask(ctx context.Context, nc *nats.Conn, call client.Call, want events.Verdict) (*nats.Msg, error) {
	reply, err := client.Request(ctx, nc, subject.Space{}, l.tenant, call)
	if err != nil {
		return nil, fmt.Errorf("asking: %w", err)
	}
	if v := reply.Header.Get(events.HeaderVerdict); v != string(want) {
		return nil, fmt.Errorf("the verdict is %q and not %q: %s", v, want, reply.Data)
	}
	return reply, nil
}

// approve lets a reviewer approve a workflow, and asks again.
func (l *callLoad) approve(ctx context.Context, nc *nats.Conn, request []byte, workflow string) (r callplan.Ruling, err error) {
	shown, err := client.Resolve(ctx, l.reviewer, subject.Space{}, l.tenant, approval.Request{Action: "show", WorkflowID: workflow})
	if err == nil && shown.Workflow == nil {
		err = fmt.Errorf("workflow %s is not shown: %s", workflow, shown.Message)
	}
	if err != nil {
		return r, err
	}
	done, err := client.Resolve(ctx, l.reviewer, subject.Space{}, l.tenant, approval.Request{
		Action: string(approval.ActApprove), WorkflowID: workflow, PreviewDigest: shown.Workflow.PreviewDigest, Reason: "benchmark",
	})
	if err == nil && !done.OK {
		err = fmt.Errorf("workflow %s is not approved: %s", workflow, done.Message)
	}
	if err != nil {
		return r, err
	}
	reply, err := l.ask(ctx, nc, client.Call{Protocol: subject.ProtoAgentHook, Body: request, Workflow: workflow}, events.Allow)
	if err != nil {
		return r, err
	}
	return callplan.Ruling{Verdict: events.Allow, Workflow: workflow, Decision: reply.Header.Get(events.HeaderDecisionID)}, nil
}

// report publishes an event and notes its sequence and the time of its acknowledgement.
func (l *callLoad) report(ctx context.Context, nc *nats.Conn, event []byte, out *callOutcome) error {
	msgs, err := client.Sender{Tenant: l.tenant, Publisher: l.publisher}.Messages(subject.ProtoAgentHook, event)
	if err != nil {
		return err
	}
	reply, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: msgs[0].Subject, Header: msgs[0].Header, Data: msgs[0].Body})
	if err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	at := time.Now()
	var ack struct {
		Seq   uint64          `json:"seq"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Seq == 0 || ack.Error != nil {
		return fmt.Errorf("%w: %s", measure.ErrNotStored, reply.Data)
	}
	out.reports = append(out.reports, callplan.StoredAt{Seq: ack.Seq, At: at})
	return nil
}
