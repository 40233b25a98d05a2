package admitter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/internal/service/admitter/shares"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// stateStore is one kind of state, beside the policies, that decisions depend on: mandates,
// money, approvals, confirmations, counters, publishers. It decides from a view of its bucket in
// memory, and changes the bucket by compare-and-set when a verdict uses something up.
type stateStore interface {
	// start reads the current state and follows it until ctx ends. The view is complete when it
	// returns nil. stop returns when none of its goroutines runs any more.
	start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error)

	// load puts the known state into the inputs of one decision. It does no I/O and costs next to
	// nothing for a request that does not need it.
	load(req admission.Request, in *admission.Inputs)

	// reserve takes from the store what the outcome uses up, for most outcomes nothing.
	// errConflict means that another process changed the state first: the decision is made again
	// from a view with that change. Any other error is a deny.
	reserve(ctx context.Context, req admission.Request, out *admission.Outcome) (reservation, error)
}

// reservation is the result of stateStore.reserve.
type reservation struct {
	// msgs are appended to the log with the decision, after it.
	msgs []streams.Msg
	// release undoes the reservation if the decision was certainly not recorded; nil if there is
	// nothing to undo. A crash before it must deny, never allow: what was taken stays taken.
	release func(context.Context)
}

var (
	errConflict = errors.New("another caller took it first")
	errNoInputs = errors.New("no randomness")
)

// maxAttempts is how often a decision is made again because another process changed the state
// that it depends on.
const maxAttempts = 8

// newStores lists all stores in the order in which they start and reserve. Who may answer a confirmation must be known
// before the confirmations are read.
func (s *service) newStores() []stateStore {
	return []stateStore{
		s.publishers, s.rates, newConfirmationStore(s), newApprovalStore(s), newMandateStore(s), newSpendLedger(s)}
}

func (s *service) startStores(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range slices.Backward(stops) {
			f()
		}
	}
	for _, store := range s.newStores() {
		f, err := store.start(ctx, nc, js)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, f)
		s.stores = append(s.stores, store)
	}
	return stop, nil
}

// decide decides one request, reserves what the verdict uses up and records it. The outcome is
// also set if an error is returned.
func (s *service) decide(ctx context.Context, req admission.Request, ofTenant bool) (out admission.Outcome, a recordedAnswer, err error) {
	// A shutdown must not separate a record from its answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.flags.Timeout)
	defer cancel()
	defer s.progress.beginDecision()()
	// The other half of the time is for the record.
	evaluating, cancelEvaluating := context.WithTimeout(ctx, s.flags.Timeout/2)
	defer cancelEvaluating()
	held := s.secrets.lookup()
	for range maxAttempts {
		in, err := s.drawInputs(req, ofTenant)
		if err != nil {
			return out, a, fmt.Errorf("%w: %w", errNoInputs, err)
		}
		in.SessionSecret, in.Context = held, evaluating
		for _, store := range s.stores {
			store.load(req, &in)
		}
		err = s.memory.runEvaluation(evaluating, shares.Caller{Tenant: req.Tenant, User: req.Source}, func() { out = admission.Decide(req, s.config.Load(), in) })
		if err == nil && out.DeadlineExceeded {
			err = errDeadlineExceeded
		}
		if err != nil {
			return out, a, err
		}
		if !s.progress.canRecord() { // checked after the views were read: a change is counted before it takes effect
			return out, a, errNotInLog
		}
		if session, wants := out.NeedsSessionSecret(); wants {
			if held, err = s.secrets.fetch(ctx, sessionsecrets.SessionOfName(req.Tenant, session)); err != nil {
				return out, a, err
			}
			continue
		}
		s.metrics.Decided(in.Now)
		msgs, release, err := s.reserveAll(ctx, req, &out)
		if errors.Is(err, errConflict) {
			continue
		}
		if err == nil {
			begun := time.Now()
			a, err = s.recordDecision(ctx, req, &out, msgs)
			s.metrics.Recorded(begun)
		}
		if errors.Is(err, streams.ErrTooLarge) { // nothing is stored, so nothing is used up
			release(context.WithoutCancel(ctx))
			small := withheldRequest(req, out.Decision)
			out.RefuseTooLarge(in, small.Body)
			a, err = s.recordDecision(ctx, small, &out, nil)
		}
		// In doubt the record may be in the log, so what it used stays taken.
		if err != nil && !errors.Is(err, streams.ErrAmbiguous) {
			release(context.WithoutCancel(ctx))
		}
		return out, a, err
	}
	return out, a, errConflict
}

// reserveAll calls reserve of every store. release undoes all reservations.
func (s *service) reserveAll(ctx context.Context, req admission.Request, out *admission.Outcome) (msgs []streams.Msg, release func(context.Context), err error) {
	var undo []func(context.Context)
	release = func(ctx context.Context) {
		for _, f := range slices.Backward(undo) {
			f(ctx)
		}
		undo = nil
	}
	for _, store := range s.stores {
		reserved, err := store.reserve(ctx, req, out)
		if err != nil {
			release(context.WithoutCancel(ctx))
			return nil, release, err
		}
		msgs = append(msgs, reserved.msgs...)
		if reserved.release != nil {
			undo = append(undo, reserved.release)
		}
	}
	return msgs, release, nil
}

// failureCode is the reason code of the deny that replaces a decision which could not be
// recorded.
func failureCode(err error) string {
	switch {
	case errors.Is(err, errNoInputs):
		return admission.CodeInternal
	case errors.Is(err, errDeadlineExceeded):
		return policy.CodePolicyDeadline
	}
	return admission.CodeAuditUnavailable
}
