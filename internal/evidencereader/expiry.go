package evidencereader

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
)

// expiries reads the records that say which texts of a shard expired, those that
// are wanted. Nobody has checked them yet, and there are no proofs.
func (l Reader) expiries(ctx context.Context, shard string, wanted func(events.Expiry) bool) (list []evidence.ExpiryRecord, err error) {
	err = l.DB.ScanSubject(ctx, shard, l.expirySubject(), func(r storage.EvidenceRow) error {
		if e, ok := evidence.ExpiryIn(rowOf(r)); ok && e.State == events.ErasureBegun && wanted(e) {
			list = append(list, evidence.ExpiryRecord{Row: rowOf(r)})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the expiry records: %w", err)
	}
	return list, nil
}

// ProveExpiries adds the proofs that expiry records are in the tree of a size. Of
// those that are not in it, or of which the stored hashes give no proof,
// verification says so.
func (l Reader) ProveExpiries(ctx context.Context, shard string, size int64, list []evidence.ExpiryRecord) error {
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
	proofs, err := l.Inclusion(ctx, shard, size, seqs)
	if err != nil && !IsDamaged(err) {
		return err
	}
	for i, proof := range proofs {
		list[which[i]].Proof = proof
	}
	return nil
}

// NewestSeq is the greatest of a sequence and those of expiry records: a checkpoint
// must reach to it to show that texts expired.
func NewestSeq(seq uint64, list []evidence.ExpiryRecord) uint64 {
	for _, x := range list {
		seq = max(seq, x.Row.Seq)
	}
	return seq
}

// expirySubject is the subject of the expiry records.
func (l Reader) expirySubject() string { return l.Space.Control(l.Stream, events.ControlExpiry) }

// ExpiryReasons tells people why records have no text. Its owner is one goroutine.
type ExpiryReasons struct {
	scan  func(ctx context.Context, shard string, from, to uint64, fn func(storage.EvidenceRow) error) error // finds expiry records
	known map[expiryKey]string
}

type expiryKey struct {
	shard string
	seq   uint64
}

// Reasons makes one.
func (l Reader) Reasons() *ExpiryReasons { return &ExpiryReasons{l.DB.Scan, map[expiryKey]string{}} }

// reasonsIn knows the expiry records in rows, and no others.
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

// ReasonFor says why a record has no text, "" if it has one. What it says is what the
// evidence claims: whether it holds, verification tells.
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
