package admitter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/cmd/internal/policyset"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/streams"
)

const (
	// settle is how long a burst of policy changes may take before the set is
	// compiled: several documents that are put one by one are one change. A push is
	// one value anyway.
	settle = 50 * time.Millisecond
	// recordAgain is how often a change that could not be recorded is tried again.
	recordAgain = time.Second
	// openTimeout is how long reading the whole bucket may take.
	openTimeout = 10 * time.Second
)

// policyWatch follows the policies bucket. One goroutine uses it.
type policyWatch struct {
	s          *service
	held       policyset.Holding
	opened     bool                  // held is what the bucket holds
	unrecorded []events.PolicyChange // changes that are not in the log yet, oldest first
	kv         jetstream.KeyValue
	watcher    jetstream.KeyWatcher
	updates    <-chan jetstream.KeyValueEntry // the watcher's; nil once it has ended
}

// watchPolicies compiles what the policies bucket holds now, before it returns,
// and again whenever it changes. A set that does not compile denies everything
// until it is mended: keeping the old one would decide by rules that somebody
// has just taken back.
func (s *service) watchPolicies(ctx context.Context, js jetstream.JetStream) (stop func(), err error) {
	kv, err := js.KeyValue(ctx, streams.BucketPolicies)
	if err != nil {
		return nil, fmt.Errorf("opening the policies bucket (run `countersign provision` first): %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &policyWatch{s: s, kv: kv}
	if err := w.open(ctx); err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.follow(ctx)
		_ = w.watcher.Stop()
	}()
	return func() { cancel(); <-done }, nil
}

// open reads everything that is in the bucket, makes it what decides, and
// watches from there on.
func (w *policyWatch) open(ctx context.Context) error {
	watcher, err := w.kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watching the policies: %w", err)
	}
	var held policyset.Holding
	timeout := time.After(openTimeout)
	for {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), watcher.Stop())
		case <-timeout:
			return errors.Join(errors.New("reading the policies: the bucket does not answer"), watcher.Stop())
		case e, open := <-watcher.Updates():
			switch {
			case !open:
				return errors.New("reading the policies: the watch ended")
			case e != nil:
				take(&held, e)
				continue
			}
			if w.watcher != nil {
				_ = w.watcher.Stop()
			}
			changed := !w.opened || !held.Same(&w.held)
			w.watcher, w.updates, w.held, w.opened = watcher, watcher.Updates(), held, true
			if changed {
				w.load(ctx)
			}
			return nil
		}
	}
}

// follow takes changes until ctx ends. After a lost connection it reads the
// bucket again: the watch itself would find out only much later what it missed.
func (w *policyWatch) follow(ctx context.Context) {
	again := time.NewTicker(recordAgain)
	defer again.Stop()
	var burst <-chan time.Time // while a burst is under way
	stale := false
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-w.updates:
			if !open {
				w.updates, stale = nil, true
			}
			if e == nil {
				continue
			}
			take(&w.held, e)
			if burst == nil {
				burst = time.After(settle)
			}
		case <-burst:
			burst = nil
			w.load(ctx)
		case <-w.s.reread:
			stale = w.reopen(ctx)
		case <-again.C:
			w.record(ctx)
			if stale {
				stale = w.reopen(ctx)
			}
		}
	}
}

// reopen reports whether what decides may be out of date.
func (w *policyWatch) reopen(ctx context.Context) (stale bool) {
	err := w.open(ctx)
	if err == nil {
		w.s.env.Health.Set("policy_watch", "")
		return false
	}
	if ctx.Err() == nil {
		w.s.env.Log.Error().Err(err).Msg("the policies could not be read again yet")
		w.s.env.Health.Set("policy_watch", "the policies in force may be out of date: "+err.Error())
	}
	return true
}

func take(held *policyset.Holding, e jetstream.KeyValueEntry) {
	if e.Operation() == jetstream.KeyValuePut {
		held.Put(e.Key(), e.Value(), e.Revision())
	} else {
		held.Delete(e.Key(), e.Revision())
	}
}

