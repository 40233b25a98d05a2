package build_test

import (
	"fmt"
	"log"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
)

// The auditor makes one record of every message of the log. Secrets are taken out of
// the record; a commitment proves later what stood there.
func ExampleBuilder_BuildBatch() {
	builder, err := build.NewBuilder(evidencetest.ExampleShard, subject.Space{})
	if err != nil {
		log.Fatal(err)
	}
	chain := build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	built, err := builder.BuildBatch(chain, evidencetest.EventMessages(`{"tool_input":{"to":"dana@acme.example"}}`), evidencetest.ExampleKeys{})
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
