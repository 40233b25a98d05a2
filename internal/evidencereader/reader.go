// Package evidencereader reads evidence for the commands that show, verify and export it. It
// combines the rows in ClickHouse, the checkpoints there and on NATS, and the verification core
// (package evidence). A read-only database user suffices; it writes nothing. Begin with Reader,
// then Verify (verify.go) and ReadProvedSession (session.go).
package evidencereader

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/read"
)

// ErrNoEvidence reports that the database holds no evidence of a log.
var ErrNoEvidence = errors.New("there is no evidence yet")

// ErrNoSession reports that there is no record of a session.
var ErrNoSession = errors.New("no record of this session")

// Reader reads one log's evidence. A read-only user of the database suffices.
type Reader struct {
	DB     *read.Reader
	Tree   *read.Reader // has the tree's hashes if DB does not; proofs made of them are checked by their users
	Stream string
	Space  subject.Space
}

// Shards lists the log's incarnations with evidence, oldest first.
func (rd Reader) Shards(ctx context.Context) ([]string, error) {
	all, err := rd.DB.Shards(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, rd.Stream+"@") })
	if len(all) == 0 {
		return nil, fmt.Errorf("%w of stream %s", ErrNoEvidence, rd.Stream)
	}
	slices.Sort(all) // the name ends in the time of creation
	return all, nil
}

