package correlator

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/lease"
	"github.com/countersign-dev/countersign/events"
)

// restore reads the last cursor: everything up to it has been put out.
func (w *worker) restore(ctx context.Context) error {
	m, err := w.lastCursor(ctx)
	if err != nil || m == nil {
		return err
	}
	if err := w.follow(*m); err != nil {
		return err
	}
	w.env.Log.Info().Uint64("consumed", w.cursor.Consumed).Msg("resuming")
	return nil
}

// follow takes a cursor from the log: what it covers need not be kept.
func (w *worker) follow(m events.LogMessage) error {
	if m.Seq <= w.cursorSeq {
		return nil
	}
	c, err := events.DecodeRecord[events.Cursor](m.Body)
	if err != nil {
		return fmt.Errorf("the cursor at sequence %d is damaged: %w", m.Seq, err)
	}
	w.cursor, w.cursorSeq = c, m.Seq
	n := 0
	for n < len(w.pending) && covers(c, w.pending[n]) {
		n++
	}
	w.drop(n)
	return nil
}

func covers(c events.Cursor, p pending) bool {
	return p.seq <= c.Consumed || p.seq == c.Consumed+1 && p.n < c.Partial
}

// drop forgets the first n outputs that wait.
func (w *worker) drop(n int) {
	kept := copy(w.pending, w.pending[n:])
	clear(w.pending[kept:])
	w.pending = w.pending[:kept]
}

// promote makes this instance the active one: it learns how far its predecessor
// came and writes what that has not.
func (w *worker) promote(ctx context.Context, l *lease.Lease) error {
	w.lease = l
	m, err := w.lastCursor(ctx)
	if err == nil && m != nil {
		err = w.follow(*m)
	}
	if err != nil {
		return err
	}
	w.role = daemon.RoleActive
	w.env.Log.Info().Uint64("consumed", w.cursor.Consumed).Uint64("head", w.head).Int("outputs", len(w.pending)).Msg("taking over")
	return nil
}

// lookAtCursor is for a standby that has as many outputs as it keeps.
func (w *worker) lookAtCursor(ctx context.Context) error {
	if w.role == daemon.RoleActive || !w.full() {
		return nil
	}
	m, err := w.lastCursor(ctx)
	if err != nil {
		w.env.Log.Warn().Err(err).Msg("waiting for the active instance")
		return nil
	}
	if m == nil {
		return nil
	}
	return w.follow(*m)
}
