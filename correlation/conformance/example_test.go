package conformance_test

import (
	"fmt"
	"io/fs"
	"log"

	"github.com/countersign-dev/countersign/correlation"
	agenthook "github.com/countersign-dev/countersign/correlation/agenthook/conformance"
	"github.com/countersign-dev/countersign/correlation/conformance"
	"github.com/countersign-dev/countersign/examples"
)

// A publisher's traffic is held against a profile of its protocol. What the traffic
// did not exercise is reported as such and never counts as held.
func ExampleTallyRecording() {
	text, err := fs.ReadFile(examples.FS, "sessions/agenthook-mail.jsonl")
	if err != nil {
		log.Fatal(err)
	}
	lines, err := correlation.ParseRecording(text)
	if err != nil {
		log.Fatal(err)
	}
	findings, err := correlation.Check("agenthook", lines, correlation.CheckOptions{})
	if err != nil {
		log.Fatal(err)
	}

	tally := conformance.TallyRecording("agenthook", lines, findings)
	bronze, _ := conformance.FindProfile(agenthook.Bronze)
	for _, publisher := range tally.Publishers("agenthook") {
		report := tally.Report(bronze, publisher, nil)
		fmt.Println(report.Publisher, report.Outcome)
		fmt.Println("held", report.Score.Held, "broken", report.Score.Broken, "not exercised", report.Score.NotExercised)
		fmt.Println("certification:", report.Certification)
	}
	// Output:
	// mail-agent not_shown
	// held 12 broken 0 not exercised 11
	// certification: false
}
