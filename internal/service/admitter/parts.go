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
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// part is one kind of records, beside the policies, that decisions rest on:
// mandates and money, approvals, confirmations, counters, publishers. It keeps a
// view of its bucket in memory to decide from, and changes the bucket by
// compare-and-set when a verdict takes something.
type part interface {
	// start reads what there is and follows it until ctx ends. When it returns
	// without error the view is complete. stop returns when nothing runs any more.
	start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error)

	// fill puts what is known into the inputs of one decision. It does no I/O and
	// costs next to nothing for a request that does not need it.
	fill(req admission.Request, in *admission.Inputs)

	// take takes from the store what the outcome takes of this part, nothing for
	// most. errAgain says that somebody else was faster: the decision is made
	// again, from a view that has what they did. Any other error is a deny.
	take(ctx context.Context, req admission.Request, out *admission.Outcome) (taken, error)
}

// taken is the result of take.
type taken struct {
	// msgs go to the log with the decision, after it.
	msgs []streams.Msg
	// giveBack undoes it when the decision could not be recorded for certain; nil
	// if nothing needs to be undone. A crash before it must deny, never allow: what
	// is taken stays taken.
	giveBack func(context.Context)
}

var (
	errAgain    = errors.New("somebody else took it first")
	errNoInputs = errors.New("no randomness")
)

// maxAttempts is how often a decision is made again because somebody else took
// what it rests on.
const maxAttempts = 8

// newParts lists all parts, in the order in which they take.
func (s *service) newParts() []part {
	return []part{
		s.rates, newConfirmations(s), newApprovals(s), newMandates(s), newSpendLedger(s), newPublishers(s)}
}

func (s *service) startParts(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range slices.Backward(stops) {
			f()
		}
	}
	for _, p := range s.newParts() {
		f, err := p.start(ctx, nc, js)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, f)
		s.parts = append(s.parts, p)
	}
	return stop, nil
}

// decide decides one request, takes what the verdict takes and records it. The
// outcome is set with an error, too.
func (s *service) decide(ctx context.Context, req admission.Request, known bool) (out admission.Outcome, a answer, err error) {
	// A stop must not tear a record apart from its answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.flags.Timeout)
	defer cancel()
	defer s.progress.begin()()
	// Half of the time is for the record.
	evaluating, cancelEvaluating := context.WithTimeout(ctx, s.flags.Timeout/2)
	defer cancelEvaluating()
	held := s.heldKey
	for range maxAttempts {
		in, err := s.inputs(req, known)
		if err != nil {
			return out, a, fmt.Errorf("%w: %w", errNoInputs, err)
		}
		in.SessionKey, in.Context = held, evaluating
		for _, p := range s.parts {
			p.fill(req, &in)
		}
		err = s.memory.evaluate(evaluating, func() { out = admission.Decide(req, s.snapshot.Load(), in) })
		if err == nil && out.Expired {
			err = errExpired
		}
		if err != nil {
			return out, a, err
		}
		if !s.progress.settled() { // after what was decided by was read: a change says so before it takes effect
			return out, a, errNotInLog
		}
		if session, wants := out.Wants(); wants {
			if held, err = s.fetchKey(ctx, sessionsecrets.Named(req.Tenant, session)); err != nil {
				return out, a, err
			}
			continue
		}
		s.metrics.Decided(in.Now)
		msgs, giveBack, err := s.take(ctx, req, &out)
		if errors.Is(err, errAgain) {
			continue
		}
		if err == nil {
			begun := time.Now()
			a, err = s.record(ctx, req, &out, msgs)
			s.metrics.Recorded(begun)
		}
		if errors.Is(err, streams.ErrTooLarge) { // nothing is stored, so nothing is taken
			giveBack(context.WithoutCancel(ctx))
			small := withheld(req, out.Decision)
			out.TooLarge(in, small.Body)
			a, err = s.record(ctx, small, &out, nil)
		}
		// In doubt the record may be in the log, and what it took is taken.
		if err != nil && !errors.Is(err, streams.ErrDoubt) {
			giveBack(context.WithoutCancel(ctx))
		}
		return out, a, err
	}
	return out, a, errAgain
}

// take lets every part take. giveBack undoes all that was taken.
func (s *service) take(ctx context.Context, req admission.Request, out *admission.Outcome) (msgs []streams.Msg, giveBack func(context.Context), err error) {
	var undo []func(context.Context)
	giveBack = func(ctx context.Context) {
		for _, f := range slices.Backward(undo) {
			f(ctx)
		}
		undo = nil
	}
	for _, p := range s.parts {
		t, err := p.take(ctx, req, out)
		if err != nil {
			giveBack(context.WithoutCancel(ctx))
			return nil, giveBack, err
		}
		msgs = append(msgs, t.msgs...)
		if t.giveBack != nil {
			undo = append(undo, t.giveBack)
		}
	}
	return msgs, giveBack, nil
}

// failureCode is the reason of the deny that answers instead of a decision that
// could not be recorded.
func failureCode(err error) string {
	switch {
	case errors.Is(err, errNoInputs):
		return admission.CodeInternal
	case errors.Is(err, errExpired):
		return policy.CodePolicyDeadline
	}
	return admission.CodeAuditUnavailable
}
