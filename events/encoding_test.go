package events_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
)

func TestEncode(t *testing.T) {
	type odd struct {
		B json.RawMessage `json:"b"`
		A map[string]any  `json:"a"`
	}
	for _, c := range []struct {
		in   any
		want string
	}{
		{odd{B: json.RawMessage(`{"z": 1.0, "y":2}`), A: map[string]any{"x": 1}}, `{"a":{"x":1},"b":{"y":2,"z":1}}`},
		{map[string]any{"b": 1, "a": []byte("x")}, `{"a":"eA==","b":1}`},
		{events.Reason{Evaluator: "\x00\x1f\b\n\x7f\"\\/<&>\u2028é😀", Code: "\xff\xed\xa0\x80"}, `{"code":"` + "\uFFFD\uFFFD\uFFFD\uFFFD" + `","evaluator":"\u0000\u001f\b\n` + "\x7f" + `\"\\/<&>` + "\u2028é😀" + `"}`},
		{(*events.MandateRef)(nil), `null`}, {[]events.Reason{}, `[]`},
		{struct{ A int }{1}, `{"A":1}`},
		{1.5, `1.5`}, {nil, `null`},
	} {
		if got, err := events.Encode(c.in); err != nil || string(got) != c.want {
			t.Errorf("%#v: %s, %v; want %s", c.in, got, err, c.want)
		}
	}
	if _, err := events.Encode(func() {}); err == nil {
		t.Error("a function was encoded")
	}
}

func BenchmarkEncode(b *testing.B) {
	d := events.Decision{DecisionID: "0198c5f2-7d3a-7c11-9b57-000000000001", Tenant: "acme", Protocol: "agenthook", Source: "acme-runtime", Agent: "agent-1",
		Session: "session-1", ToolCallID: "call_1", Occurrence: 1, Tool: "send_email", Action: "create", RequestDigest: "hmac-sha256:00", Verdict: events.Allow,
		NativeVerdict: "allow", Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "internal_recipient", Policy: "mail/internal"}},
		Policy:     &events.PolicyRef{Name: "mail", Revision: 7, Digest: "sha256:00"},
		ReceivedAt: events.At(time.Unix(1, 2)), DecidedAt: events.At(time.Unix(1, 3)), ExpiresAt: events.At(time.Unix(61, 3))}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.Encode(d); err != nil {
			b.Fatal(err)
		}
	}
}
