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
	"github.com/countersign-dev/countersign/streams"
)

const (
	// rereadPatience is how long a new set of policies may wait for what its
	// limits count. After it the set is in force, and its limits deny until all is
	// read.
	rereadTimeout = 3 * time.Second
	// rereadAgain is how long to wait after the log could not be read.
	rereadRetry = time.Second
	// rereadSlack is how much more than the longest window is read back, for clocks
	// that differ.
	rereadSlack = 10 * time.Second
)

// rateStore is the part that knows what rate and budget conditions count. The log is
// where it is kept: every decision of verdict allow names the counters that it
// adds to. Whatever is allowed here counts at once; what other admitters allow
// counts as soon as it comes by the log. It reads the log only while there is a
// policy with a limit.
type rateStore struct {
	s       *service
	current atomic.Pointer[counterTally] // complete; nil while nothing is known

	mu       sync.Mutex // guards what follows
	ctx      context.Context
	js       jetstream.JetStream
	longest  time.Duration // what is read back, or is being read
	stopRead func()        // ends the reading under way; nil if there is none
	ready    chan struct{} // closed when it is complete for the first time
}

func newRateStore(s *service) *rateStore { return &rateStore{s: s} }

// start implements part.
func (r *rateStore) start(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	r.mu.Lock()
	r.ctx, r.js = ctx, js
	r.mu.Unlock()
	if snap := r.s.snapshot.Load(); snap != nil {
		err = r.awaitReady(ctx, r.ensureRead(snap.Policies))
	}
	return r.stopReading, err
}

func (r *rateStore) awaitReady(ctx context.Context, ready <-chan struct{}) error {
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

// load implements part.
func (r *rateStore) load(_ admission.Request, in *admission.Inputs) {
	if l := r.current.Load(); l != nil {
		in.Counters = l
	}
}

// reserve implements part. A limit that others have used up meanwhile has the
// decision made again.
func (r *rateStore) reserve(_ context.Context, _ admission.Request, out *admission.Outcome) (reservation, error) {
	if len(out.Reservations.Counts) == 0 {
		return reservation{}, nil
	}
	id := out.Decision.DecisionID
	l := r.current.Load()
	if l == nil || !l.reserve(id, out.Reservations.Counts, out.Decision.DecidedAt.Time) {
		return reservation{}, errConflict
	}
	return reservation{release: func(context.Context) {
		if l := r.current.Load(); l != nil { // it may be another one that has inherited it
			l.release(id)
		}
	}}, nil
}

// prepareSet reads what a set's limits count before the set is in force, so that
// it need not deny meanwhile.
func (r *rateStore) prepareSet(ctx context.Context, set *policy.Set) {
	ctx, cancel := context.WithTimeout(ctx, rereadTimeout)
	defer cancel()
	if err := r.awaitReady(ctx, r.ensureRead(set)); err != nil {
		r.s.env.Log.Warn().Err(err).Msg("policies with limits deny what they limit until the log is read back")
	}
}

// finishPrepare ends the reading if the set that is in force now has no limits.
func (r *rateStore) finishPrepare(set *policy.Set) {
	if _, any := set.LongestWindow(); !any {
		r.stopReading()
	}
}

// ensureRead begins to read as far back as a set wants, unless that is done or under
// way. The channel is closed when everything is read; nil if there is nothing to
// wait for.
func (r *rateStore) ensureRead(set *policy.Set) <-chan struct{} {
	longest, any := set.LongestWindow()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !any || r.js == nil:
		return nil
	case r.stopRead != nil && longest <= r.longest:
		return r.ready
	}
	before := r.stopRead
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{})
	ready := make(chan struct{})
	go func() {
		defer close(done)
		r.readDecisions(ctx, longest, func() {
			close(ready)
			if before != nil {
				before()
			}
		})
	}()
	r.longest, r.ready = longest, ready
	r.stopRead = func() {
		cancel()
		<-done
		if before != nil {
			before()
		}
	}
	return ready
}

// stopReading ends the reading and forgets everything.
func (r *rateStore) stopReading() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopRead != nil {
		r.stopRead()
	}
	r.stopRead, r.longest, r.ready = nil, 0, nil
	r.current.Store(nil)
}

// readDecisions follows the log until ctx ends, and starts over when it cannot go on.
// caughtUp is called once.
func (r *rateStore) readDecisions(ctx context.Context, longest time.Duration, caughtUp func()) {
	for {
		l, complete := newCounterTally(), false
		err := streams.ReadLog(ctx, r.js, streams.ReadOptions{
			Stream: r.s.flags.Stream, Filter: []string{r.allowSubjects()}, Log: r.s.env.Log, Stalled: r.s.env.Metrics.ReaderStalled,
			Since: time.Now().Add(-longest - longest/windowSlots - rereadSlack),
			Idle: func() error {
				if complete {
					return nil
				}
				complete = true
				if old := r.current.Load(); old != nil {
					l.inheritPending(old)
				}
				r.current.Store(l)
				r.s.env.Health.Set("rates", "")
				if caughtUp != nil {
					caughtUp()
					caughtUp = nil
				}
				return nil
			},
		}, func(batch []events.LogMessage) error {
			observeAll(l, batch)
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		r.current.CompareAndSwap(l, nil)
		r.s.env.Log.Error().Err(err).Msg("what the limits of policies count is not known; they deny until it is")
		r.s.env.Health.Set("rates", "what the limits of policies count is not known, they deny: "+err.Error())
		select {
		case <-ctx.Done():
			return
		case <-time.After(rereadRetry):
		}
	}
}

// allowSubjects are the subjects of decisions that count.
func (r *rateStore) allowSubjects() string {
	return strings.TrimSuffix(r.s.space.All(subject.Decisions), ">") + "*." + string(events.Allow) + ".>"
}

// countsMarker is in every record that has counts.
var countsMarker = []byte(`"counts":[`)

func observeAll(l *counterTally, batch []events.LogMessage) {
	for _, m := range batch {
		if !bytes.Contains(m.Body, countsMarker) {
			continue
		}
		d, err := events.DecodeRecord[events.Decision](m.Body)
		if err == nil && d.Verdict == events.Allow {
			l.observeDecision(d, m.Time, time.Now())
		}
	}
}
