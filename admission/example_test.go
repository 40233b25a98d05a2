package admission_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/examples"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Decide judges one request under a configuration. The outcome holds the
// decision record, the claims of the receipt and the protocol's own reply.
func ExampleDecide() {
	out := admission.Decide(request("requests/pre-tool-use.json"), &admission.Config{Policies: mail()}, inputs())

	fmt.Println(out.Decision.Verdict, out.Decision.Tool, out.Session)
	fmt.Println("receipt for:", out.Claims.Tool, out.Claims.ToolCallID)
	// Output:
	// allow send_email sess-mail-1
	// receipt for: send_email call-mail-1
}

// What no rule matches is denied, and the record says why.
func ExampleDecide_denied() {
	out := admission.Decide(request("requests/pre-tool-use-denied.json"), &admission.Config{Policies: mail()}, inputs())

	fmt.Println(out.Decision.Verdict, out.Decision.Tool)
	for _, reason := range out.Decision.Reasons {
		fmt.Println(reason.Evaluator, reason.Code)
	}
	// Output:
	// deny delete_database
	// tool_policy no_policy_match
}

// EvaluateLine decides without a server: a request in, a line of JSON out.
func ExampleEvaluateLine() {
	offline := admission.Offline{Protocol: "agenthook", Config: &admission.Config{Policies: mail()}, Now: noon}
	for _, line := range [][]byte{request("requests/pre-tool-use-external.json").Body, []byte(`{"event_id":1}`)} {
		var answer admission.OfflineResult
		if err := strictjson.Unmarshal(admission.EvaluateLine(line, offline), &answer); err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Verdict)
	}
	// Output:
	// ask
	// deny
}

// mail compiles the sample policy examples/policies/assistant/mail.yaml.
func mail() *policy.Set {
	text, err := fs.ReadFile(examples.FS, "policies/assistant/mail.yaml")
	if err != nil {
		log.Fatal(err)
	}
	set, err := policy.Compile([]policy.Document{{Name: "mail.yaml", Data: text}})
	if err != nil {
		log.Fatal(err)
	}
	return set
}

// request is a request as the admitter gets it: tenant and source are authenticated.
func request(sample string) admission.Request {
	body, err := fs.ReadFile(examples.FS, sample)
	if err != nil {
		log.Fatal(err)
	}
	return admission.Request{Tenant: "acme", Source: "rt1", Protocol: "agenthook", Body: body, ReceivedAt: noon}
}

// inputs is what one decision needs from outside; the random parts are fixed here.
func inputs() admission.Inputs {
	return admission.Inputs{
		Now: noon, DecisionID: "0199a000-0000-7000-8000-000000000001", Salt: bytes.Repeat([]byte{7}, 16), Nonce: "n1",
		TenantKey: bytes.Repeat([]byte{9}, 32), Durability: "fsync", KnownTenant: true, Occurrence: 1,
	}
}
