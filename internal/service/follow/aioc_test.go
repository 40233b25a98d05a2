package follow

import (
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// The kind aioc has the trace events that the admitter wrote, and nothing else: no request, none that a publisher
// made, no document of another type or protocol, no other tenant's event. A request that names no kind gets none.
func TestTracesAlone(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n)
	trace := func(typ string) []byte {
		b, err := aioc.PolicyEvaluated{Type: typ, Agent: "a", Turn: 1, Decision: aioc.Deny, Reason: "<r>", Metadata: map[string]any{"decisionId": "d1"}}.Encode()
		servicetest.OK(t, err)
		return b
	}
	tool, handoff := trace(aioc.TypeToolEvaluated), trace(aioc.TypeHandoffEvaluated)
	space, signed := subject.Space{}, map[string][]string{events.HeaderSignature: {"a..b"}}
	for _, m := range []streams.Msg{
		{Subject: space.Event("acme", "rt1", "tool", "run 1", aioc.TypeToolEvaluated), Header: signed, Body: tool},
		{Subject: space.Event("acme", "rt1", "tool", "run 1", aioc.TypeToolEvaluated), Body: tool},
		{Subject: space.Event("acme", "rt1", "tool", "run 1", aioc.TypeToolEvaluated), Header: signed, Body: handoff},
		{Subject: space.Event("acme", "rt1", "tool", "run 1", aioc.TypeToolEvaluated), Header: signed, Body: []byte(`{"toolName":"t","rawArguments":"secret"}`)},
		{Subject: space.Request("acme", "rt1", "tool", "run 1"), Header: signed, Body: tool},
		{Subject: space.Event("acme", "rt1", "tool", "run 1", "tool_call_started"), Header: signed, Body: tool},
		{Subject: space.Event("acme", "rt1", "agenthook", "run 1", aioc.TypeToolEvaluated), Header: signed, Body: tool},
		{Subject: space.Event("globex", "mallory", "tool", "run 1", aioc.TypeToolEvaluated), Header: signed, Body: tool},
		{Subject: space.Event("acme", "rt2", "handoff", "run 2", aioc.TypeHandoffEvaluated), Header: signed, Body: handoff},
	} {
		n.Publish(admitter, m)
	}
	n.Publish(admitter, decision("acme", "deny", "s", 1))
	for request, want := range map[string]string{
		`{"after":0,"kinds":["aioc"]}`: "1 9", `{"after":0,"kinds":["aioc"],"session":"run 2"}`: "9", `{"after":1,"kinds":["aioc","decisions"]}`: "9 10",
		`{"after":0,"kinds":["aaep"]}`: "", `{"after":0}`: "10",
	} {
		if p := askAll(t, n.Conn(subscriber), request); seqs(p) != want || p.Error != nil {
			t.Errorf("%s: %s %v, want %s", request, seqs(p), p.Error, want)
		}
	}
	if p := ask(t, n.Conn(subscriber), "acme", `{"after":0,"kinds":["aioc"],"max":1}`); len(p.Outputs) != 1 || string(p.Outputs[0].Record) != string(tool) {
		t.Errorf("%+v", p)
	}
	if p := ask(t, n.Conn(subscriber), "acme", `{"kinds":["aioc"],"states":{"aioc":"deny"}}`); p.Error == nil {
		t.Error("states of events")
	}
}
