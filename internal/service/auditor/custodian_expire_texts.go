package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/expiry"
	"github.com/countersign-dev/countersign/streams"
)

// What expires is decided by proved texts: the columns of a row can be changed by a user of ClickHouse
// (TestExpiryIsDecidedByProvedTexts).

// recordPlace is a record's place in the log and in its session.
type recordPlace struct{ seq, index uint64 }

// sessionTexts are the records of a session that have their texts.
type sessionTexts struct {
	session string
	places  []recordPlace
	newest  time.Time
}

// expiryTexts are the records that an expiry may name, with their hashes by the texts.
type expiryTexts struct {
	sessions []sessionTexts
	seqs     []uint64
	hashes   [][32]byte
}

// readTexts reads the records of sessions that have their texts.
func (w *expiryWorker) readTexts(ctx context.Context, ev erasureplan.Evidence, sessions []string) (all expiryTexts, err error) {
	for _, session := range sessions {
		s := sessionTexts{session: session}
		err := expiry.New(ev.DB.Pool()).RecordsWithText(ctx, ev.Shard, ev.Tenant, session, func(r storage.EvidenceRow) error {
			rec, err := evidence.ParseRecord([]byte(r.Record))
			if err != nil || rec.Shard != ev.Shard || rec.Seq != r.Seq || rec.Tenant != ev.Tenant || rec.Session != session || rec.SessionIndex == nil || !rec.BrokerTime.Equal(r.BrokerTime) {
				return fmt.Errorf("%w: the text of record %d is not what its row says", erasureplan.ErrDiffers, r.Seq)
			}
			s.places, s.newest = append(s.places, recordPlace{r.Seq, *rec.SessionIndex}), rec.BrokerTime.Time
			all.seqs, all.hashes = append(all.seqs, r.Seq), append(all.hashes, evidence.HashRecord([]byte(r.Record)))
			return nil
		})
		if err != nil {
			return all, err
		}
		for _, subj := range ev.Space.OfSession(ev.Tenant, session) { // a row of the evidence may be gone
			m, err := streams.LastBySubject(ctx, w.js, w.stream, subj)
			if err != nil {
				return all, err
			}
			if m != nil && m.Time.After(s.newest) {
				s.newest = m.Time
			}
		}
		all.sessions = append(all.sessions, s)
	}
	return all, nil
}

// provedAtOnce bounds the memory for proofs: about 1 KB each.
const provedAtOnce = 4096

// prove checks that the records are in the tree of a checkpoint.
func (w *expiryWorker) prove(ctx context.Context, t expiryTexts, c tree.Checkpoint) error {
	nodes := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		ask, hashes := make([]uint64, len(indexes)), make([]tlog.Hash, len(indexes))
		for i, n := range indexes {
			ask[i] = uint64(n)
		}
		list, err := w.db.TreeNodes(ctx, w.shard, ask)
		for i, h := range list {
			hashes[i] = h
		}
		return hashes, err
	})
	for from := 0; from < len(t.seqs); from += provedAtOnce {
		to := min(from+provedAtOnce, len(t.seqs))
		proofs, err := tree.InclusionProofs(nodes, c.Size, t.seqs[from:to])
		if err != nil {
			return err
		}
		for i, proof := range proofs {
			if seq := t.seqs[from+i]; !tree.CheckInclusion(proof, c.Size, c.Root, seq, t.hashes[from+i]) {
				return fmt.Errorf("%w: the text of record %d is not the one that was signed", erasureplan.ErrDiffers, seq)
			}
		}
	}
	return nil
}

// covers reports whether the newest checkpoint, which this auditor's key signed, covers some sequences.
func (w *expiryWorker) covers(ctx context.Context, seqs []uint64) (c tree.Checkpoint, covered bool, err error) {
	stored, err := w.db.LatestCheckpoint(ctx, w.shard)
	if errors.Is(err, storage.ErrNotFound) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	if c, err = tree.OpenCheckpoint(stored.Note, w.log.Known); err == nil && c.Shard != w.shard {
		err = fmt.Errorf("%w: it is of shard %s", tree.ErrCheckpoint, c.Shard)
	}
	return c, err == nil && (len(seqs) == 0 || uint64(c.Size) >= slices.Max(seqs)), err
}
