package confirm

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
)

func TestStandings(t *testing.T) {
	for _, tt := range []struct {
		name string // with the checks of the digest that it is about
		log  func(*tape)
		want string
	}{
		{"nothing was asked", func(p *tape) {}, ""},
		{"C-103 no answer yet", func(p *tape) { p.ask("rpl_1", about("call_1")) }, "pending explicit"},
		{"C-100 accepted", func(p *tape) { p.ask("rpl_1", about("call_1")); p.at(5).reply("rpl_1", "accept") }, "accepted explicit"},
		{"accepted, named in our extension", func(p *tape) {
			p.ask("rpl_1", set{"@context": []string{"https://aaep-protocol.org/context/v1", "https://countersign.dev/aaep/v1"},
				"extensions": set{"countersign": set{"tool_call_id": "call_1", "tool": "pay"}}})
			p.at(5).reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"accepted, it names no call", func(p *tape) { p.ask("rpl_1"); p.at(5).reply("rpl_1", "accept") }, "accepted"},
		{"another call was accepted", func(p *tape) { p.ask("rpl_1", about("call_2")); p.reply("rpl_1", "accept") }, ""},
		{"another tool was accepted", func(p *tape) {
			p.ask("rpl_1", set{"extra_context": set{"tool": "rm"}})
			p.reply("rpl_1", "accept")
		}, ""},
		{"this call was accepted, for another tool", func(p *tape) {
			p.ask("rpl_1", set{"extra_context": set{"tool": "rm", "tool_call_id": "call_1"}})
			p.reply("rpl_1", "accept")
		}, "accepted explicit understated"},
		{"what it names is no text", func(p *tape) {
			p.ask("rpl_1", set{"extra_context": set{"tool_call_id": 5}})
			p.reply("rpl_1", "accept")
		}, ""},
		{"C-104 declined", func(p *tape) { p.ask("rpl_1", about("call_1")); p.reply("rpl_1", "reject") }, "declined explicit"},
		{"C-104 declined, it names no call", func(p *tape) { p.ask("rpl_1"); p.reply("rpl_1", "reject") }, "declined"},
		{"C-105 time is over", func(p *tape) { p.ask("rpl_1", about("call_1")); p.at(60) }, "expired explicit"},
		{"C-111 dated too late", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.at(59).reply("rpl_1", "accept", set{"timestamp": stamp(start.Add(60 * time.Second))})
		}, "pending explicit"},
		{"C-111 stored too late, whatever it says", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.at(60).reply("rpl_1", "accept", set{"timestamp": stamp(start.Add(5 * time.Second))})
		}, "expired explicit"},
		{"the question is of long ago by its own clock", func(p *tape) {
			p.ask("rpl_1", about("call_1"), set{"timestamp": stamp(start.Add(-time.Hour))})
			p.reply("rpl_1", "accept")
		}, "pending explicit"},
		{"an acceptance ends", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.at(5).reply("rpl_1", "accept")
			p.at(5 + int(AcceptanceLifetime/time.Second))
		}, "expired explicit"},
		{"C-110 an unknown token", func(p *tape) { p.ask("rpl_1", about("call_1")); p.reply("rpl_2", "accept") }, "pending explicit"},
		{"C-110 the answer came before the question", func(p *tape) { p.reply("rpl_1", "accept"); p.ask("rpl_1", about("call_1")) }, "pending explicit"},
		{"C-115 the first answer counts", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.reply("rpl_1", "reject")
			p.reply("rpl_1", "accept")
		}, "declined explicit"},
		{"C-115 a yes stays a yes", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.reply("rpl_1", "accept")
			p.reply("rpl_1", "reject")
		}, "accepted explicit"},
		{"C-113 what the question does not allow", func(p *tape) {
			p.ask("rpl_1", about("call_1"), set{"allowed_replies": []string{"reject"}})
			p.reply("rpl_1", "accept")
		}, "pending explicit"},
		{"C-113 what nobody may say", func(p *tape) { p.ask("rpl_1", about("call_1")); p.reply("rpl_1", "sure") }, "pending explicit"},
		{"C-116 another action was accepted", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.reply("rpl_1", "accept", set{"modified_action": set{"amount": 1}})
		}, "declined explicit"},
		{"C-118 nobody's answer", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.reply("rpl_1", "accept", set{"decided_by": " AUTO:policy-7"})
		}, "pending explicit"},
		{"C-024 an answer that is not valid", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.reply("rpl_1", "accept", set{"verdict": "allow"})
			p.reply("rpl_1", "accept", set{"subscription_id": nil})
			p.reply("rpl_1", "accept", set{"timestamp": "now"})
		}, "pending explicit"},
		{"C-032 a question that is not valid", func(p *tape) {
			p.ask("rpl_1", about("call_1"), set{"default_decision": "accept"})
			p.reply("rpl_1", "accept")
		}, ""},
		{"C-053 a token used again", func(p *tape) {
			p.ask("rpl_1", about("call_2"))
			p.reply("rpl_1", "accept")
			p.ask("rpl_1", about("call_1"))
			p.reply("rpl_1", "accept")
		}, " explicit"},
		{"C-053 a token used again while it waits", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.ask("rpl_1", about("call_2"))
			p.reply("rpl_1", "accept")
		}, " explicit"},
		{"the same question delivered twice", func(p *tape) {
			p.ask("rpl_1", about("call_1"), set{"event_id": "evt_same"})
			p.ask("rpl_1", about("call_1"), set{"event_id": "evt_same"})
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"C-109 the agent went on", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.event("sess_1", "state.changed", set{"from_state": "awaiting_input", "to_state": "thinking"})
			p.reply("rpl_1", "accept")
		}, "withdrawn explicit"},
		{"waiting is no going on", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.event("sess_1", "state.changed", set{"from_state": "thinking", "to_state": "awaiting_input"})
			p.event("sess_1", "state.changed", set{"from_state": "thinking", "to_state": "awaiting_input"})
			p.reply("rpl_1", "accept")
			p.event("sess_1", "state.changed", set{"from_state": "awaiting_input", "to_state": "calling_tool"})
		}, "accepted explicit"},
		{"it had gone on before the question, and that was stored again after it", func(p *tape) {
			p.at(5).ask("rpl_1", about("call_1"))
			p.event("sess_1", "state.changed", set{"from_state": "awaiting_input", "to_state": "thinking", "timestamp": stamp(start.Add(4 * time.Second))})
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"work of another kind goes on", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.event("sess_1", "state.changed", set{"from_state": "thinking", "to_state": "deciding"})
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"another question's notice", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.ask("rpl_2", about("call_2"))
			p.reply("rpl_2", "accept")
			p.leave("calling_tool")
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"another question's notice, delivered twice", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.ask("rpl_2", about("call_2"))
			p.reply("rpl_2", "accept")
			p.leave("calling_tool", set{"event_id": "evt_same"})
			p.leave("calling_tool", set{"event_id": "evt_same"})
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"two other questions' notices", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.ask("rpl_2", about("call_2"))
			p.ask("rpl_3", about("call_3"))
			p.reply("rpl_2", "reject")
			p.reply("rpl_3", "accept")
			p.leave("thinking")
			p.leave("calling_tool")
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"the notice of one that took its default", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.ask("rpl_2", about("call_2"), set{"timeout_seconds": 30})
			p.at(30).leave("thinking")
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"the notice of a clarification", func(p *tape) {
			p.event("sess_1", "awaiting.clarification", set{"urgency": "critical", "question": "Which?", "reply_token": "rpl_2", "timeout_seconds": 60})
			p.ask("rpl_1", about("call_1"))
			p.clarify("desk", "rpl_2")
			p.leave("thinking")
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"C-109 an agent goes on for one that announces no state", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.leave("thinking", set{"producer": set{"agent_id": "planner"}})
			p.reply("rpl_1", "accept")
		}, "withdrawn explicit"},
		{"another agent goes on", func(p *tape) {
			p.event("sess_1", "state.changed", set{"from_state": "idle", "to_state": "awaiting_input"})
			p.ask("rpl_1", about("call_1"))
			p.leave("thinking", set{"producer": set{"agent_id": "planner"}})
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"C-109 the agent went on after another question's notice", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.ask("rpl_2", about("call_2"))
			p.reply("rpl_2", "accept")
			p.leave("calling_tool")
			p.leave("thinking")
			p.reply("rpl_1", "accept")
		}, "withdrawn explicit"},
		{"C-109 the agent went on, after one notice of two other questions", func(p *tape) {
			p.ask("rpl_2", about("call_2"))
			p.ask("rpl_3", about("call_3"))
			p.reply("rpl_2", "accept")
			p.reply("rpl_3", "accept")
			p.leave("calling_tool")
			p.ask("rpl_1", about("call_1"))
			p.leave("thinking")
			p.reply("rpl_1", "accept")
		}, "withdrawn explicit"},
		{"C-109 the agent went on while it waited for a clarification", func(p *tape) {
			p.event("sess_1", "awaiting.clarification", set{"urgency": "critical", "question": "Which?", "reply_token": "rpl_2", "timeout_seconds": 60})
			p.ask("rpl_1", about("call_1"))
			p.leave("thinking")
			p.clarify("desk", "rpl_2")
			p.reply("rpl_1", "accept")
		}, "withdrawn explicit"},
		{"a clarification confirms nothing", func(p *tape) {
			p.event("sess_1", "awaiting.clarification", set{"urgency": "critical", "question": "Which?", "reply_token": "rpl_2", "timeout_seconds": 60})
			p.clarify("rt1", "rpl_2")
		}, ""},
		{"C-109 the session ended first", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.event("sess_1", "session.cancelled", set{"cancelled_by": "user"})
			p.reply("rpl_1", "accept")
		}, "withdrawn explicit"},
		{"an acceptance does not outlive its session", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.reply("rpl_1", "accept")
			p.event("sess_1", "session.completed")
		}, "withdrawn explicit"},
		{"another session ends", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.reply("rpl_1", "accept")
			p.event("sess_2", "session.completed")
		}, "accepted explicit"},
		{"asked again after a no", func(p *tape) {
			p.ask("rpl_1", about("call_1"))
			p.reply("rpl_1", "reject")
			p.ask("rpl_2", about("call_1"))
			p.reply("rpl_2", "accept")
		}, "accepted explicit"},
		{"two acceptances that name no call", func(p *tape) {
			p.ask("rpl_1")
			p.reply("rpl_1", "accept")
			p.ask("rpl_2")
			p.reply("rpl_2", "accept")
		}, "ambiguous"},
		{"C-119 told that it can be undone", func(p *tape) {
			p.ask("rpl_1", set{"irreversible": false})
			p.reply("rpl_1", "accept")
		}, "accepted understated"},
		{"C-119 told of less risk", func(p *tape) {
			p.ask("rpl_1", about("call_1"), set{"risk_level": "medium"})
			p.reply("rpl_1", "accept")
		}, "accepted explicit understated"},
		{"what was not said is no lie", func(p *tape) {
			p.ask("rpl_1", about("call_1"), set{"risk_level": nil, "irreversible": nil})
			p.reply("rpl_1", "accept")
		}, "accepted explicit"},
		{"a harmless acceptance beside the right one", func(p *tape) {
			p.ask("rpl_1", set{"risk_level": "low", "irreversible": false})
			p.reply("rpl_1", "accept")
			p.ask("rpl_2")
			p.reply("rpl_2", "accept")
		}, "accepted"},
		{"C-102 it was for an invocation that came without asking", func(p *tape) {
			p.ask("rpl_1")
			p.reply("rpl_1", "accept")
			p.event("sess_1", "tool.invoked", set{"tool": "rm", "tool_call_id": "call_9", "irreversible": true})
		}, ""},
		{"a harmless invocation uses nothing", func(p *tape) {
			p.ask("rpl_1")
			p.reply("rpl_1", "accept")
			p.event("sess_1", "tool.invoked", set{"tool": "look", "tool_call_id": "call_9"})
		}, "accepted"},
		{"this very invocation was published already", func(p *tape) {
			p.ask("rpl_1")
			p.reply("rpl_1", "accept")
			p.event("sess_1", "tool.invoked", set{"tool": "pay", "tool_call_id": "call_1", "irreversible": true})
		}, "accepted explicit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newTape(t)
			tt.log(p)
			c := p.grave()
			got := string(c.Status)
			for name, is := range map[string]bool{" explicit": c.Explicit} {
				if is {
					got += name
				}
			}
			if c.Understated && c.Status == call.ConfirmationAccepted {
				got += " understated"
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if (c.ID != "") != (c.Status == call.ConfirmationAccepted) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestCatalogueGradesInvocations: an invocation that came without asking uses a confirmation by what the catalogue
// says of its tool, as admission would grade it.
func TestCatalogueGradesInvocations(t *testing.T) {
	for name, c := range map[string]struct {
		entry string
		want  call.ConfirmationStatus
	}{
		"irreversible":   {`"name":"files.remove","aliases":["rm"],"irreversible":true`, call.ConfirmationNone},
		"high risk":      {`"name":"files.remove","aliases":["rm"],"risk":"credential_access"`, call.ConfirmationNone},
		"nothing grave":  {`"name":"files.remove","aliases":["rm"],"risk":"write"`, call.ConfirmationAccepted},
		"not catalogued": {`"name":"files.read","irreversible":true`, call.ConfirmationAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			tools := publisher.Compile([]publisher.Document{{Tenant: "acme", Name: "tools.desk",
				Data: []byte(`{"schema":"https://schemas.countersign.dev/countersign/tool-catalogue/v1","name":"desk","tools":[{` + c.entry + `}]}`)}}, 1)
			p := newTape(t)
			p.l.opts.Entry = func(tenant, source, tool string) *publisher.Entry { return tools.Lookup(tenant, source, tool).Entry }
			p.ask("rpl_1")
			p.reply("rpl_1", "accept")
			p.event("sess_1", "tool.invoked", set{"tool": "rm", "tool_call_id": "call_9"})
			if got := p.grave().Status; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
