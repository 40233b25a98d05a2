package aaep

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

type set = map[string]any

func event(t testing.TB, kind string, more ...set) string {
	t.Helper()
	m := set{
		"@context": "https://aaep-protocol.org/context/v1", "type": "aaep:agent." + kind, "event_id": "evt_1", "session_id": "sess_1",
		"timestamp": "2026-11-20T11:59:59.000Z", "producer": set{"agent_id": "bot"}, "summary_normal": "Doing it.",
	}
	switch kind {
	case "tool.invoked":
		more = append([]set{{"tool": "pay", "tool_call_id": "call_1"}}, more...)
	case "awaiting.confirmation":
		more = append([]set{{"urgency": "critical", "action": "Pay", "consequence": "Paid", "reply_token": "rpl_1", "timeout_seconds": 60, "default_decision": "reject"}}, more...)
	}
	for _, s := range more {
		for k, v := range s {
			if m[k] = v; v == nil {
				delete(m, k)
			}
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func request(body string) call.Request {
	return call.Request{Tenant: "acme", Source: "rt1", Body: []byte(body), Limits: strictjson.DefaultLimits, Confirmations: call.NoConfirmations{}}
}

func said(o call.Opinion) string {
	words := []string{string(o.Verdict)}
	for _, r := range o.Reasons {
		words = append(words, strings.TrimSuffix(r.Code+"@"+r.Path, "@"))
	}
	if o.Malformed {
		words = append(words, "(malformed)")
	}
	return strings.Join(words, " ")
}

func TestRequests(t *testing.T) {
	const invoked, waiting = "tool.invoked", "awaiting.confirmation"
	for name, c := range map[string]struct {
		kind string
		set  set
		want string
	}{
		"plain":                     {invoked, nil, "allow"},
		"full type":                 {invoked, set{"type": "https://aaep-protocol.org/types/agent.tool.invoked"}, "allow"},
		"reversible":                {invoked, set{"irreversible": false}, "allow"},
		"irreversible":              {invoked, set{"irreversible": true}, "ask confirmation_required@/irreversible"},
		"high risk":                 {invoked, set{"risk_level": "high"}, "ask high_risk_unconfirmed@/risk_level"},
		"both":                      {invoked, set{"risk_level": "high", "irreversible": true}, "ask confirmation_required@/irreversible high_risk_unconfirmed@/risk_level"},
		"no call id":                {invoked, set{"tool_call_id": nil}, "allow tool_call_id_missing@/tool_call_id"},
		"no tool":                   {invoked, set{"tool": nil}, "deny schema_invalid (malformed)"},
		"bad tool":                  {invoked, set{"tool": "pay\x00"}, "deny schema_invalid@/tool (malformed)"},
		"irreversible no boolean":   {invoked, set{"irreversible": "false"}, "deny schema_invalid@/irreversible (malformed)"},
		"unknown risk":              {invoked, set{"risk_level": "extreme"}, "deny schema_invalid@/risk_level (malformed)"},
		"no session":                {invoked, set{"session_id": nil}, "deny schema_invalid (malformed)"},
		"bad event id":              {invoked, set{"event_id": "1"}, "deny schema_invalid@/event_id (malformed)"},
		"unknown version":           {invoked, set{"aaep_version": "2.0.0"}, "deny unknown_schema_version@/aaep_version (malformed)"},
		"newer minor":               {invoked, set{"aaep_version": "1.3.0"}, "allow"},
		"unknown field":             {invoked, set{"admission": "allow"}, "deny schema_invalid@/admission (malformed)"},
		"long agent":                {invoked, set{"producer": set{"agent_id": strings.Repeat("x", call.MaxField+1)}}, "deny field_too_long@/producer/agent_id (malformed)"},
		"confirmation":              {waiting, nil, "allow"},
		"confirmation, silent yes":  {waiting, set{"irreversible": true, "risk_level": "high", "default_decision": "accept"}, "deny unsafe_default@/default_decision (malformed)"},
		"the other way to say so":   {waiting, set{"reversibility": "irreversible", "risk_level": "medium", "default_decision": "accept"}, "deny unsafe_default@/default_decision (malformed)"},
		"low risk, silent yes":      {waiting, set{"irreversible": true, "risk_level": "low", "default_decision": "accept"}, "allow risky_default@/default_decision"},
		"reversible, silent yes":    {waiting, set{"risk_level": "high", "default_decision": "accept"}, "allow risky_default@/default_decision"},
		"harmless, silent yes":      {waiting, set{"risk_level": "low", "default_decision": "accept"}, "allow"},
		"not urgent":                {waiting, set{"urgency": nil}, "deny schema_invalid (malformed)"},
		"no token":                  {waiting, set{"reply_token": nil}, "deny schema_invalid (malformed)"},
		"completed":                 {"tool.completed", set{"tool": "pay", "status": "success"}, "deny not_a_request@/type (malformed)"},
		"started":                   {"session.started", nil, "deny not_a_request@/type (malformed)"},
		"unknown core type":         {"tool.approved", nil, "deny not_a_request@/type (malformed)"},
		"somebody else's type":      {invoked, set{"type": "medai:alert.raised"}, "deny not_a_request@/type (malformed)"},
		"a reply is no request":     {invoked, set{"type": "confirmation.reply"}, "deny not_a_request@/type (malformed)"},
		"type no text":              {invoked, set{"type": 5}, "deny not_a_request@/type (malformed)"},
		"extension of another type": {invoked, set{"extensions": set{"x": 5}}, "deny schema_invalid@/extensions/x (malformed)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, o := Evaluator{}.Read(request(event(t, c.kind, c.set)))
			got := said(o)
			if c.want != got {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if strings.HasPrefix(got, "deny") && !o.Malformed {
				t.Error("denied here without being malformed")
			}
		})
	}
	for name, body := range map[string]string{"empty": "", "list": "[]", "twice": `{"a":1,"a":2}`} {
		if _, o := (Evaluator{}).Read(request(body)); !o.Malformed || o.Verdict != events.Deny {
			t.Errorf("%s: %s", name, said(o))
		}
	}
}

func TestCall(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r := request(event(t, "tool.invoked", set{"correlation_id": trace, "irreversible": true}))
	c, _ := Evaluator{}.Read(r)
	if c.Tool != "pay" || c.ToolCallID != "call_1" || c.Session != "sess_1" || c.Agent != "bot" || c.EventID != "evt_1" || c.Traceparent != trace {
		t.Errorf("%+v", c)
	}
	if c.Risk["level"] != "low" || c.Risk["irreversible"] != true || c.Args != nil || c.ArgsCanonical != nil {
		t.Errorf("%+v", c)
	}
	// A verdict on asking the user must not look like one on the call itself, and
	// the text of the action is in no field that reaches a record.
	r = request(event(t, "awaiting.confirmation", set{"reversibility": "irreversible", "risk_level": "high"}))
	r.Header = map[string][]string{events.HeaderToolCallID: {"call_1"}}
	c, _ = Evaluator{}.Read(r)
	if c.Tool != "" || c.ToolCallID != "" || c.Action != ActionConfirm || c.Risk["level"] != "high" || c.Risk["irreversible"] != true {
		t.Errorf("%+v", c)
	}
	if c, _ = (Evaluator{}).Read(request(event(t, "tool.invoked", set{"event_id": "x y"}))); c.EventID != "" {
		t.Error("an invalid event id was kept")
	}
	r = request(event(t, "tool.invoked"))
	r.Header = map[string][]string{events.HeaderSession: {"sess_2"}}
	if _, o := (Evaluator{}).Read(r); said(o) != "deny header_conflict (malformed)" {
		t.Error(said(o))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(event(f, "tool.invoked")))
	f.Add([]byte(event(f, "awaiting.confirmation")))
	f.Add([]byte(`{"type":"aaep:agent.tool.invoked","irreversible":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, o := Evaluator{}.Read(request(string(body)))
		if o.Malformed && o.Verdict != events.Deny {
			t.Fatal("malformed and not denied")
		}
		if _, err := strictjson.ParseObject(body, strictjson.DefaultLimits); err != nil && !o.Malformed {
			t.Fatal("accepted what cannot be parsed")
		}
		if c.Args != nil || c.ArgsCanonical != nil {
			t.Fatal("AAEP has no arguments")
		}
	})
}
