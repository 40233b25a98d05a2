package correlation

import (
	"encoding/json"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// TestBinding: the record of a call that rests on a user's confirmation says
// whether the question named the call, also after the call was compacted and its
// state restored.
func TestBinding(t *testing.T) {
	question := func(extra tree) tree {
		q := tree{"t": "awaiting.confirmation", "ask": "1", "irreversible": true}
		if extra != nil {
			q["extra_context"] = extra
		}
		return q
	}
	for _, tc := range []struct {
		name  string
		extra tree
		ask   bool
		want  string
	}{
		{"the question names the call", tree{"tool_call_id": "call_1"}, true, events.BindingExplicit},
		{"the question names no call", nil, true, events.BindingInferred},
		{"no question", nil, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lines := []tree{{"t": "session.started"}}
			if tc.ask {
				lines = append(lines, question(tc.extra), tree{"t": "confirmation.reply", "reply_token": "rpl_1", "decision": "accept", "decided_by": "user"})
			}
			lines = append(lines,
				tree{"t": "tool.invoked", "tool": "pay_invoice", "tool_call_id": "call_1", "args_summary": "x", "risk_level": "low", "irreversible": tc.ask},
				tree{"t": "tool.completed", "tool": "pay_invoice", "tool_call_id": "call_1", "status": "success", "duration_ms": 1})
			r := corpusCase{protocol: protoAAEP, lines: lines}.ledger(t).run()
			got, calls := "", 0
			for _, o := range r.outputs {
				var c events.Call
				if o.Type == events.TypeCall && json.Unmarshal(o.Body, &c) == nil && c.State == events.CallCompleted {
					got, calls = c.Binding, calls+1
				}
			}
			if calls != 1 || got != tc.want {
				t.Errorf("%d completed calls, binding %q, want %q", calls, got, tc.want)
			}
		})
	}
}
