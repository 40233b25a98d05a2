package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/streams"
)

// beginOrder makes an order irrevocable, unless something speaks against it.
func (c *custodian) beginOrder(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order) (why string, err error) {
	if why, err := c.sealedStreams(ctx); why != "" || err != nil {
		return why, err
	}
	p, err := ev.NewPlan(ctx, o)
	switch {
	case errors.Is(err, erasureplan.ErrNothing), errors.Is(err, erasureplan.ErrTooMany), errors.Is(err, erasureplan.ErrHasSession):
		return err.Error(), nil
	case err != nil:
		return "", err
	}
	if err := p.CheckIdle(c.policyTime(), time.Duration(o.IdleSeconds)*time.Second); err != nil {
		return err.Error(), nil
	}
	return c.beginUnheld(ctx, ev, key, o, p)
}

// beginUnheld begins an order unless a hold of the revision that it replaces reaches
// what is planned.
func (c *custodian) beginUnheld(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order, p erasureplan.Plan) (why string, err error) {
	err = c.changeState(ctx, key, func(s retention.State) (retention.State, error) {
		hold, err := ev.BlockingHold(ctx, s, p, o.Subject)
		if err != nil {
			return s, err
		}
		if hold != nil {
			return s, &retention.HeldError{Hold: *hold}
		}
		return s.BeginOrder(o.ID, time.Now())
	})
	if errors.Is(err, retention.ErrHeld) {
		return err.Error(), nil
	}
	return "", err
}

// sealedStreams says which streams nothing can be taken out of.
func (c *custodian) sealedStreams(ctx context.Context) (why string, err error) {
	for _, name := range append(streams.ErasableStreams(), c.a.flags.Stream) {
		s, err := c.js.Stream(ctx, name)
		if err != nil {
			return "", fmt.Errorf("reading stream %s: %w", name, err)
		}
		if s.CachedInfo().Config.DenyDelete {
			return fmt.Sprintf("%s: %s was made before there was erasure, and the server does not let that be changed (docs/retention.md, Logs from before)", streams.ErrSealed, name), nil
		}
	}
	return "", nil
}
