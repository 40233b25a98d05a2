package correlation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
)

const afterHandoff = "call_after_handoff/medium"

// handsOver logs the decision on a handoff.
func (l *ledger) handsOver(from, to string, v events.Verdict) uint64 {
	n := len(l.msgs)
	return l.signed(events.Decision{
		DecisionID: fmt.Sprint("h", n), Tenant: "acme", Source: "rt1", Session: "s1", Protocol: "handoff", Agent: from,
		Tool: aioc.HandoffToolName(to), ToolCallID: fmt.Sprint("handoff-", n), Verdict: v, Reasons: []events.Reason{},
		RequestDigest: "sha256:00", DecidedAt: events.At(l.now),
	}, signer)
}

// calls logs what an agent asks for; n tells its calls apart.
func (l *ledger) calls(agent string, n int) {
	e := set(set(pre(100+n), "agent_id", agent), "metadata.tool_call_id", fmt.Sprint("c", n))
	l.admit(e, fmt.Sprint("d", n), events.Allow, func(d *events.Decision) { d.Agent = agent })
	l.event(e)
}

func TestCallAfterHandoff(t *testing.T) {
	for _, tc := range []struct {
		name string
		play func(l *ledger)
		want int
	}{
		{"the agent that took over", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.calls("Finance", 1)
		}, 0},
		{"the agent that handed over", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.calls("Triage", 1)
			l.calls("Triage", 2)
		}, 2},
		{"before the handoff", func(l *ledger) {
			l.calls("Triage", 1)
			l.handsOver("Triage", "Finance", events.Allow)
			l.event(set(set(post(300), "agent_id", "Triage"), "metadata.execution", nil))
		}, 0},
		{"asked for before, announced after", func(l *ledger) {
			e := set(pre(1), "agent_id", "Triage")
			l.request(e, "d1")
			l.handsOver("Triage", "Finance", events.Allow)
			l.decide(e, "d1", events.Allow)
			l.event(e)
		}, 0},
		{"a handoff that was refused", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Deny)
			l.calls("Triage", 1)
		}, 0},
		{"a handoff that waits", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Ask)
			l.calls("Triage", 1)
		}, 0},
		{"handed back", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.handsOver("Finance", "Triage", events.Allow)
			l.calls("Triage", 1)
			l.calls("Finance", 2)
		}, 1},
		{"handed on", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.handsOver("Finance", "Legal", events.Allow)
			l.calls("Triage", 1)
			l.calls("Finance", 2)
			l.calls("Legal", 3)
		}, 2},
		{"to itself", func(l *ledger) {
			l.handsOver("Triage", "Triage", events.Allow)
			l.calls("Triage", 1)
		}, 0},
		{"another handoff by who had handed over", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.handsOver("Triage", "Legal", events.Allow)
		}, 1},
		{"an agent that was never heard of, and no agent", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.calls("triage", 1)
			l.event(pre(1))
		}, 0},
		{"another session", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.event(set(set(pre(1), "agent_id", "Triage"), "session_id", "s2"))
		}, 0},
		{"another publisher, another tenant", func(l *ledger) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.eventFrom("acme", "rt2", set(pre(1), "agent_id", "Triage"))
			l.eventFrom("globex", "rt1", set(pre(1), "agent_id", "Triage"))
		}, 0},
		{"a forged handoff", func(l *ledger) {
			d := decisionOn(pre(1), "h1", events.Allow, l.now)
			d.Protocol, d.Agent, d.Tool = "handoff", "Triage", "handoff_to_finance"
			l.signed(d, stranger)
			l.calls("Triage", 1)
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			l.opts.RequireVerdict = false
			tc.play(l)
			r := l.run()
			got := 0
			for _, f := range r.findings {
				if f.Rule == CallAfterHandoff {
					got++
					if !slices.Contains(f.Seqs, 2) && tc.name != "handed back" && tc.name != "handed on" {
						t.Errorf("%v do not prove it", f.Seqs)
					}
				}
			}
			if got != tc.want {
				t.Errorf("%d findings, want %d: %+v", got, tc.want, r.findings)
			}
			again := *l
			again.msgs = slices.Clone(l.msgs)
			for _, m := range l.msgs[1:] {
				again.put(m.Subject, m.Header, m.Body)
			}
			if diff := cmp.Diff(rulesOf(r.findings), rulesOf(again.run().findings)); diff != "" {
				t.Errorf("all of it redelivered: %s", diff)
			}
		})
	}
}

// TestHandoffWithdrawn: a later message that knows better takes the finding back.
func TestHandoffWithdrawn(t *testing.T) {
	l := newLedger(t)
	l.opts.RequireVerdict = false
	l.handsOver("Triage", "Finance", events.Allow)
	l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.Agent = "Triage" })
	l.event(set(pre(1), "agent_id", "Finance"))
	l.event(post(2))
	r := l.run()
	if len(r.findings) != 2 || r.findings[0].Rule != CallAfterHandoff || r.findings[1].Retracts != r.findings[0].FindingID ||
		r.findings[1].Severity != events.SeverityInfo {
		t.Fatalf("findings %+v", r.findings)
	}
	calls := r.last()
	if c := calls[len(calls)-1]; len(c.Findings) != 0 || c.Agent != "Finance" || c.State != events.CallCompleted {
		t.Errorf("call %+v", c)
	}
	wantRules(t, r.findings, afterHandoff) // nothing is edited: the first record stays
}

// TestHandoffsAreBounded: a session that hands over for ever is not remembered for
// ever.
func TestHandoffsAreBounded(t *testing.T) {
	l := newLedger(t)
	for i := range 3 * maxHandedOver {
		l.handsOver(fmt.Sprint("a", i), fmt.Sprint("a", i+1), events.Allow)
	}
	for _, e := range l.run().core.engine.handoffs.bySession.All() {
		list := e.Value
		if n := len(list); n != maxHandedOver {
			t.Errorf("%d agents are remembered", n)
		}
	}
}

// TestHandoffOutlivesItsSession: waiting does not give an agent its turn back.
func TestHandoffOutlivesItsSession(t *testing.T) {
	l := newLedger(t)
	l.handsOver("Triage", "Finance", events.Allow)
	l.idle(100 * 3600)
	if n := l.run().core.Stats().Sessions; n != 0 {
		t.Fatalf("%d sessions", n)
	}
	l.calls("Triage", 1)
	wantRules(t, l.run().findings, afterHandoff)
}
