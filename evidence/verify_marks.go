package evidence

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// checkpointTarget is a checkpoint to be met.
type checkpointTarget struct {
	Checkpoint
	source    string
	witnessed map[string]bool // by which of the demanded witnesses
	cosigned  []Cosignature   // by any that is known
}

// checkpointTargets are the checkpoints that the rows must meet, the smallest first.
type checkpointTargets struct {
	open         []checkpointTarget // still to come
	failed       []checkpointTarget // whose roots the rows do not give
	comparedSize int64              // size of the last one compared
	quorum       int
}

// distinctKeys drops keys given twice; note takes a repetition for a trick.
func distinctKeys(keys []note.Verifier) []note.Verifier {
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

// openTargets opens checkpoints, drops repetitions and reports forks.
func openTargets(rep *Report, o VerifyOptions) checkpointTargets {
	known, witnesses := note.VerifierList(o.Keys...), distinctKeys(o.Witnesses)
	told := distinctKeys(slices.Concat(o.Witnesses, o.Cosigners))
	var list []checkpointTarget
	for _, p := range o.Checkpoints {
		c, err := OpenCheckpoint(p.Text, known)
		switch {
		case err != nil:
			rep.addFinding(CodeCheckpoint, 0, p.Source, "%v", err)
		case c.Shard != o.Shard:
			rep.addFinding(CodeCheckpointShard, 0, p.Source, "a checkpoint of %.120q, not of %.120q", c.Shard, o.Shard)
		default:
			list = append(list, newTarget(c, p, witnesses, told))
		}
	}
	slices.SortStableFunc(list, func(a, b checkpointTarget) int { return int(a.Size - b.Size) })
	out := checkpointTargets{quorum: o.Quorum}
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
			rep.addFinding(CodeCheckpointFork, uint64(m.Size), m.source, "two signed roots for size %d: %.12s in %s and %.12s", m.Size, before.Root, before.source, m.Root)
		} else {
			maps.Copy(before.witnessed, m.witnessed)
			before.cosigned = append(before.cosigned, m.cosigned...)
		}
	}
	return out
}

func newTarget(c Checkpoint, p Published, witnesses, told []note.Verifier) checkpointTarget {
	m := checkpointTarget{Checkpoint: c, source: p.Source, witnessed: map[string]bool{}, cosigned: Cosignatures(p.Text, told)}
	for _, w := range witnesses {
		if len(Cosigners(p.Text, []note.Verifier{w})) > 0 {
			m.witnessed[fmt.Sprintf("%s+%08x", w.Name(), w.KeyHash())] = true
		}
	}
	return m
}

// addCosignatures notes who signed a checkpoint that holds. Of a witness the largest
// counts, and of the same one signed twice the first.
func (r *Report) addCosignatures(list []Cosignature) {
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

// hasTarget reports whether there is a checkpoint of this size, or a smaller one.
func (m *checkpointTargets) hasTarget(size int64) bool {
	return len(m.open) > 0 && m.open[0].Size <= size
}

// newest is the largest checkpoint that is still to come.
func (m *checkpointTargets) newest() (Checkpoint, bool) {
	if n := len(m.open); n > 0 {
		return m.open[n-1].Checkpoint, true
	}
	return Checkpoint{}, false
}

// skipTo passes over checkpoints of trees that end before a part begins.
func (m *checkpointTargets) skipTo(size int64) {
	m.open = slices.DeleteFunc(m.open, func(one checkpointTarget) bool { return one.Size < size })
}

// compareRoot compares the next checkpoint's root with the rows'.
func (m *checkpointTargets) compareRoot(rep *Report, root tlog.Hash) {
	one := m.open[0]
	m.open = m.open[1:]
	m.comparedSize = one.Size
	rep.Checkpoints++
	if one.Root != root {
		m.failed = append(m.failed, one)
		return
	}
	m.acceptTarget(rep, one)
}

// acceptTarget notes a checkpoint that the rows meet. It covers every row before it, so
// a smaller one that they do not meet was signed for another history.
func (m *checkpointTargets) acceptTarget(rep *Report, one checkpointTarget) {
	rep.Signed = one.Size
	rep.addCosignatures(one.cosigned)
	if m.quorum > 0 && len(one.witnessed) >= m.quorum {
		rep.Witnessed = one.Size
	}
	for _, f := range m.failed {
		rep.addFinding(CodeCheckpointFork, uint64(f.Size), f.source,
			"signed, and not of this log: the rows up to %d do not give root %.12s, and those up to %d give the signed one; the signer signed two histories", f.Size, f.Root, one.Size)
	}
	m.failed = nil
}

// proveExtension checks that a tree is the beginning of the newest checkpoint's. The
// checkpoints between the two are left out of account.
func (m *checkpointTargets) proveExtension(rep *Report, shard string, tree Tree, whole bool, proof tlog.TreeProof) {
	if len(m.open) == 0 || !whole {
		return
	}
	newest := m.open[len(m.open)-1]
	m.open, m.comparedSize = nil, newest.Size
	rep.Checkpoints++
	if CheckConsistency(proof, Checkpoint{Shard: shard, Size: tree.Size(), Root: tree.Root()}, newest.Checkpoint) {
		m.acceptTarget(rep, newest)
	} else {
		rep.addFinding(CodeRange, uint64(tree.Size()), newest.source, "the rows up to %d are not the beginning of the tree of size %d that is signed, or the stored tree hashes are damaged", tree.Size(), newest.Size)
	}
}

// reportUnmet reports the checkpoints that were not met, and missing witnesses.
func (m *checkpointTargets) reportUnmet(rep *Report, whole bool, reached int64, o VerifyOptions) {
	for _, f := range m.failed {
		rep.addFinding(CodeRoot, uint64(f.Size), f.source, "the rows up to %d do not give root %.12s, which is signed", f.Size, f.Root)
	}
	if n := len(m.open); n > 0 {
		if newest := m.open[n-1]; newest.Size > reached {
			rep.addFinding(CodeCheckpointAhead, uint64(newest.Size), newest.source, "the log had %d records when this checkpoint was signed; the rows end at %d", newest.Size, reached)
		}
		if !whole {
			rep.addFinding(CodeRootsUnchecked, 0, "", "%d signed roots cannot be recomputed, because records are missing", n)
		}
	}
	witnessQuorum(rep, m.quorum, len(distinctKeys(o.Witnesses)))
}

func witnessQuorum(rep *Report, quorum, witnesses int) {
	if quorum > 0 && rep.Witnessed == 0 {
		rep.addFinding(CodeWitnesses, 0, "", "no checkpoint that holds is signed by %d of the %d witnesses", quorum, witnesses)
	}
}
