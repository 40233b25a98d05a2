package auditor

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// A record names the one before it in its session, so the auditor signs what it is told of a session's last record. The
// database tells it, and is not trusted: the last record must be in the auditor's own tree, a record without a text must
// be named by an expiry record that the auditor's key signed, and no session goes back behind a record that this auditor
// knows of (TestAttackHeads, TestAttackHeadsTakenAway).

const (
	// maxRemembered bounds how many sessions have their last sequence remembered, at some 40 bytes each.
	maxRemembered = 1_000_000
	// rereadMessages is how many messages before its position an auditor that starts reads again for their sessions: fewer
	// if the log's messages have more than rereadBytes together, by their average.
	rereadMessages, rereadBytes = 20_000, 256 << 20
)

// lastSequences are the sequences of sessions' last records, by a keyed hash of the session: no publisher can choose two
// with the same. When there are too many, it forgets one for each that it notes.
type lastSequences struct {
	seed maphash.Seed
	seqs map[uint64]uint64
}

func newLastSequences() lastSequences {
	return lastSequences{seed: maphash.MakeSeed(), seqs: map[uint64]uint64{}}
}

// note notes the last record of a session.
func (l lastSequences) note(k events.SessionID, seq uint64) {
	if k.Session == "" {
		return
	}
	if len(l.seqs) >= maxRemembered {
		for other := range l.seqs {
			delete(l.seqs, other)
			break
		}
	}
	l.seqs[maphash.Comparable(l.seed, k)] = seq
}

// of is the sequence of a session's last record that is known; 0 without one.
func (l lastSequences) of(k events.SessionID) uint64 { return l.seqs[maphash.Comparable(l.seed, k)] }

// errReread ends reading the messages again.
var errReread = errors.New("all was read")

// rereadSessions notes the sessions of the messages before the position: an auditor that starts remembers no session.
func (a *auditor) rereadSessions(ctx context.Context) error {
	position := uint64(a.tree.Size())
	if position == 0 {
		return nil
	}
	state, err := streams.StreamState(ctx, a.js, a.stream)
	if err != nil {
		return err
	}
	count := min(position, rereadMessages, rereadBytes/max(1, state.Bytes/max(1, state.Messages)))
	a.records.keys.setContext(ctx)
	err = streams.ReadLog(ctx, a.js, streams.ReadOptions{
		Stream: a.stream, From: position - count + 1, MaxBytes: maxReadBytes, Log: a.env.Log,
		Idle: func() error { return errReread }, Gap: func(uint64, uint64) error { return nil }, // explained when it was audited
	}, func(msgs []events.LogMessage) error {
		for _, m := range msgs {
			if m.Seq > position {
				return errReread
			}
			if k, err := a.records.builder.ChainSession(m, a.records.keys); err == nil {
				a.records.last.note(k, m.Seq)
			}
			if m.Seq == position {
				return errReread
			}
		}
		return nil
	})
	if !errors.Is(err, errReread) {
		return fmt.Errorf("reading the sessions before sequence %d: %w", position, err)
	}
	return nil
}

