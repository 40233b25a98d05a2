package tree_test

import (
	"fmt"
	"log"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// An inclusion proof shows that a record is in the signed tree, without the others.
func ExampleInclusionProof() {
	l := evidencetest.NewExampleLog(`{"n":1}`, `{"n":2}`, `{"n":3}`)
	signed, err := tree.OpenCheckpoint(l.Checkpoint, note.VerifierList(l.Verifier))
	if err != nil {
		log.Fatal(err)
	}
	proof, err := tree.InclusionProof(l, signed.Size, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tree.CheckInclusion(proof, signed.Size, signed.Root, 2, l.Rows[1].RecordHash))
	fmt.Println(tree.CheckInclusion(proof, signed.Size, signed.Root, 2, l.Rows[0].RecordHash))
	// Output:
	// true
	// false
}
