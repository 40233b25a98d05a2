package write

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/rows"
)

// VerifyStored reads the sequences first to last of a shard back and compares them with the
// rows that a writer wanted to store. It returns true if all rows are there, each once and
// with its hash, and false if none is there, so that the batch can be written again.
// Anything else is a *storage.ConflictError, and the writer must stop.
func (w *Writer) VerifyStored(ctx context.Context, shard string, first, last uint64, wanted []storage.EvidenceRow) (landed bool, err error) {
	n := 0
	err = rows.Hashes(ctx, w.pool, shard, first, last, func(seq uint64, hash [32]byte) error {
		what := ""
		switch {
		case n >= len(wanted):
			what = "there are more rows than were written"
		case seq < wanted[n].Seq:
			what = "there is a row that was not written"
		case seq > wanted[n].Seq:
			what, seq = "a row is missing", wanted[n].Seq
		case hash != wanted[n].RecordHash:
			what = "the row has another hash"
		}
		if what != "" {
			return &storage.ConflictError{Shard: shard, Seq: seq, What: what}
		}
		n++
		return nil
	})
	if err != nil {
		return false, err
	}
	if n > 0 && n < len(wanted) {
		return false, &storage.ConflictError{Shard: shard, Seq: wanted[n].Seq, What: "a row is missing"}
	}
	return n > 0, nil
}

// Attempts of CommitEvidence.
const (
	commitAttempts = 5
	commitPause    = 100 * time.Millisecond
)

// repairStates holds for each shard whether its derived tables are current, and whether a
// Repair of the whole shard was made.
type repairStates struct {
	mu     sync.Mutex
	shards map[string]repairState
	dials  uint64 // the number of dials when the server's start time was last read
	start  int64  // the server's start time, in seconds of Unix time
}

type repairState struct{ derivedCurrent, repaired bool }

