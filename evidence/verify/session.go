package verify

import (
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// SessionInput is one session's evidence: its rows in order, an inclusion proof for each,
// and the checkpoint that the proofs lead to.
type SessionInput struct {
	Shard, Tenant, Session string
	Space                  subject.Space
	Keys                   []note.Verifier
	Checkpoint             Published
	// Older are checkpoints that the caller kept, each with the proof that Checkpoint
	// extends it.
	Older       []Extension
	Witnesses   []note.Verifier // as in Options; Checkpoint or one of Older must have the quorum
	Quorum      int
	Cosigners   []note.Verifier // as in Options
	Rows        []evidence.Row
	Proofs      []tlog.RecordProof // Proofs[i] is for Rows[i]
	ReceiptKeys []events.KeyRecord
	Retired     []Retired
	Expiries    []ExpiryRecord // each with its proof of inclusion in Checkpoint
	Receipts    []string
	MinRecords  int64 // fewest records that the session must have
	MaxFindings int
	// Compare, if set, may compare a row with the log's message (Examined.CompareLog).
	Compare func(evidence.Row, *Examined)
}

// Extension is a checkpoint and the proof (ConsistencyProof) that a newer one extends it.
type Extension struct {
	Published
	Proof tlog.TreeProof
}

// Session checks one session: every record, its chain from the first record on, its
// decisions, and that each record is in the signed tree. It cannot tell whether the session
// has further records after the last one; the verification of the whole shard can.
func Session(in SessionInput) Report {
	v := NewVerifier(Options{Shard: in.Shard, Space: in.Space, Keys: in.Keys, Checkpoints: []Published{in.Checkpoint}, Witnesses: in.Witnesses,
		Quorum: in.Quorum, Cosigners: in.Cosigners, ReceiptKeys: in.ReceiptKeys, Retired: in.Retired, Expiries: in.Expiries, Receipts: in.Receipts, MaxFindings: in.MaxFindings})
	v.rep.Tenant, v.rep.Session = in.Tenant, in.Session
	signed := v.targets.singleTarget(v.rep)
	for _, e := range in.Older {
		v.targets.checkOlder(v.rep, v.opts, e, signed)
	}
	last, unproved := uint64(0), []uint64(nil)
	for i, r := range in.Rows {
		if r.Seq <= last {
			v.rep.addFinding(CodeRowOrder, r.Seq, "seq", "sequence %d comes after %d", r.Seq, last)
		}
		last = max(last, r.Seq)
		var proof tlog.RecordProof
		if i < len(in.Proofs) {
			proof = in.Proofs[i]
		}
		in.verifyRow(v, r)
		if lacks := proof == nil && signed != nil && signed.Size > 1 && r.Seq <= uint64(signed.Size); lacks {
			unproved = append(unproved, r.Seq)
			continue
		}
		reportInclusion(v.rep, signed, r, proof)
	}
	v.reportOpen()
	if n := len(unproved); n > 0 { // one finding for all, because the fault is in the tree
		v.rep.addFinding(CodeInclusion, unproved[0], "proof", "this and %d more of %d records cannot be shown to be in the signed tree of size %d: proofs, or hashes that they take, are missing or damaged",
			n-1, len(in.Rows), signed.Size)
	}
	witnessQuorum(v.rep, v.targets.quorum, len(tree.DistinctKeys(in.Witnesses)))
	if int64(v.rep.Records) < max(in.MinRecords, 1) {
		v.rep.addFinding(CodeTooShort, 0, "", "%d records, at least %d were expected", v.rep.Records, max(in.MinRecords, 1))
	}
	v.rep.Sessions = len(v.heads)
	v.rep.OK = v.rep.Total == 0
	return *v.rep
}

// verifyRow checks one row, and that it belongs to the session.
func (in SessionInput) verifyRow(v *Verifier, r evidence.Row) {
	var x Examined
	v.rowExaminer.Examine(&r, &x)
	v.rep.Records++
	if r.Tenant != in.Tenant || r.Session != in.Session {
		v.rep.addFinding(CodeSessionScope, r.Seq, "session", "a row of another tenant or session")
	}
	if x.foreignShard != "" {
		v.rep.addFinding(CodeShard, r.Seq, "shard", "a row of %.120q among those of %.120q", x.foreignShard, in.Shard)
		return
	}
	if in.Compare != nil {
		in.Compare(r, &x)
	}
	v.reportExamined(&x)
	v.followChain(&x)
	v.trust.addRow(&x)
}

// singleTarget returns the only checkpoint of a session's verification.
func (m *checkpointTargets) singleTarget(rep *Report) *checkpointTarget {
	if len(m.open) != 1 {
		return nil // reported already: there is no signed root
	}
	one := m.open[0]
	rep.Checkpoints, rep.Size, rep.Signed, rep.Root = 1, one.Size, one.Size, one.Root
	rep.addCosignatures(one.cosigned)
	if m.quorum > 0 && len(one.witnessed) >= m.quorum {
		rep.Witnessed = one.Size
	}
	return &one
}

// checkOlder checks an older checkpoint against the newest one.
func (m *checkpointTargets) checkOlder(rep *Report, o Options, e Extension, newest *checkpointTarget) {
	if newest == nil {
		return
	}
	o.Checkpoints = []Published{e.Published}
	kept := openTargets(rep, o)
	if len(kept.open) == 0 {
		return // openTargets has reported it
	}
	old := kept.open[0]
	rep.Checkpoints++
	switch {
	case old.Size > newest.Size:
		rep.addFinding(CodeCheckpointAhead, uint64(old.Size), old.source, "the log had %d records when this checkpoint was signed; the newest checkpoint is of %d", old.Size, newest.Size)
	case !tree.CheckConsistency(e.Proof, old.Checkpoint, newest.Checkpoint):
		rep.addFinding(CodeCheckpointFork, uint64(old.Size), old.source,
			"today's log is not shown to extend this checkpoint: %s (size %d) has another history, or the stored tree hashes are damaged", newest.source, newest.Size)
	default:
		m.acceptOlder(rep, old)
	}
}

// acceptOlder adds the witnesses of a checkpoint that the newest one extends.
func (m *checkpointTargets) acceptOlder(rep *Report, old checkpointTarget) {
	rep.addCosignatures(old.cosigned)
	if m.quorum > 0 && len(old.witnessed) >= m.quorum {
		rep.Witnessed = max(rep.Witnessed, old.Size)
	}
}

func reportInclusion(rep *Report, signed *checkpointTarget, r evidence.Row, proof tlog.RecordProof) {
	switch {
	case signed == nil:
	case r.Seq > uint64(signed.Size):
		rep.addFinding(CodeNotSigned, r.Seq, "seq", "the checkpoint covers %d records only", signed.Size)
	case !tree.CheckInclusion(proof, signed.Size, signed.Root, r.Seq, r.RecordHash):
		rep.addFinding(CodeInclusion, r.Seq, "proof", "the record is not leaf %d of the signed tree of size %d", r.Seq-1, signed.Size)
	}
}
