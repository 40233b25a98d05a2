// Package ledger reads evidence for the commands that show, verify and export
// it: it brings together the rows in ClickHouse, the checkpoints there and on
// NATS, and the verification core.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
)

// ErrNoEvidence says that the database holds no evidence of a log.
var ErrNoEvidence = errors.New("there is no evidence yet")

// ErrNoSession says that there is no record of a session.
var ErrNoSession = errors.New("no record of this session")

// Ledger reads one log's evidence. A read-only user of the database suffices.
type Ledger struct {
	DB     *storage.DB
	Stream string
	Space  subject.Space
}

// Shards lists the log's incarnations that there is evidence of, oldest first.
func (l Ledger) Shards(ctx context.Context) ([]string, error) {
	all, err := l.DB.Shards(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, l.Stream+"@") })
	if len(all) == 0 {
		return nil, fmt.Errorf("%w of stream %s", ErrNoEvidence, l.Stream)
	}
	slices.Sort(all) // the name ends in the time of creation
	return all, nil
}

// VerifyOptions say what to verify against, beside the stored checkpoints.
type VerifyOptions struct {
	Keys      []note.Verifier
	Published []evidence.Published // checkpoints from elsewhere, of any shard
	AtLeast   int64
	Progress  func(done, total uint64)
}

// Verify recomputes one shard from its rows and checkpoints. Checkpoints are
// read before rows: whatever they sign must be there by then.
func (l Ledger) Verify(ctx context.Context, shard string, o VerifyOptions) (evidence.Report, error) {
	stored, err := l.DB.Checkpoints(ctx, shard)
	if err != nil {
		return evidence.Report{}, fmt.Errorf("reading the checkpoints: %w", err)
	}
	var list []evidence.Published
	for _, c := range stored {
		list = append(list, evidence.Published{Source: "table checkpoints", Text: c.Note})
	}
	for _, p := range o.Published {
		if c, err := evidence.PeekCheckpoint(p.Text); err != nil || c.Shard == shard {
			list = append(list, p)
		}
	}
	last, _, err := l.DB.Position(ctx, shard)
	if err != nil {
		return evidence.Report{}, err
	}
	v := evidence.NewVerifier(evidence.VerifyOptions{Shard: shard, Space: l.Space, Keys: o.Keys, Checkpoints: list, AtLeast: o.AtLeast})
	var done uint64
	err = l.DB.Scan(ctx, shard, 0, last, func(r storage.EvidenceRow) error {
		v.Row(rowOf(r))
		if done++; o.Progress != nil {
			o.Progress(done, last)
		}
		return nil
	})
	if err != nil {
		return evidence.Report{}, fmt.Errorf("reading the evidence: %w", err)
	}
	return v.Finish(), nil
}

// Session is one session's evidence in one shard, with what proves it.
type Session struct {
	Shard, Tenant, Session string
	Rows                   []evidence.Row
	Checkpoint             string // signed note; empty when nothing is signed yet
	Proofs                 []tlog.RecordProof
	Keys                   []events.KeyRecord // the receipt keys in the log
}

// Session reads a session's records, which may lie in several shards.
func (l Ledger) Session(ctx context.Context, tenant, session string) ([]Session, error) {
	var list []Session
	err := l.DB.Chain(ctx, tenant, session, func(r storage.EvidenceRow) error {
		if n := len(list); n == 0 || list[n-1].Shard != r.Shard {
			list = append(list, Session{Shard: r.Shard, Tenant: tenant, Session: session})
		}
		last := &list[len(list)-1]
		last.Rows = append(last.Rows, rowOf(r))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chain: %w", err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: tenant %q, session %q", ErrNoSession, tenant, session)
	}
	return list, nil
}

// Prove adds to a session the newest checkpoint that covers all of its records,
// their inclusion proofs and the receipt keys.
func (l Ledger) Prove(ctx context.Context, s *Session) error {
	cp, err := l.DB.LatestCheckpoint(ctx, s.Shard)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("reading the checkpoint: %w", err)
	}
	last := s.Rows[len(s.Rows)-1].Seq
	if cp.Size < last {
		return fmt.Errorf("record %d of the session is not covered by a checkpoint yet: try again in a moment", last)
	}
	s.Checkpoint = cp.Note
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) { return l.hashes(ctx, s.Shard, indexes) })
	s.Proofs = make([]tlog.RecordProof, len(s.Rows))
	for i, r := range s.Rows {
		if s.Proofs[i], err = evidence.InclusionProof(read, int64(cp.Size), r.Seq); err != nil {
			return fmt.Errorf("proving record %d: %w", r.Seq, err)
		}
	}
	s.Keys, err = l.receiptKeys(ctx, s.Shard)
	return err
}

func (l Ledger) hashes(ctx context.Context, shard string, indexes []int64) ([]tlog.Hash, error) {
	ask := make([]uint64, len(indexes))
	for i, n := range indexes {
		ask[i] = uint64(n)
	}
	nodes, err := l.DB.TreeNodes(ctx, shard, ask)
	if err != nil {
		return nil, err
	}
	out := make([]tlog.Hash, len(nodes))
	for i, h := range nodes {
		out[i] = h
	}
	return out, nil
}

func rowOf(r storage.EvidenceRow) evidence.Row {
	return evidence.Row{Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject,
		BrokerTime: r.BrokerTime, BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash}
}

// receiptKeys reads the admitter's vouched keys out of a shard's key records.
func (l Ledger) receiptKeys(ctx context.Context, shard string) ([]events.KeyRecord, error) {
	var list []events.KeyRecord
	err := l.DB.ScanSubject(ctx, shard, l.Space.Control(l.Stream, events.ControlKey), func(r storage.EvidenceRow) error {
		rec, err := evidence.ParseRecord([]byte(r.Record))
		if err != nil {
			return nil // verification says so; it is no key
		}
		if k, err := events.DecodeRecord[events.KeyRecord](rec.Body); err == nil {
			list = append(list, k)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the key records: %w", err)
	}
	return list, nil
}
