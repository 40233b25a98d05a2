package evidencereader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/schema"
)

// VerifyOptions define what to verify against, beside the stored checkpoints.
type VerifyOptions struct {
	Keys      []note.Verifier
	Published []verify.Published // checkpoints from other sources, of any shard
	// History are the auditor's published checkpoints, of any shard. Each must also be stored,
	// since it is stored before it is published. It is read once for a shard, and not held. What it
	// has is fixed when its first one is read.
	History    iter.Seq2[verify.Published, error]
	Witnesses  []note.Verifier // see verify.Options
	Quorum     int
	Cosigners  []note.Verifier // see verify.Options
	Receipts   []string        // compact
	MinRecords int64
	Progress   func(done, total uint64)
	Workers    int // concurrent examiners; 0: one per processor

	// Since and Until limit the verification to what the broker stored at or after Since and
	// before Until. The rest is proved as a part of the signed tree.
	Since, Until time.Time

	// Log reads a message of the shard's log, nil if it is erased. With it, the newest Compare
	// decisions and approvals (all if Compare is negative) and every record that the newest
	// checkpoint does not cover are compared with the log. LogOf is the shard of that log; ""
	// means the verified shard.
	Log     func(ctx context.Context, seq uint64) (*events.LogMessage, error)
	LogOf   string
	Compare int
	// SignaturesOnly compares only the records with a signature that only the log shows.
	SignaturesOnly bool

	// Derived also compares the derived tables with the records. It takes the server about as
	// long as the rest.
	Derived bool

	maxFindings       int           // that a report lists; 0: verify.DefaultMaxFindings
	sink              rowSink       // of rows that the newest checkpoint covers
	stretch, leadSize uint64        // for tests; 0: stretchSize, leadRecords
	pause             time.Duration // for tests; 0: derivedPause
}

// leadRecords is how many records before a part are also read, for the requests of its first
// decisions: a decision follows its request within a few messages.
const leadRecords uint64 = 2048

// ErrEmptyRange reports that no record is in the time range.
var ErrEmptyRange = errors.New("no record in this time range")

// Verify recomputes one shard, or the part of it between two times, from its rows and
// checkpoints. It reads checkpoints before rows: the rows that they sign must exist by then.
func (rd Reader) Verify(ctx context.Context, shard string, o VerifyOptions) (verify.Report, error) {
	options := verify.Options{Shard: shard, Space: rd.Space, Keys: o.Keys, Witnesses: o.Witnesses, Quorum: o.Quorum, Cosigners: o.Cosigners, Receipts: o.Receipts, MinRecords: o.MinRecords, MaxFindings: o.maxFindings}
	var err error
	var lost []verify.Finding
	if options.Checkpoints, lost, err = rd.gatherCheckpoints(ctx, shard, o); err != nil {
		return verify.Report{}, err
	}
	keys, retired, err := rd.keyHistory(ctx, shard, o.Keys)
	if err != nil {
		return verify.Report{}, err
	}
	options.KeyHints = keys
	if options.Expiries, err = rd.expiryRecords(ctx, shard, o.Keys, func(events.Expiry) bool { return true }); err != nil {
		return verify.Report{}, err
	}
	from, to := uint64(0), storage.AllSequences
	if !o.Since.IsZero() || !o.Until.IsZero() {
		if from, to, options.Part, err = rd.findPart(ctx, shard, o); err != nil {
			return verify.Report{}, err
		}
		options.ReceiptKeys, options.Retired = keys, retired
	}
	v := verify.NewVerifier(options)
	options.Checkpoints = nil // there may be a million

	if newest, signed := v.Newest(); signed && options.Part != nil { // the rows of a part do not include them
		if err := rd.ProveExpiries(ctx, shard, newest.Size, options.Expiries); err != nil {
			return verify.Report{}, err
		}
		v.ProveExpiries(options.Expiries)
	}
	if err := rd.verifyRange(ctx, v, shard, from, to, o); err != nil {
		return verify.Report{}, fmt.Errorf("reading the evidence: %w", err)
	}
	if options.Part == nil {
		return rd.finishReport(ctx, v.Finish(), shard, from, to, lost, o)
	}
	var proof tlog.TreeProof
	if newest, signed := v.Newest(); signed && v.Size() > 0 && v.Size() <= newest.Size {
		// The report lists missing or damaged hashes.
		if proof, err = rd.ConsistencyProof(ctx, shard, v.Size(), newest.Size); err != nil && !IsDamaged(err) {
			return verify.Report{}, err
		}
	}
	return rd.finishReport(ctx, v.FinishPart(proof), shard, options.Part.First, to, lost, o)
}

