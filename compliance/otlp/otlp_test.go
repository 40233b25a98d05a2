package otlp_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/proto"

	"github.com/countersign-dev/countersign/compliance/otlp"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/internal/testkit"
)

const (
	tenant      = "acme"
	traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

var ok = testkit.OK

// signals maps outputs as `countersign otel --follow` does.
func signals(t testing.TB, outputs ...any) (out otlp.Signals) {
	t.Helper()
	b, err := build.NewBuilder(evidencetest.Shard, subject.Space{})
	ok(t, err)
	m := otlp.NewMapper()
	for i, v := range outputs {
		body, err := events.Encode(v)
		ok(t, err)
		subj := subject.Space{}.Finding(tenant, "high", "s")
		switch v := v.(type) {
		case events.Decision:
			subj = subject.Space{}.Decision(tenant, string(v.Verdict), "s")
		case events.Call:
			subj = subject.Space{}.Call(tenant, string(v.State), "s")
		}
		built, err := b.Build(events.LogMessage{Seq: uint64(i + 1), Subject: subj, Time: at(i + 1).Time, Body: body}, evidence.Head{}, evidencetest.ExampleKeys{})
		ok(t, err)
		if !m.Add(&out, built.Record) {
			t.Fatalf("output %d does not read as one", i)
		}
	}
	return out
}

func at(n int) events.Time { return events.At(evidencetest.Start.Add(time.Duration(n) * time.Second)) }

func decision(call, trace string, v events.Verdict) events.Decision {
	return events.Decision{DecisionID: "d-" + call, Tenant: tenant, Protocol: "agenthook", Source: "r", Session: "s", ToolCallID: call, Tool: "send_email", Agent: "bot", Verdict: v,
		Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "matched"}, {Evaluator: "tool_policy", Code: "watched", Action: "audit"}}, DecidedAt: at(1), Traceparent: trace, RequestDigest: "x"}
}

func call(id, callID string, state events.CallState) events.Call {
	return events.Call{CallID: callID, Tenant: tenant, Protocol: "agenthook", Source: "r", Session: "s", ToolCallID: id, Tool: "send_email", Agent: "bot", State: state, DecisionID: "d-" + id,
		Occurrence: 1, Timeline: []events.TimelineEntry{{Step: "decided", At: at(1)}, {Step: "invoked", At: at(2)}, {Step: "completed", At: at(4)}}}
}

func finding(id, callID string) events.Finding {
	return events.Finding{FindingID: "f", Rule: "executed_despite_deny", Severity: events.SeverityHigh, Tenant: tenant, Source: "r", Session: "s", ToolCallID: id, CallID: callID,
		EventIDs: []string{}, Explanation: "it ran", DetectedAt: at(5)}
}

