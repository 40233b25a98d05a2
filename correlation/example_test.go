package correlation_test

import (
	"fmt"
	"io/fs"
	"log"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/examples"
)

// A recorded session is checked without a server: what was announced, what ran, and
// what does not fit together.
func ExampleCheck() {
	text, err := fs.ReadFile(examples.FS, "sessions/agenthook-rogue.jsonl")
	if err != nil {
		log.Fatal(err)
	}
	recording, err := correlation.ParseRecording(text)
	if err != nil {
		log.Fatal(err)
	}
	findings, err := correlation.Check("agenthook", recording, correlation.CheckOptions{Now: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range findings {
		fmt.Println(f.Severity, f.Rule)
	}
	// Output:
	// high input_drift
	// high AH-C-080
}

// With the decision in the recording, an execution that was denied is a finding.
func ExampleCheck_decision() {
	recording, err := correlation.ParseRecording([]byte(`
{"decision":{"verdict":"deny","session":"s1","tool_call_id":"c1","tool":"delete_database"}}
{"schema_version":1,"event_id":"8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e6f","event_type":"PostToolUse","timestamp":"2026-11-20T09:00:00Z","source":"rt1","session_id":"s1","tool_name":"delete_database","tool_input":{},"metadata":{"tool_call_id":"c1"}}
`))
	if err != nil {
		log.Fatal(err)
	}
	findings, err := correlation.Check("agenthook", recording, correlation.CheckOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range findings {
		fmt.Println(f.Severity, f.Rule, f.Seqs)
	}
	// Output:
	// critical executed_despite_deny [1 2]
	// critical AH-C-075 [1 2]
}
