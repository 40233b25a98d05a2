package evidence_test

import (
	"bytes"
	"fmt"
	"log"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
)

const shard = "GOV@20261120T064150.123456789Z" // an incarnation of the stream GOV

// The auditor makes one record of every message of the log. Secrets are taken out of
// the record; a commitment proves later what stood there.
func ExampleBuilder_BuildBatch() {
	builder, err := evidence.NewBuilder(shard, subject.Space{})
	if err != nil {
		log.Fatal(err)
	}
	chain := evidence.NewChain(func(evidence.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	built, err := builder.BuildBatch(chain, messages(`{"tool_input":{"to":"dana@acme.example"}}`), keys{})
	if err != nil {
		log.Fatal(err)
	}
	chain.Commit() // once the rows are stored

	record := built[0].Record
	fmt.Println(record.Seq, record.Kind, record.Session)
	fmt.Println(record.Redactions[0].Path, record.Redactions[0].Detector)
	// Output:
	// 1 event s1
	// /body/tool_input/to email
}

// A verifier recomputes records, chains and tree. A changed row does not pass.
func ExampleVerifier() {
	l := newLog(`{"n":1}`, `{"n":2}`)
	verify := func(rows []evidence.Row) evidence.Report {
		v := evidence.NewVerifier(evidence.VerifyOptions{
			Shard: shard, Keys: []note.Verifier{l.verifier}, Checkpoints: []evidence.Published{{Source: "stored", Text: l.checkpoint}},
		})
		for _, row := range rows {
			v.Row(row)
		}
		return v.Finish()
	}

	report := verify(l.rows)
	fmt.Println(report.OK, report.Records, "records, signed up to", report.Signed)

	l.rows[1].Tenant = "globex"
	report = verify(l.rows)
	fmt.Println(report.OK, report.Findings[0].Code, "at", report.Findings[0].Seq)
	// Output:
	// true 2 records, signed up to 2
	// false column_mismatch at 2
}

// An inclusion proof shows that a record is in the signed tree, without the others.
func ExampleInclusionProof() {
	l := newLog(`{"n":1}`, `{"n":2}`, `{"n":3}`)
	signed, err := tree.OpenCheckpoint(l.checkpoint, note.VerifierList(l.verifier))
	if err != nil {
		log.Fatal(err)
	}
	proof, err := tree.InclusionProof(l, signed.Size, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tree.CheckInclusion(proof, signed.Size, signed.Root, 2, l.rows[1].RecordHash))
	fmt.Println(tree.CheckInclusion(proof, signed.Size, signed.Root, 2, l.rows[0].RecordHash))
	// Output:
	// true
	// false
}

// A proof in one text is checked with nothing but the checkpoint's key.
func ExampleVerifyProof() {
	l := newLog(`{"n":1}`, `{"n":2}`, `{"n":3}`)
	path, err := tree.InclusionProof(l, 3, 2)
	if err != nil {
		log.Fatal(err)
	}
	text := evidence.FormatProof(l.rows[1].Record, 2, path, l.checkpoint)

	report, record, err := evidence.VerifyProof(evidence.ProofInput{Text: text, Keys: []note.Verifier{l.verifier}})
	fmt.Println(report.OK, record.Seq, string(record.Body), err)
	// Output: true 2 {"n":2} <nil>
}

// What evidence takes out of a document, it takes out of any text that a tool shows.
func ExampleRedactJSON() {
	redacted, detectors, err := evidence.RedactJSON("agenthook", []byte(`{"tool_input":{"to":"dana@acme.example","amount":10}}`))
	fmt.Println(redacted, detectors, err)
	// Output: {"tool_input":{"amount":10,"to":"[redacted:email]"}} [email] <nil>
}

// auditorsLog is a log with its evidence, tree and newest checkpoint.
type auditorsLog struct {
	rows       []evidence.Row
	hashes     []tlog.Hash
	verifier   note.Verifier
	checkpoint string
}

// ReadHashes gives stored hashes of the tree: it is a tlog.HashReader.
func (l *auditorsLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, n := range indexes {
		hashes[i] = l.hashes[n]
	}
	return hashes, nil
}

func newLog(bodies ...string) *auditorsLog {
	builder, err := evidence.NewBuilder(shard, subject.Space{})
	if err != nil {
		log.Fatal(err)
	}
	chain := evidence.NewChain(func(evidence.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	built, err := builder.BuildBatch(chain, messages(bodies...), keys{})
	if err != nil {
		log.Fatal(err)
	}
	var l auditorsLog
	var merkle tree.Tree
	for _, b := range built {
		l.rows = append(l.rows, b.Row())
		for _, node := range merkle.Append(b.Hash) {
			l.hashes = append(l.hashes, node.Hash)
		}
	}
	l.sign(tree.Checkpoint{Shard: shard, Size: merkle.Size(), Root: merkle.Root()})
	return &l
}

func (l *auditorsLog) sign(c tree.Checkpoint) {
	secret, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		log.Fatal(err)
	}
	if l.verifier, err = signing.CheckpointVerifier(public); err != nil {
		log.Fatal(err)
	}
	signer, err := signing.CheckpointSigner(secret)
	if err != nil {
		log.Fatal(err)
	}
	if l.checkpoint, err = tree.SignCheckpoint(signer, c); err != nil {
		log.Fatal(err)
	}
}

// messages are events of the session s1 as the log holds them.
func messages(bodies ...string) (list []events.LogMessage) {
	begin := time.Date(2026, 11, 20, 6, 42, 0, 0, time.UTC)
	for i, body := range bodies {
		list = append(list, events.LogMessage{
			Seq: uint64(i + 1), Subject: subject.Space{}.Event("acme", "rt1", "agenthook", "s1", "PreToolUse"),
			Time: begin.Add(time.Duration(i) * time.Second), Body: []byte(body),
		})
	}
	return list
}

// keys are the keys of records: random and kept by the auditor in a running system.
type keys struct{}

func (keys) TenantKey(string) []byte { return bytes.Repeat([]byte{2}, 32) }

func (keys) SessionSecret(string, string) ([]byte, error) { return bytes.Repeat([]byte{3}, 32), nil }
