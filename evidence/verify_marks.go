package evidence

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// mark is a checkpoint to be met.
type mark struct {
	Checkpoint
	source    string
	witnessed map[string]bool // by which of the demanded witnesses
	cosigned  []Cosignature   // by any that is known
}

// marks are the checkpoints that the rows must meet, the smallest first.
type marks struct {
	open   []mark // still to come
	failed []mark // whose roots the rows do not give
	met    int64  // size of the last one compared
	quorum int
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
func openMarks(rep *Report, o VerifyOptions) marks {
	known, witnesses := note.VerifierList(o.Keys...), distinct(o.Witnesses)
	told := distinct(slices.Concat(o.Witnesses, o.Cosigners))
	var list []mark
	for _, p := range o.Checkpoints {
		c, err := OpenCheckpoint(p.Text, known)
		switch {
		case err != nil:
			rep.add(CodeCheckpoint, 0, p.Source, "%v", err)
		case c.Shard != o.Shard:
			rep.add(CodeCheckpointShard, 0, p.Source, "a checkpoint of %.120q, not of %.120q", c.Shard, o.Shard)
		default:
			list = append(list, markWith(c, p, witnesses, told))
		}
	}
	slices.SortStableFunc(list, func(a, b mark) int { return int(a.Size - b.Size) })
	out := marks{quorum: o.Quorum}
	if out.quorum <= 0 {
		out.quorum = len(witnesses)
	}
	for _, m := range list {
		n := len(out.open)
		if n == 0 || out.open[n-1].Size != m.Size {
			out.open = append(out.open, m)
			continue
		}
		before := &out.open[n-1]
		if before.Root != m.Root {
			rep.add(CodeCheckpointFork, uint64(m.Size), m.source, "two signed roots for size %d: %.12s in %s and %.12s", m.Size, before.Root, before.source, m.Root)
		} else {
			maps.Copy(before.witnessed, m.witnessed)
			before.cosigned = append(before.cosigned, m.cosigned...)
		}
	}
	return out
}

func markWith(c Checkpoint, p Published, witnesses, told []note.Verifier) mark {
	m := mark{Checkpoint: c, source: p.Source, witnessed: map[string]bool{}, cosigned: Cosignatures(p.Text, told)}
	for _, w := range witnesses {
		if len(Cosigners(p.Text, []note.Verifier{w})) > 0 {
			m.witnessed[fmt.Sprintf("%s+%08x", w.Name(), w.KeyHash())] = true
		}
	}
	return m
}

// cosigned notes who signed a checkpoint that holds. Of a witness the largest
// counts, and of the same one signed twice the first.
func (r *Report) cosigned(list []Cosignature) {
	for _, c := range list {
		i := slices.IndexFunc(r.Cosigned, func(have Cosignature) bool { return have.Witness == c.Witness })
		switch {
		case i < 0:
			r.Cosigned = append(r.Cosigned, c)
		case r.Cosigned[i].Size < c.Size, r.Cosigned[i].Size == c.Size && c.At.Before(r.Cosigned[i].At.Time):
			r.Cosigned[i] = c
		}
	}
}

// due reports whether there is a checkpoint of this size, or a smaller one.
func (m *marks) due(size int64) bool { return len(m.open) > 0 && m.open[0].Size <= size }

// newest is the largest checkpoint that is still to come.
func (m *marks) newest() (Checkpoint, bool) {
	if n := len(m.open); n > 0 {
		return m.open[n-1].Checkpoint, true
	}
	return Checkpoint{}, false
}

// skip passes over checkpoints of trees that end before a part begins.
func (m *marks) skip(size int64) {
	m.open = slices.DeleteFunc(m.open, func(one mark) bool { return one.Size < size })
}

// meet compares the next checkpoint's root with the rows'.
func (m *marks) meet(rep *Report, root tlog.Hash) {
	one := m.open[0]
	m.open = m.open[1:]
	m.met = one.Size
	rep.Checkpoints++
	if one.Root != root {
		m.failed = append(m.failed, one)
		return
	}
	m.holds(rep, one)
}

// holds notes a checkpoint that the rows meet. It covers every row before it, so
// a smaller one that they do not meet was signed for another history.
func (m *marks) holds(rep *Report, one mark) {
	rep.Signed = one.Size
	rep.cosigned(one.cosigned)
	if m.quorum > 0 && len(one.witnessed) >= m.quorum {
		rep.Witnessed = one.Size
	}
	for _, f := range m.failed {
		rep.add(CodeCheckpointFork, uint64(f.Size), f.source,
			"signed, and not of this log: the rows up to %d do not give root %.12s, and those up to %d give the signed one; the signer signed two histories", f.Size, f.Root, one.Size)
	}
	m.failed = nil
}

// extend checks that a tree is the beginning of the newest checkpoint's. The
// checkpoints between the two are left out of account.
func (m *marks) extend(rep *Report, shard string, tree Tree, whole bool, proof tlog.TreeProof) {
	if len(m.open) == 0 || !whole {
		return
	}
	newest := m.open[len(m.open)-1]
	m.open, m.met = nil, newest.Size
	rep.Checkpoints++
	if CheckConsistency(proof, Checkpoint{Shard: shard, Size: tree.Size(), Root: tree.Root()}, newest.Checkpoint) {
		m.holds(rep, newest)
	} else {
		rep.add(CodeRange, uint64(tree.Size()), newest.source, "the rows up to %d are not the beginning of the tree of size %d that is signed, or the stored tree hashes are damaged", tree.Size(), newest.Size)
	}
}

// finish reports the checkpoints that were not met, and missing witnesses.
func (m *marks) finish(rep *Report, whole bool, reached int64, o VerifyOptions) {
	for _, f := range m.failed {
		rep.add(CodeRoot, uint64(f.Size), f.source, "the rows up to %d do not give root %.12s, which is signed", f.Size, f.Root)
	}
	if n := len(m.open); n > 0 {
		if newest := m.open[n-1]; newest.Size > reached {
			rep.add(CodeCheckpointAhead, uint64(newest.Size), newest.source, "the log had %d records when this checkpoint was signed; the rows end at %d", newest.Size, reached)
		}
		if !whole {
			rep.add(CodeRootsUnchecked, 0, "", "%d signed roots cannot be recomputed, because records are missing", n)
		}
	}
	witnessQuorum(rep, m.quorum, len(distinct(o.Witnesses)))
}

func witnessQuorum(rep *Report, quorum, witnesses int) {
	if quorum > 0 && rep.Witnessed == 0 {
		rep.add(CodeWitnesses, 0, "", "no checkpoint that holds is signed by %d of the %d witnesses", quorum, witnesses)
	}
}
