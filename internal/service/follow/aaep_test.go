package follow

import (
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// The kind aaep has what was said in AAEP in the tenant, and nothing else: no request, no document of
// another protocol on a subject of AAEP, no other tenant's event. A request that names no kind gets none.
func TestAAEPAlone(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n)
	event := []byte(`{"type":"aaep:agent.state.changed","event_id":"evt_1","session_id":"sess_1"}`)
	reply := []byte(`{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept"}`)
	space := subject.Space{}
	for _, m := range []struct {
		subject string
		body    []byte
	}{
		{space.Event("acme", "rt1", "aaep", "sess_1", "agent.state.changed"), event},
		{space.Request("acme", "rt1", "aaep", "sess_1"), event},
		{space.Event("acme", "rt1", "agenthook", "sess_1", "PreToolUse"), []byte(`{"event_type":"PreToolUse","tool_input":{"command":"secret"}}`)},
		{space.Event("acme", "rt1", "aaep", "sess_1", "agent.state.changed"), []byte(`{"event_type":"PreToolUse","tool_input":{"command":"secret"}}`)},
		{space.Event("acme", "rt1", "aaep", "sess_2", "agent.state.changed"), event},
		{space.Event("acme", "rt1", "aaep", "", "subscription.request"), []byte(`{"type":"subscription.request"}`)},
		{space.Event("acme", "rt1", "aaep", "", "unknown"), []byte(`not JSON`)},
		{"gov.events.acme.rt1.aaep.~zz.x", []byte(`{"event_type":"PreToolUse","tool_input":{"command":"secret"}}`)},
		{space.Event("globex", "mallory", "aaep", "sess_1", "agent.state.changed"), event},
		{space.Event("acme", "rt2", "aaep", "", "confirmation.reply"), reply},
	} {
		n.Publish(admitter, streams.Msg{Subject: m.subject, Body: m.body})
	}
	n.Publish(admitter, decision("acme", "deny", "s", 1))
	p := askAll(t, n.Conn(subscriber), `{"after":0,"kinds":["aaep"]}`)
	if len(p.Outputs) != 2 || string(p.Outputs[0].Record) != string(event) || string(p.Outputs[1].Record) != string(reply) {
		t.Errorf("%+v", p)
	}
	if p := askAll(t, n.Conn(subscriber), `{"after":0}`); len(p.Outputs) != 1 {
		t.Errorf("without a kind: %+v", p)
	}
	if p := ask(t, n.Conn(subscriber), "acme", `{"kinds":["aaep"],"states":{"aaep":"x"}}`); p.Error == nil {
		t.Error("states of events")
	}
	if got := fmt.Sprint(ask(t, n.Conn(servicetest.Gateway), "acme", `{"after":0,"kinds":["aaep"]}`).Error); got != "<nil>" {
		t.Error(got)
	}
}
