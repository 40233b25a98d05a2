package correlator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/streams"
)

// errErased reports that messages were erased which this worker's state may hold.
var errErased = errors.New("sessions were erased; they are forgotten by reading the log again")

// erasureState is a worker's knowledge of erasures.
type erasureState struct {
	log     *erasures.Log
	subject string // of the log's erasure records
	// readFrom is the log's last sequence when this worker began to read: it has never seen what
	// was erased before that.
	readFrom uint64
	// owedSeq is the sequence of an erasure record that a cursor must cover, with or without
	// outputs, before anything is erased. After that the erased messages are behind the fence,
	// and no instance needs them to compute outputs.
	owedSeq uint64
	// startOverAt is when the state has to be forgotten; zero if it holds nothing that was erased.
	startOverAt time.Time
	// staggered reports that this state began when an earlier one was due by isDue. An instance beside it that began so,
	// too, is due half a day apart from it.
	staggered bool
}

// startOverWithin is how long what is left of a session may stay in memory after a policy has erased it. A policy
// erases every hour, and on a log of months it takes hours to read it again: so one replay forgets the sessions of a day.
const startOverWithin = 24 * time.Hour

// gapHandler returns the function that explains gaps of the log.
func (s *erasureState) gapHandler(ctx context.Context) func(from, to uint64) error {
	return func(from, to uint64) error { return s.log.Explain(ctx, from, to) }
}

// note handles an input that may be an erasure record. Data erased by a completed erasure
// must be erased here, too: the state and its snapshots hold arguments of calls, and the cache
// holds the sessions' keys. What was ordered is forgotten at once. Of sessions that a policy erases
// the state mostly has names, ids and digests alone, as they were silent for long: that waits.
func (s *erasureState) note(m events.LogMessage, keys sessionSecrets, core *correlation.Correlator) error {
	if m.Subject != s.subject {
		return nil
	}
	e, err := events.DecodeRecord[events.Erasure](m.Body)
	switch {
	case err != nil:
		return nil
	case e.State == events.ErasureBegun:
		s.owedSeq = m.Seq
	case e.State == events.ErasureDone && m.Seq > s.readFrom:
		keys.forgetErased(e)
		if e.Cause == events.CausePolicy && !evidence.MaskedNames(e.Sessions) && !core.RemembersAny(e.Tenant, e.Sessions) {
			if s.startOverAt.IsZero() {
				s.startOverAt = time.Now().Add(startOverWithin)
			}
			return nil
		}
		return fmt.Errorf("%w (erasure %s, sequence %d)", errErased, e.ErasureID, m.Seq)
	}
	return nil
}

// isDue reports whether the state has to be forgotten now. A standby that is due together with the active instance forgets
// it half a day earlier: it has read the log again, and takes over, when the active instance begins to.
func (s *erasureState) isDue(now time.Time, role string) bool {
	at := s.startOverAt
	if role == daemon.RoleStandby && !s.staggered {
		at = at.Add(-startOverWithin / 2)
	}
	return !s.startOverAt.IsZero() && !now.Before(at)
}

// owesCursor reports whether a cursor has to be written although there are no outputs.
func (s *erasureState) owesCursor(consumed, head uint64) bool {
	return consumed < s.owedSeq && head >= s.owedSeq
}

// checkNothingErased returns errSnapshot if something was erased after a snapshot's sequence. What
// was begun before has to be covered by a cursor, whichever instance read of it.
func (s *erasureState) checkNothingErased(ctx context.Context, l *shardLog, seq uint64) error {
	m, err := streams.LastBySubject(ctx, l.js, l.flags.Stream, s.subject)
	switch {
	case err != nil || m == nil:
		return err
	case m.Seq > seq:
		return fmt.Errorf("%w: something was erased behind sequence %d", errSnapshot, seq)
	}
	s.owedSeq = m.Seq
	return nil
}

// newFromScratch returns a worker that has read nothing yet, to replace one with a state that holds
// erased data. If that state was due, a standby is not, and has the time of standBack to take over.
func (w *worker) newFromScratch(now time.Time) *worker {
	next := newWorkerWith(w.flags, w.env, w.nc, w.js, correlation.New(w.snapshots.options), w.metrics)
	next.ready, next.replaySince = w.ready, now
	next.snapshots = snapshots{stream: w.flags.Stream, dir: w.snapshots.dir, every: uint64(w.flags.StateEvery), key: w.snapshots.key, options: w.snapshots.options, context: w.snapshots.context}
	next.keys, next.erasure.log = w.keys, w.erasure.log
	if w.erasure.isDue(now, w.role) {
		next.erasure.staggered, next.standBack = true, lease.DefaultTTL
	}
	return next
}

// replayShown is how long the log is read again before the health report says that findings come late.
const replayShown = time.Minute

// reportReplay says in the health report that the log is read again after an erasure, until it is read to its end. While
// another instance is active, findings are not late.
func (w *worker) reportReplay(now time.Time) {
	switch {
	case w.replaySince.IsZero():
	case w.caughtUp:
		w.replaySince = time.Time{}
		w.env.Health.Set("replay", "")
	case w.role == daemon.RoleStandby:
		w.env.Health.Set("replay", "")
	case now.Sub(w.replaySince) >= replayShown:
		w.env.Health.Set("replay", fmt.Sprintf("the log is read again after an erasure, and findings come late: at sequence %d, of %d when it began", w.head, w.erasure.readFrom))
	}
}
