// Package recorded reads decisions and their requests back out of the log. It
// asks for single messages, which is all that an operator may do, with many
// questions under way at a time.
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
	// workers is how many stretches of the log are read at a time, each stretch of
	// so many sequences.
	workers = 16
	stretch = 250
	// skew is how far the clocks of admitter and server may be apart, and the server's
	// go back, both together, for a decision to be found by the time in its id.
	clockSkew = 2 * time.Minute
)

// requestSteps is how far before a decision its request is looked for, in steps: they
// are committed together, beside what others commit.
var requestSteps = []uint64{1, 32, 1_000, 20_000}

// Log is one shard's log.
type Log struct {
	JS     jetstream.JetStream
	Stream string
	Space  subject.Space
}

// Entry is a decision in the log. Decision is zero if Err says that the message
// is no decision record.
type Entry struct {
	Message  events.LogMessage
	Decision events.Decision
	Request  *events.LogMessage // nil: the log has none
	Err      error
}

// FindDecision looks for a decision. Its id says when it was made, which is where the
// search begins.
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
	filter := l.decisionFilter(tenant)
	for seq := from; ; seq++ {
		m, err := streams.NextBySubject(ctx, l.JS, l.Stream, filter, seq)
		if err != nil {
			return Entry{}, err
		}
		if m == nil || m.Time.After(made.Add(clockSkew)) {
			return Entry{}, fmt.Errorf("%w: %s (tenant %s, looked at what was stored within %s of %s)", ErrNoDecision, id, tenant, clockSkew,
				made.UTC().Format(time.RFC3339))
		}
		if e := entry(*m); e.Decision.DecisionID == id {
			e.Request, err = l.findRequest(ctx, e)
			return e, err
		}
		seq = m.Seq
	}
}

// At reads the decision with a sequence.
func (l Log) At(ctx context.Context, seq uint64) (Entry, error) {
	m, err := streams.MessageAt(ctx, l.JS, l.Stream, seq)
	if err != nil {
		return Entry{}, err
	}
	if m == nil {
		return Entry{}, fmt.Errorf("%w: at sequence %d", ErrNoDecision, seq)
	}
	e := entry(*m)
	if e.Err == nil {
		e.Request, err = l.findRequest(ctx, e)
	}
	return e, err
}

// decisionFilter matches the decisions of a tenant, "" for all of them.
func (l Log) decisionFilter(tenant string) string {
	if tenant == "" {
		return l.Space.All(subject.Decisions)
	}
	return l.Space.AllOf(subject.Decisions, tenant)
}

func entry(m events.LogMessage) Entry {
	e := Entry{Message: m}
	e.Decision, e.Err = events.DecodeRecord[events.Decision](m.Body)
	return e
}

// findRequest finds the copy of the request that a decision is about, nil if there is
// none. It is most often the message before it.
func (l Log) findRequest(ctx context.Context, e Entry) (*events.LogMessage, error) {
	d, end := e.Decision, e.Message.Seq
	subj := l.Space.Request(d.Tenant, d.Source, d.Protocol, d.Session)
	for _, back := range requestSteps {
		start, last := end-min(end, back), back >= end
		for seq := start; seq < end; {
			m, err := streams.NextBySubject(ctx, l.JS, l.Stream, subj, seq)
			if err != nil {
				return nil, err
			}
			if m == nil || m.Seq >= end {
				break
			}
			if m.HeaderValue(events.HeaderDecisionID) == d.DecisionID {
				return m, nil
			}
			seq = m.Seq + 1
		}
		if last {
			break
		}
	}
	return nil, nil
}

// Scan gives fn the decisions from one sequence to another, both included, in
// order, each with its request. tenant "" is all tenants. Memory is bounded by
// what a few stretches of the log hold. It tells progress what it has come to.
func (l Log) Scan(ctx context.Context, tenant string, from, to uint64, progress func(seq uint64), fn func(Entry) error) error {
	filter := l.decisionFilter(tenant)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type part struct {
		entries []Entry
		last    uint64
		err     error
	}
	queue := make(chan chan part, workers)
	var group errgroup.Group
	group.SetLimit(workers)
	go func() {
		defer close(queue)
		for a := from; a <= to && ctx.Err() == nil; a += stretch {
			b := min(to, a+stretch-1)
			out := make(chan part, 1)
			select {
			case queue <- out:
			case <-ctx.Done():
				return
			}
			group.Go(func() error {
				list, err := l.readStretch(ctx, filter, a, b)
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
	for seq := from; seq <= to; {
		m, err := streams.NextBySubject(ctx, l.JS, l.Stream, filter, seq)
		if err != nil {
			return nil, err
		}
		if m == nil || m.Seq > to {
			return list, nil
		}
		e := entry(*m)
		if e.Err == nil {
			if e.Request, err = l.findRequest(ctx, e); err != nil {
				return nil, err
			}
		}
		list = append(list, e)
		seq = m.Seq + 1
	}
	return list, nil
}
