package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/retry"
)

// Waiting times of Follow.
const (
	followWait     = 10 * time.Second // how long the service waits for a new output
	followGrace    = 5 * time.Second  // additional time until a request counts as lost
	followRetry    = 200 * time.Millisecond
	followRetryMax = 5 * time.Second
)

// Position is the position of a follower: outputs of Log up to After were handled. The zero
// Position is none. It is JSON, to be kept in a file.
type Position struct {
	Log   string `json:"log"`
	After uint64 `json:"after"`
}

// FollowOptions state what to follow and from where: after From, else from Since, else from the
// next output.
type FollowOptions struct {
	Tenant  string
	Space   subject.Space
	From    Position
	Since   time.Time
	Kinds   []string          // of events.FollowKinds and FollowEventKinds; empty: FollowKinds
	States  map[string]string // by kind: a verdict, a severity, a state
	Session string

	// OnTrouble, if set, receives the reason when there are no answers, and nil when there are
	// answers again. Follow continues in both cases.
	OnTrouble func(error)
}

// Follow passes the outputs of a tenant's log to handle, page by page in the log's order, until
// ctx ends (the result is then nil) or handle fails. No output is missing or repeated, however
// often the connection or the service is lost. A caller that stores the Position after handling
// a page continues there the next time.
//
// Before the first answer any error ends Follow. After it only a permanent one does: an
// *events.FollowError other than busy and log_unavailable, such as log_replaced when the log
// was replaced.
func Follow(ctx context.Context, nc *nats.Conn, o FollowOptions, handle func([]events.Output, Position) error) error {
	f := follower{nc: nc, o: o, req: events.FollowRequest{
		Log: o.From.Log, Since: events.Time{Time: o.Since}, Kinds: o.Kinds, States: o.States, Session: o.Session,
		Max: events.FollowMax,
	}}
	if o.From != (Position{}) {
		f.req.After, f.req.Since = &o.From.After, events.Time{}
	}
	pauses, troubled := retry.New(followRetry, followRetryMax), false
	for ctx.Err() == nil {
		page, err := f.requestPage(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if troubled {
				o.reportTrouble(nil)
			}
			pauses.Reset()
			troubled = false
			if err := f.handlePage(page, handle); err != nil {
				return err
			}
			continue
		case !f.hasAnswer, !isTransient(err):
			return err
		}
		if !troubled {
			o.reportTrouble(err)
		}
		troubled = true
		_ = pauses.Wait(ctx)
	}
	return nil
}

func (o FollowOptions) reportTrouble(err error) {
	if o.OnTrouble != nil {
		o.OnTrouble(err)
	}
}

// isTransient reports whether an error may be temporary.
func isTransient(err error) bool {
	var refused *events.FollowError
	if errors.As(err, &refused) {
		return refused.Code == events.FollowBusy || refused.Code == events.FollowUnavailable
	}
	return !errors.Is(err, errPage) && !errors.Is(err, nats.ErrPermissionViolation) && !errors.Is(err, nats.ErrConnectionClosed)
}

// errPage reports an answer that contradicts itself or the previous one.
var errPage = errors.New("client: the page of outputs makes no sense")

// follower requests one page after the other.
type follower struct {
	nc        *nats.Conn
	o         FollowOptions
	req       events.FollowRequest
	hasAnswer bool
}

func (f *follower) requestPage(ctx context.Context) (page events.FollowPage, err error) {
	f.req.WaitMS = int(followWait / time.Millisecond)
	if !f.hasAnswer {
		f.req.WaitMS = 0 // the first answer comes at once, so a missing service shows immediately
	}
	body, err := json.Marshal(f.req)
	if err != nil {
		return page, err
	}
	ctx, cancel := context.WithTimeout(ctx, followWait+followGrace)
	defer cancel()
	reply, err := f.roundTrip(ctx, f.o.Space.Follow(f.o.Tenant), body)
	if err != nil {
		return page, err
	}
	if err := json.Unmarshal(reply.Data, &page); err != nil {
		return page, fmt.Errorf("%w: %w", errPage, err)
	}
	if page.Error != nil {
		return page, page.Error
	}
	return page, nil
}

// roundTrip sends one request. The server reports a refused request before it confirms its
// receipt, so the client need not wait for the time-out.
func (f *follower) roundTrip(ctx context.Context, subj string, body []byte) (*nats.Msg, error) {
	sub, err := f.nc.SubscribeSync(f.nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := f.nc.PublishRequest(subj, sub.Subject, body); err != nil {
		return nil, err
	}
	if err := f.nc.FlushWithContext(ctx); err != nil {
		return nil, fmt.Errorf("asking on %s: %w", subj, err)
	}
	if err := f.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), subj) {
		return nil, fmt.Errorf("this user may not follow what comes out of the log; use a subscriber's credentials: %w", err)
	}
	reply, err := sub.NextMsgWithContext(ctx)
	switch {
	case err != nil && !errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("asking on %s: %w", subj, err)
	case err != nil || len(reply.Data) == 0:
		return nil, fmt.Errorf("no responder on %s: is the correlator running?", subj)
	}
	return reply, nil
}

// handlePage passes a page to handle and moves the position past it.
func (f *follower) handlePage(page events.FollowPage, handle func([]events.Output, Position) error) error {
	last := uint64(0)
	if f.req.After != nil {
		last = *f.req.After
	}
	for _, out := range page.Outputs {
		if out.Seq <= last {
			return fmt.Errorf("%w: sequence %d after %d", errPage, out.Seq, last)
		}
		last = out.Seq
	}
	if page.Log == "" || page.Next < last {
		return fmt.Errorf("%w: it ends at %d of log %q, and goes on at %d", errPage, last, page.Log, page.Next)
	}
	f.hasAnswer = true
	f.req.Log, f.req.After, f.req.Since = page.Log, &page.Next, events.Time{}
	return handle(page.Outputs, Position{Log: page.Log, After: page.Next})
}