// NoteShards yields published checkpoints as they come, and adds to named the incarnations of the log
// that those signed by a key name: an incarnation may be gone from the database.
func (rd Reader) NoteShards(history iter.Seq2[verify.Published, error], keys []note.Verifier, named map[string]bool) iter.Seq2[verify.Published, error] {
	known := note.VerifierList(keys...)
	return func(yield func(verify.Published, error) bool) {
		for p, err := range history {
			c, invalid := tree.PeekCheckpoint(p.Text)
			if err == nil && invalid == nil && !named[c.Shard] && strings.HasPrefix(c.Shard, rd.Stream+"@") {
				if _, unsigned := tree.OpenCheckpoint(p.Text, known); unsigned == nil {
					named[strings.Clone(c.Shard)] = true
				}
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// Session is one session's evidence in one shard, with its proofs.
type Session struct {
	Shard, Tenant, Session string
	Rows                   []evidence.Row
	Checkpoint             string // signed note; empty while nothing is signed
	Proofs                 []tlog.RecordProof
	Keys                   []events.KeyRecord // the receipt keys in the log
	Retired                []verify.Retired   // the retired ones of Keys
	Expiries               []verify.ExpiryRecord
}

// Session reads a session's records, which may be in several shards.
func (rd Reader) Session(ctx context.Context, tenant, session string) ([]Session, error) {
	var list []Session
	err := rd.DB.Chain(ctx, tenant, session, func(r storage.EvidenceRow) error {
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

// AddProofs adds the newest checkpoint that covers all records of a session, their inclusion
// proofs, the receipt keys and their retirements. What the checkpoint keys must have signed and did
// not is left out; without keys nothing is. On an error for which IsDamaged is true, records have no
// proof if it cannot be made from the stored tree, and everything else is there.
func (rd Reader) AddProofs(ctx context.Context, s *Session, keys []note.Verifier) error {
	cp, err := rd.DB.LatestCheckpoint(ctx, s.Shard)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("reading the checkpoint: %w", err)
	}
	last := s.Rows[len(s.Rows)-1].Seq
	if cp.Size < last {
		return fmt.Errorf("record %d of the session is not covered by a checkpoint yet: try again in a moment", last)
	}
	s.Checkpoint = signedByLog(cp.Note, keys)
	seqs := make([]uint64, len(s.Rows))
	for i, r := range s.Rows {
		seqs[i] = r.Seq
	}
	var lacking error
	if s.Proofs, lacking = rd.InclusionProofs(ctx, s.Shard, int64(cp.Size), seqs); lacking != nil {
		if !IsDamaged(lacking) {
			return lacking
		}
		if s.Proofs, err = rd.proveSingly(ctx, s.Shard, int64(cp.Size), seqs); err != nil {
			return err
		}
	}
	if err := rd.proveRest(ctx, s, int64(cp.Size), keys); err != nil {
		return err
	}
	return lacking
}

// proveSingly proves each record separately. Records with missing or damaged stored hashes
// get no proof.
func (rd Reader) proveSingly(ctx context.Context, shard string, size int64, seqs []uint64) ([]tlog.RecordProof, error) {
	proofs := make([]tlog.RecordProof, len(seqs))
	for i, seq := range seqs {
		p, err := tree.InclusionProof(rd.hashReader(ctx, shard), size, seq)
		if err != nil && !IsDamaged(err) {
			return nil, fmt.Errorf("proving record %d: %w", seq, err)
		}
		if err == nil {
			proofs[i] = p
		}
	}
	return proofs, nil
}

func (rd Reader) proveRest(ctx context.Context, s *Session, size int64, keys []note.Verifier) (err error) {
	if s.Keys, s.Retired, err = rd.keyHistory(ctx, s.Shard, keys); err != nil || !slices.ContainsFunc(s.Rows, evidence.Row.Expired) {
		return err
	}
	if s.Expiries, err = rd.expiryRecords(ctx, s.Shard, keys, func(e events.Expiry) bool {
		return e.Tenant == s.Tenant && slices.ContainsFunc(e.Sessions, func(x events.ExpiredSession) bool { return x.Session == s.Session })
	}); err != nil {
		return err
	}
	return rd.ProveExpiries(ctx, s.Shard, size, s.Expiries)
}

// InclusionProofs proves records to be in the tree of a size. It reads all hashes with one query.
func (rd Reader) InclusionProofs(ctx context.Context, shard string, size int64, seqs []uint64) ([]tlog.RecordProof, error) {
	return tree.InclusionProofs(rd.hashReader(ctx, shard), size, seqs)
}

// hashReader reads the stored hashes of a shard's tree.
func (rd Reader) hashReader(ctx context.Context, shard string) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) { return rd.readHashes(ctx, shard, indexes) })
}

func (rd Reader) readHashes(ctx context.Context, shard string, indexes []int64) ([]tlog.Hash, error) {
	ask := make([]uint64, len(indexes))
	for i, n := range indexes {
		ask[i] = uint64(n)
	}
	nodes, err := cmp.Or(rd.Tree, rd.DB).TreeNodes(ctx, shard, ask)
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
		BrokerTime: r.BrokerTime, BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash, Expiry: r.Expiry}
}

// keyHistory reads the admitters' keys and their retirements from a shard's key records: those that
// one of the checkpoint keys signed, each key once. The correlator, too, may write on these subjects,
// and what is left out here is a finding of the whole log's verification alone. Without checkpoint keys
// all are returned, unchecked.
func (rd Reader) keyHistory(ctx context.Context, shard string, by []note.Verifier) (keys []events.KeyRecord, retired []verify.Retired, err error) {
	known, seen := note.VerifierList(by...), map[string]bool{}
	read := func(kind string, take func(seq uint64, body []byte)) error {
		return rd.DB.ScanSubject(ctx, shard, rd.Space.Control(rd.Stream, kind), func(r storage.EvidenceRow) error {
			if rec, err := evidence.ParseRecord([]byte(r.Record)); err == nil { // verification reports invalid records
				take(r.Seq, rec.Body)
			}
			return nil
		})
	}
	err = read(events.ControlKey, func(_ uint64, body []byte) {
		k, err := events.DecodeRecord[events.KeyRecord](body)
		if err == nil && (len(by) == 0 || signing.CheckKeyRecord(known, k) && !seen[k.KeyID]) {
			keys, seen[k.KeyID] = append(keys, k), true
		}
	})
	if err == nil {
		err = read(events.ControlKeyRetired, func(seq uint64, body []byte) {
			if k, err := events.DecodeRecord[events.KeyRetirement](body); err == nil && (len(by) == 0 || signing.CheckRetirement(known, k)) {
				retired = append(retired, verify.Retired{Record: k, Seq: seq})
			}
		})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the key records: %w", err)
	}
	return keys, retired, nil
}

// DecodeRow returns the body of a row's record, raw and decoded as T.
func DecodeRow[T any](r storage.EvidenceRow) (body json.RawMessage, record T, err error) {
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err != nil {
		return nil, record, err
	}
	return rec.Body, record, json.Unmarshal(rec.Body, &record)
}
