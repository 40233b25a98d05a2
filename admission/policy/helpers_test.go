package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// doc writes one policy. match is flow YAML, "" for none; each rule is
// "verdict reason: condition".
func doc(name, match string, rules ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: %s}\nspec:\n", name)
	if match != "" {
		fmt.Fprintf(&b, "  match: %s\n", match)
	}
	b.WriteString("  rules:\n")
	for i, r := range rules {
		head, when, _ := strings.Cut(r, ": ")
		verdict, reason, _ := strings.Cut(head, " ")
		fmt.Fprintf(&b, "    - {name: r%d, when: %q, verdict: %s, reason: %s}\n", i, when, verdict, reason)
	}
	return b.String()
}

func compileDocs(t testing.TB, docs ...string) *Set {
	t.Helper()
	set, err := Compile([]Document{{Name: "t.yaml", Data: []byte(strings.Join(docs, "---\n"))}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func tree(t testing.TB, json string) map[string]any {
	t.Helper()
	m, err := strictjson.ParseObject([]byte(json), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func call(tool string) Input {
	return Input{Tenant: "acme", Source: "rt1", Protocol: "agenthook", Tool: tool, Now: noon}
}

func codes(v Result) string {
	list := make([]string, len(v.Reasons))
	for i, r := range v.Reasons {
		list[i] = r.Code
	}
	return string(v.Verdict) + " " + strings.Join(list, ",")
}

func expect(t *testing.T, got Result, want string) {
	t.Helper()
	if codes(got) != want {
		t.Errorf("got %q, want %q", codes(got), want)
	}
	for _, r := range got.Reasons {
		if r.Evaluator != EvaluatorName {
			t.Errorf("reason %+v has another evaluator", r)
		}
	}
	if !got.Verdict.Valid() || got.Verdict == "" {
		t.Errorf("verdict %q", got.Verdict)
	}
}

var _ = events.Allow
