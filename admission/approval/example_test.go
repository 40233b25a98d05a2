package approval_test

import (
	"bytes"
	"fmt"
	"log"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

var (
	noon   = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	policy = events.PolicyRef{Name: "mail", Revision: 3}
)

// keyed is the digest of records: under the session's key in the admitter.
func keyed(b []byte) string { return digest.Keyed(bytes.Repeat([]byte{1}, digest.KeySize), b) }

// A workflow that asks for two reviewers is approved by the second one, and used up
// by the first decision that rests on it.
func ExampleWorkflow_Resolve() {
	w := opened(approval.Terms{Reviewers: []string{"finance"}, Quorum: 2})
	for _, reviewer := range []string{"dana", "dana", "mallory", "erin"} {
		var code approval.Code
		w, code, _ = w.Resolve(approval.Command{
			Act: approval.ActApprove, Reviewer: reviewer, PreviewDigest: w.PreviewDigest, At: noon.Add(time.Minute), CurrentPolicy: policy,
			IsMember: func(group, user string) bool { return group == "finance" && user != "mallory" },
		})
		fmt.Println(reviewer, code, w.Status)
	}
	w, err := w.Consume("d2", noon.Add(2*time.Minute))
	fmt.Println(w.Status, err)
	// Output:
	// dana approval_recorded pending
	// dana already_approved pending
	// mallory not_a_reviewer pending
	// erin approved approved
	// consumed <nil>
}

// A publisher that asks again finds the workflow of the same action.
func ExampleWorkflow_MatchRetry() {
	w := opened(approval.Terms{})
	retry := approval.Retry{Call: "c1", Policy: policy, Now: noon.Add(time.Minute)}
	fmt.Println("it waits:", w.MatchRetry(retry) == approval.Waiting)

	retry.Policy.Revision = 4
	fmt.Println("the policies changed:", w.MatchRetry(retry) == approval.Outdated)
	// Output:
	// it waits: true
	// the policies changed: true
}

// A request to gov.resolve.<tenant> is read strictly.
func ExampleDecodeRequest() {
	request, err := approval.DecodeRequest([]byte(`{"action":"deny","workflow_id":"wf-1","reason":"not this month"}`))
	fmt.Println(request.Action, request.WorkflowID, err)

	_, err = approval.DecodeRequest([]byte(`{"action":"approve","workflow":"wf-1"}`))
	fmt.Println(err != nil)
	// Output:
	// deny wf-1 <nil>
	// true
}

// opened is the pending workflow of a mail that may only leave with an approval.
func opened(terms approval.Terms) approval.Workflow {
	keys, err := approval.KeysOf(approval.Action{
		Tenant: "acme", Source: "rt1", Session: "s1", Protocol: "agenthook", Call: "c1", Tool: "send_email", Args: []byte(`{"to":"dana@acme.example"}`),
	}, keyed)
	if err != nil {
		log.Fatal(err)
	}
	preview := approval.Preview{Protocol: "agenthook", Source: "rt1", Tool: "send_email", Verdict: "ask", Reasons: []string{"external_recipient"}}
	shown, err := preview.Digest(keyed)
	if err != nil {
		log.Fatal(err)
	}
	return approval.Open(approval.Opening{
		Slot: keys.Slot, ID: "wf-1", Tenant: "acme", Source: "rt1", Session: "s1", DecisionID: "d1", Keys: keys, Policy: policy, Terms: terms,
		Preview: preview, PreviewDigest: shown, Call: "c1", Now: noon, ExpiresAt: noon.Add(10 * time.Minute),
	})
}
