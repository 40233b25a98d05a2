package admitter

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/admitter/tally"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

const (
	// rereadTimeout is how long a new policy set may wait for the counts of its limits. After it
	// the set is in force, and its limits deny until everything is read.
	rereadTimeout = 3 * time.Second
	// rereadRetry is the pause after the log could not be read.
	rereadRetry = time.Second
	// rereadSlack is how much more than the longest window is read back, for clocks that differ.
	rereadSlack = 10 * time.Second
)

// rateStore is the stateStore of rate and budget counters. The log is authoritative: every allow
// decision names the counters that it adds to. This admitter's allows count at once; those of
// other admitters count when they arrive from the log. The log is read only while a policy has a
// limit.
type rateStore struct {
	s       *service
	current atomic.Pointer[tally.Tally] // a complete tally; nil while there is none

	exchange sync.Mutex                  // held while current and reserved change
	reserved atomic.Pointer[tally.Tally] // while current is nil: what the last one had reserved; may be nil

	mu       sync.Mutex // guards the fields below
	ctx      context.Context
	js       jetstream.JetStream
	longest  time.Duration // how far back was or is being read
	stopRead func()        // ends the current reading; nil without one
	ready    chan struct{} // closed when the tally is complete for the first time
}

func newRateStore(s *service) *rateStore { return &rateStore{s: s} }

// start implements stateStore.
func (r *rateStore) start(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	r.mu.Lock()
	r.ctx, r.js = ctx, js
	r.mu.Unlock()
	if config := r.s.config.Load(); config != nil {
		err = awaitReady(ctx, r.ensureRead(config.Policies))
	}
	return r.stopReading, err
}

func awaitReady(ctx context.Context, ready <-chan struct{}) error {
	if ready == nil {
		return nil
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("reading back what the limits of policies count: %w", ctx.Err())
	}
}

// load implements stateStore.
func (r *rateStore) load(_ admission.Request, in *admission.Inputs) {
	if l := r.current.Load(); l != nil {
		in.Counters = l
	}
}

// reserve implements stateStore. If other decisions have used up a limit meanwhile, it returns
// errConflict.
func (r *rateStore) reserve(_ context.Context, _ admission.Request, out *admission.Outcome) (reservation, error) {
	if len(out.Consumption.Counts) == 0 {
		return reservation{}, nil
	}
	id := out.Decision.DecisionID
	l := r.current.Load()
	if l == nil || !l.Reserve(id, out.Consumption.Counts, out.Decision.DecidedAt.Time) {
		return reservation{}, errConflict
	}
	return reservation{release: func(context.Context) {
		if l := r.latest(); l != nil { // may be a newer tally that inherited the reservation
			l.Release(id)
		}
	}}, nil
}

// latest is the tally with the reservations of decisions under way; nil if there are none.
func (r *rateStore) latest() *tally.Tally {
	if l := r.current.Load(); l != nil {
		return l
	}
	return r.reserved.Load()
}

// install makes a complete tally the current one.
func (r *rateStore) install(l *tally.Tally) {
	r.exchange.Lock()
	defer r.exchange.Unlock()
	if old := r.latest(); old != nil {
		l.InheritPending(old)
	}
	r.current.Store(l)
	r.reserved.Store(nil)
}

// forget ends the use of a tally, unless another one has taken over. What it has reserved stays, for
// the next one.
func (r *rateStore) forget(l *tally.Tally) {
	r.exchange.Lock()
	defer r.exchange.Unlock()
	if l == nil || r.current.Load() != l {
		return
	}
	rest := tally.New(0)
	rest.InheritPending(l)
	r.reserved.Store(rest)
	r.current.Store(nil)
}

// prepareSet reads what a set's limits count before the set is in force, so that the set need not
// deny meanwhile.
func (r *rateStore) prepareSet(ctx context.Context, set *policy.Set) {
	ctx, cancel := context.WithTimeout(ctx, rereadTimeout)
	defer cancel()
	if err := awaitReady(ctx, r.ensureRead(set)); err != nil {
		r.s.env.Log.Warn().Err(err).Msg("policies with limits deny what they limit until the log is read back")
	}
}

// finishPrepare ends the reading if the set now in force has no limits.
func (r *rateStore) finishPrepare(set *policy.Set) {
	if _, found := set.LongestWindow(); !found {
		r.stopReading()
	}
}

// ensureRead starts reading as far back as a set needs, unless that is done or under way. The
// channel is closed when everything is read; it is nil if there is nothing to wait for.
func (r *rateStore) ensureRead(set *policy.Set) <-chan struct{} {
	longest, found := set.LongestWindow()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !found || r.js == nil:
		return nil
	case r.stopRead != nil && longest <= r.longest:
		return r.ready
	}
	before := r.stopRead
	ready := make(chan struct{})
	stop := daemon.Background(r.ctx, func(ctx context.Context) {
		r.readDecisions(ctx, longest, func() {
			close(ready)
			if before != nil {
				before()
			}
		})
	})
	r.longest, r.ready = longest, ready
	r.stopRead = func() {
		stop()
		if before != nil {
			before()
		}
	}
	return ready
}

// stopReading ends the reading and forgets all counts of the log.
func (r *rateStore) stopReading() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopRead != nil {
		r.stopRead()
	}
	r.stopRead, r.longest, r.ready = nil, 0, nil
	r.forget(r.current.Load())
	r.s.env.Health.Set("rates", "") // no limit needs them
}

// readDecisions follows the log until ctx ends, and starts over after an error. It calls caughtUp
// once.
func (r *rateStore) readDecisions(ctx context.Context, longest time.Duration, caughtUp func()) {
	for {
		l, complete := tally.New(longest), false
		err := streams.ReadLog(ctx, r.js, streams.ReadOptions{
			Stream: r.s.flags.Stream, Filter: []string{r.allowSubjects()}, Log: r.s.env.Log, Stalled: r.s.env.Metrics.ReaderStalled,
			Since: time.Now().Add(-longest - longest/policy.WindowSlots - rereadSlack),
			Idle: func() error {
				if complete {
					return nil
				}
				complete = true
				r.install(l)
				r.s.env.Health.Set("rates", "")
				if caughtUp != nil {
					caughtUp()
					caughtUp = nil
				}
				return nil
			},
		}, func(batch []events.LogMessage) error {
			observeAll(l, r.reserved.Load(), batch)
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		r.forget(l)
		r.s.env.Log.Error().Err(err).Msg("what the limits of policies count is not known; they deny until it is")
		r.s.env.Health.Set("rates", "what the limits of policies count is not known, they deny: "+err.Error())
		if retry.Sleep(ctx, rereadRetry) != nil {
			return
		}
	}
}

// allowSubjects is the filter for the decisions that count.
func (r *rateStore) allowSubjects() string {
	return strings.TrimSuffix(r.s.space.All(subject.Decisions), ">") + "*." + string(events.Allow) + ".>"
}

// countsMarker occurs in every record that has counts.
var countsMarker = []byte(`"counts":[`)

// observeAll counts the decisions of a batch. reserved, which may be nil, need not pass them on then.
func observeAll(l, reserved *tally.Tally, batch []events.LogMessage) {
	for _, m := range batch {
		if !bytes.Contains(m.Body, countsMarker) {
			continue
		}
		d, err := events.DecodeRecord[events.Decision](m.Body)
		if err == nil && d.Verdict == events.Allow {
			l.AddRecorded(d, m.Time, time.Now())
			if reserved != nil {
				reserved.Settle(d.DecisionID)
			}
		}
	}
}
