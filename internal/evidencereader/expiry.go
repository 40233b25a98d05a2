package evidencereader

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage"
)

// expiryRecords reads the wanted records of expiries that have begun in a shard and that one of the
// checkpoint keys signed; without keys they are unchecked. They have no proofs yet.
func (rd Reader) expiryRecords(ctx context.Context, shard string, by []note.Verifier, wanted func(events.Expiry) bool) (list []verify.ExpiryRecord, err error) {
	known := note.VerifierList(by...)
	err = rd.DB.ScanSubject(ctx, shard, rd.expirySubject(), func(r storage.EvidenceRow) error {
		x := verify.ExpiryRecord{Row: rowOf(r)}
		if e, ok := evidence.ExpiryIn(x.Row); !ok || e.State != events.ErasureBegun || !wanted(e) {
			return nil
		}
		if _, signed := x.Expiry(shard, rd.Space, known); signed || len(by) == 0 {
			list = append(list, x)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the expiry records: %w", err)
	}
	return list, nil
}

// provedExpiries reads the records of expiries that name a tenant, or one of its sessions, with their
// proofs.
func (rd Reader) provedExpiries(ctx context.Context, shard, tenant, session string, size int64, by []note.Verifier) ([]verify.ExpiryRecord, error) {
	list, err := rd.expiryRecords(ctx, shard, by, func(e events.Expiry) bool {
		return e.Tenant == tenant && (session == "" || slices.ContainsFunc(e.Sessions, func(x events.ExpiredSession) bool { return x.Session == session }))
	})
	if err != nil {
		return nil, err
	}
	return list, rd.ProveExpiries(ctx, shard, size, list)
}

// ProveExpiries adds the proofs that expiry records are in the tree of a size. Records that are
// not in it, or for which stored hashes are missing, get none; verification reports them.
func (rd Reader) ProveExpiries(ctx context.Context, shard string, size int64, list []verify.ExpiryRecord) error {
	var seqs []uint64
	var which []int
	for i, x := range list {
		list[i].Proof = nil
		if int64(x.Row.Seq) <= size {
			seqs, which = append(seqs, x.Row.Seq), append(which, i)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	proofs, err := rd.InclusionProofs(ctx, shard, size, seqs)
	if err != nil && !IsDamaged(err) {
		return err
	}
	for i, proof := range proofs {
		list[which[i]].Proof = proof
	}
	return nil
}

// NewestSeq is the largest of a sequence and those of expiry records: a checkpoint must cover it
// to prove the expiries.
func NewestSeq(seq uint64, list []verify.ExpiryRecord) uint64 {
	for _, x := range list {
		seq = max(seq, x.Row.Seq)
	}
	return seq
}

// expirySubject is the subject of the expiry records.
func (rd Reader) expirySubject() string { return rd.Space.Control(rd.Stream, events.ControlExpiry) }

// ExpiryReasons describes why records have no text. One goroutine owns it.
type ExpiryReasons struct {
	scan  func(ctx context.Context, shard string, from, to uint64, fn func(storage.EvidenceRow) error) error // finds expiry records
	known map[expiryKey]string
}

type expiryKey struct {
	shard string
	seq   uint64
}

// NewExpiryReasons returns the reasons from the stored expiry records.
func (rd Reader) NewExpiryReasons() *ExpiryReasons {
	return &ExpiryReasons{rd.DB.Scan, map[expiryKey]string{}}
}

// reasonsIn returns the reasons from the expiry records in rows only.
func reasonsIn(rows []evidence.Row) *ExpiryReasons {
	r := &ExpiryReasons{func(context.Context, string, uint64, uint64, func(storage.EvidenceRow) error) error { return nil }, map[expiryKey]string{}}
	for _, row := range rows {
		if e, ok := evidence.ExpiryIn(row); ok {
			r.known[expiryKey{row.Shard, row.Seq}] = expiryText(e)
		}
	}
	return r
}

func expiryText(e events.Expiry) string {
	return fmt.Sprintf("expired %s under retention policy %s", e.At.UTC().Format("2006-01-02T15:04:05Z"), e.Policy)
}

// ReasonFor describes why a record has no text, "" if it has one. The reason is the evidence's
// statement; verification proves it.
func (r *ExpiryReasons) ReasonFor(ctx context.Context, row evidence.Row) (string, error) {
	if !row.Expired() {
		return "", nil
	}
	at := expiryKey{row.Shard, row.Expiry}
	if text, known := r.known[at]; known {
		return text, nil
	}
	text := "its text is missing, and nothing says why: run countersign verify"
	if row.Expiry > 0 {
		text = "expired"
		if err := r.scan(ctx, row.Shard, row.Expiry, row.Expiry, func(stored storage.EvidenceRow) error {
			if e, ok := evidence.ExpiryIn(rowOf(stored)); ok {
				text = expiryText(e)
			}
			return nil
		}); err != nil {
			return "", fmt.Errorf("reading why record %d has no text: %w", row.Seq, err)
		}
	}
	r.known[at] = text
	return text, nil
}