// loadHeads reads the heads of the sessions in a batch with one query, and proves them with another. stored is the tree
// before the batch in flight. The database may not have the heads of that batch yet; the chain still holds those, because
// it forgets heads only when the next batch is committed to it.
func (m *recordMaker) loadHeads(ctx context.Context, msgs []events.LogMessage, stored *tree.Tree) error {
	sessions := make([]events.SessionID, len(msgs))
	for i, msg := range msgs {
		var err error
		if sessions[i], err = m.builder.ChainSession(msg, m.keys); err != nil {
			return err
		}
	}
	missing := m.chain.MissingHeads(sessions)
	if len(missing) == 0 {
		return nil
	}
	rows, unread := make(map[events.SessionID]storage.EvidenceRow, len(missing)), make(map[events.SessionID]bool, len(missing))
	for _, k := range missing {
		unread[k] = true
	}
	heads, read := make(map[events.SessionID]evidence.Head, len(missing)), map[events.SessionID]bool{}
	err := m.db.SessionHeads(ctx, m.shard, missing, func(r storage.EvidenceRow) (err error) {
		k := events.SessionID{Tenant: r.Tenant, Session: r.Session}
		if !unread[k] {
			return &storage.ConflictError{Shard: m.shard, Seq: r.Seq, What: "the index names this record as the last one of another session"}
		}
		delete(unread, k)
		if r.Record != "" { // a text is of any length, and there are many
			if heads[k], err = m.headOf(ctx, r); err != nil {
				return err
			}
			r.Record, read[k] = "", true
		}
		rows[k] = r
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the heads of %d sessions: %w", len(missing), err)
	}
	for _, k := range missing {
		r, there := rows[k]
		if err := m.compareLast(ctx, k, r.Seq, stored); err != nil {
			return err
		}
		if there && !read[k] {
			if heads[k], err = m.headOf(ctx, r); err != nil {
				return err
			}
		}
	}
	if err := m.proveHeads(ctx, rows, stored); err != nil {
		return err
	}
	for _, k := range missing {
		m.chain.PutHead(k, heads[k])
	}
	return nil
}

// compareLast demands that the last record of a session, at seq, is not before the one that is remembered. What was read
// again may have been recorded under another name, by an earlier build; then that record's text says so, or its expiry record.
func (m *recordMaker) compareLast(ctx context.Context, k events.SessionID, seq uint64, stored *tree.Tree) error {
	last := m.last.of(k)
	if seq >= last {
		return nil
	}
	rows := map[events.SessionID]storage.EvidenceRow{}
	err := m.db.Scan(ctx, m.shard, last, last, func(r storage.EvidenceRow) error {
		if r.Record == "" {
			if session, _, err := m.expiredPlace(ctx, r); err != nil || session == k.Session {
				return err
			}
			rows[k] = r
			return nil
		}
		if rec, err := evidence.ParseRecord([]byte(r.Record)); err == nil && (rec.Tenant != k.Tenant || rec.Session != k.Session) {
			r.RecordHash = evidence.HashRecord([]byte(r.Record))
			rows[k] = r
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading record %d: %w", last, err)
	}
	if len(rows) == 1 {
		return m.proveHeads(ctx, rows, stored)
	}
	return &storage.ConflictError{Shard: m.shard, Seq: last, What: "the index does not name this record as the last one of its session"}
}

// proveHeads proves that the rows are of records in the tree.
func (m *recordMaker) proveHeads(ctx context.Context, rows map[events.SessionID]storage.EvidenceRow, stored *tree.Tree) error {
	list, seqs := make([]storage.EvidenceRow, 0, len(rows)), make([]uint64, 0, len(rows))
	for _, r := range rows {
		if r.Seq == 0 || r.Seq > uint64(stored.Size()) {
			return &storage.ConflictError{Shard: m.shard, Seq: r.Seq, What: "this auditor has not stored the row"}
		}
		list, seqs = append(list, r), append(seqs, r.Seq)
	}
	if len(list) == 0 {
		return nil
	}
	proofs, err := tree.InclusionProofs(m.hashReader(ctx), stored.Size(), seqs)
	if err != nil {
		return fmt.Errorf("proving the heads of %d sessions: %w", len(list), err)
	}
	for i, r := range list {
		if !tree.CheckInclusion(proofs[i], stored.Size(), stored.Root(), r.Seq, r.RecordHash) {
			return &storage.ConflictError{Shard: m.shard, Seq: r.Seq, What: "the record is not the one that is in the tree"}
		}
	}
	return nil
}

// headOf is the head of a session with this last record, if that is in the tree. Index and hash are those of the text, and
// not of the columns. Of an expired record the index is that of the expiry record.
func (m *recordMaker) headOf(ctx context.Context, r storage.EvidenceRow) (evidence.Head, error) {
	if r.Record == "" {
		session, index, err := m.expiredPlace(ctx, r)
		if err == nil && session != r.Session {
			err = &storage.ConflictError{Shard: r.Shard, Seq: r.Seq, What: "its expiry record names it in another session"}
		}
		return evidence.Head{Index: index, Hash: r.RecordHash}, err
	}
	rec, err := evidence.ParseRecord([]byte(r.Record))
	hash := evidence.HashRecord([]byte(r.Record))
	if err != nil || hash != r.RecordHash || rec.Seq != r.Seq || rec.Tenant != r.Tenant || rec.Session != r.Session || rec.SessionIndex == nil {
		return evidence.Head{}, &storage.ConflictError{Shard: r.Shard, Seq: r.Seq, What: "the columns of the row are not those of its text"}
	}
	return evidence.Head{Index: *rec.SessionIndex, Hash: hash}, nil
}

// expiredPlace is the session of a record without a text, and its place there, as the expiry record says that names it.
// A row names the first of the records of its expiry.
func (m *recordMaker) expiredPlace(ctx context.Context, r storage.EvidenceRow) (session string, index uint64, err error) {
	known, err := m.ownVerifier()
	if err != nil {
		return "", 0, err
	}
	for msg, err := range streams.EachBySubject(ctx, m.js, m.stream, m.space.Control(m.stream, events.ControlExpiry), max(r.Expiry, r.Seq+1)) {
		if err != nil {
			return "", 0, fmt.Errorf("reading the expiry record of record %d: %w", r.Seq, err)
		}
		e, err := events.DecodeRecord[events.Expiry](msg.Body)
		if err != nil || e.Shard != m.shard || e.State != events.ErasureBegun || e.Tenant != r.Tenant {
			continue
		}
		if session, index, named := e.PlaceOf(r.Seq); named && e.LastSequence() < msg.Seq && signing.CheckExpiry(known, e) {
			return session, index, nil
		}
	}
	return "", 0, &storage.ConflictError{Shard: r.Shard, Seq: r.Seq, What: "the text is gone, and no signed expiry record says so"}
}

// hashReader reads the hashes of the shard's tree.
func (s shardAccess) hashReader(ctx context.Context) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		ask := make([]uint64, len(indexes))
		for i, n := range indexes {
			ask[i] = uint64(n)
		}
		nodes, err := s.db.TreeNodes(ctx, s.shard, ask)
		hashes := make([]tlog.Hash, len(nodes))
		for i, h := range nodes {
			hashes[i] = h
		}
		return hashes, err
	})
}
