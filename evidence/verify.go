package evidence

import (
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Published is a signed checkpoint and where it was found ("stored",
// "published", a file's name); the place is for messages only.
type Published struct{ Source, Text string }

// VerifyOptions says what a shard is verified against.
type VerifyOptions struct {
	Shard string        // the incarnation that the rows must be of
	Space subject.Space // the prefix of its subjects
	// Keys are the trusted checkpoint keys. Without one nothing can hold.
	Keys []note.Verifier
	// Checkpoints are all that are known, of this shard, in any order: from the
	// table, from the stream, from witnesses, from whoever kept one.
	Checkpoints []Published
	// Witnesses are keys of outside witnesses (NewWitness). One checkpoint at
	// least must be signed by Quorum of them (all, if it is 0), and hold.
	Witnesses []note.Verifier
	Quorum    int
	// Cosigners are keys of witnesses whose signatures are told of
	// (Report.Cosigned), and nothing is asked of.
	Cosigners []note.Verifier
	// ReceiptKeys are published receipt keys beside those in the log. They count
	// only when vouched for.
	ReceiptKeys []events.KeyRecord
	// KeyHints are keys that may turn up in the log: with them, signatures can be
	// checked before the key's own row has come. They are not trusted.
	KeyHints    []events.KeyRecord
	Retired     []Retired // of keys, where the rows do not show it
	Receipts    []string  // compact receipts whose decisions must be in the log
	MinRecords  int64     // how many records there must be at least
	MaxFindings int       // how many problems are listed; 0 means DefaultMaxProblems
	// Expiries are the expiry records that may explain missing texts. They count
	// only if they are among the rows too, or are proved to be in the newest
	// checkpoint.
	Expiries []ExpiryRecord
	// Part makes it the verification of a part of the shard.
	Part *Part
}

// Retired is the retirement of a key and the sequence of its record; with 0 the
// time that it names itself counts.
type Retired struct {
	Record events.KeyRetirement
	Seq    uint64
}

// Part says which rows come, if not all from the first one on. Sessions may have
// begun before it.
type Part struct {
	First    uint64      // sequence of the first row
	Frontier []tlog.Hash // stored hashes at FrontierIndexes(First-1); nobody has to vouch for them
	// RequestsFrom is from which sequence on a decision must have its request among the
	// rows; the rows before are there for the requests in them.
	RequestsFrom uint64
}

// Verifier checks a whole shard, row by row in sequence order. It keeps the
// head of every session and the edge of the tree, and nothing else that grows
// with the log.
//
// The rows go through Row; or, to use more than one processor, through Examiners
// in any order and then through Add in sequence order.
type Verifier struct {
	opts        VerifyOptions
	rep         *Report
	rowExaminer *Examiner // of Row
	trust       *trustChecker
	heads       map[SessionID]Head
	targets     checkpointTargets
	tree        Tree

	expiries *expiryIndex

	next           uint64 // the sequence that must come now
	lastStoredHash [32]byte
	lastTextHash   [32]byte
	noGaps         bool // no row is missing so far, so roots can be computed
}

// NewVerifier checks the checkpoints' signatures and waits for rows.
func NewVerifier(opts VerifyOptions) *Verifier {
	rep := newReport(opts.MaxFindings)
	rep.Shard = opts.Shard
	opts.Keys = distinctKeys(opts.Keys)
	v := &Verifier{opts: opts, rep: rep, next: 1, noGaps: true, heads: map[SessionID]Head{},
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

// beginPart skips what is before a part.
func (v *Verifier) beginPart(p Part) {
	v.rep.From, v.next, v.trust.requestsFrom = p.First, p.First, p.RequestsFrom
	tree, err := NewTree(int64(p.First)-1, p.Frontier)
	if p.First == 0 || err != nil {
		v.rep.addFinding(CodeRange, p.First, "", "the stored hashes do not fit the beginning of the range")
		v.noGaps = false
		return
	}
	v.tree = *tree
	v.targets.skipTo(tree.Size())
}

// Row takes the next row.
func (v *Verifier) Row(r Row) {
	var x Examined
	v.rowExaminer.Examine(&r, &x)
	v.Add(&x)
}

// Add takes the next row after an Examiner.
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
		v.tree.appendLeaf(x.leaf)
	}
	v.compareTargets()
}

// reportExamined reports what was wrong with the row in itself.
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

// reportOpen reports what is still open when all rows were seen.
func (v *Verifier) reportOpen() {
	v.trust.reportOpen()
	v.expiries.reportUnconfirmed(v.rep)
}

// reportRepeated reports a row whose sequence was there before. Two rows are the same
// record only if their texts are: a stored hash says whatever somebody wrote.
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

// followChain follows the session's chain. Behind a text that cannot be read it goes
// on by the stored hash, so that one broken row is one problem.
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
		head = Head{Index: p.index - 1, Hash: p.prev} // began before the part
	}
	next := Head{Index: head.Index + 1, Hash: x.storedHash}
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

// compareTargets compares the root with every checkpoint of the size reached.
func (v *Verifier) compareTargets() {
	for v.noGaps && v.targets.hasTarget(v.tree.size) {
		v.targets.compareRoot(v.rep, v.tree.Root())
	}
}

// ProveExpiries takes proofs that some of the options' expiry records are in the
// checkpoint that Newest gives: of a part, whose rows do not show it.
func (v *Verifier) ProveExpiries(list []ExpiryRecord) {
	if newest, signed := v.targets.newest(); signed {
		v.expiries.confirmProved(list, newest)
	}
}

// Size is the size of the tree over the rows so far.
func (v *Verifier) Size() int64 { return v.tree.Size() }

// Newest is the largest checkpoint that is validly signed, if there is one.
func (v *Verifier) Newest() (Checkpoint, bool) { return v.targets.newest() }

// Finish ends the verification. No row may follow.
func (v *Verifier) Finish() Report { return v.finishReport(nil) }

// FinishPart ends the verification of a part: proof leads from the tree over its
// last row to that of the newest checkpoint (ConsistencyProof). With it, every
// row of the part is proved to be in the signed tree, at its place.
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
	if len(v.opts.Keys) > 0 && rep.Records > 0 && v.targets.comparedSize == 0 && len(v.targets.open) == 0 {
		rep.addFinding(CodeNoCheckpoint, 0, "", "no valid checkpoint covers the rows; the auditor signs one after each batch")
	}
	if reached < v.opts.MinRecords {
		rep.addFinding(CodeTooShort, 0, "", "the rows end at %d, at least %d were expected", reached, v.opts.MinRecords)
	}
	rep.Sessions, rep.Size = len(v.heads), v.tree.Size()
	rep.NotSigned = max(0, reached-rep.Signed)
	rep.Root = v.tree.Root()
	rep.OK = rep.Total == 0
	return *rep
}
