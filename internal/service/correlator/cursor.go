package correlator

import (
	"cmp"
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/lease"
)

// restoreCursor reads the last cursor: all outputs up to it have been written.
func (w *worker) restoreCursor(ctx context.Context) error {
	m, err := w.lastCursor(ctx)
	if err != nil || m == nil {
		return err
	}
	if err := w.applyCursor(*m); err != nil {
		return err
	}
	w.env.Log.Info().Uint64("consumed", w.cursor.Consumed).Msg("resuming")
	return nil
}

// applyCursor applies a cursor of the log: the outputs that it covers need not be kept.
func (w *worker) applyCursor(m events.LogMessage) error {
	if m.Seq <= w.cursorSeq {
		return nil
	}
	c, err := events.DecodeRecord[events.Cursor](m.Body)
	if err != nil {
		return fmt.Errorf("the cursor at sequence %d is damaged: %w", m.Seq, err)
	}
	w.cursor, w.cursorSeq = c, m.Seq
	w.compareSettings(m)
	n := 0
	for n < len(w.pending) && isCovered(c, w.pending[n]) {
		n++
	}
	w.dropOutputs(n)
	return nil
}

// settingsText lists the settings that influence findings.
func (f Flags) settingsText() string {
	return fmt.Sprintf("--missing-after=%s --max-calls=%d --max-sessions=%d --no-verdict-ok=%t",
		f.MissingAfter, cmp.Or(f.MaxCalls, correlation.DefaultMaxCalls), cmp.Or(f.MaxSessions, correlation.DefaultMaxSessions), f.NoVerdictOK)
}

// compareSettings warns, once for each different settings, of a cursor with a writer that computes
// other findings from the same log. After a takeover, findings that only the other settings
// produce are lost or missing.
func (w *worker) compareSettings(m events.LogMessage) {
	theirs, ours := m.HeaderValue(events.HeaderSettings), w.flags.settingsText()
	if theirs == "" || theirs == ours || theirs == w.warnedOf {
		return
	}
	w.warnedOf = theirs
	w.env.Log.Warn().Uint64("cursor", m.Seq).Str("theirs", theirs).Str("ours", ours).
		Msg("the correlator that wrote so far finds under other settings; give every instance of a shard the same ones")
}

func isCovered(c events.Cursor, p pendingOutput) bool {
	return p.seq <= c.Consumed || p.seq == c.Consumed+1 && p.n < c.Partial
}

// dropOutputs drops the first n pending outputs.
func (w *worker) dropOutputs(n int) {
	kept := copy(w.pending, w.pending[n:])
	clear(w.pending[kept:])
	w.pending = w.pending[:kept]
}

// becomeActive makes this instance the active one: it reads its predecessor's cursor and writes
// the outputs that the cursor does not cover.
func (w *worker) becomeActive(ctx context.Context, l *lease.Lease) error {
	w.lease = l
	m, err := w.lastCursor(ctx)
	if err == nil && m != nil {
		err = w.applyCursor(*m)
	}
	if err != nil {
		return err
	}
	w.role = daemon.RoleActive
	w.env.Log.Info().Uint64("consumed", w.cursor.Consumed).Uint64("head", w.head).Int("outputs", len(w.pending)).Msg("taking over")
	return nil
}

// refreshCursor reads the cursor on a standby with pending outputs at the limit.
func (w *worker) refreshCursor(ctx context.Context) error {
	if w.role == daemon.RoleActive || !w.isFull() {
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
	return w.applyCursor(*m)
}
