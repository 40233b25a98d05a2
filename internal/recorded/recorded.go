// Package recorded reads decisions and their requests back from the log, with the policies that
// were in force, for explain, simulate and replay. It reads single messages, the only access that
// an operator has, with many requests under way at a time. Begin with Log.
package recorded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// Errors of this package.
var (
	ErrNoDecision = errors.New("the log has no such decision")
	ErrNoRequest  = errors.New("the log has no request for this decision")
	ErrNoPolicies = errors.New("the log does not say which policies were in force")
)

const (
	// workers is how many ranges of the log are read concurrently, and scanStretch the sequences
	// of one range.
	workers     = 16
	scanStretch = 250
	// clockSkew is how far the clocks of admitter and server may differ, plus how far the
	// server's may go back, for a decision to be found by the time in its id.
	clockSkew = 2 * time.Minute
)

// requestSteps are the distances before a decision from which its request is searched if it is not the message
// before. The two are committed together, among messages of other decisions.
var requestSteps = []uint64{32, 1_000, 20_000}

// Log is one shard's log.
type Log struct {
	JS     jetstream.JetStream
	Stream string
	Space  subject.Space
}

// Entry is a decision in the log. If Err is set, the message is not a decision record and
// Decision is zero.
type Entry struct {
	Message  events.LogMessage
	Decision events.Decision
	Request  *events.LogMessage // nil: not in the log
	Err      error
}

// FindDecision finds a decision by its id. The search begins at the time in the id.
func (l Log) FindDecision(ctx context.Context, tenant, id string) (Entry, error) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return Entry{}, fmt.Errorf("%w: %.60q is not the id of a decision (a UUID of version 7)", ErrNoDecision, id)
	}
	sec, nsec := u.Time().UnixTime()
	made := time.Unix(sec, nsec)
	st, err := streams.StreamState(ctx, l.JS, l.Stream)
	if err != nil {
		return Entry{}, err
	}
	from, err := l.nearSeqAt(ctx, st, made.Add(-clockSkew))
	if err != nil {
		return Entry{}, err
	}
	for m, err := range streams.EachBySubject(ctx, l.JS, l.Stream, l.decisionFilter(tenant), from) {
		if err != nil {
			return Entry{}, err
		}
		if m.Time.After(made.Add(clockSkew)) {
			break
		}
		if e := newEntry(*m); e.Decision.DecisionID == id {
			e.Request, err = l.findRequest(ctx, e)
			return e, err
		}
	}
	return Entry{}, fmt.Errorf("%w: %s (tenant %s, looked at what was stored within %s of %s)", ErrNoDecision, id, tenant, clockSkew,
		made.UTC().Format(time.RFC3339))
}

// DecisionAt reads the decision with a sequence.
func (l Log) DecisionAt(ctx context.Context, seq uint64) (Entry, error) {
	m, err := streams.MessageAt(ctx, l.JS, l.Stream, seq)
	if err != nil {
		return Entry{}, err
	}
	if m == nil {
		return Entry{}, fmt.Errorf("%w: at sequence %d", ErrNoDecision, seq)
	}
	e := newEntry(*m)
	if e.Err == nil {
		e.Request, err = l.findRequest(ctx, e)
	}
	return e, err
}

// decisionFilter matches the decisions of a tenant, or all if tenant is "".
func (l Log) decisionFilter(tenant string) string {
	if tenant == "" {
		return l.Space.All(subject.Decisions)
	}
	return l.Space.AllOf(subject.Decisions, tenant)
}

func newEntry(m events.LogMessage) Entry {
	e := Entry{Message: m}
	e.Decision, e.Err = events.DecodeRecord[events.Decision](m.Body)
	return e
}

