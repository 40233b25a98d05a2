package verify_test

import (
	"fmt"
	"log"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// A verifier recomputes records, chains and tree. A changed row does not pass.
func ExampleVerifier() {
	l := evidencetest.NewExampleLog(`{"n":1}`, `{"n":2}`)
	verify := func(rows []evidence.Row) verify.Report {
		v := verify.NewVerifier(verify.Options{
			Shard: evidencetest.ExampleShard, Keys: []note.Verifier{l.Verifier}, Checkpoints: []verify.Published{{Source: "stored", Text: l.Checkpoint}},
		})
		for _, row := range rows {
			v.Row(row)
		}
		return v.Finish()
	}

	report := verify(l.Rows)
	fmt.Println(report.OK, report.Records, "records, signed up to", report.Signed)

	l.Rows[1].Tenant = "globex"
	report = verify(l.Rows)
	fmt.Println(report.OK, report.Findings[0].Code, "at", report.Findings[0].Seq)
	// Output:
	// true 2 records, signed up to 2
	// false column_mismatch at 2
}

// A proof in one text is checked with nothing but the checkpoint's key.
func ExampleProof() {
	l := evidencetest.NewExampleLog(`{"n":1}`, `{"n":2}`, `{"n":3}`)
	path, err := tree.InclusionProof(l, 3, 2)
	if err != nil {
		log.Fatal(err)
	}
	text := verify.FormatProof(l.Rows[1].Record, 2, path, l.Checkpoint)

	report, record, err := verify.Proof(verify.ProofInput{Text: text, Keys: []note.Verifier{l.Verifier}})
	fmt.Println(report.OK, record.Seq, string(record.Body), err)
	// Output: true 2 {"n":2} <nil>
}
