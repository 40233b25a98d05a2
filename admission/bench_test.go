package admission

import (
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

// governed is an action-governance request of about 1.8 KB.
func governed(b *testing.B) string {
	hash := "sha256:" + strings.Repeat("a1", 32)
	return edit(b, preToolUse, `"tool_input":{`, `"action":"send","resource_kind":"email","resource":{"mailbox":"outbox","provider":"smtp","path":"/outbox/2026/11/20"},`+
		`"resource_scope":"tenant","operation_risk":"external_transfer","tool_input":{"subject":"Quarterly report","body":"`+strings.Repeat("All figures are final. ", 18)+`",`,
		`"metadata":{`, `"metadata":{"tool_identity":{"canonical_name":"email.send_message","provider_name":"send_mail","source":"mcp_tools_call","schema_hash":"`+hash+`"},`+
			`"provider_translation":{"provider_surface":"mcp_tools_call","model_facing_tool":"send_mail","provider":"smtp","adapter_version":"1.4.2","schema_hash":"`+hash+`"},`+
			`"risk":{"risk_class":"external_side_effect","requires_human_approval":false,"data_exfiltration_risk":"low","writes_external_system":true,"idempotent":false,"contains_secret":false},`+
			`"validation":{"status":"passed","validator":"jsonschema","schema_hash":"`+hash+`"},"redaction":{"applied":false,"fields":[]},"retry":{"attempt":1},`+
			`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",`)
}

// many makes n policies: one for the tool in question, the rest for others.
func many(b *testing.B, n int, match string) *Config {
	var docs strings.Builder
	for i := range n {
		tool := fmt.Sprintf("tool_%d", i)
		if i == 0 {
			tool = "send_mail"
		}
		fmt.Fprintf(&docs, "---\napiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p%d}\nspec:\n  match: {%s}\n  rules:\n"+
			"    - {name: r, when: 'args.to.endsWith(\"@example.com\")', verdict: allow, reason: ok}\n", i, fmt.Sprintf(match, tool))
	}
	return compiled(b, strings.TrimPrefix(docs.String(), "---\n"))
}

func BenchmarkDecide(b *testing.B) {
	const exact, glob = "tools: [%s]", "tools: ['%.4s*']"
	minimal := edit(b, preToolUse, `,"agent_id":"bot"`, "", `"evidence_phase":"pre_commit",`, "", `,"password":"hunter2-secret","n":1.0`, "")
	for _, c := range []struct {
		name, body string
		snap       *Config
		tenants    bool // digests are under the tenant's key, as of requests without a session
	}{
		{"minimal", minimal, many(b, 1, exact), false},
		{"minimal-tenant-key", minimal, many(b, 1, exact), true},
		{"governed-1.8KB", governed(b), many(b, 1, exact), false},
		{"governed-1.8KB-tenant-key", governed(b), many(b, 1, exact), true},
		{"governed-1.8KB-100-policies", governed(b), many(b, 100, exact), false},
		{"governed-1.8KB-1000-policies", governed(b), many(b, 1000, exact), false},
		{"governed-1.8KB-1000-globs", governed(b), many(b, 1000, glob), false},
	} {
		req, in := request(agenthook.Name, c.body), inputs()
		if !c.tenants {
			in.SessionSecret = func(string, string) (*digest.Session, bool) { return sessionsKey, true }
		}
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(req.Body)))
			b.ReportAllocs()
			for b.Loop() {
				out := Decide(req, c.snap, in)
				if out.Decision.Verdict != events.Allow {
					b.Fatal(codes(out))
				}
				if _, err := out.Reply(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecideFunctions decides with a condition that reads the text of an argument, and with one that
// parses it as a shell does.
func BenchmarkDecideFunctions(b *testing.B) {
	const command = `cd src && git diff --stat main | head -20 && grep -rn 'TODO' . > todo.txt`
	body := edit(b, preToolUse, `"tool_input":{`, `"tool_input":{"command":"`+command+`",`)
	for name, when := range map[string]string{
		"text":        `has(args.command) && string(args.command).startsWith("cd ")`,
		"shell.parse": `has(args.command) && shell.parse(string(args.command)).commands.exists(c, c.name == "git")`,
	} {
		req, in := request(agenthook.Name, body), inputs()
		snap := compiled(b, "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  rules:\n    - {name: r, when: '"+when+"', verdict: allow, reason: ok}\n")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := Decide(req, snap, in); d.Decision.Verdict != events.Allow {
					b.Fatal(d.Decision.Verdict)
				}
			}
		})
	}
}
