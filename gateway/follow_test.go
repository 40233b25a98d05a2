package gateway

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// A filter passes what has all of its values, and refuses a query that it does not read as a whole.
func TestFilter(t *testing.T) {
	space := subject.Space{Prefix: "gov"}
	long := strings.Repeat("l", 100) // its subject has a hash
	outputs := map[string]events.Output{
		"decisions": {Subject: space.Decision("acme", "deny", "s 1"), Record: []byte(`{"session":"s 1","tool_call_id":"c1","tool":"t","agent":"a","source":"rt1"}`)},
		"calls":     {Subject: space.Call("acme", "completed", "s 1"), Record: []byte(`{"session":"s 1","tool_call_id":"c1","tool":"t","agent":"a","source":"rt1"}`)},
		"findings":  {Subject: space.Finding("acme", "high", "s 1"), Record: []byte(`{"session":"s 1","tool_call_id":"c1","rule":"r"}`)},
		"approvals": {Subject: space.Approval("acme", "pending", "wf"), Record: []byte(`{"workflow_id":"wf","session":"s 1","tool_call_ids":["c0","c1"],"tool":"t"}`)},
		"aioc.long": {Subject: space.Event("acme", "rt1", "handoff", long, "handoff_policy_evaluated"), Record: []byte(`{"agent":"a"}`)},
		"aioc":      {Subject: space.Event("acme", "rt1", "tool", "run 1", "tool_policy_evaluated"), Record: []byte(`{"agent":"a","callId":"c1","decision":"require_approval","toolName":"t"}`)},
		"aaep":      {Subject: space.Event("acme", "rt1", "aaep", "sess_1", "agent.tool.invoked"), Record: []byte(`{"session_id":"sess_1","tool_call_id":"c1"}`)},
	}
	for _, c := range []struct {
		kind, query string
		passes      bool
	}{
		{"decisions", "", true}, {"decisions", "session=s+1", true}, {"decisions", "session=s%201&tool_call_id=c1&tool=t&agent=a&source=rt1&state=deny", true},
		{"decisions", "session=s+1&tool_call_id=c2", false}, {"decisions", "state=allow", false}, {"decisions", "state=acme", false}, {"decisions", "session=*", false},
		{"calls", "state=completed&tool=t", true}, {"calls", "tool=T", false},
		{"findings", "state=high&rule=r", true}, {"findings", "rule=q", false}, {"findings", "source=rt1", false},
		{"approvals", "tool_call_id=c1&workflow=wf&state=pending", true}, {"approvals", "tool_call_id=c2", false},
		{"aaep", "session=sess_1&tool_call_id=c1", true}, {"aaep", "session=sess_2", false},
		{"aioc", "session=run+1&tool_call_id=c1&tool=t&agent=a&state=require_approval", true}, {"aioc", "session=run+2", false}, {"aioc", "session=~cnVuIDE", false},
		{"aioc.long", "session=" + long, true}, {"aioc.long", "session=" + long[1:], false},
		{"aioc", "state=deny", false}, {"aioc", "tool=u", false},
	} {
		kind, _, _ := strings.Cut(c.kind, ".")
		f, p := ReadFilter(space, kind, c.query)
		if p != nil || f.Passes(outputs[c.kind]) != c.passes {
			t.Errorf("%s?%s: %v", c.kind, c.query, p)
		}
		large := outputs[c.kind]
		large.Record = nil
		if !strings.Contains(c.query, "state=a") && !(kind == "aioc" && strings.Contains(c.query, "session=")) && !f.Passes(large) {
			t.Errorf("%s?%s: a record that is too large is left out", c.kind, c.query)
		}
	}
	for _, bad := range []string{"decisions?rule=r", "findings?tool=t", "decisions?session=", "decisions?session=a&session=b", "decisions?x=1", "decisions?%zz", "aaep?state=allow", "aioc?source=rt1", "aioc?callId=c1",
		"decisions?workflow=wf", "decisions?session=" + strings.Repeat("x", 513)} {
		kind, query, _ := strings.Cut(bad, "?")
		if _, p := ReadFilter(space, kind, query); p == nil || p.Status != 400 {
			t.Errorf("%.60s: %v", bad, p)
		}
	}
	for query, want := range map[string]string{"verdict=deny": "it reads agent, session, source, state, tool, tool_call_id", "state=": `"state" is given once`} {
		if _, p := ReadFilter(space, "decisions", query); p == nil || p.Code != string(BadQuery) || !strings.Contains(p.Message, want) {
			t.Errorf("%s: %v", query, p)
		}
	}
	if _, p := planAdmit(endpoint.Request{Target: "agenthok"}); p == nil || p.Status != 404 || !strings.Contains(p.Message, "agenthook") || strings.Contains(p.Message, "agenthok ") {
		t.Errorf("an unknown protocol: %v", p)
	}
}
