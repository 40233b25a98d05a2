package policy_test

import (
	"fmt"
	"log"
	"testing/fstest"
	"time"

	"github.com/countersign-dev/countersign/admission/policy"
)

const mail = `
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: mail}
spec:
  match: {tools: [send_email]}
  rules:
    - {name: colleagues, when: 'has(args.to) && string(args.to).endsWith("@acme.example")', verdict: allow, reason: internal_recipient}
    - {name: strangers, when: '!(has(args.to) && string(args.to).endsWith("@acme.example"))', verdict: ask, reason: external_recipient}
`

// Policies come from a directory. All of them are good, or none is used.
func ExampleLoadDir() {
	directory := fstest.MapFS{"mail.yaml": {Data: []byte(mail)}} // os.DirFS("policies")
	documents, err := policy.LoadDir(directory)
	if err != nil {
		log.Fatal(err)
	}
	set, err := policy.Compile(documents)
	if err != nil {
		log.Fatal(err) // every mistake, with file and line
	}
	fmt.Println(set.Names())
	// Output: [mail]
}

// Every mistake is reported, with its file and line.
func ExampleCompile() {
	_, err := policy.Compile([]policy.Document{{Name: "p.yaml", Data: []byte("apiVersion: countersign.dev/v1\nkind: AdmissionPolicies\n")}})
	fmt.Println(err)
	// Output:
	// p.yaml:2: kind "AdmissionPolicies" must look like ^(AdmissionPolicy|Params|ReviewerGroup)$
	// p.yaml:1: the policy needs metadata
	// p.yaml:1: the policy needs spec
}

// A set judges a proposed call. What no rule matches is denied.
func ExampleSet_Evaluate() {
	set, err := policy.Compile([]policy.Document{{Name: "mail.yaml", Data: []byte(mail)}})
	if err != nil {
		log.Fatal(err)
	}
	for _, call := range []policy.Input{
		{Tool: "send_email", Args: map[string]any{"to": "dana@acme.example"}},
		{Tool: "send_email", Args: map[string]any{"to": "mallory@evil.example"}},
		{Tool: "delete_database", Args: map[string]any{"database": "production"}},
	} {
		call.Tenant, call.Source, call.Protocol, call.Now = "acme", "rt1", "agenthook", time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		v := set.Evaluate(call)
		fmt.Println(v.Verdict, v.Reasons[0].Code, v.Policy)
	}
	// Output:
	// allow internal_recipient mail
	// ask external_recipient mail
	// deny no_policy_match
}

// Lint finds what compiles and still looks like a mistake.
func ExampleLint() {
	risky := `
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: payments}
spec:
  rules:
    - {name: small, when: 'args.amount < 100', verdict: allow, reason: small_amount}
    - {name: rest, when: 'true', verdict: allow, reason: fine}
`
	for _, f := range policy.Lint([]policy.Document{{Name: "payments.yaml", Data: []byte(risky)}}) {
		fmt.Printf("%s:%d %s %s\n", f.Document, f.Line, f.Severity, f.Code)
	}
	// Output:
	// payments.yaml:7 warning missing_has
	// payments.yaml:8 warning catch_all_allow
}