// finishReport compares the derived tables and sets what the report rests on.
func (rd Reader) finishReport(ctx context.Context, rep verify.Report, shard string, from, to uint64, lost []verify.Finding, o VerifyOptions) (verify.Report, error) {
	rep.AddFindings(lost...)
	_, hidden := rep.FirstIncompleteness()
	rep.Proved = !hidden && rep.From == 0
	rep.RestsOn = "rests on: every record of the shard was read, and the signed tree computed from them"
	if rep.From > 0 {
		rep.RestsOn = "rests on: every record between the first and the last whose column broker_time lies in the range was read; that the columns are right, a verification of the whole shard proves"
	}
	if rep.AfterCheckpoint > 0 {
		rep.RestsOn += notProvedText(rep.AfterCheckpoint, o.Log != nil && (o.LogOf == "" || o.LogOf == shard))
	}
	if !o.Derived {
		rep.RestsOn += "; the derived tables were not compared"
		return rep, nil
	}
	differing, err := rd.compareDerived(ctx, shard, from, to, o)
	if err != nil {
		return verify.Report{}, err
	}
	rep.AddFindings(differing...)
	rep.Derived = uint64(rep.Size)
	rep.RestsOn += "; the derived tables were made again from the records and compared"
	return rep, nil
}

// notProvedText describes records that no checkpoint covers.
func notProvedText(n int64, compared bool) string {
	if compared {
		return fmt.Sprintf("; the last %d records are not signed yet and NOT proved: they were compared with the log (where something is redacted, other than in decisions and approvals, subject and time alone)", n)
	}
	return fmt.Sprintf("; the last %d records are not signed yet and NOT proved, and were not compared with the log", n)
}

// IsDamaged reports whether an error is about the stored data and not about the access to it.
func IsDamaged(err error) bool {
	var conflict *storage.ConflictError
	return errors.Is(err, storage.ErrNotFound) || errors.As(err, &conflict)
}

// gatherCheckpoints lists the stored checkpoints of a shard, and those from other sources that
// may be of it. Published ones that are not stored are returned as findings (lost).
func (rd Reader) gatherCheckpoints(ctx context.Context, shard string, o VerifyOptions) (list []verify.Published, lost []verify.Finding, err error) {
	// The history begins before the stored checkpoints are read, so each of it is stored by then.
	history, stop := beginHistory(o.History)
	defer stop()
	rows, err := rd.DB.Checkpoints(ctx, shard)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the checkpoints: %w", err)
	}
	for _, c := range rows {
		list = append(list, verify.Published{Source: "table checkpoints", Text: c.Note})
	}
	slices.SortFunc(list, byText)
	stored := list // whose answer decides: the server is not asked again (ADR 10)
	isStored := func(p verify.Published) bool {
		_, found := slices.BinarySearchFunc(stored, p, byText)
		return found
	}
	var missing []missingCheckpoint
	for p, err := range history {
		if err != nil {
			return nil, nil, err
		}
		if c, err := tree.PeekCheckpoint(p.Text); (err != nil || c.Shard == shard) && !isStored(p) {
			missing = append(missing, missingCheckpoint{p, uint64(max(0, c.Size))})
		}
	}
	slices.SortStableFunc(missing, func(a, b missingCheckpoint) int {
		return cmp.Or(cmp.Compare(a.size, b.size), byText(a.Published, b.Published))
	})
	missing = slices.CompactFunc(missing, func(a, b missingCheckpoint) bool { return a.Text == b.Text })
	for _, c := range missing {
		list = append(list, c.Published)
		lost = append(lost, verify.Finding{Code: verify.CodeCheckpointLost, Seq: c.size, Field: "table checkpoints",
			Detail: fmt.Sprintf("the checkpoint of this size was published (%s) and is not stored", c.Source)})
	}
	for _, p := range o.Published {
		known := o.History != nil && (isStored(p) || slices.ContainsFunc(missing, func(m missingCheckpoint) bool { return m.Text == p.Text }))
		if c, err := tree.PeekCheckpoint(p.Text); err == nil && c.Shard != shard || known {
			continue
		}
		list = append(list, p)
	}
	return list, lost, nil
}

// missingCheckpoint is a published checkpoint that is not stored.
type missingCheckpoint struct {
	verify.Published
	size uint64 // 0 if it cannot be read
}

func byText(a, b verify.Published) int { return strings.Compare(a.Text, b.Text) }

