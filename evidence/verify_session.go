package evidence

import (
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// SessionInput is one session's evidence: its rows in order, an inclusion proof
// for each, and the checkpoint that the proofs lead to.
type SessionInput struct {
	Shard, Tenant, Session string
	Space                  subject.Space
	Keys                   []note.Verifier
	Checkpoint             Published
	Rows                   []Row
	Proofs                 []tlog.RecordProof // Proofs[i] is for Rows[i]
	ReceiptKeys            []events.KeyRecord
	Receipts               []string
	AtLeast                int64 // how many records the session must have at least
	MaxProblems            int
}

// VerifySession checks one session: every record, its chain from the first
// record on, its decisions, and that each record is in the signed tree. That no
// record was added to the session after the last one it cannot know; the
// shard's verification can.
func VerifySession(in SessionInput) Report {
	rep := newReport(in.MaxProblems)
	rep.Shard, rep.Tenant, rep.Session = in.Shard, in.Tenant, in.Session
	in.Keys = distinct(in.Keys)
	check := rowChecker{rep: rep, space: in.Space, heads: map[SessionKey]Head{}, trust: newTrust(rep, in.Keys, in.ReceiptKeys, in.Receipts)}
	var marks []mark
	if len(in.Keys) == 0 {
		rep.add(CodeNoTrustedKey, 0, "", "no checkpoint key was given, so nothing that is signed can be checked")
	} else {
		marks = openMarks(rep, in.Shard, []Published{in.Checkpoint}, in.Keys)
	}
	if len(marks) == 1 {
		rep.Checkpoints, rep.Size, rep.Signed, rep.Root = 1, marks[0].Size, marks[0].Size, marks[0].Root
	}
	last := uint64(0)
	for i, r := range in.Rows {
		rep.Records++
		if r.Seq <= last {
			rep.add(CodeRowOrder, r.Seq, "seq", "sequence %d comes after %d", r.Seq, last)
		}
		last = max(last, r.Seq)
		in.row(rep, r)
		check.row(r)
		var proof tlog.RecordProof
		if i < len(in.Proofs) {
			proof = in.Proofs[i]
		}
		included(rep, marks, r, proof)
	}
	check.trust.finish()
	if int64(rep.Records) < max(in.AtLeast, 1) {
		rep.add(CodeTooShort, 0, "", "%d records, at least %d were expected", rep.Records, max(in.AtLeast, 1))
	}
	rep.Sessions = len(check.heads)
	rep.OK = rep.Total == 0
	return *rep
}

func (in SessionInput) row(rep *Report, r Row) {
	if r.Shard != in.Shard {
		rep.add(CodeShard, r.Seq, "shard", "a row of %.120q among those of %.120q", r.Shard, in.Shard)
	}
	if r.Tenant != in.Tenant || r.Session != in.Session {
		rep.add(CodeSessionScope, r.Seq, "session", "a row of another tenant or session")
	}
}

func included(rep *Report, marks []mark, r Row, proof tlog.RecordProof) {
	if len(marks) == 0 {
		return // reported already: there is no signed root
	}
	switch m := marks[0]; {
	case r.Seq > uint64(m.Size):
		rep.add(CodeNotSigned, r.Seq, "seq", "the checkpoint covers %d records only", m.Size)
	case !CheckInclusion(proof, m.Size, m.Root, r.Seq, r.RecordHash):
		rep.add(CodeInclusion, r.Seq, "proof", "the record is not leaf %d of the signed tree of size %d", r.Seq-1, m.Size)
	}
}
