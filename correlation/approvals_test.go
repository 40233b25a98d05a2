package correlation

import (
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

// stepsOf are the steps of a call and their sequences, less that of the key.
func stepsOf(c events.Call) string {
	var list []string
	for _, s := range c.Timeline {
		list = append(list, s.Step+"@"+itoa(int(s.Seq)-1))
	}
	return strings.Join(list, " ")
}

func (l *ledger) approval(act, status, workflow, decision string, change ...func(*events.Approval)) {
	a := events.Approval{
		WorkflowID: workflow, Tenant: "acme", Status: status, ActionDigest: digest.Keyed(tenantKey, []byte("x")), Source: "rt1", Session: "s1",
		ToolCallID: "c1", DecisionID: decision, Act: act, Step: 1, ActionID: "act-1", Approver: "ann", Reason: "known", DecidedAt: events.At(l.now),
	}
	for _, c := range change {
		c(&a)
	}
	body, err := events.Encode(a)
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(space.Approval("acme", status, workflow), nil, body)
}

func waiting(workflow, status string) func(*events.Decision) {
	return func(d *events.Decision) {
		d.Approval = &events.ApprovalRef{WorkflowID: workflow, Status: status, ActionID: "act-1", ExpiresAt: events.At(epoch.AddDate(0, 0, 1)), ResumePolicy: "retry_same_event"}
	}
}

// TestApprovalSteps: a call's timeline says when somebody was asked, and what the
// answer was.
func TestApprovalSteps(t *testing.T) {
	for _, tc := range []struct {
		name string
		more func(*ledger)
		want string
	}{
		{"approved", func(l *ledger) {
			l.approval("vote", "pending", "wf1", "d1")
			l.approval("approve", "approved", "wf1", "d1")
			l.admit(pre(1), "d2", events.Allow, waiting("wf1", "consumed"))
			l.approval("consume", "consumed", "wf1", "d2")
			l.event(pre(1))
			l.event(post(2))
		}, "requested@1 decided@2 asked@3 approved@5 requested@6 decided@7 invoked@9 completed@10"},
		{"refused", func(l *ledger) {
			l.approval("deny", "denied", "wf1", "d1")
			l.admit(pre(1), "d2", events.Deny)
		}, "requested@1 decided@2 asked@3 refused@4 requested@5 decided@6"},
		{"expired", func(l *ledger) {
			l.approval("expire", "expired", "wf1", "d1")
			l.at(100_000).tick()
		}, "requested@1 decided@2 asked@3 expired@4"},
		{"an attempt that changed nothing", func(l *ledger) {
			l.approval("approve", "pending", "wf1", "d1", func(a *events.Approval) { a.Refused = "self_approval" })
			l.admit(pre(1), "d2", events.Deny)
		}, "requested@1 decided@2 asked@3 requested@5 decided@6"},
		{"another workflow", func(l *ledger) {
			l.approval("approve", "approved", "wf2", "d9")
			l.admit(pre(1), "d2", events.Deny)
		}, "requested@1 decided@2 asked@3 requested@5 decided@6"},
		{"another tenant's", func(l *ledger) {
			l.approval("approve", "approved", "wf1", "d1", func(a *events.Approval) { a.Tenant = "evil" })
			l.admit(pre(1), "d2", events.Deny)
		}, "requested@1 decided@2 asked@3 requested@5 decided@6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			l.admit(pre(1), "d1", events.Ask, waiting("wf1", "pending"))
			l.approval("open", "pending", "wf1", "d1")
			tc.more(l)
			if got := stepsOf(l.run().only(t)); got != tc.want {
				t.Errorf("steps %s, want %s", got, tc.want)
			}
		})
	}
}