// beginHistory reads the first of the published checkpoints, which fixes what the rest is, and
// returns all of them. The caller calls stop.
func beginHistory(history iter.Seq2[verify.Published, error]) (all iter.Seq2[verify.Published, error], stop func()) {
	if history == nil {
		return func(func(verify.Published, error) bool) {}, func() {}
	}
	next, stop := iter.Pull2(history)
	p, err, more := next()
	return func(yield func(verify.Published, error) bool) {
		for ; more && yield(p, err); p, err, more = next() {
		}
	}, stop
}

// findPart finds the sequences of a time range, and the tree's right edge before it.
func (rd Reader) findPart(ctx context.Context, shard string, o VerifyOptions) (from, to uint64, p *verify.Part, err error) {
	first, to, err := rd.DB.SequencesBetween(ctx, shard, o.Since, o.Until)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("looking for the time range: %w", err)
	}
	if first == 0 {
		return 0, 0, nil, fmt.Errorf("%w of shard %s", ErrEmptyRange, shard)
	}
	before := cmp.Or(o.leadSize, leadRecords)
	p = &verify.Part{First: max(first, before+1) - before, RequestsFrom: first}
	p.Frontier, err = rd.readHashes(ctx, shard, tree.FrontierIndexes(int64(p.First)-1))
	if err != nil && !IsDamaged(err) {
		return 0, 0, nil, fmt.Errorf("reading the tree before the time range: %w", err)
	}
	return p.First, to, p, nil
}

// Extension returns a kept checkpoint with the proof that a shard's newest one, of size newest,
// extends it; without a proof if the stored hashes do not give one.
func (rd Reader) Extension(ctx context.Context, shard string, p verify.Published, newest int64) (verify.Extension, error) {
	e := verify.Extension{Published: p}
	c, err := tree.PeekCheckpoint(p.Text)
	if err != nil || c.Shard != shard || c.Size < 1 || c.Size > newest {
		return e, nil // verification reports what is wrong with it
	}
	if e.Proof, err = rd.ConsistencyProof(ctx, shard, c.Size, newest); err != nil && !IsDamaged(err) {
		return e, err
	}
	return e, nil
}

func workerCount(n int) int {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	return min(n, 32)
}

// ProofOf makes the proof that a record is in the newest signed tree (verify.FormatProof). It
// returns storage.ErrNotFound if there is no such record or nothing is signed yet.
func (rd Reader) ProofOf(ctx context.Context, shard string, seq uint64) (string, error) {
	record, gone := "", ""
	if err := rd.DB.Scan(ctx, shard, seq, seq, func(r storage.EvidenceRow) (err error) {
		record = r.Record
		gone, err = rd.NewExpiryReasons().ReasonFor(ctx, rowOf(r))
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
	cp, err := rd.DB.LatestCheckpoint(ctx, shard)
	if err != nil {
		return "", err
	}
	if cp.Size < seq {
		return "", fmt.Errorf("record %d is not covered by a checkpoint yet: try again in a moment", seq)
	}
	proofs, err := rd.InclusionProofs(ctx, shard, int64(cp.Size), []uint64{seq})
	if err != nil {
		return "", err
	}
	return verify.FormatProof(record, seq, proofs[0], cp.Note), nil
}

// ConsistencyProof makes, from the stored hashes, the proof that the tree of size newer extends
// that of size older. The proof is not checked here.
func (rd Reader) ConsistencyProof(ctx context.Context, shard string, older, newer int64) (tlog.TreeProof, error) {
	proof, err := tree.ConsistencyProof(rd.hashReader(ctx, shard), older, newer)
	if err != nil {
		return nil, fmt.Errorf("proving that size %d extends size %d: %w", newer, older, err)
	}
	return proof, nil
}

// SchemaFindings reports tables, views and columns that differ from the migrations, and row
// policies that hide rows. policies is false if the user may not read the row policies.
func (rd Reader) SchemaFindings(ctx context.Context) (list []verify.Finding, policies bool, err error) {
	differing, policies, err := schema.Differences(ctx, rd.DB.Pool())
	if err != nil {
		return nil, false, fmt.Errorf("comparing the schema: %w", err)
	}
	for _, d := range differing {
		list = append(list, verify.Finding{Code: verify.CodeSchema, Field: schemaField(d), Detail: d.Detail})
	}
	return list, policies, nil
}

func schemaField(d schema.Difference) string {
	switch {
	case d.Column != "":
		return "table " + d.Table + ", column " + d.Column
	case d.Table == "":
		return "all tables"
	}
	return "table " + d.Table
}
