package judge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

// Every protocol judges its events and its requests, each by the schema of its kind.
func TestJudge(t *testing.T) {
	for _, c := range []struct{ protocol, document, want string }{
		{"agenthook", `{"event_id":"e","event_type":"SessionStart"}`, "/: a"},
		{"aaep", `{"type":"confirmation.reply"}`, "AAEP-C-024"},
		{"aana", `{}`, "required"},
		{"aump", `{}`, "mandate_ref"},
		{"aump", `{"event_type":"x"}`, "privacy"},
		{"tool", `{}`, "agentName"},
		{"tool", `{"type":"tool_policy_evaluated"}`, "callId"},
		{"handoff", `{}`, "handoffPayload"},
		{"handoff", `{"type":"handoff_policy_evaluated"}`, "toAgent"},
	} {
		found, err := Judge(c.protocol, []byte(c.document))
		if err != nil || !schemas.HasErrors(found) {
			t.Errorf("%s %s: %v %v", c.protocol, c.document, found, err)
			continue
		}
		var text strings.Builder
		for _, v := range found {
			text.WriteString(v.String() + v.Keyword + v.Check + "\n")
		}
		if c.protocol != "agenthook" && !strings.Contains(text.String(), c.want) {
			t.Errorf("%s %s:\n%s, want %s", c.protocol, c.document, text.String(), c.want)
		}
	}
	for _, p := range schemas.Protocols() { // each of which has a judge
		for _, bad := range []string{``, `[]`, `null`, `{"a":1,"a":2}`, `{`, "{\"a\":\"\xff\"}", `{} {}`} {
			if _, err := Judge(p.Token, []byte(bad)); err == nil {
				t.Errorf("%s: %q can be read", p.Token, bad)
			}
		}
	}
	if _, err := Judge("none", []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "agenthook") {
		t.Errorf("an unknown protocol: %v", err)
	}
}

// An event of the action-governance profile is judged by the profile, in the form that it has.
func TestJudgeProfile(t *testing.T) {
	event := `{"schema_version":1,"event_id":"7d4d6a05-6f4c-4b7c-9d0b-111111111111","event_type":"PreToolUse","timestamp":"2026-11-20T06:41:49Z","source":"s","session_id":"s","tool_name":"t","tool_input":{},"metadata":{"risk":{}MORE}}`
	profile := func(more string) int {
		found, err := Judge("agenthook", []byte(strings.Replace(event, "MORE", more, 1)))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, v := range found {
			if strings.HasPrefix(v.Check, "AH-C-03") {
				n++
			}
		}
		return n
	}
	if profile("") == 0 || profile(`,"admission_verdict":{}`) == 0 {
		t.Error("the profile is not looked at")
	}
}

// FuzzJudge: no document makes a protocol's checks panic or answer differently the second time.
func FuzzJudge(f *testing.F) {
	for _, s := range schematest.Corpus(f) {
		b, err := json.Marshal(s.Document)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, protocol := range schemas.Tokens() {
			first, err := Judge(protocol, raw)
			if again, _ := Judge(protocol, raw); err == nil && !cmp.Equal(first, again) {
				t.Errorf("%s: the answer changes: %s", protocol, cmp.Diff(first, again))
			}
		}
	})
}