func (s *repairStates) update(shard string, f func(*repairState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shards == nil {
		s.shards = map[string]repairState{}
	}
	state := s.shards[shard]
	f(&state)
	s.shards[shard] = state
}

func (s *repairStates) setCurrent(shard string, smooth bool) {
	s.update(shard, func(state *repairState) { state.derivedCurrent = smooth })
}

func (s *repairStates) markRepaired(shard string) {
	s.update(shard, func(state *repairState) { state.repaired = true })
}

// resetIfRestarted forgets all states if start differs from the last start time by more than
// one second, which is the precision of the server's answer.
func (s *repairStates) resetIfRestarted(dials uint64, start int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := start - s.start; s.start != 0 && (d > 1 || d < -1) {
		s.shards = nil
	}
	s.start, s.dials = start, dials
}

func (s *repairStates) lastDials() (dials uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

func (s *repairStates) isCurrent(shard string) bool { return s.shardState(shard).derivedCurrent }

func (s *repairStates) shardState(shard string) repairState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards[shard]
}

// CommitEvidence stores a batch exactly once, in evidence and in every derived table: it
// repeats InsertEvidence under EvidenceToken until it is acknowledged, and then VerifyStored.
// It returns nil only when these very rows were read back. *storage.ConflictError means that another
// writer is at work or that rows were changed; ErrAmbiguous means that the database stopped
// answering and the rows may or may not be stored.
//
// The first commit of a shard through w, and a commit after a failure, cannot know whether
// the rows are there already. Such a commit ends the inserts of earlier attempts and reads
// back before it writes: rows that a Repair completed have no token, so an insert of the same
// rows would put them into the derived tables twice (TestRepairedInsertTriedAgain). It also
// ends with Repair: a writer that died during an insert may have left a derived table without
// its part, or with a part that evidence lacks, and the token then keeps derived rows of the
// next batch out. The first commit after a restart of the server also ends with Repair.
func (w *Writer) CommitEvidence(ctx context.Context, rows []storage.EvidenceRow) error {
	if err := checkBatch(rows); err != nil {
		return err
	}
	shard := rows[0].Shard
	landed := false
	for attempt := 1; !landed; attempt++ {
		var err error
		if landed, err = w.tryCommit(ctx, rows); landed {
			break
		}
		var conflict *storage.ConflictError
		if errors.As(err, &conflict) {
			return err
		}
		if attempt == commitAttempts || retry.Sleep(ctx, commitPause*time.Duration(attempt)) != nil {
			return err
		}
	}
	return w.repairAfterCommit(ctx, shard, rows[0].Seq)
}

// tryCommit stores the rows once if they are not there yet, and reads them back. After any
// error except *storage.ConflictError the caller may try again.
func (w *Writer) tryCommit(ctx context.Context, rows []storage.EvidenceRow) (landed bool, err error) {
	shard, first, last := rows[0].Shard, rows[0].Seq, rows[len(rows)-1].Seq
	if !w.repairs.isCurrent(shard) {
		if err := w.endInserts(ctx, shard); err != nil {
			return false, fmt.Errorf("%w: %w", ErrAmbiguous, err)
		}
		if landed, err := w.VerifyStored(ctx, shard, first, last, rows); landed || err != nil {
			return landed, ambiguousError(err)
		}
	}
	if err := w.InsertEvidence(ctx, EvidenceToken(shard, first), rows); err != nil {
		w.repairs.setCurrent(shard, false)
		return false, err
	}
	if landed, err = w.VerifyStored(ctx, shard, first, last, rows); err != nil {
		w.repairs.setCurrent(shard, false)
		return false, ambiguousError(err)
	}
	if !landed {
		return false, &storage.ConflictError{Shard: shard, Seq: first, What: "the rows were acknowledged and are not there"}
	}
	return true, nil
}

// checkRestart detects a restart of the server and then forgets the states of the derived
// tables: not all derived rows are synced to disk, so they may be lost if its machine lost
// power. A restart implies a new connection, so it asks only after new dials.
func (w *Writer) checkRestart(ctx context.Context) error {
	dials := w.pool.Dials()
	if dials == w.repairs.lastDials() {
		return nil
	}
	var start int64
	if err := w.pool.QueryRow(ctx, "SELECT toInt64(toUnixTimestamp(now())) - toInt64(uptime())").Scan(&start); err != nil {
		return fmt.Errorf("asking %s when it started: %w", w.pool.ServerName(), err)
	}
	w.repairs.resetIfRestarted(dials, start)
	return nil
}

// ambiguousError wraps the error of a failed read-back in ErrAmbiguous.
func ambiguousError(err error) error {
	var conflict *storage.ConflictError
	if err == nil || errors.As(err, &conflict) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrAmbiguous, err)
}

// endInserts ends the evidence inserts of a shard that are still running and waits until they
// are gone. An engine continues the insert of a client that has disconnected, such as an
// earlier attempt or a writer that died.
func (w *Writer) endInserts(ctx context.Context, shard string) error {
	kill := "KILL QUERY WHERE user = currentUser() AND startsWith(query_id, " + conn.QuoteString(evidenceQueries(shard)) + ") SYNC"
	if err := w.pool.Exec(ctx, kill); err != nil {
		return fmt.Errorf("ending unfinished inserts in %s: %w", w.pool.ServerName(), err)
	}
	return nil
}

// repairAfterCommit repairs the derived tables if they may not be current: if the shard was
// repaired before, from a batch before sequence first on, otherwise the whole shard.
func (w *Writer) repairAfterCommit(ctx context.Context, shard string, first uint64) error {
	err := w.checkRestart(ctx)
	state := w.repairs.shardState(shard)
	switch {
	case err != nil:
	case state.derivedCurrent:
		return nil
	case state.repaired:
		_, err = w.repairFrom(ctx, shard, first-min(first, MaxBatchRows))
	default:
		_, err = w.Repair(ctx, shard)
	}
	if err != nil {
		w.repairs.setCurrent(shard, false)
		return fmt.Errorf("the batch is stored, but perhaps not in all derived tables: %w", err)
	}
	w.repairs.setCurrent(shard, true)
	return nil
}
