package correlator

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

// handleIdle is called when the backlog is done and then every idleEvery while no message comes.
// Only the active instance writes, and only while no output is pending.
func (w *worker) handleIdle(ctx context.Context, now time.Time) {
	if w.role != daemon.RoleActive || len(w.pending) > 0 {
		return
	}
	if err := w.writeTick(ctx, now); err != nil {
		w.env.Log.Warn().Err(err).Msg("a tick could not be written; it will be tried again")
	}
}

// onBroker is the least time that the broker's clock shows: it may be ahead of this machine's.
func (w *worker) onBroker(now time.Time) time.Time {
	if t := w.last.Time.Add(now.Sub(w.lastApplied)); !w.lastApplied.IsZero() && t.After(now) {
		return t
	}
	return now
}

// writeTick writes a tick record when a deadline has passed and no message of the log has
// advanced the log's time past it.
func (w *worker) writeTick(ctx context.Context, now time.Time) error {
	due, open := w.core.NextDeadline()
	if !open || w.onBroker(now).Before(due) || !w.core.Stats().EventTime.Before(due) {
		return nil
	}
	return w.ticks.write(ctx, due, now)
}

// ticks writes the tick records of a shard.
type ticks struct {
	log       *shardLog
	due       time.Time // deadline of the last tick
	writtenAt time.Time
}

// write writes the tick record of a deadline, unless that was done a short time ago.
func (t *ticks) write(ctx context.Context, due, now time.Time) error {
	if due.Equal(t.due) && now.Sub(t.writtenAt) < tickAgain {
		return nil // already written, and the broker's clock is behind this one
	}
	subj := t.log.flags.Space().Control(t.log.flags.Stream, events.ControlTick)
	body, err := events.Encode(events.Tick{Shard: t.log.flags.Stream, Due: events.At(due)})
	if err != nil {
		return err
	}
	msg := controlMessage(subj, events.ControlTick, t.log.flags.Stream, "tick-"+events.At(due).String(), body, now)
	if err := streams.StoreLinked(ctx, t.log.js, t.log.flags.Stream, msg); err != nil {
		return err
	}
	t.due, t.writtenAt = due, now
	return nil
}