// TestConfirmationSteps: in AAEP the user is asked, and the invocation shows what
// about.
func TestConfirmationSteps(t *testing.T) {
	question := wire(2, "awaiting.confirmation", 2, tree{"action": "Pay.", "consequence": "It is paid.", "timeout_seconds": 60, "default_decision": "reject",
		"risk_level": "high", "irreversible": true, "reply_token": "rpl_1", "urgency": "critical"})
	reply := func(decision string) tree {
		return tree{"type": "confirmation.reply", "subscription_id": "sub_1", "reply_token": "rpl_1", "decision": decision, "timestamp": stamp(3)}
	}
	pay := func() tree {
		return wire(4, "tool.invoked", 4, tree{"tool": "pay", "tool_call_id": "call_1", "risk_level": "high", "irreversible": true})
	}
	done := wire(5, "tool.completed", 5, tree{"tool": "pay", "tool_call_id": "call_1", "status": "success"})
	start := wire(1, "session.started", 1, tree{})
	for _, tc := range []struct {
		name   string
		before bool // asked for admission before the user is
		answer string
		want   string
	}{
		{"accepted", false, "accept", "asked@2 approved@3 invoked@4 completed@5"},
		{"asked for before", true, "accept", "requested@2 decided@3 asked@4 approved@5 invoked@6 completed@7"},
		{"rejected", false, "reject", "invoked@4 completed@5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			l.event(start)
			if tc.before {
				l.admit(pay(), "d1", events.Ask)
			}
			l.event(question)
			l.put(space.Event("acme", "rt1", protoAAEP, "", "confirmation.reply"), nil, encode(reply(tc.answer)))
			l.event(pay())
			l.event(done)
			if got := stepsOf(l.run().only(t)); got != tc.want {
				t.Errorf("steps %s, want %s", got, tc.want)
			}
		})
	}
}

// TestTimeProves: a finding that no message completes but time names the messages
// that it rests on.
func TestTimeProves(t *testing.T) {
	l := newLedger(t)
	l.admit(pre(1), "d1", events.Allow)
	l.event(pre(1))
	l.at(10_000).tick()
	r := l.run()
	for _, f := range append(r.findings, r.checks...) {
		if (f.Rule == MissingCompletion || f.Rule == "AH-C-079") && !slices.Equal(f.Seqs, []uint64{2, 3, 4}) {
			t.Errorf("%s is proved by %v", f.Rule, f.Seqs)
		}
	}
	wantRules(t, r.findings, "missing_completion/medium")
}

// TestReceiptOfAnotherCall: what an execution says that it ran on must have been
// made for it, in its own session and by its own publisher. Another tenant's
// decision is nobody's business.
func TestReceiptOfAnotherCall(t *testing.T) {
	for _, tc := range []struct {
		name             string
		session, tenant  string
		names            string
		byHeader, reused bool
	}{
		{name: "its own", session: "s1", tenant: "acme", names: "d1", byHeader: true},
		{name: "another session's", session: "s2", tenant: "acme", names: "d1", byHeader: true, reused: true},
		{name: "another session's, in its body", session: "s2", tenant: "acme", names: "d1", reused: true},
		{name: "nobody's", session: "s2", tenant: "acme", names: "d7", byHeader: true},
		{name: "another tenant's", session: "s1", tenant: "evil", names: "d1", byHeader: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			l.admit(pre(1), "d1", events.Allow, receipted)
			before, after := set(pre(3), "session_id", tc.session), set(post(4), "session_id", tc.session)
			header := map[string][]string{}
			if tc.byHeader {
				header[events.HeaderDecisionID] = []string{tc.names}
			} else {
				after = set(after, "metadata.approval", tree{"required": true, "status": "approved", "decision_ref": tc.names})
			}
			l.eventFrom(tc.tenant, "rt1", before)
			l.put(space.Event(tc.tenant, "rt1", protoAgentHook, tc.session, "PostToolUse"), header, encode(after))
			found := false
			for _, f := range l.run().findings {
				found = found || f.Rule == ReceiptReused
			}
			if found != tc.reused {
				t.Errorf("receipt_reused is found: %v, want %v", found, tc.reused)
			}
		})
	}
}
