package strictjson_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// small is an event of about 600 bytes, large one of about 1.8 kB.
var (
	small = []byte(`{"schema_version":1,"event_id":"0b9e7a60-0b1c-4c5e-9d55-0d8a3c7be001","event_type":"PreToolUse",` +
		`"timestamp":"2026-11-20T08:15:30.125Z","source":"runtime-a","session_id":"sess-bench-0001","evidence_phase":"pre_commit",` +
		`"tool_name":"write_file","tool_input":{"path":"/srv/reports/2026/q3.md","mode":420,"overwrite":false,"lines":["one","two"]},` +
		`"action":"write","resource_kind":"file","resource":"/srv/reports/2026/q3.md","resource_scope":"workspace","operation_risk":"write",` +
		`"metadata":{"tool_call_id":"call-0001","estimated_usd":0.0125,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`)
	large = []byte(strings.Replace(string(small), `"estimated_usd"`,
		`"admission_verdict":{"verdict":"allow","reason":"inside the workspace","subscriber":"countersign","policy_id":"files/workspace"},`+
			`"tool_identity":{"canonical_name":"file.write","provider_name":"write_file","source":"native_runtime_tool"},`+
			`"risk":{"risk_class":"external_side_effect","requires_human_approval":false,"idempotent":true,"contains_secret":false},`+
			`"notes":"`+strings.Repeat("Plain text that an agent may write about its own work. ", 14)+`","estimated_usd"`, 1))
)

func benchParse(b *testing.B, doc []byte) {
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := strictjson.ParseObject(doc, strictjson.DefaultLimits); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseSmall(b *testing.B) { benchParse(b, small) }
func BenchmarkParseLarge(b *testing.B) { benchParse(b, large) }

func BenchmarkCanonicalSmall(b *testing.B) {
	tree, err := strictjson.ParseObject(small, strictjson.DefaultLimits)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := strictjson.Canonical(tree); err != nil {
			b.Fatal(err)
		}
	}
}
