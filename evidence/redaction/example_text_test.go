package redaction_test

import (
	"fmt"

	"github.com/countersign-dev/countersign/evidence/redaction"
)

// What evidence takes out of a document, it takes out of any text that a tool shows.
func ExampleJSON() {
	redacted, detectors, err := redaction.JSON("agenthook", []byte(`{"tool_input":{"to":"dana@acme.example","amount":10}}`))
	fmt.Println(redacted, detectors, err)
	// Output: {"tool_input":{"amount":10,"to":"[redacted:email]"}} [email] <nil>
}
