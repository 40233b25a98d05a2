package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/internal/retry"
)

// failModeReasons are the reasons that mean that there was no valid verdict. Errors of the
// caller (its arguments) are not among them.
var failModeReasons = map[string]bool{
	ReasonNoResponders: true, ReasonTimeout: true, ReasonCanceled: true, ReasonNotSent: true, ReasonBadReply: true,
	ReasonReceiptMissing: true, ReasonReceiptInvalid: true,
}

// isFailMode reports whether a verdict is a deny without an admitter's decision: the client's
// own, or a refusal without a decision (the admitter was overloaded, or could not record one).
func (v Verdict) isFailMode() bool {
	if v.Err != nil {
		return failModeReasons[v.Reason]
	}
	return v.Decision == events.Deny && v.DecisionID == ""
}

const (
	maxReports     = 256                    // fail-mode events waiting to be published
	reportTimeout  = 5 * time.Second        // for one attempt
	reportAttempts = 8                      // some 30 s: without an admitter the log accepts no events either
	firstPause     = 500 * time.Millisecond // between attempts; doubled each time
	lastPause      = 32 * time.Second
)

// Errors of fail-mode events, for Options.OnUnreported.
var (
	ErrReportsFull   = errors.New("client: too many fail-mode events wait to be published")
	ErrReportsClosed = errors.New("client: closed before the fail-mode event was published")
)

// UnreportedCount counts the fail-mode events that could not be put into the log.
//
// AgentHook (SPEC section 4) demands a report from a publisher after its subscriber failed or timed
// out: an ErrorOccurred with error_type "admission_fail_mode", fail_mode_triggered, the
// outcome, here always deny, and the call's tool_call_id. Admit publishes one for every such
// deny of an AgentHook request that could have been answered with a verdict. The deny never
// waits for it: a bounded number of events waits in memory and is tried a few times, and an
// event that cannot be published is passed to Options.OnUnreported.
func (c *Client) UnreportedCount() uint64 { return c.reports.dropped.Load() }

// Flush waits until no fail-mode event is waiting to be published, or ctx ends.
func (c *Client) Flush(ctx context.Context) error { return c.reports.flush(ctx) }

// Close drops the fail-mode events that are not published yet and waits until no goroutine of
// this client runs. It does not close the caller's connection.
func (c *Client) Close() {
	c.resender.Close()
	c.reports.close()
}

func (c *Client) publishReport(ctx context.Context, r report) error {
	return c.Publish(ctx, r.protocol, r.event)
}

// reportFailMode queues the event for a deny of the client's own.
func (c *Client) reportFailMode(call Call, reason string) {
	failModeEvent := protocol.Rows[call.Protocol].FailModeEvent
	if failModeEvent == nil {
		return
	}
	id, err := uuid.NewRandom()
	if err != nil {
		c.reports.dropEvent(call.Body, err)
		return
	}
	event, wanted, err := failModeEvent(protocol.FailMode{
		Request: call.Body, Reason: reason, EventID: id.String(), Now: c.opt.Now(),
		ToolCallID: call.ToolCallID, Agent: call.Agent, Session: call.Session,
	})
	switch {
	case err != nil:
		c.reports.dropEvent(call.Body, err)
	case wanted:
		c.reports.add(report{call.Protocol, event})
	}
}

// report is a fail-mode event that waits to be published.
type report struct {
	protocol string
	event    []byte
}

// reporter publishes events in the background. Its goroutine runs only while there are events
// to publish.
type reporter struct {
	publish   func(context.Context, report) error
	onDropped func([]byte, error)
	dropped   atomic.Uint64
	ctx       context.Context
	cancel    context.CancelFunc

	mu     sync.Mutex
	queue  []report
	idle   chan struct{} // closed when the goroutine has ended; nil without a goroutine
	closed bool
}

func newReporter(publish func(context.Context, report) error, told func([]byte, error)) *reporter {
	r := &reporter{publish: publish, onDropped: told}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// add never waits. If the queue is full, it drops the event.
func (r *reporter) add(next report) {
	r.mu.Lock()
	full, closed := len(r.queue) >= maxReports, r.closed
	if !full && !closed {
		r.queue = append(r.queue, next)
		if r.idle == nil {
			r.idle = make(chan struct{})
			go r.run(r.idle)
		}
	}
	r.mu.Unlock()
	switch {
	case closed:
		r.dropEvent(next.event, ErrReportsClosed)
	case full:
		r.dropEvent(next.event, ErrReportsFull)
	}
}

func (r *reporter) run(done chan struct{}) {
	defer close(done)
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.idle = nil
			r.mu.Unlock()
			return
		}
		next := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		if err := r.publishWithRetry(next); err != nil {
			r.dropEvent(next.event, err)
		}
	}
}

// publishWithRetry tries a few times: the cause of the missing verdict often prevents
// publishing too, and may pass.
func (r *reporter) publishWithRetry(next report) (err error) {
	pauses := retry.New(firstPause, lastPause)
	for n := range reportAttempts {
		if n > 0 {
			_ = pauses.Wait(r.ctx)
		}
		if r.ctx.Err() != nil {
			return errors.Join(ErrReportsClosed, err)
		}
		ctx, cancel := context.WithTimeout(r.ctx, reportTimeout)
		err = r.publish(ctx, next)
		cancel()
		switch {
		case err == nil:
			return nil
		case r.ctx.Err() != nil:
			return errors.Join(ErrReportsClosed, err)
		case errors.Is(err, nats.ErrConnectionClosed):
			return err
		}
	}
	return err
}

func (r *reporter) dropEvent(event []byte, err error) {
	r.dropped.Add(1)
	if r.onDropped != nil {
		r.onDropped(event, err)
	}
}

func (r *reporter) flush(ctx context.Context) error {
	for {
		r.mu.Lock()
		idle := r.idle
		r.mu.Unlock()
		if idle == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-idle:
		}
	}
}

func (r *reporter) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	_ = r.flush(context.Background())
}
