package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/streams"
)

// begin makes an order irrevocable, unless something speaks against it.
func (c *custodian) begin(ctx context.Context, ev erasures.Evidence, key string, o retention.Order) (why string, err error) {
	if why, err := c.sealed(ctx); why != "" || err != nil {
		return why, err
	}
	p, err := ev.Make(ctx, o)
	switch {
	case errors.Is(err, erasures.ErrNothing), errors.Is(err, erasures.ErrTooMany), errors.Is(err, erasures.ErrNotLoose):
		return err.Error(), nil
	case err != nil:
		return "", err
	}
	if err := p.Quiet(c.now(), time.Duration(o.Quiet)*time.Second); err != nil {
		return err.Error(), nil
	}
	return c.beginUnheld(ctx, ev, key, o, p)
}

// beginUnheld begins an order unless a hold of the revision that it replaces reaches
// what is planned.
func (c *custodian) beginUnheld(ctx context.Context, ev erasures.Evidence, key string, o retention.Order, p erasures.Plan) (why string, err error) {
	err = c.change(ctx, key, func(s retention.State) (retention.State, error) {
		hold, err := ev.Blocking(ctx, s, p, o.Subject)
		if err != nil {
			return s, err
		}
		if hold != nil {
			return s, &retention.HeldError{Hold: *hold}
		}
		return s.Begin(o.ID, time.Now())
	})
	if errors.Is(err, retention.ErrHeld) {
		return err.Error(), nil
	}
	return "", err
}

// sealed says which streams nothing can be taken out of.
func (c *custodian) sealed(ctx context.Context) (why string, err error) {
	for _, name := range append(streams.Erasable(), c.a.flags.Stream) {
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
