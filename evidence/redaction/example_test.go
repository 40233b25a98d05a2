package redaction_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/countersign-dev/countersign/evidence/redaction"
)

// A tenant's policy says what the evidence keeps of personal data.
func ExampleParse() {
	policy, err := redaction.Parse("acme.yaml", []byte(`
version: 1
name: acme
rules:
  - {name: own-mail, detectors: [email], values: ["*@acme.example"], action: allow}
  - {name: notes, paths: [tool_input.notes], action: drop}
`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(policy.Name(), policy.RemovesFields())
	// Output: acme true
}

// A policy cannot release credentials: such a rule does not compile.
func ExampleParse_credentials() {
	_, err := redaction.Parse("acme.yaml", []byte(`
version: 1
name: acme
rules:
  - {name: tokens, detectors: [github_token], action: allow}
`))
	fmt.Println(errors.Is(err, redaction.ErrPolicy))
	fmt.Println(err)
	// Output:
	// true
	// acme.yaml:5: what github_token finds may never be released: mask it (without last), drop, hash or tokenise it
}
