// Package correlator is the shell around the correlation core: it reads the
// log in order, writes what the core puts out together with its position in one
// atomic batch, and lets time pass on an idle shard.
//
// Exactly once: the core is deterministic, so after a crash the shell replays
// the log from its beginning, drops the outputs that the last cursor covers and
// goes on. The cursor's subject is the fence: two correlators on one shard
// cannot both write.
package correlator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/keys"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/streams"
)

const (
	tickEvery  = time.Second      // how often an idle shard is looked at
	tickAgain  = 30 * time.Second // until a tick is repeated that came before its time by the broker's clock
	maxOutputs = 900              // outputs of one atomic batch; the server takes 1000 messages
	maxBytes   = 8 << 20          // of those outputs together; the server takes 32 MiB
	readBatch  = 2000
)

// Flags configure the service.
type Flags struct {
	daemon.Flags
	CheckpointKey string        `help:"Public checkpoint key, which vouches for the admitter's keys (default: read from checkpoint.pub in --keys)." env:"COUNTERSIGN_PUBLIC_KEY"`
	MissingAfter  time.Duration `help:"An open call counts as abandoned after this. Change it only when no call is open: what was found before is found again from the log." env:"COUNTERSIGN_MISSING_AFTER" default:"15m"`
	NoVerdictOK   bool          `help:"Do not report executions that nobody asked admission for." env:"COUNTERSIGN_NO_VERDICT_OK"`
}

// Main is the service's main function; it returns the exit code.
func Main(args []string) int {
	var f Flags
	return daemon.Main("correlator", "Links what was admitted with what ran, and finds every broken rule.", args, &f, &f.Flags,
		func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// Run correlates the shard until ctx ends or another correlator takes over. It
// outlives a server that goes away and comes back.
func Run(ctx context.Context, f Flags, env daemon.Env) error {
	if f.MissingAfter <= 0 {
		return errors.New("--missing-after must be above zero")
	}
	master, err := keys.Master(f.Keys)
	if err != nil {
		return err
	}
	voucher, err := keys.CheckpointVerifier(f.Keys, f.CheckpointKey)
	if err != nil {
		return err
	}
	nc, release, err := f.Connect(ctx, "correlator", env, nil)
	if err != nil {
		return err
	}
	defer release()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	core := correlation.New(correlation.Options{
		Shard:          f.Stream,
		Space:          f.Space(),
		TenantKey:      master.Tenant,
		KeyVoucher:     func(k events.KeyRecord) bool { return evidence.CheckVouch(note.VerifierList(voucher), k) },
		RetireVoucher:  func(k events.KeyRetirement) bool { return signing.CheckRetirement(note.VerifierList(voucher), k) },
		RequireVerdict: !f.NoVerdictOK,
		MissingAfter:   f.MissingAfter,
	})
	// Two processes may have the same id, each in its container: a writer's name
	// must be its own.
	w := &worker{flags: f, env: env, nc: nc, js: js, core: core, writer: "correlator-" + rand.Text()}
	return w.run(ctx)
}

// worker owns the core; only its own goroutine touches it.
type worker struct {
	flags  Flags
	env    daemon.Env
	nc     *nats.Conn
	js     jetstream.JetStream
	core   *correlation.Correlator
	writer string

	cursor    events.Cursor // as last written
	cursorSeq uint64        // its sequence in the log: the fence
	skip      int           // outputs of the next message that are in the log already
	pending   []streams.Msg // outputs not yet written
	bytes     int           // their size
	head      uint64        // last message applied
	lastTime  time.Time     // its broker time
	caughtUp  bool
	ticked    time.Time // the deadline of the last tick
	tickedAt  time.Time // when it was written
	rules     ruleSource
}

func (w *worker) run(ctx context.Context) error {
	if err := w.restore(ctx); err != nil {
		return err
	}
	return streams.ReadLog(ctx, w.js, streams.ReadOptions{
		Stream: w.flags.Stream, From: 1, MaxBatch: readBatch, Log: w.env.Log,
		Idle: func() error { return w.idle(ctx) }, IdleEvery: tickEvery,
	}, func(batch []events.LogMessage) error {
		for _, m := range batch {
			if err := w.apply(ctx, m); err != nil {
				return err
			}
		}
		return w.flush(ctx, w.head, 0)
	})
}

// restore reads the last cursor: everything up to it has been put out.
func (w *worker) restore(ctx context.Context) error {
	m, err := w.lastCursor(ctx)
	if err != nil || m == nil {
		return err
	}
	if w.cursor, err = events.DecodeRecord[events.Cursor](m.Body); err != nil {
		return fmt.Errorf("the cursor at sequence %d is damaged: %w", m.Seq, err)
	}
	w.cursorSeq = m.Seq
	w.env.Log.Info().Uint64("consumed", w.cursor.Consumed).Msg("resuming")
	return nil
}

// idle is called when the backlog is done and then every tickEvery while
// nothing comes.
func (w *worker) idle(ctx context.Context) error {
	if !w.caughtUp {
		w.caughtUp = true
		if err := w.env.Ready(); err != nil {
			return err
		}
	}
	now := time.Now()
	w.switchRules(ctx, now)
	if err := w.tick(ctx, now); err != nil {
		w.env.Log.Warn().Err(err).Msg("a tick could not be written; it will be tried again")
	}
	return nil
}

// apply feeds one message to the core and queues what is new of its outputs.
func (w *worker) apply(ctx context.Context, m events.LogMessage) error {
	outs := w.core.Apply(m)
	w.head, w.lastTime = m.Seq, m.Time
	switch {
	case m.Seq <= w.cursor.Consumed:
		return nil
	case m.Seq == w.cursor.Consumed+1:
		done := min(w.cursor.Partial, len(outs))
		outs, w.skip = outs[done:], done
	default:
		w.skip = 0
	}
	for i, o := range outs {
		msg := message(o, w.flags.Stream, m.Time)
		if len(w.pending) == maxOutputs || len(w.pending) > 0 && w.bytes+len(msg.Body) > maxBytes {
			if err := w.flush(ctx, m.Seq-1, w.skip+i); err != nil {
				return err
			}
		}
		w.pending, w.bytes = append(w.pending, msg), w.bytes+len(msg.Body)
	}
	return nil
}

// tick writes a tick record when a deadline has passed and nothing happens on
// the log that would let its time pass.
func (w *worker) tick(ctx context.Context, now time.Time) error {
	due, open := w.core.NextDeadline()
	switch {
	case !open || now.Before(due) || !w.core.Stats().LogTime.Before(due):
		return nil
	case due.Equal(w.ticked) && now.Sub(w.tickedAt) < tickAgain:
		return nil // it is written, and the broker's clock is behind this one
	}
	subj := w.flags.Space().Control(w.flags.Stream, events.ControlTick)
	body, err := events.Encode(events.Tick{Shard: w.flags.Stream, Due: events.At(due)})
	if err != nil {
		return err
	}
	msg := control(subj, events.ControlTick, w.flags.Stream, "tick-"+events.At(due).String(), body, now)
	if err := streams.PublishEvents(ctx, w.nc, []streams.Msg{msg}); err != nil {
		return err
	}
	w.ticked, w.tickedAt = due, now
	return nil
}