func text(list []attribute.KeyValue, key string) string {
	for _, kv := range list {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}

// The trace of a request goes through to its span and its log records.
func TestTraceGoesThrough(t *testing.T) {
	s := signals(t, decision("c1", traceparent, events.Allow), call("c1", "call_1", events.CallOpen), call("c1", "call_1", events.CallCompleted), finding("c1", "call_1"))
	if len(s.Spans) != 1 || len(s.Logs) != 2 {
		t.Fatalf("%d spans, %d logs", len(s.Spans), len(s.Logs))
	}
	span, dec, fnd := s.Spans[0], s.Logs[0], s.Logs[1]
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for what, got := range map[string][16]byte{"span": span.Context.Trace, "decision": dec.Context.Trace, "finding": fnd.Context.Trace} {
		if hex.EncodeToString(got[:]) != trace {
			t.Errorf("the %s is in trace %x", what, got)
		}
	}
	if hex.EncodeToString(span.Parent[:]) != parent || dec.Context.Span != span.Parent || fnd.Context.Span != span.Context.Span || span.Context.Flags != 1 {
		t.Errorf("parent %x, decision at %x, finding at %x", span.Parent, dec.Context.Span, fnd.Context.Span)
	}
	if !span.Start.Equal(at(2).Time) || !span.End.Equal(at(4).Time) || span.Name != "execute_tool send_email" || span.ErrorType != "" {
		t.Errorf("%+v", span)
	}
	for key, want := range map[string]string{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "send_email", "gen_ai.tool.call.id": "c1", "gen_ai.agent.id": "bot",
		"gen_ai.conversation.id": "s", "countersign.call.state": "completed", "countersign.tenant": tenant, "error.type": ""} {
		if got := text(span.Attributes, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if got := text(dec.Attributes, "countersign.decision.reasons"); strings.Contains(got, "watched") || !strings.Contains(got, "matched") {
		t.Errorf("reasons %s", got)
	}
}

// Without one, everything of a call is in one trace of its own, and every time in
// the same.
func TestDerivedTrace(t *testing.T) {
	outputs := []any{decision("c1", "", events.Ask), decision("c1", "", events.Allow), call("c1", "call_1", events.CallCompleted), finding("c1", "call_1"),
		decision("c2", "not-a-traceparent", events.Deny), call("c2", "call_2", events.CallDenied), call("c2", "call_2", events.CallCompleted)}
	s, again := signals(t, outputs...), signals(t, outputs...)
	one, two := s.Spans[0].Context.Trace, s.Spans[1].Context.Trace
	if s.Logs[0].Context.Trace != one || s.Logs[1].Context.Trace != one || s.Logs[2].Context.Trace != one || s.Logs[3].Context.Trace != two || one == two || one == [16]byte{} {
		t.Errorf("traces %x %x, logs %+v", one, two, s.Logs)
	}
	if s.Spans[0].Parent != [8]byte{} || s.Spans[1].Context.Span == s.Spans[2].Context.Span || s.Spans[1].Context.Trace != s.Spans[2].Context.Trace {
		t.Errorf("spans %+v", s.Spans)
	}
	if s.Spans[1].ErrorType != "denied" || s.Spans[2].ErrorType != "" {
		t.Errorf("a denied call that ran: %q, %q", s.Spans[1].ErrorType, s.Spans[2].ErrorType)
	}
	for i := range s.Spans {
		if s.Spans[i].Context != again.Spans[i].Context {
			t.Errorf("span %d has another identifier the second time", i)
		}
	}
	other := call("c1", "call_1", events.CallCompleted)
	other.Session = "elsewhere"
	if o := signals(t, other); o.Spans[0].Context.Trace == one {
		t.Error("calls of two sessions share a trace")
	}
}

// A record that corrects a finished call gives a span with the ids of the one before it and a greater position in
// the log, as docs/opentelemetry.md says.
func TestCorrectedCallKeepsItsIDs(t *testing.T) {
	late := call("c1", "call_1", events.CallCompleted)
	late.Verdict = events.Allow
	s := signals(t, call("c1", "call_1", events.CallOrphaned), late)
	first, second := s.Spans[0], s.Spans[1]
	if first.Context != second.Context || text(first.Attributes, "countersign.log.seq") >= text(second.Attributes, "countersign.log.seq") || text(second.Attributes, "countersign.decision.verdict") != "allow" {
		t.Errorf("%+v, then %+v", first, second)
	}
}

// What the redaction takes out is in no signal, and no text is longer than it may
// be.
func TestNothingUnredacted(t *testing.T) {
	d := decision("c1", "", events.Deny)
	d.Tool, d.Agent, d.ToolCallID = "mail to press@newspaper.example", "AKIAIOSFODNN7EXAMPLE", strings.Repeat("é", 400)
	f := finding("c1", "call_1")
	f.Explanation = "it sent hunter2 with password=hunter2hunter2 to press@newspaper.example " + strings.Repeat("x", 3000)
	s := signals(t, d, f)
	all := fmt.Sprintf("%+v", s)
	for _, secret := range []string{"press@newspaper.example", "AKIAIOSFODNN7EXAMPLE", "hunter2hunter2"} {
		if strings.Contains(all, secret) {
			t.Errorf("%q is in %s", secret, all)
		}
	}
	if n := len(s.Logs[1].Body); n > 1024 {
		t.Errorf("a body of %d bytes", n)
	}
	if id := text(s.Logs[0].Attributes, "gen_ai.tool.call.id"); len(id) != 256 {
		t.Errorf("an identifier of %d bytes", len(id))
	}
}

func TestNotOurs(t *testing.T) {
	var out otlp.Signals
	m := otlp.NewMapper()
	for _, r := range []evidence.Record{
		{Kind: evidence.KindDecision, Body: []byte(`{"x":1}`)}, {Kind: evidence.KindCall, Body: []byte(`null`)}, {Kind: evidence.KindFinding, Reason: "invalid_json", Body: []byte(`null`)},
	} {
		if m.Add(&out, r) {
			t.Errorf("%s was taken for one of ours", r.Kind)
		}
	}
	if !m.Add(&out, evidence.Record{Kind: evidence.KindRequest}) || len(out.Logs)+len(out.Spans) > 0 {
		t.Error("requests have no signals")
	}
}

func TestProto(t *testing.T) {
	s := signals(t, decision("c1", traceparent, events.Deny), call("c1", "call_1", events.CallDenied))
	if otlp.ResourceSpans(nil, "", nil, "") != nil {
		t.Error("no spans are something")
	}
	list := otlp.ResourceSpans(s.Spans, "", []attribute.KeyValue{attribute.String("service.name", "countersign")}, "v1")
	span := list[0].ScopeSpans[0].Spans[0]
	b, err := proto.Marshal(span)
	ok(t, err)
	if len(b) == 0 || len(span.TraceId) != 16 || len(span.SpanId) != 8 || len(span.ParentSpanId) != 8 || span.Status.Message != "denied" || span.EndTimeUnixNano < span.StartTimeUnixNano {
		t.Errorf("%v", span)
	}
}
