package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
)

// VerifyOptions say what to verify against, beside the stored checkpoints.
type VerifyOptions struct {
	Keys      []note.Verifier
	Published []evidence.Published // checkpoints from elsewhere, of any shard
	Witnesses []note.Verifier      // see evidence.VerifyOptions
	Quorum    int
	Cosigners []note.Verifier // likewise
	Receipts  []string        // compact
	AtLeast   int64
	Progress  func(done, total uint64)
	Workers   int // how many examine at the same time; 0: one for each processor

	// Since and Until leave out what the broker stored before the one, and not
	// before the other. What is left is proved as a part of the signed tree.
	Since, Until time.Time

	// Log reads a message of the shard's log, nil if it is gone. With it, the
	// newest Compare decisions and approvals are compared with it, all if Compare
	// is negative.
	Log     func(ctx context.Context, seq uint64) (*events.LogMessage, error)
	Compare int

	stretch, lead uint64 // for tests; 0: stretchSize, lead
}

// lead is how many records before a part are read with it, for the requests of
// its first decisions: a decision follows its request within a few messages.
const lead uint64 = 2048

// ErrEmptyRange says that no record is in the time range asked for.
var ErrEmptyRange = errors.New("no record in this time range")

// Verify recomputes one shard from its rows and checkpoints, or the part of it
// between two times. Checkpoints are read before rows: whatever they sign must
// be there by then.
func (l Ledger) Verify(ctx context.Context, shard string, o VerifyOptions) (evidence.Report, error) {
	options := evidence.VerifyOptions{Shard: shard, Space: l.Space, Keys: o.Keys, Witnesses: o.Witnesses, Quorum: o.Quorum, Cosigners: o.Cosigners, Receipts: o.Receipts, AtLeast: o.AtLeast}
	var err error
	if options.Checkpoints, err = l.checkpoints(ctx, shard, o.Published); err != nil {
		return evidence.Report{}, err
	}
	keys, retired, err := l.keyHistory(ctx, shard)
	if err != nil {
		return evidence.Report{}, err
	}
	options.KeyHints = keys
	if options.Expiries, err = l.expiries(ctx, shard, func(events.Expiry) bool { return true }); err != nil {
		return evidence.Report{}, err
	}
	from, to := uint64(0), storage.AllSequences
	if !o.Since.IsZero() || !o.Until.IsZero() {
		if from, to, options.Part, err = l.part(ctx, shard, o); err != nil {
			return evidence.Report{}, err
		}
		options.ReceiptKeys, options.Retired = keys, retired
	}
	v := evidence.NewVerifier(options)
	if newest, signed := v.Newest(); signed && options.Part != nil { // the rows do not show them
		if err := l.ProveExpiries(ctx, shard, newest.Size, options.Expiries); err != nil {
			return evidence.Report{}, err
		}
		v.ProveExpiries(options.Expiries)
	}
	if err := l.sweep(ctx, v, shard, from, to, o); err != nil {
		return evidence.Report{}, fmt.Errorf("reading the evidence: %w", err)
	}
	if options.Part == nil {
		return v.Finish(), nil
	}
	var proof tlog.TreeProof
	if newest, signed := v.Newest(); signed && v.Size() > 0 && v.Size() <= newest.Size {
		// Hashes that are missing or damaged are the report's business.
		if proof, err = l.Consistency(ctx, shard, v.Size(), newest.Size); err != nil && !Damaged(err) {
			return evidence.Report{}, err
		}
	}
	return v.FinishPart(proof), nil
}

// Damaged reports whether an error is about what is stored, not about storing.
func Damaged(err error) bool {
	var conflict *storage.ConflictError
	return errors.Is(err, storage.ErrNotFound) || errors.As(err, &conflict)
}

// checkpoints lists the stored checkpoints of a shard and those from elsewhere
// that may be of it.
func (l Ledger) checkpoints(ctx context.Context, shard string, published []evidence.Published) (list []evidence.Published, err error) {
	stored, err := l.DB.Checkpoints(ctx, shard)
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoints: %w", err)
	}
	for _, c := range stored {
		list = append(list, evidence.Published{Source: "table checkpoints", Text: c.Note})
	}
	for _, p := range published {
		if c, err := evidence.PeekCheckpoint(p.Text); err != nil || c.Shard == shard {
			list = append(list, p)
		}
	}
	return list, nil
}

// part finds the sequences of a time range, and the edge of the tree before it.
func (l Ledger) part(ctx context.Context, shard string, o VerifyOptions) (from, to uint64, p *evidence.Part, err error) {
	first, to, err := l.DB.Between(ctx, shard, o.Since, o.Until)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("looking for the time range: %w", err)
	}
	if first == 0 {
		return 0, 0, nil, fmt.Errorf("%w of shard %s", ErrEmptyRange, shard)
	}
	before := cmp.Or(o.lead, lead)
	p = &evidence.Part{First: max(first, before+1) - before, Judged: first}
	p.Frontier, err = l.hashes(ctx, shard, evidence.FrontierIndexes(int64(p.First)-1))
	if err != nil && !Damaged(err) {
		return 0, 0, nil, fmt.Errorf("reading the tree before the time range: %w", err)
	}
	return p.First, to, p, nil
}

// Extension is a kept checkpoint with the proof that a shard's newest one, of
// size newest, extends it; without a proof, if the stored hashes give none.
func (l Ledger) Extension(ctx context.Context, shard string, p evidence.Published, newest int64) (evidence.Extension, error) {
	e := evidence.Extension{Published: p}
	c, err := evidence.PeekCheckpoint(p.Text)
	if err != nil || c.Shard != shard || c.Size < 1 || c.Size > newest {
		return e, nil // verification says what is wrong with it
	}
	if e.Proof, err = l.Consistency(ctx, shard, c.Size, newest); err != nil && !Damaged(err) {
		return e, err
	}
	return e, nil
}

func workers(n int) int {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	return min(n, 32)
}

// ProofOf makes the proof that a record is in the newest signed tree
// (evidence.FormatProof); storage.ErrNotFound when there is no such record or
// nothing is signed yet.
func (l Ledger) ProofOf(ctx context.Context, shard string, seq uint64) (string, error) {
	record, gone := "", ""
	if err := l.DB.Scan(ctx, shard, seq, seq, func(r storage.EvidenceRow) (err error) {
		record = r.Record
		gone, err = l.Reasons().Of(ctx, rowOf(r))
		return err
	}); err != nil {
		return "", err
	}
	switch {
	case gone != "":
		return "", fmt.Errorf("%w: the text of the record is gone, and there is nothing to prove: %s", storage.ErrNotFound, gone)
	case record == "":
		return "", storage.ErrNotFound
	}
	cp, err := l.DB.LatestCheckpoint(ctx, shard)
	if err != nil {
		return "", err
	}
	if cp.Size < seq {
		return "", fmt.Errorf("record %d is not covered by a checkpoint yet: try again in a moment", seq)
	}
	proofs, err := l.Inclusion(ctx, shard, int64(cp.Size), []uint64{seq})
	if err != nil {
		return "", err
	}
	return evidence.FormatProof(record, seq, proofs[0], cp.Note), nil
}

// Consistency proves from the stored hashes that the tree of size newer begins
// with that of size older. Nobody has checked the proof yet.
func (l Ledger) Consistency(ctx context.Context, shard string, older, newer int64) (tlog.TreeProof, error) {
	proof, err := evidence.ConsistencyProof(l.hashReader(ctx, shard), older, newer)
	if err != nil {
		return nil, fmt.Errorf("proving that size %d extends size %d: %w", newer, older, err)
	}
	return proof, nil
}
