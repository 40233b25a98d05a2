package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// VerifyStored reads back what the database holds of the sequences first to last of a
// shard and compares it with the rows that a writer wanted there. All there, each
// once and with its hash: true. None: false, so the batch can be written again.
// Anything else is a *ConflictError, and the writer must stop.
func (db *DB) VerifyStored(ctx context.Context, shard string, first, last uint64, rows []EvidenceRow) (landed bool, err error) {
	n := 0
	err = db.scanHashes(ctx, shard, first, last, func(seq uint64, hash [32]byte) error {
		what := ""
		switch {
		case n >= len(rows):
			what = "there are more rows than were written"
		case seq < rows[n].Seq:
			what = "there is a row that was not written"
		case seq > rows[n].Seq:
			what, seq = "a row is missing", rows[n].Seq
		case hash != rows[n].RecordHash:
			what = "the row has another hash"
		}
		if what != "" {
			return &ConflictError{Shard: shard, Table: "evidence", Seq: seq, What: what}
		}
		n++
		return nil
	})
	if err != nil {
		return false, err
	}
	if n > 0 && n < len(rows) {
		return false, &ConflictError{Shard: shard, Table: "evidence", Seq: rows[n].Seq, What: "a row is missing"}
	}
	return n > 0, nil
}

// Attempts of CommitEvidence.
const (
	commitAttempts = 5
	commitPause    = 100 * time.Millisecond
)

// repairStates knows of shards what their derived tables need after the next commit:
// nothing, a look at what was committed, or, before the first Repair, at all.
type repairStates struct {
	mu     sync.Mutex
	shards map[string]repairState
	dials  uint64 // when the server was last asked when it started
	start  int64  // what it said, in seconds of Unix time
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

// resetIfRestarted forgets everything if a server that says it started at start is another
// one than before. A server tells that by whole seconds, give or take one.
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

// CommitEvidence stores a batch exactly once, in evidence and in every table
// derived from it: InsertEvidence under EvidenceToken until it is acknowledged,
// then Confirm. It returns nil only when these very rows were read back.
// *ConflictError means that another writer is at work or rows were changed;
// ErrAmbiguous that the database stopped answering, with the rows stored or not.
//
// Where it is not known whether the rows are there already (the first commit of a
// shard through db, and after one that did not go smoothly), it ends what is left
// of earlier attempts and reads back before it writes: what a Repair completed in
// between has no token, so the same rows once more would be in the derived tables
// twice (TestRepairedInsertTriedAgain). Such a commit also ends with Repair: a
// writer that died in the middle of an insert may have left a derived table
// without its part, or with a part that evidence lacks, and the token then keeps
// derived rows of the next batch out. So does the first one after the server was
// started anew.
func (db *DB) CommitEvidence(ctx context.Context, rows []EvidenceRow) error {
	if err := checkBatch(rows); err != nil {
		return err
	}
	shard := rows[0].Shard
	landed := false
	for attempt := 1; !landed; attempt++ {
		var err error
		if landed, err = db.tryCommit(ctx, rows); landed {
			break
		}
		var conflict *ConflictError
		if errors.As(err, &conflict) {
			return err
		}
		if attempt == commitAttempts || !sleepContext(ctx, commitPause*time.Duration(attempt)) {
			return err
		}
	}
	return db.repairAfterCommit(ctx, shard, rows[0].Seq)
}

// tryCommit stores rows that are not there yet, once, and reads them back. While it
// fails with anything but a *ConflictError, trying again is safe.
func (db *DB) tryCommit(ctx context.Context, rows []EvidenceRow) (landed bool, err error) {
	shard, first, last := rows[0].Shard, rows[0].Seq, rows[len(rows)-1].Seq
	if !db.repairs.isCurrent(shard) {
		if err := db.endInserts(ctx, shard); err != nil {
			return false, fmt.Errorf("%w: %w", ErrAmbiguous, err)
		}
		if landed, err := db.VerifyStored(ctx, shard, first, last, rows); landed || err != nil {
			return landed, ambiguousError(err)
		}
	}
	if err := db.InsertEvidence(ctx, EvidenceToken(shard, first), rows); err != nil {
		db.repairs.setCurrent(shard, false)
		return false, err
	}
	if landed, err = db.VerifyStored(ctx, shard, first, last, rows); err != nil {
		db.repairs.setCurrent(shard, false)
		return false, ambiguousError(err)
	}
	if !landed {
		return false, &ConflictError{Shard: shard, Table: "evidence", Seq: first, What: "the rows were acknowledged and are not there"}
	}
	return true, nil
}

// checkRestart finds out whether the server was started anew, and forgets what is known
// of its derived tables if so: its machine may have lost power, and they rows, since
// not all of them are synced. A server that was started anew is met on a new
// connection.
func (db *DB) checkRestart(ctx context.Context) error {
	dials := db.dials.Load()
	if dials == db.repairs.lastDials() {
		return nil
	}
	var start int64
	if err := db.conn.QueryRow(ctx, "SELECT toInt64(toUnixTimestamp(now())) - toInt64(uptime())").Scan(&start); err != nil {
		return fmt.Errorf("asking %s when it started: %w", db.serverName(), err)
	}
	db.repairs.resetIfRestarted(dials, start)
	return nil
}

// ambiguousError marks the failure of a read-back: nobody knows what is there.
func ambiguousError(err error) error {
	var conflict *ConflictError
	if err == nil || errors.As(err, &conflict) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrAmbiguous, err)
}

// sleepContext waits, and reports whether ctx outlasted it.
func sleepContext(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// endInserts ends the evidence inserts of a shard that are still under way and waits
// until they are gone: an engine goes on with the insert of a client that is not
// there any more, be it an earlier attempt or a writer that died.
func (db *DB) endInserts(ctx context.Context, shard string) error {
	kill := "KILL QUERY WHERE user = currentUser() AND startsWith(query_id, " + sqlString(evidenceQueries(shard)) + ") SYNC"
	if err := db.conn.Exec(ctx, kill); err != nil {
		return fmt.Errorf("ending unfinished inserts in %s: %w", db.serverName(), err)
	}
	return nil
}

// repairAfterCommit repairs the derived tables where the last commit gives reason to: of the
// sequences from first on if they have been compared with the evidence before, and
// of all otherwise.
func (db *DB) repairAfterCommit(ctx context.Context, shard string, first uint64) error {
	err := db.checkRestart(ctx)
	state := db.repairs.shardState(shard)
	switch {
	case err != nil:
	case state.derivedCurrent:
		return nil
	case state.repaired:
		_, err = db.repairFrom(ctx, shard, first)
	default:
		_, err = db.Repair(ctx, shard)
	}
	if err != nil {
		db.repairs.setCurrent(shard, false)
		return fmt.Errorf("the batch is stored, but perhaps not in all derived tables: %w", err)
	}
	db.repairs.setCurrent(shard, true)
	return nil
}
