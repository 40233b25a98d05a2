package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Confirm reads back what the database holds of the sequences first to last of a
// shard and compares it with the rows that a writer wanted there. All there, each
// once and with its hash: true. None: false, so the batch can be written again.
// Anything else is a *ConflictError, and the writer must stop.
func (db *DB) Confirm(ctx context.Context, shard string, first, last uint64, rows []EvidenceRow) (landed bool, err error) {
	n := 0
	err = db.hashes(ctx, shard, first, last, func(seq uint64, hash [32]byte) error {
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

// settled knows the shards whose derived tables need no look after the next commit.
type settled struct {
	mu     sync.Mutex
	shards map[string]bool
}

func (s *settled) set(shard string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shards == nil {
		s.shards = map[string]bool{}
	}
	s.shards[shard] = is
}

func (s *settled) is(shard string) bool {
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
// Trying again is safe because the token keeps every table from taking its part
// twice, even while the engine still works on an earlier attempt. A writer that
// died in the middle of an insert may have left a derived table without its part,
// or with a part that evidence lacks; the token then keeps derived rows of the
// next batch out. So the first commit of a shard through db, and every one that
// did not go smoothly, ends with Repair.
func (db *DB) CommitEvidence(ctx context.Context, rows []EvidenceRow) error {
	if err := checkBatch(rows); err != nil {
		return err
	}
	shard, first, last := rows[0].Shard, rows[0].Seq, rows[len(rows)-1].Seq
	if err := db.insertUntilDone(ctx, EvidenceToken(shard, first), rows); err != nil {
		return err
	}
	landed, err := db.Confirm(ctx, shard, first, last, rows)
	if err != nil {
		return err
	}
	if !landed {
		return &ConflictError{Shard: shard, Table: "evidence", Seq: first, What: "the rows were acknowledged and are not there"}
	}
	return db.settle(ctx, shard)
}

// insertUntilDone inserts until an insert is acknowledged, at most commitAttempts times.
func (db *DB) insertUntilDone(ctx context.Context, token string, rows []EvidenceRow) error {
	ambiguous := false
	for attempt := 1; ; attempt++ {
		err := db.InsertEvidence(ctx, token, rows)
		if err == nil {
			return nil
		}
		db.settled.set(rows[0].Shard, false)
		ambiguous = ambiguous || errors.Is(err, ErrAmbiguous)
		if attempt == commitAttempts || !pause(ctx, commitPause*time.Duration(attempt)) {
			return stillAmbiguous(ambiguous, err)
		}
	}
}

// pause waits, and reports whether ctx outlasted it.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// stillAmbiguous keeps the doubt that an earlier attempt left.
func stillAmbiguous(doubt bool, err error) error {
	if doubt && !errors.Is(err, ErrAmbiguous) {
		return fmt.Errorf("%w: %w", ErrAmbiguous, err)
	}
	return err
}

// quiesce ends the evidence inserts of a shard that are still under way and waits
// until they are gone: an engine goes on with the insert of a client that is not
// there any more, be it an earlier attempt or a writer that died.
func (db *DB) quiesce(ctx context.Context, shard string) error {
	kill := "KILL QUERY WHERE user = currentUser() AND startsWith(query_id, " + sqlString(evidenceQueries(shard)) + ") SYNC"
	if err := db.conn.Exec(ctx, kill); err != nil {
		return fmt.Errorf("ending unfinished inserts in %s: %w", db.where(), err)
	}
	return nil
}

// settle repairs the derived tables where the last commits give reason to.
func (db *DB) settle(ctx context.Context, shard string) error {
	if db.settled.is(shard) {
		return nil
	}
	if _, err := db.Repair(ctx, shard); err != nil {
		return fmt.Errorf("the batch is stored, but perhaps not in all derived tables: %w", err)
	}
	db.settled.set(shard, true)
	return nil
}
