package verify

import (
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// Published is a signed checkpoint and where it was found: a table, a stream, a file. Source is used
// in messages only.
type Published struct{ Source, Text string }

// Options says what a shard is verified against.
type Options struct {
	Shard string        // the shard and incarnation that the rows must have
	Space subject.Space // the prefix of its subjects
	// Keys are the trusted checkpoint keys. Without one the verification fails.
	Keys []note.Verifier
	// Checkpoints are all known checkpoints of this shard, in any order: from the table,
	// from the stream, from witnesses, from a private copy.
	Checkpoints []Published
	// Witnesses are keys of outside witnesses (NewWitness). At least one checkpoint must hold
	// and be signed by Quorum of them (by all, if Quorum is 0).
	Witnesses []note.Verifier
	Quorum    int
	// Cosigners are keys of witnesses with signatures that are reported (Report.Cosigned) but
	// not required.
	Cosigners []note.Verifier
	// ReceiptKeys are published receipt keys in addition to those in the log. They are
	// trusted only if vouched for.
	ReceiptKeys []events.KeyRecord
	// KeyHints are keys that may appear in the log. With them, signatures can be checked
	// before the row with the key is read. They are not trusted.
	KeyHints    []events.KeyRecord
	Retired     []Retired // retirements of keys that the rows do not show
	Receipts    []string  // compact receipts; the log must have the decision of each
	MinRecords  int64     // fewest records that the shard must have
	MaxFindings int       // how many findings are listed; 0 means DefaultMaxFindings
	// Expiries are the expiry records that may explain missing texts. They are accepted
	// only if they are also among the rows, or are proved to be in the newest checkpoint.
	Expiries []ExpiryRecord
	// Part, if set, makes this the verification of a part of the shard.
	Part *Part
}

// Retired is the retirement of a key and the sequence of its record. If Seq is 0, the time
// in the record decides.
type Retired struct {
	Record events.KeyRetirement
	Seq    uint64
}

// Part describes rows that do not start at the first sequence. Sessions may have begun
// before it.
type Part struct {
	First    uint64      // sequence of the first row
	Frontier []tlog.Hash // stored hashes at FrontierIndexes(First-1); they need no trust
	// RequestsFrom is the sequence from which on a decision must have its request among the
	// rows. The rows before it only supply requests.
	RequestsFrom uint64
}

// Verifier checks a whole shard, row by row in sequence order. Of what grows with the log it
// keeps the head of every session, the right edge of the tree, the keys, and the checkpoints that
// the rows have not reached.
//
// The caller passes the rows to Row. To use several processors it passes them to Examiners
// in any order, and the results to Add in sequence order.
type Verifier struct {
	opts        Options
	rep         *Report
	rowExaminer *Examiner // used by Row
	trust       *trustChecker
	heads       map[events.SessionID]evidence.Head
	targets     checkpointTargets
	tree        tree.Tree

	expiries *expiryIndex

	next           uint64 // the next expected sequence
	lastStoredHash [32]byte
	lastTextHash   [32]byte
	noGaps         bool // no row is missing so far, so roots can be computed
}

// NewVerifier makes a verifier and checks the checkpoints' signatures.
func NewVerifier(opts Options) *Verifier {
	rep := newReport(opts.MaxFindings)
	rep.Shard = opts.Shard
	opts.Keys = tree.DistinctKeys(opts.Keys)
	v := &Verifier{opts: opts, rep: rep, next: 1, noGaps: true, heads: map[events.SessionID]evidence.Head{},
		trust: newTrust(rep, opts.Keys, opts.ReceiptKeys, opts.KeyHints, opts.Receipts)}
	for _, r := range opts.Retired {
		v.trust.retireKey(r.Seq, r.Record)
	}
	v.rowExaminer = v.newExaminer(v.trust.hints)
	if len(opts.Keys) == 0 {
		rep.addFinding(CodeNoTrustedKey, 0, "", "no checkpoint key was given, so nothing that is signed can be checked")
	} else {
		v.targets = openTargets(rep, opts)
	}
	v.opts.Checkpoints = nil
	v.expiries = openExpiries(opts)
	if newest, signed := v.targets.newest(); signed {
		v.expiries.confirmProved(opts.Expiries, newest)
	}
	if opts.Part != nil {
		v.beginPart(*opts.Part)
	}
	v.compareTargets()
	return v
}

// beginPart sets the verifier to the beginning of a part.
func (v *Verifier) beginPart(p Part) {
	v.rep.From, v.next, v.trust.requestsFrom = p.First, p.First, p.RequestsFrom
	merkle, err := tree.New(int64(p.First)-1, p.Frontier)
	if p.First == 0 || err != nil {
		v.rep.addFinding(CodeRange, p.First, "", "the stored hashes do not fit the beginning of the range")
		v.noGaps = false
		return
	}
	v.tree = *merkle
	v.targets.skipTo(merkle.Size())
}

// Row verifies the next row.
func (v *Verifier) Row(r evidence.Row) {
	var x Examined
	v.rowExaminer.Examine(&r, &x)
	v.Add(&x)
}

// Add verifies the next row after an Examiner has examined it.
func (v *Verifier) Add(x *Examined) {
	switch {
	case x.foreignShard != "":
		v.rep.addFinding(CodeShard, x.seq, "shard", "a row of %.120q among those of %.120q", x.foreignShard, v.opts.Shard)
		return
	case x.seq < v.next:
		v.reportRepeated(x)
		return
	case x.seq > v.next:
		v.rep.addFinding(CodeGap, v.next, "seq", "%d missing: no record from sequence %d to %d", x.seq-v.next, v.next, x.seq-1)
		v.noGaps = false
	}
	v.next, v.lastStoredHash, v.lastTextHash = x.seq+1, x.storedHash, x.textHash
	v.rep.Records++
	v.reportExamined(x)
	v.followChain(x)
	v.trust.addRow(x)
	if v.noGaps {
		v.tree.AppendLeaf(x.leaf)
	}
	v.compareTargets()
}

// reportExamined adds the findings of the Examiner to the report.
func (v *Verifier) reportExamined(x *Examined) {
	for _, p := range x.findings {
		v.rep.appendFinding(p)
	}
	if x.comparedWithLog {
		v.rep.Compared++
	}
	v.expiries.confirmRow(x)
	v.resolveExpired(x)
}

// reportOpen reports what is still open after the last row.
func (v *Verifier) reportOpen() {
	v.trust.reportOpen()
	v.expiries.reportUnconfirmed(v.rep)
}

// reportRepeated reports a row with a sequence that an earlier row had. Two rows are the same
// record only if their texts are, because an attacker can write any stored hash.
func (v *Verifier) reportRepeated(x *Examined) {
	switch {
	case x.seq+1 != v.next:
		v.rep.addFinding(CodeRowOrder, x.seq, "seq", "sequence %d comes after %d", x.seq, v.next-1)
	case x.storedHash == v.lastStoredHash && x.textHash == v.lastTextHash:
		v.rep.addFinding(CodeDuplicate, x.seq, "seq", "the same record is there twice")
	case x.textHash == v.lastTextHash:
		v.rep.addFinding(CodeConflict, x.seq, "record_hash", "one record is there twice, with two stored hashes: %x and %x", shortHash(v.lastStoredHash), shortHash(x.storedHash))
	default:
		v.rep.addFinding(CodeConflict, x.seq, "record", "two records for one sequence; their texts hash to %x and %x", shortHash(v.lastTextHash), shortHash(x.textHash))
	}
}

// followChain checks the row's place in its session's chain. After a text that cannot be read
// it continues with the stored hash, so that one broken row is one finding.
func (v *Verifier) followChain(x *Examined) {
	if x.expired {
		v.chainExpired(x)
		return
	}
	p := x.place
	if x.key.Session == "" {
		if x.readable && (p.indexed || p.chained) {
			v.rep.addFinding(CodeChain, x.seq, "session_index", "a record without a session has a place in one")
		}
		return
	}
	head, known := v.heads[x.key]
	if !known && v.opts.Part != nil && x.readable && p.indexed && p.index > 1 && p.chained && p.malformedPrev == "" {
		head = evidence.Head{Index: p.index - 1, Hash: p.prev} // the session began before the part
	}
	next := evidence.Head{Index: head.Index + 1, Hash: x.storedHash}
	if x.readable {
		if !p.indexed || p.index != next.Index {
			v.rep.addFinding(CodeChain, x.seq, "session_index", "session %.64q: index %s follows %d", x.key.Session, p.indexText(), head.Index)
		}
		if !p.followsHead(head) {
			v.rep.addFinding(CodeChain, x.seq, "session_prev", "session %.64q: the record before has hash %.16s, this one names %.16s", x.key.Session, prevText(head), p.prevText())
		}
		if p.indexed {
			next.Index = p.index
		}
	}
	v.heads[x.key] = next
}

// compareTargets compares the current root with every checkpoint of the current size.
func (v *Verifier) compareTargets() {
	for v.noGaps && v.targets.hasTarget(v.tree.Size()) {
		v.targets.compareRoot(v.rep, v.tree.Root())
	}
}

// ProveExpiries accepts proofs that some of the options' expiry records are in the checkpoint
// that Newest returns. The verification of a part needs it if its rows do not include them.
func (v *Verifier) ProveExpiries(list []ExpiryRecord) {
	if newest, signed := v.targets.newest(); signed {
		v.expiries.confirmProved(list, newest)
	}
}

// Size is the size of the tree over the rows so far.
func (v *Verifier) Size() int64 { return v.tree.Size() }

// Newest is the largest validly signed checkpoint that the rows have not reached yet, if any.
func (v *Verifier) Newest() (tree.Checkpoint, bool) { return v.targets.newest() }

// Finish ends the verification and returns the report. No row may follow.
func (v *Verifier) Finish() Report { return v.finishReport(nil) }

// FinishPart ends the verification of a part. proof (ConsistencyProof) leads from the tree
// over the last row to the tree of the newest checkpoint. It proves that every row of the
// part is in the signed tree, at its place.
func (v *Verifier) FinishPart(proof tlog.TreeProof) Report {
	return v.finishReport(func() { v.targets.proveExtension(v.rep, v.opts.Shard, v.tree, v.noGaps, proof) })
}

func (v *Verifier) finishReport(extend func()) Report {
	rep, reached := v.rep, int64(v.next-1)
	if extend != nil {
		extend()
		rep.To = v.next - 1
	}
	v.targets.reportUnmet(rep, v.noGaps, reached, v.opts)
	v.reportOpen()
	if len(v.opts.Keys) > 0 && v.targets.comparedSize == 0 && len(v.targets.open) == 0 {
		detail := "no valid checkpoint covers the rows; a running auditor signs one within seconds"
		if rep.Records == 0 {
			detail = "there is no record of this shard, and no checkpoint that signs one: is its name right, or was all of it deleted?"
		}
		rep.addFinding(CodeNoCheckpoint, 0, "", "%s", detail)
	}
	if reached < v.opts.MinRecords {
		rep.addFinding(CodeTooShort, 0, "", "the rows end at %d, at least %d were expected", reached, v.opts.MinRecords)
	}
	rep.Sessions, rep.Size = len(v.heads), v.tree.Size()
	rep.AfterCheckpoint = max(0, reached-rep.Signed)
	rep.Root = v.tree.Root()
	rep.OK = rep.Total == 0
	return *rep
}
