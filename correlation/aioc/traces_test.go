package aioc

import (
	"testing"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// TestTraceOnce: only decisions on proposals leave a trace event, and one each.
func TestTraceOnce(t *testing.T) {
	ts := NewTraces()
	for id, protocol := range map[string]string{"d1": "tool", "d2": "handoff", "d3": "another"} {
		ts.Expect(&events.Decision{Tenant: "acme", DecisionID: id, Protocol: protocol, Source: "rt1", Session: "s1"})
		if _, expected := ts.expected.Get("acme", fact.SumOf(id)); expected != (protocol != "another") {
			t.Errorf("%s: a trace is expected: %v", protocol, expected)
		}
	}
	first, _ := ts.expected.Get("acme", fact.SumOf("d1"))
	first.received = true
	ts.Expect(&events.Decision{Tenant: "acme", DecisionID: "d1", Protocol: "tool"})
	if again, _ := ts.expected.Get("acme", fact.SumOf("d1")); again != first {
		t.Error("a second copy of the decision expects a second trace")
	}
}
