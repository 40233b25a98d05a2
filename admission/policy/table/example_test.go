package table_test

import (
	"fmt"
	"io/fs"
	"log"
	"path"
	"slices"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/policy/table"
	"github.com/countersign-dev/countersign/examples"
)

// A table tests policies like code: requests, and the verdicts that they should get.
// The table, the policies and the requests are the samples in examples/.
func ExampleRun() {
	text, err := fs.ReadFile(examples.FS, "tables/mail.yaml")
	if err != nil {
		log.Fatal(err)
	}
	cases, err := table.Parse("tables/mail.yaml", text)
	if err != nil {
		log.Fatal(err)
	}
	read := func(name string) ([]byte, error) { return fs.ReadFile(examples.FS, path.Join("tables", name)) }
	mail, err := read(path.Join(cases.Policies, "mail.yaml"))
	if err != nil {
		log.Fatal(err)
	}
	set, err := policy.Compile([]policy.Document{{Name: "mail.yaml", Data: mail}})
	if err != nil {
		log.Fatal(err)
	}
	results := table.Run(cases, table.Options{Policies: set, File: read})
	for _, r := range results[:3] {
		fmt.Printf("%s: %s, as expected: %v\n", r.Name, r.Verdict, r.Passed)
	}
	fmt.Println("one fails:", slices.ContainsFunc(results, func(r table.Result) bool { return !r.Passed }))
	// Output:
	// mail to a colleague: allow, as expected: true
	// mail to a stranger: ask, as expected: true
	// an address that only ends like ours: ask, as expected: true
	// one fails: false
}

// An expectation that does not hold says what differs.
func ExampleResult() {
	cases, err := table.Parse("t.yaml", []byte(`
defaults: {protocol: tool, tenant: acme, now: 2026-11-20T12:00:00Z}
cases:
  - {name: any tool, request: {name: read_file}, expect: {verdict: allow}}
`))
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range table.Run(cases, table.Options{}) { // no policy denies everything
		fmt.Println(r.Passed, r.Mismatches)
	}
	// Output: false [verdict: want allow, got deny]
}
