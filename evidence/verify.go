package evidence

import (
	"slices"

	"golang.org/x/mod/sumdb/note"

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
	// table, from the stream, from witnesses.
	Checkpoints []Published
	// ReceiptKeys are published receipt keys beside those in the log. They count
	// only when vouched for.
	ReceiptKeys []events.KeyRecord
	Receipts    []string // compact receipts whose decisions must be in the log
	AtLeast     int64    // how many records there must be at least
	MaxProblems int      // how many problems are listed; 0 means DefaultMaxProblems
}

// Verifier checks a whole shard, row by row in sequence order. It keeps the
// head of every session and the edge of the tree, and nothing else that grows
// with the log.
type Verifier struct {
	opts  VerifyOptions
	rep   *Report
	check rowChecker
	tree  Tree
	marks []mark // verified checkpoints, by size
	next  uint64 // the sequence that must come now
	last  [32]byte
	whole bool  // no row is missing so far, so roots can be computed
	met   int64 // size of the last checkpoint compared
}

// mark is a checkpoint to be met.
type mark struct {
	Checkpoint
	source string
}

// NewVerifier checks the checkpoints' signatures and waits for rows.
func NewVerifier(opts VerifyOptions) *Verifier {
	rep := newReport(opts.MaxProblems)
	rep.Shard = opts.Shard
	opts.Keys = distinct(opts.Keys)
	v := &Verifier{opts: opts, rep: rep, next: 1, whole: true}
	v.check = rowChecker{rep: rep, space: opts.Space, heads: map[SessionKey]Head{},
		trust: newTrust(rep, opts.Keys, opts.ReceiptKeys, opts.Receipts)}
	if len(opts.Keys) == 0 {
		rep.add(CodeNoTrustedKey, 0, "", "no checkpoint key was given, so nothing that is signed can be checked")
		return v
	}
	v.marks = openMarks(rep, opts.Shard, opts.Checkpoints, opts.Keys)
	v.meet()
	return v
}

// distinct drops keys given twice; note takes a repetition for a trick.
func distinct(keys []note.Verifier) []note.Verifier {
	type id struct {
		name string
		hash uint32
	}
	seen := map[id]bool{}
	var out []note.Verifier
	for _, k := range keys {
		if i := (id{k.Name(), k.KeyHash()}); !seen[i] {
			seen[i] = true
			out = append(out, k)
		}
	}
	return out
}

// openMarks opens checkpoints, drops repetitions and reports forks.
func openMarks(rep *Report, shard string, list []Published, keys []note.Verifier) []mark {
	known := note.VerifierList(keys...)
	var marks []mark
	for _, p := range list {
		c, err := OpenCheckpoint(p.Text, known)
		switch {
		case err != nil:
			rep.add(CodeCheckpoint, 0, p.Source, "%v", err)
		case c.Shard != shard:
			rep.add(CodeCheckpointShard, 0, p.Source, "a checkpoint of %.120q, not of %.120q", c.Shard, shard)
		default:
			marks = append(marks, mark{c, p.Source})
		}
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return int(a.Size - b.Size) })
	out := marks[:0]
	for _, m := range marks {
		if n := len(out); n > 0 && out[n-1].Size == m.Size {
			if out[n-1].Root != m.Root {
				rep.add(CodeCheckpointFork, uint64(m.Size), m.source, "two signed roots for size %d: %.12s in %s and %.12s", m.Size, out[n-1].Root, out[n-1].source, m.Root)
			}
			continue
		}
		out = append(out, m)
	}
	return out
}

// Row takes the next row.
func (v *Verifier) Row(r Row) {
	switch {
	case r.Shard != v.opts.Shard:
		v.rep.add(CodeShard, r.Seq, "shard", "a row of %.120q among those of %.120q", r.Shard, v.opts.Shard)
		return
	case r.Seq < v.next:
		v.repeated(r)
		return
	case r.Seq > v.next:
		v.rep.add(CodeGap, v.next, "seq", "%d missing: no record from sequence %d to %d", r.Seq-v.next, v.next, r.Seq-1)
		v.whole = false
	}
	v.next, v.last = r.Seq+1, r.RecordHash
	v.rep.Records++
	v.check.row(r)
	if v.whole {
		v.tree.Append(r.RecordHash)
	}
	v.meet()
}

func (v *Verifier) repeated(r Row) {
	switch {
	case r.Seq+1 != v.next:
		v.rep.add(CodeRowOrder, r.Seq, "seq", "sequence %d comes after %d", r.Seq, v.next-1)
	case r.RecordHash == v.last:
		v.rep.add(CodeDuplicate, r.Seq, "seq", "the same record is there twice")
	default:
		v.rep.add(CodeConflict, r.Seq, "record_hash", "two records for one sequence: %x and %x", short(v.last), short(r.RecordHash))
	}
}

// meet compares the root with every checkpoint of the size reached.
func (v *Verifier) meet() {
	for v.whole && len(v.marks) > 0 && v.marks[0].Size <= v.tree.Size() {
		m := v.marks[0]
		v.marks = v.marks[1:]
		v.rep.Checkpoints++
		v.met = m.Size
		if got := v.tree.Root(); got != m.Root {
			v.rep.add(CodeRoot, uint64(m.Size), m.source, "the rows up to %d give root %.12s, signed is %.12s", m.Size, got, m.Root)
		} else {
			v.rep.Signed = m.Size
		}
	}
}

// Finish ends the verification. No row may follow.
func (v *Verifier) Finish() Report {
	v.check.trust.finish()
	rep, reached := v.rep, int64(v.next-1)
	if n := len(v.marks); n > 0 {
		if newest := v.marks[n-1]; newest.Size > reached {
			rep.add(CodeCheckpointAhead, uint64(newest.Size), newest.source, "the log had %d records when this checkpoint was signed; the rows end at %d", newest.Size, reached)
		}
		if !v.whole {
			rep.add(CodeRootsUnchecked, 0, "", "%d signed roots cannot be recomputed, because records are missing", n)
		}
	}
	if len(v.opts.Keys) > 0 && rep.Records > 0 && v.met == 0 && len(v.marks) == 0 {
		rep.add(CodeNoCheckpoint, 0, "", "no valid checkpoint covers the rows; the auditor signs one after each batch")
	}
	if reached < v.opts.AtLeast {
		rep.add(CodeTooShort, 0, "", "the rows end at %d, at least %d were expected", reached, v.opts.AtLeast)
	}
	rep.Sessions, rep.Size = len(v.check.heads), v.tree.Size()
	rep.Root = v.tree.Root()
	rep.OK = rep.Total == 0
	return *rep
}
