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
	rereadPatience = 3 * time.Second
	// rereadAgain is how long to wait after the log could not be read.
	rereadAgain = time.Second
	// rereadSlack is how much more than the longest window is read back, for clocks
	// that differ.
	rereadSlack = 10 * time.Second
)

// rates is the part that knows what rate and budget conditions count. The log is
// where it is kept: every decision of verdict allow names the counters that it
// adds to. Whatever is allowed here counts at once; what other admitters allow
// counts as soon as it comes by the log. It reads the log only while there is a
// policy with a limit.
type rates struct {
	s       *service
	current atomic.Pointer[tally] // complete; nil while nothing is known

	mu      sync.Mutex // guards what follows
	ctx     context.Context
	js      jetstream.JetStream
	longest time.Duration // what is read back, or is being read
	end     func()        // ends the reading under way; nil if there is none
	ready   chan struct{} // closed when it is complete for the first time
}

func newRates(s *service) *rates { return &rates{s: s} }

// start implements part.
func (r *rates) start(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	r.mu.Lock()
	r.ctx, r.js = ctx, js
	r.mu.Unlock()
	if snap := r.s.snapshot.Load(); snap != nil {
		err = r.await(ctx, r.need(snap.Policies))
	}
	return r.drop, err
}

func (r *rates) await(ctx context.Context, ready <-chan struct{}) error {
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

// fill implements part.
func (r *rates) fill(_ admission.Request, in *admission.Inputs) {
	if l := r.current.Load(); l != nil {
		in.Counters = l
	}
}

// take implements part. A limit that others have used up meanwhile has the
// decision made again.
func (r *rates) take(_ context.Context, _ admission.Request, out *admission.Outcome) (taken, error) {
	if len(out.Takes.Counts) == 0 {
		return taken{}, nil
	}
	id := out.Decision.DecisionID
	l := r.current.Load()
	if l == nil || !l.take(id, out.Takes.Counts, out.Decision.DecidedAt.Time) {
		return taken{}, errAgain
	}
	return taken{giveBack: func(context.Context) {
		if l := r.current.Load(); l != nil { // it may be another one that has inherited it
			l.giveBack(id)
		}
	}}, nil
}

// prepare reads what a set's limits count before the set is in force, so that
// it need not deny meanwhile.
func (r *rates) prepare(ctx context.Context, set *policy.Set) {
	ctx, cancel := context.WithTimeout(ctx, rereadPatience)
	defer cancel()
	if err := r.await(ctx, r.need(set)); err != nil {
		r.s.env.Log.Warn().Err(err).Msg("policies with limits deny what they limit until the log is read back")
	}
}

// prepared ends the reading if the set that is in force now has no limits.
func (r *rates) prepared(set *policy.Set) {
	if _, any := set.Limits(); !any {
		r.drop()
	}
}

// need begins to read as far back as a set wants, unless that is done or under
// way. The channel is closed when everything is read; nil if there is nothing to
// wait for.
func (r *rates) need(set *policy.Set) <-chan struct{} {
	longest, any := set.Limits()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !any || r.js == nil:
		return nil
	case r.end != nil && longest <= r.longest:
		return r.ready
	}
	before := r.end
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{})
	ready := make(chan struct{})
	go func() {
		defer close(done)
		r.read(ctx, longest, func() {
			close(ready)
			if before != nil {
				before()
			}
		})
	}()
	r.longest, r.ready = longest, ready
	r.end = func() {
		cancel()
		<-done
		if before != nil {
			before()
		}
	}
	return ready
}

// drop ends the reading and forgets everything.
func (r *rates) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		r.end()
	}
	r.end, r.longest, r.ready = nil, 0, nil
	r.current.Store(nil)
}

// read follows the log until ctx ends, and starts over when it cannot go on.
// caughtUp is called once.
func (r *rates) read(ctx context.Context, longest time.Duration, caughtUp func()) {
	for {
		l, complete := newTally(), false
		err := streams.ReadLog(ctx, r.js, streams.ReadOptions{
			Stream: r.s.flags.Stream, Filter: []string{r.allows()}, Log: r.s.env.Log, Stalled: r.s.env.Metrics.ReaderStalled,
			Since: time.Now().Add(-longest - longest/windowSlots - rereadSlack),
			Idle: func() error {
				if complete {
					return nil
				}
				complete = true
				if old := r.current.Load(); old != nil {
					l.inherit(old)
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
		case <-time.After(rereadAgain):
		}
	}
}

// allows are the subjects of decisions that count.
func (r *rates) allows() string {
	return strings.TrimSuffix(r.s.space.All(subject.Decisions), ">") + "*." + string(events.Allow) + ".>"
}

// marker is in every record that has counts.
var marker = []byte(`"counts":[`)

func observeAll(l *tally, batch []events.LogMessage) {
	for _, m := range batch {
		if !bytes.Contains(m.Body, marker) {
			continue
		}
		d, err := events.DecodeRecord[events.Decision](m.Body)
		if err == nil && d.Verdict == events.Allow {
			l.observe(d, m.Time, time.Now())
		}
	}
}
