package verify

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// proofHead is the first line of a proof (c2sp.org/tlog-proof).
const proofHead = "c2sp.org/tlog-proof@v1"

// MaxProofSize is the greatest size of a proof's text, in bytes.
const MaxProofSize = 8 << 20

// FormatProof writes the proof that a record is in a signed tree: a c2sp.org/tlog-proof with
// the record's text as its extra data. It checks nothing; Proof checks the result.
func FormatProof(record string, seq uint64, path tlog.RecordProof, checkpoint string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nextra %s\nindex %d\n", proofHead, base64.StdEncoding.EncodeToString([]byte(record)), seq-1)
	for _, h := range path {
		b.WriteString(h.String() + "\n")
	}
	b.WriteString("\n" + checkpoint)
	return b.String()
}

// ProofInput is a proof and what it is checked against.
type ProofInput struct {
	Text      string
	Space     subject.Space
	Keys      []note.Verifier
	Witnesses []note.Verifier // as in Options
	Quorum    int
}

// Proof checks with only the checkpoint's key that the record in a proof is the leaf
// that the proof names, of the signed tree. It does not check the signature of a decision,
// because the key that made it is elsewhere in the log. The error is for a text that is no
// proof.
func Proof(in ProofInput) (Report, evidence.Record, error) {
	p, err := parseProof(in.Text)
	if err != nil {
		return Report{}, evidence.Record{}, err
	}
	rec, err := evidence.ParseRecord(p.record)
	if err != nil {
		return Report{}, rec, err
	}
	c, err := tree.PeekCheckpoint(p.checkpoint)
	if err != nil {
		return Report{}, rec, err
	}
	v := NewVerifier(Options{Shard: c.Shard, Space: in.Space, Keys: in.Keys, Checkpoints: []Published{{"the proof", p.checkpoint}},
		Witnesses: in.Witnesses, Quorum: in.Quorum})
	signed := v.targets.singleTarget(v.rep)
	row := build.Built{Record: rec, Canonical: p.record, Hash: evidence.HashRecord(p.record)}.Row()
	row.Seq = p.index + 1
	var x Examined
	v.rowExaminer.Examine(&row, &x)
	if x.foreignShard != "" {
		v.rep.addFinding(CodeShard, row.Seq, "shard", "a record of %.120q under a checkpoint of %.120q", x.foreignShard, c.Shard)
	}
	v.reportExamined(&x)
	reportInclusion(v.rep, signed, row, p.path)
	witnessQuorum(v.rep, v.targets.quorum, len(tree.DistinctKeys(in.Witnesses)))
	v.rep.Records, v.rep.From, v.rep.To = 1, row.Seq, row.Seq
	v.rep.OK = v.rep.Total == 0
	return *v.rep, rec, nil
}

type parsedProof struct {
	record     []byte
	index      uint64
	path       tlog.RecordProof
	checkpoint string
}

func parseProof(text string) (p parsedProof, err error) {
	bad := func(what string) (parsedProof, error) { return p, fmt.Errorf("%w: %s", ErrProof, what) }
	if len(text) > MaxProofSize {
		return bad("it is too large")
	}
	head, checkpoint, ok := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	if !ok || len(lines) < 3 || lines[0] != proofHead {
		return bad("it does not begin with " + proofHead + ", extra and index")
	}
	extra, hasExtra := strings.CutPrefix(lines[1], "extra ")
	index, hasIndex := strings.CutPrefix(lines[2], "index ")
	if p.record, err = base64.StdEncoding.Strict().DecodeString(extra); err != nil || !hasExtra {
		return bad("its second line does not hold a record")
	}
	if p.index, err = strconv.ParseUint(index, 10, 64); err != nil || !hasIndex || strconv.FormatUint(p.index, 10) != index || p.index >= tree.MaxSeq {
		return bad("its third line does not hold an index")
	}
	for _, line := range lines[3:] {
		h, err := base64.StdEncoding.Strict().DecodeString(line)
		if err != nil || len(h) != tlog.HashSize || len(p.path) > 63 {
			return bad("a line of it is no hash")
		}
		p.path = append(p.path, tlog.Hash(h))
	}
	p.checkpoint = checkpoint
	return p, nil
}
