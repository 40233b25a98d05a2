package admitter

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
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

// The pauses while another write of a key is under way in a replicated bucket.
const (
	conflictMin = time.Millisecond
	conflictMax = 50 * time.Millisecond
)

var (
	errConflict = errors.New("another caller took it first")
	errNoInputs = errors.New("no randomness")
)

// newStores lists all stores in the order in which they start and reserve. The confirmations are
// read after the publishers, which say whose answers count.
func (s *service) newStores() []stateStore {
	s.approvals, s.mandates = newApprovalStore(s), newMandateStore(s)
	return []stateStore{s.publishers, s.rates, newConfirmationStore(s), s.approvals, s.mandates, newSpendLedger(s)}
}

func (s *service) startStores(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	var starts []starter
	for _, store := range s.newStores() {
		starts = append(starts, func() (func(), error) {
			s.stores = append(s.stores, store)
			return store.start(ctx, nc, js)
		})
	}
	return startAll(starts...)
}

// starter starts a part of the service.
type starter func() (stop func(), err error)

// startAll starts parts in their order. stop ends them in the reverse order. If one fails, it ends those before it.
func startAll(starts ...starter) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range slices.Backward(stops) {
			f()
		}
	}
	for _, start := range starts {
		f, err := start()
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, f)
	}
	return stop, nil
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
