package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events/signing"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// secret is the value that no record, reply or error may quote.
const secret = "hunter2-secret"

const preToolUse = `{"event_id":"7D444840-9dc0-11d1-b245-5ffdce74fad2","event_type":"PreToolUse","timestamp":"2026-11-20T11:59:59Z",` +
	`"source":"claude-code","agent_id":"bot","session_id":"s1","evidence_phase":"pre_commit","tool_name":"send_mail",` +
	`"tool_input":{"to":"a@example.com","password":"hunter2-secret","n":1.0},"metadata":{"tool_call_id":"c1"}}`

const toolInvoked = `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.tool.invoked","event_id":"evt_1","session_id":"sess_1",` +
	`"timestamp":"2026-11-20T11:59:59.000Z","producer":{"agent_id":"bot"},"tool":"transfer_funds","tool_call_id":"call_1",` +
	`"summary_normal":"Transferring.","args_summary":"hunter2-secret"}`

const awaiting = `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.awaiting.confirmation","event_id":"evt_2","session_id":"sess_1",` +
	`"timestamp":"2026-11-20T11:59:59.000Z","producer":{"agent_id":"bot"},"urgency":"critical","action":"Transfer hunter2-secret","consequence":"Gone.",` +
	`"reply_token":"rpl_1","timeout_seconds":60,"default_decision":"reject","irreversible":true,"risk_level":"high"}`

// edit replaces old by with, which must be there.
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

func inputs() Inputs {
	return Inputs{
		Now: noon, DecisionID: "01939d5e-0000-7000-8000-000000000001", Salt: bytes.Repeat([]byte{7}, 16), Nonce: "n-1",
		TenantKey: bytes.Repeat([]byte{9}, 32), Durability: "fsync", KnownTenant: true, Occurrence: 1,
	}
}

func request(protocol, body string) Request {
	return Request{Tenant: "acme", Source: "rt1", Protocol: protocol, Body: []byte(body), ReceivedAt: noon.Add(-time.Millisecond)}
}

// rules makes a configuration of one policy; each rule is "verdict reason: condition".
func rules(t testing.TB, list ...string) *Config {
	t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  rules:\n")
	for i, r := range list {
		head, when, _ := strings.Cut(r, ": ")
		verdict, reason, _ := strings.Cut(head, " ")
		fmt.Fprintf(&b, "    - {name: r%d, when: %q, verdict: %s, reason: %s}\n", i, when, verdict, reason)
	}
	return compiled(t, b.String())
}

func compiled(t testing.TB, yaml string) *Config {
	t.Helper()
	set, err := policy.Compile([]policy.Document{{Name: "p.yaml", Data: []byte(yaml)}})
	if err != nil {
		t.Fatal(err)
	}
	return &Config{Policies: set, Revision: 3}
}

func allowAll(t testing.TB) *Config { return rules(t, "allow ok: true") }

func codes(out Outcome) string {
	list := make([]string, len(out.Decision.Reasons))
	for i, r := range out.Decision.Reasons {
		list[i] = r.Code
		if r.Path != "" {
			list[i] += "@" + r.Path
		}
	}
	return string(out.Decision.Verdict) + " " + strings.Join(list, " ")
}

func replyOf(t testing.TB, out Outcome) map[string]any {
	t.Helper()
	b, err := out.Reply()
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return m
}

// noSecrets looks for argument values in whatever leaves the core.
func noSecrets(t testing.TB, out Outcome) {
	t.Helper()
	body, err := out.Reply()
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(out.Decision)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := json.Marshal(out.Claims)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{body, record, claims, []byte(out.ErrorDescription)} {
		if bytes.Contains(b, []byte(secret)) || bytes.Contains(b, []byte("a@example.com")) {
			t.Errorf("a raw argument in %s", b)
		}
	}
}

var signingKeys = func(t testing.TB) (signing.PrivateKey, signing.KeySet) {
	t.Helper()
	k, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k, signing.KeySet{k.ID: k.Public()}
}

// shared reads a file of the upstream material that lies beside the repository.
func shared(t testing.TB, name string) []byte {
	t.Helper()
	root := os.Getenv("COUNTERSIGN_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "shared")
	}
	b, err := os.ReadFile(filepath.Join(root, "upstream", name))
	if err != nil {
		t.Skipf("the upstream material is not here (set COUNTERSIGN_SHARED): %v", err)
	}
	return b
}