// findRequest finds the copy of a decision's request, nil if there is none. It usually is the message before, which
// is read as such: a search that begins there may go on to the session's next request, hours later.
func (l Log) findRequest(ctx context.Context, e Entry) (*events.LogMessage, error) {
	d, end := e.Decision, e.Message.Seq
	subj := l.Space.Request(d.Tenant, d.Source, d.Protocol, d.Session)
	isRequest := func(m *events.LogMessage) bool {
		return m != nil && m.Subject == subj && m.HeaderValue(events.HeaderDecisionID) == d.DecisionID
	}
	if end == 1 {
		return nil, nil
	}
	if m, err := streams.MessageAt(ctx, l.JS, l.Stream, end-1); err != nil || isRequest(m) {
		return m, err
	}
	for _, back := range requestSteps {
		start, last := end-min(end, back), back >= end
		for m, err := range streams.EachBySubject(ctx, l.JS, l.Stream, subj, start) {
			if err != nil {
				return nil, err
			}
			if m.Seq >= end {
				break
			}
			if isRequest(m) {
				return m, nil
			}
		}
		if last {
			break
		}
	}
	return nil, nil
}

// Scan passes the decisions from one sequence to another, both included, to fn in order, each
// with its request. tenant "" means all tenants. Memory is bounded by the content of a few ranges
// of the log. It calls progress with the sequence reached.
func (l Log) Scan(ctx context.Context, tenant string, from, to uint64, progress func(seq uint64), fn func(Entry) error) error {
	filter := l.decisionFilter(tenant)
	return ScanRanges(ctx, from, to, progress, fn, func(ctx context.Context, a, b uint64) ([]Entry, error) {
		return l.readStretch(ctx, filter, a, b)
	})
}

// ScanCalls passes the records of a tenant's calls to fn, as Scan does with decisions. It leaves out
// what is no call record.
func (l Log) ScanCalls(ctx context.Context, tenant string, from, to uint64, progress func(seq uint64), fn func(events.Call) error) error {
	filter := l.Space.AllOf(subject.Calls, tenant)
	return ScanRanges(ctx, from, to, progress, fn, func(ctx context.Context, a, b uint64) (list []events.Call, err error) {
		for m, err := range streams.EachBySubject(ctx, l.JS, l.Stream, filter, a) {
			if err != nil || m.Seq > b {
				return list, err
			}
			if c, err := events.DecodeRecord[events.Call](m.Body); err == nil {
				list = append(list, c)
			}
		}
		return list, nil
	})
}

// ScanRanges reads ranges of the log from a first to a last sequence concurrently and passes what read
// returns of each to fn, in order. progress gets the last sequence of each.
func ScanRanges[T any](ctx context.Context, from, to uint64, progress func(seq uint64), fn func(T) error, read func(ctx context.Context, a, b uint64) ([]T, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type part struct {
		entries []T
		last    uint64
		err     error
	}
	queue := make(chan chan part, workers)
	var group errgroup.Group
	group.SetLimit(workers)
	go func() {
		defer close(queue)
		for a := from; a <= to && ctx.Err() == nil; a += scanStretch {
			b := min(to, a+scanStretch-1)
			out := make(chan part, 1)
			select {
			case queue <- out:
			case <-ctx.Done():
				return
			}
			group.Go(func() error {
				list, err := read(ctx, a, b)
				out <- part{list, b, err}
				return nil
			})
		}
	}()
	defer func() {
		cancel()
		for range queue { // let the producer end
		}
		_ = group.Wait()
	}()
	for out := range queue {
		p := <-out
		if p.err != nil {
			return p.err
		}
		for _, e := range p.entries {
			if err := fn(e); err != nil {
				return err
			}
		}
		progress(p.last)
	}
	return ctx.Err()
}

func (l Log) readStretch(ctx context.Context, filter string, from, to uint64) (list []Entry, err error) {
	for m, err := range streams.EachBySubject(ctx, l.JS, l.Stream, filter, from) {
		if err != nil {
			return nil, err
		}
		if m.Seq > to {
			break
		}
		e := newEntry(*m)
		if e.Err == nil {
			if e.Request, err = l.findRequest(ctx, e); err != nil {
				return nil, err
			}
		}
		list = append(list, e)
	}
	return list, nil
}
