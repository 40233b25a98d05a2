// Package table runs tables of admission requests and their expected verdicts, so that policies
// are tested like code.
//
//	policies: ../policies            # beside the table; optional
//	ordinary: true                   # everyday requests: what of them is refused is counted; optional
//	defaults: {protocol: agenthook, tenant: acme}
//	cases:
//	  - name: mail to a colleague
//	    file: requests/mail.json     # or request: {…}, or raw: 'text'
//	    change: {/tool_input/to: bob@acme.example, /metadata/note: null}
//	    expect: {verdict: allow, reasons: [internal_recipient], policy: mail}
//
// A case is decided by the same code as in the service. It has no state except what it names.
// Reading is strict: an unknown key is an error with its line, so that a misspelt expectation
// cannot pass. Parse reads a table and Run decides its cases.
//
// The package is pure: files come from a function of the caller.
package table

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictyaml"
)

// Limits of a table.
const (
	MaxTable = 4 << 20 // bytes
	MaxCases = 10_000
	maxNodes = 200_000 // YAML nodes; aliased nodes count every time
	maxDepth = 100
)

// ErrNoCases reports a table without cases.
var ErrNoCases = errors.New("the table has no cases")

// Error is one mistake in a table.
type Error = strictyaml.Error

// Table is a file of cases.
type Table struct {
	File     string
	Policies string // directory of the policies under test, relative to the table; "" if it names none
	Ordinary bool   // its cases are everyday requests, so that each deny is a false one
	Cases    []Case
}

// Case is one request and its expected outcome. Exactly one of Request and RequestFile is set.
type Case struct {
	Name string
	Line int

	Protocol, Tenant, Source string
	Request                  []byte
	RequestFile              string // relative to the table
	Change                   []Change
	Headers                  map[string][]string
	Now                      time.Time // zero: Options.Now
	Mandates                 string    // directory, relative to the table
	Strict                   bool
	Profile                  string
	Counted                  int64                   // total of every counter before the call
	Confirmation             call.ConfirmationStatus // confirmation status of an AAEP invocation

	Expect Expect
}

// Change replaces one value of the request, or removes it if Value is nil.
type Change struct {
	Path  string // JSON pointer; its last step may be new
	Value any    // a tree as strictjson makes it
	Line  int
}

// Expect is the expected outcome of a case. Empty fields are not compared.
type Expect struct {
	Verdict events.Verdict
	Reasons []string // codes that must be among the reasons
	Not     []string // codes that must not
	Rules   []string // "policy/rule" that must have matched
	Policy  string   // policy of the rule that gives the verdict
}
