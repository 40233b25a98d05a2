package verify

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/evidence/tree"
)

// checkpointTarget is a checkpoint that the rows must match.
type checkpointTarget struct {
	tree.Checkpoint
	source    string
	witnessed map[string]bool    // the required witnesses that signed it; nil if none is required
	cosigned  []tree.Cosignature // signatures of all known witnesses
}

// checkpointTargets are the checkpoints that the rows must match, the smallest first.
type checkpointTargets struct {
	open         []checkpointTarget // not reached yet
	failed       []checkpointTarget // reached, but the rows do not give their roots
	comparedSize int64              // size of the last checkpoint compared
	quorum       int
}

// openTargets opens the checkpoints, removes repetitions and reports forks.
func openTargets(rep *Report, o Options) checkpointTargets {
	known, witnesses := note.VerifierList(o.Keys...), tree.DistinctKeys(o.Witnesses)
	told := tree.DistinctKeys(slices.Concat(o.Witnesses, o.Cosigners))
	var list []checkpointTarget
	for _, p := range o.Checkpoints {
		c, err := tree.OpenCheckpoint(p.Text, known)
		switch {
		case err != nil:
			rep.addFinding(CodeCheckpoint, 0, p.Source, "%v", err)
		case c.Shard != o.Shard:
			rep.addFinding(CodeCheckpointShard, 0, p.Source, "a checkpoint of %.120q, not of %.120q", c.Shard, o.Shard)
		default:
			c.Shard = o.Shard // the other string is a part of the note, which need not stay in memory
			list = append(list, newTarget(c, p, witnesses, told))
		}
	}
	slices.SortStableFunc(list, func(a, b checkpointTarget) int { return int(a.Size - b.Size) })
	out := checkpointTargets{quorum: o.Quorum, open: list[:0]}
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

func newTarget(c tree.Checkpoint, p Published, witnesses, told []note.Verifier) checkpointTarget {
	m := checkpointTarget{Checkpoint: c, source: p.Source, cosigned: tree.Cosignatures(p.Text, told)}
	if len(witnesses) > 0 {
		m.witnessed = map[string]bool{}
	}
	for _, w := range witnesses {
		if len(tree.Cosigners(p.Text, []note.Verifier{w})) > 0 {
			m.witnessed[fmt.Sprintf("%s+%08x", w.Name(), w.KeyHash())] = true
		}
	}
	return m
}

// addCosignatures adds the cosignatures of a valid checkpoint. For each witness it keeps the
// one of the largest checkpoint, and of two for the same size the earlier one.
func (r *Report) addCosignatures(list []tree.Cosignature) {
	for _, c := range list {
		i := slices.IndexFunc(r.Cosigned, func(have tree.Cosignature) bool { return have.Witness == c.Witness })
		switch {
		case i < 0:
			r.Cosigned = append(r.Cosigned, c)
		case r.Cosigned[i].Size < c.Size, r.Cosigned[i].Size == c.Size && c.At.Before(r.Cosigned[i].At.Time):
			r.Cosigned[i] = c
		}
	}
}

// hasTarget reports whether the next checkpoint has this size or a smaller one.
func (m *checkpointTargets) hasTarget(size int64) bool {
	return len(m.open) > 0 && m.open[0].Size <= size
}

// newest is the largest checkpoint that is not reached yet.
func (m *checkpointTargets) newest() (tree.Checkpoint, bool) {
	if n := len(m.open); n > 0 {
		return m.open[n-1].Checkpoint, true
	}
	return tree.Checkpoint{}, false
}

// skipTo removes the checkpoints that are smaller than the tree at the beginning of a part.
func (m *checkpointTargets) skipTo(size int64) {
	m.open = slices.DeleteFunc(m.open, func(one checkpointTarget) bool { return one.Size < size })
}

// compareRoot compares the next checkpoint's root with the root over the rows.
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

// acceptTarget records a checkpoint that the rows match. It covers every row before it, so a
// smaller checkpoint that they do not match was signed for another history.
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

// proveExtension checks that a tree is a prefix of the newest checkpoint's tree. It ignores
// the checkpoints between the two.
func (m *checkpointTargets) proveExtension(rep *Report, shard string, merkle tree.Tree, whole bool, proof tlog.TreeProof) {
	if len(m.open) == 0 || !whole {
		return
	}
	newest := m.open[len(m.open)-1]
	m.open, m.comparedSize = nil, newest.Size
	rep.Checkpoints++
	if tree.CheckConsistency(proof, tree.Checkpoint{Shard: shard, Size: merkle.Size(), Root: merkle.Root()}, newest.Checkpoint) {
		m.acceptTarget(rep, newest)
	} else {
		rep.addFinding(CodeRange, uint64(merkle.Size()), newest.source, "the rows up to %d are not the beginning of the tree of size %d that is signed, or the stored tree hashes are damaged", merkle.Size(), newest.Size)
	}
}

// reportUnmet reports the checkpoints that the rows do not match, and missing witnesses.
func (m *checkpointTargets) reportUnmet(rep *Report, whole bool, reached int64, o Options) {
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
	witnessQuorum(rep, m.quorum, len(tree.DistinctKeys(o.Witnesses)))
}

func witnessQuorum(rep *Report, quorum, witnesses int) {
	if quorum > 0 && rep.Witnessed == 0 {
		rep.addFinding(CodeWitnesses, 0, "", "no checkpoint that holds is signed by %d of the %d witnesses", quorum, witnesses)
	}
}
