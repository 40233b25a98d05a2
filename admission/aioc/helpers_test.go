package aioc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aioc"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// secret is a value of an argument, which only the caller may see.
const secret = "hunter2-secret"

const toolCall = `{"agentName":"Finance Agent","toolName":"export_report","rawArguments":"{\"reportId\":\"hunter2-secret\",\"n\":1.0}",` +
	`"parsedArguments":{"reportId":"hunter2-secret","n":1.0},"runContext":{"context":{"actor":{"groups":["finance"]}}},"turn":3}`

const handoffCall = `{"fromAgentName":"Triage Agent","toAgentName":"Finance Agent","handoffPayload":{"reason":"hunter2-secret"},"runContext":{"context":{}},"turn":2}`

func edit(t testing.TB, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("no %q in %s", pairs[i], text)
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

func inputs() admission.Inputs {
	return admission.Inputs{
		Now: noon, DecisionID: "01939d5e-0000-7000-8000-000000000001", Salt: bytes.Repeat([]byte{7}, 16), Nonce: "n-1",
		TenantKey: bytes.Repeat([]byte{9}, 32), Durability: "fsync", KnownTenant: true,
	}
}

func request(protocol, body string) admission.Request {
	return admission.Request{Tenant: "acme", Source: "rt1", Protocol: protocol, Body: []byte(body), ReceivedAt: noon, Header: map[string][]string{
		events.HeaderToolCallID: {"call-1"}, events.HeaderSession: {"s1"},
	}}
}

// protocolOf tells the two requests apart.
func protocolOf(body string) string {
	if strings.Contains(body, `"toAgentName"`) || strings.Contains(body, `"fromAgentName"`) {
		return "handoff"
	}
	return "tool"
}

func decide(body string, snap *admission.Config) admission.Outcome {
	return admission.Decide(request(protocolOf(body), body), snap, inputs())
}

// pol writes a policy: match in flow YAML ("" for none), and rules as
// "verdict reason [soft]: condition [# message]".
func pol(name, match string, list ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: %s}\nspec:\n", name)
	if match != "" {
		fmt.Fprintf(&b, "  match: %s\n", match)
	}
	b.WriteString("  rules:\n")
	for i, r := range list {
		head, when, _ := strings.Cut(r, ": ")
		when, message, _ := strings.Cut(when, " # ")
		words := strings.Fields(head)
		fmt.Fprintf(&b, "    - {name: r%d, when: %q, verdict: %s, reason: %s", i, when, words[0], words[1])
		if len(words) > 2 {
			b.WriteString(", resultMode: tool_result")
		}
		if message != "" {
			fmt.Fprintf(&b, ", message: %q", message)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func snapshot(t testing.TB, docs ...string) *admission.Config {
	t.Helper()
	set, err := policy.Compile([]policy.Document{{Name: "p.yaml", Data: []byte(strings.TrimPrefix(strings.Join(docs, ""), "---\n"))}})
	if err != nil {
		t.Fatal(err)
	}
	return &admission.Config{Policies: set, Revision: 3}
}

// anything allows every tool and every handoff.
func anything(t testing.TB) *admission.Config {
	return snapshot(t, pol("tools", "{tools: ['*']}", "allow ok: true"), pol("handoffs", "{toAgents: ['*']}", "allow ok: true"))
}

func resultOf(t testing.TB, out admission.Outcome) wire.PolicyResult {
	t.Helper()
	b, err := out.Reply()
	if err != nil {
		t.Fatal(err)
	}
	var r wire.PolicyResult
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return r
}

// says is "decision reason mode".
func says(t testing.TB, out admission.Outcome) string {
	t.Helper()
	r := resultOf(t, out)
	return strings.TrimSpace(r.Decision + " " + r.Reason + " " + r.ResultMode)
}

// codes are the record's own reasons.
func codes(out admission.Outcome) string {
	list := make([]string, len(out.Decision.Reasons))
	for i, r := range out.Decision.Reasons {
		list[i] = r.Code
		if r.Path != "" {
			list[i] += "@" + r.Path
		}
	}
	return string(out.Decision.Verdict) + " " + strings.Join(list, " ")
}

// noSecrets looks for values of arguments, and for plain hashes of them, in
// whatever goes onto the log.
func noSecrets(t testing.TB, out admission.Outcome) {
	t.Helper()
	reply, err := out.Reply()
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(out.Decision)
	if err != nil {
		t.Fatal(err)
	}
	logged := [][]byte{record, []byte(out.ErrorDescription)}
	list, err := out.AccompanyingEvents()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		logged = append(logged, e.Body)
	}
	hashes := resultOf(t, out).Metadata
	for i, b := range append(logged, reply) {
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("a raw argument in %s", b)
		}
		for _, k := range []string{"proposalHash", "argsHash", "payloadHash"} {
			if h, _ := hashes[k].(string); h != "" && i < len(logged) && bytes.Contains(b, []byte(h)) {
				t.Errorf("the plain %s in %s", k, b)
			}
		}
	}
}

// shared reads a file of the upstream material that lies beside the repository.
func shared(t testing.TB, name string) []byte {
	t.Helper()
	root := os.Getenv("COUNTERSIGN_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	b, err := os.ReadFile(filepath.Join(root, "upstream", "aioc", name))
	if err != nil {
		t.Skipf("the upstream material is not here (set COUNTERSIGN_SHARED): %v", err)
	}
	return b
}
