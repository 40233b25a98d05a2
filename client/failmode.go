package client

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// failModeReasons are the reasons that mean that nobody gave a verdict that counts.
// What the caller itself did wrong (its arguments) is none of them.
var failModeReasons = map[string]bool{
	ReasonNoResponders: true, ReasonTimeout: true, ReasonCanceled: true, ReasonNotSent: true, ReasonBadReply: true,
	ReasonReceiptMissing: true, ReasonReceiptInvalid: true,
}

// isFailMode reports whether a verdict is a deny that no admitter decided on: the
// client's own, or a refusal without a decision (the admitter was overloaded, or
// could not record one).
func (v Verdict) isFailMode() bool {
	if v.Err != nil {
		return failModeReasons[v.Reason]
	}
	return v.Decision == events.Deny && v.DecisionID == ""
}

const (
	maxReports     = 256                    // fail-mode events that wait to be published
	reportTimeout  = 5 * time.Second        // for one attempt
	reportAttempts = 8                      // some 30 s: without an admitter no events are taken in either
	firstPause     = 250 * time.Millisecond // between attempts; doubled each time
	errorFailMode  = "admission_fail_mode"
	modeFailClosed = "fail_closed"
	schemaVersion  = 1
)

// Errors of fail-mode events, for Options.OnUnreported.
var (
	ErrReportsFull   = errors.New("client: too many fail-mode events wait to be published")
	ErrReportsClosed = errors.New("client: closed before the fail-mode event was published")
	errNotReportable = errors.New("client: the request cannot be read, so no fail-mode event can be made of it")
)

// UnreportedCount counts the fail-mode events that could not be put into the log.
//
// AgentHook (SPEC section 4) wants a publisher whose subscriber failed or timed
// out to say so: an ErrorOccurred with error_type "admission_fail_mode",
// fail_mode_triggered, the outcome, here always deny, and the call's
// tool_call_id. Admit publishes one for every such deny of an AgentHook request
// that could have been answered with a verdict. It does so beside the deny, which
// never waits for it: some events wait in memory, are tried a few times, and what
// cannot be published then is given to Options.OnUnreported.
func (c *Client) UnreportedCount() uint64 { return c.reports.dropped.Load() }

// Flush waits until no fail-mode event is waiting to be published or ctx ends.
func (c *Client) Flush(ctx context.Context) error { return c.reports.flush(ctx) }

// Close gives up the fail-mode events that are not published yet and waits until
// nothing of this client runs any more. It leaves the connection alone.
func (c *Client) Close() {
	c.asker.close()
	c.reports.close()
}

func (c *Client) publishReport(ctx context.Context, event []byte) error {
	return c.Publish(ctx, subject.ProtoAgentHook, event)
}

// reportFailMode queues the event for a deny that is the client's own.
func (c *Client) reportFailMode(call Call, reason string) {
	if call.Protocol != subject.ProtoAgentHook {
		return
	}
	event, wanted, err := failModeEvent(call, reason, c.guard.now())
	switch {
	case err != nil:
		c.reports.dropEvent(call.Body, err)
	case wanted:
		c.reports.add(event)
	}
}

// failModeEvent makes the ErrorOccurred of a request. Events that nobody gives a
// verdict on have no fail mode.
func failModeEvent(call Call, reason string, now time.Time) (event []byte, wanted bool, err error) {
	e, _ := agenthook.Decode(call.Body, strictjson.DefaultLimits)
	if e == nil {
		return nil, false, errNotReportable
	}
	if !agenthook.AdmissionCapable(e.EventType) {
		return nil, false, nil
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, false, err
	}
	metadata := map[string]any{
		"error_type": errorFailMode, "fail_mode_triggered": true, "outcome": string(events.Deny), "fail_mode": modeFailClosed, "reason": reason,
	}
	doc := map[string]any{
		"schema_version": schemaVersion, "event_id": id.String(), "event_type": agenthook.ErrorOccurred, "timestamp": now.UTC().Format(time.RFC3339Nano),
		"source": e.Source, "evidence_phase": agenthook.PhasePostHoc, "metadata": metadata,
	}
	setOptional(metadata, "tool_call_id", orDefault(e.ToolCallID(), call.ToolCallID))
	setOptional(doc, "agent_id", orDefault(e.AgentID, call.Agent))
	setOptional(doc, "session_id", orDefault(e.SessionID, call.Session))
	setOptional(doc, "correlation_id", e.EventID)
	setOptional(doc, "tool_name", e.ToolName)
	event, err = json.Marshal(doc)
	return event, err == nil, err
}

func setOptional(m map[string]any, name, value string) {
	if value != "" {
		m[name] = value
	}
}

func orDefault(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// reporter publishes events beside everything else. Its goroutine is there only
// while there is something to publish.
type reporter struct {
	publish   func(context.Context, []byte) error
	onDropped func([]byte, error)
	dropped   atomic.Uint64
	ctx       context.Context
	cancel    context.CancelFunc

	mu     sync.Mutex
	queue  [][]byte
	idle   chan struct{} // closed when the goroutine has ended; nil if there is none
	closed bool
}

func newReporter(publish func(context.Context, []byte) error, told func([]byte, error)) *reporter {
	r := &reporter{publish: publish, onDropped: told}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// add never waits. Full, it gives the event up.
func (r *reporter) add(event []byte) {
	r.mu.Lock()
	full, closed := len(r.queue) >= maxReports, r.closed
	if !full && !closed {
		r.queue = append(r.queue, event)
		if r.idle == nil {
			r.idle = make(chan struct{})
			go r.run(r.idle)
		}
	}
	r.mu.Unlock()
	switch {
	case closed:
		r.dropEvent(event, ErrReportsClosed)
	case full:
		r.dropEvent(event, ErrReportsFull)
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
		event := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		if err := r.publishWithRetry(event); err != nil {
			r.dropEvent(event, err)
		}
	}
}

// publishWithRetry tries a few times: the reason why there was no verdict is often the
// reason why nothing can be published either, and it may pass.
func (r *reporter) publishWithRetry(event []byte) (err error) {
	for pause, n := firstPause, 0; n < reportAttempts; pause, n = 2*pause, n+1 {
		if n > 0 {
			select {
			case <-r.ctx.Done():
			case <-time.After(pause):
			}
		}
		if r.ctx.Err() != nil {
			return errors.Join(ErrReportsClosed, err)
		}
		ctx, cancel := context.WithTimeout(r.ctx, reportTimeout)
		err = r.publish(ctx, event)
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