// load compiles the documents, records the change and swaps the snapshot, in
// this order: what decides is in the log before its first decision. A change that
// cannot be recorded takes effect all the same, and is recorded as soon as the
// log takes it; no decision can be recorded meanwhile either.
func (w *policyWatch) load(ctx context.Context) {
	var set *policy.Set
	list, err := w.held.Documents()
	if err == nil {
		set, err = policy.Compile(list)
	}
	w.unrecorded = append(w.unrecorded, w.change(list, set, err))
	w.record(ctx)
	w.s.rates.prepare(ctx, set)
	w.s.snapshot.Store(&admission.Snapshot{Policies: set, PolicyErr: err, Revision: w.held.Revision})
	w.s.metrics.Policies(w.held.Revision, err == nil)
	w.s.rates.prepared(set)
	w.tell(set, err)
}

// tell puts the state of the policies into log and health.
func (w *policyWatch) tell(set *policy.Set, err error) {
	log, health := w.s.env.Log, w.s.env.Health
	switch {
	case errors.Is(err, policy.ErrNoPolicies):
		log.Warn().Msg("there is no policy; every request is denied (push some with: countersign policy push DIR)")
		health.Set("policies", "no policy: every request is denied")
	case err != nil:
		log.Error().Err(err).Uint64("revision", w.held.Revision).Msg("the policies do not compile; every request is denied until they do")
		health.Set("policies", "the policies do not compile, every request is denied: "+err.Error())
	default:
		log.Info().Uint64("revision", w.held.Revision).Int("policies", len(set.Names())).Msg("policies loaded")
		health.Set("policies", "")
	}
}

func (w *policyWatch) change(docs []policy.Document, set *policy.Set, err error) events.PolicyChange {
	c := events.PolicyChange{Writer: fmt.Sprintf("admitter-%d", os.Getpid()), Revision: w.held.Revision, Policies: []events.PolicyRef{},
		Author: w.held.Set.Author, Message: w.held.Set.Message, PushedAt: w.held.Set.PushedAt, RollbackTo: w.held.Set.RollbackTo,
		Documents: policyset.Of(docs)}
	if len(w.held.Mixed()) > 0 { // what decides is not what somebody pushed
		c.Author, c.Message, c.PushedAt, c.RollbackTo = "", "", events.Time{}, 0
	}
	if err != nil {
		c.Error = err.Error()
	}
	if set != nil {
		c.Digest = set.Digest()
		for _, name := range set.Names() {
			c.Policies = append(c.Policies, events.PolicyRef{Name: name, Revision: w.held.Revision, Digest: set.Digest()})
		}
	}
	return c.Bounded()
}

// record writes the changes that are not in the log yet.
func (w *policyWatch) record(ctx context.Context) {
	for len(w.unrecorded) > 0 {
		if err := w.s.logChange(ctx, w.unrecorded[0]); err != nil {
			w.s.env.Log.Error().Err(err).Msg("a change of policy could not be recorded yet")
			w.s.env.Health.Set("policy_log", "a change of policy could not be recorded yet")
			return
		}
		w.unrecorded = w.unrecorded[1:]
	}
	w.s.env.Health.Set("policy_log", "")
}

func (s *service) logChange(ctx context.Context, change events.PolicyChange) error {
	body, err := events.Encode(change)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.flags.Timeout)
	defer cancel()
	_, err = s.committer.Append(ctx, streams.Msg{
		Subject: s.space.Control(s.flags.Stream, events.ControlPolicy),
		Header: cloudevents.Binary(cloudevents.Attributes{
			ID:     fmt.Sprintf("%s-policy-%d-%d", change.Writer, change.Revision, time.Now().UnixNano()),
			Source: "/countersign/" + s.flags.Stream + "/admitter", Type: events.TypeControl, Subject: events.ControlPolicy, Time: time.Now(),
		}),
		Body: body,
	})
	return err
}
