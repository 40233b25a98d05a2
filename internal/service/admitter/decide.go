package admitter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/streams"
)

// decide decides one request, reserves what the verdict uses up and records it. If another caller
// changes the state that it depends on, it is made again while there is time: of many calls that
// wait for one workflow, one joins it at a time. The outcome is also set if an error is returned.
func (s *service) decide(ctx context.Context, req admission.Request, ofTenant bool) (out admission.Outcome, a recordedAnswer, err error) {
	// A shutdown must not separate a record from its answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.flags.Timeout)
	defer cancel()
	endDecision := s.progress.beginDecision()
	defer endDecision()
	// The other half of the time is for the record.
	evaluating, cancelEvaluating := context.WithTimeout(ctx, s.flags.Timeout/2)
	defer cancelEvaluating()
	held := s.secrets.lookup()
	for pauses := retry.New(conflictMin, conflictMax); ; {
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
			if pauses.Wait(evaluating) != nil {
				return out, a, errConflict
			}
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
}

// failureCode is the reason code of the deny that replaces a decision which could not be
// recorded.
func failureCode(err error) string {
	switch {
	case errors.Is(err, errNoInputs):
		return admission.CodeInternal
	case errors.Is(err, errDeadlineExceeded):
		return policy.CodePolicyDeadline
	case errors.Is(err, errConflict):
		return codeOverloaded
	}
	return admission.CodeAuditUnavailable
}
