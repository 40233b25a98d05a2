package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
)

// TestMilderClaim: an action that waits for a person, or was denied, is asked for again with a claim by
// which policies and evaluators would allow it.
func TestMilderClaim(t *testing.T) {
	grave := edit(t, preToolUse, `"tool_input"`, `"operation_risk":"destructive_write","tool_input"`)
	mild := edit(t, preToolUse, `"tool_input"`, `"operation_risk":"read_only","tool_input"`)
	human := edit(t, preToolUse, `"metadata":{`, `"metadata":{"risk":{"risk_class":"write","requires_human_approval":true},`)
	unconfirmed := edit(t, confirmedWrite, `"authorization_state":"confirmed"`, `"authorization_state":"validated"`)
	claimed := edit(t, unconfirmed, `"tool_category":"write"`, `"tool_category":"private_read"`, `"validated"`, `"user_claimed"`)
	authenticated := edit(t, confirmedWrite, `"tool_category":"write"`, `"tool_category":"private_read"`, `"confirmed"`, `"authenticated"`,
		`"desk.approval","kind":"approval"`, `"desk.login","kind":"auth_event"`)
	unauthorized := edit(t, confirmedWrite, `"authorization_state":"confirmed"`, `"authorization_state":"none"`)
	recommended := edit(t, confirmedWrite, `"recommended_route":"accept"`, `"recommended_route":"ask"`)
	unsure := rules(t, "ask unsure: risk.authorization_state != 'confirmed'", "allow ok: true")
	early := rules(t, "ask early: now < timestamp('"+noon.Add(time.Second).Format(time.RFC3339)+"')", "allow fine: true")
	deferred := rules(t, "defer grave: risk.level == 'high'", "allow fine: true")
	byRisk := rules(t, "ask grave: risk.level == 'high'", "allow fine: true")
	pushed := rules(t, "ask grave: risk.level == 'high'", "allow fine: true")
	pushed.Revision++
	header := []string{events.HeaderSession, "s1", events.HeaderToolCallID, "c1"}
	m := courierMandate(t, `"escalation": {`, `"escalation": {"confidence_threshold":0.65,`)
	doubtful, _ := bookingUnder(m, `"proposed_action"`, `"context":{"confidence":0.5},"proposed_action"`)
	sure, _ := bookingUnder(m, `"proposed_action"`, `"context":{"confidence":0.9},"proposed_action"`)
	mail := func(body string) string { return edit(t, body, `"password"`, `"body"`) } // a contract's arguments hold no password
	unproved := edit(t, mail(mild), `"metadata":{`, `"metadata":{`+carrying("send_mail", `{"to":"a@example.com","body":"hunter2-secret","n":1.0}`, `"confirmed"`, `"validated"`)+`,`)
	without := func(body string) string { // with a contract that is deferred
		return edit(t, mail(body), `"metadata":{`, `"metadata":{`+carrying("send_mail", `{"to":"a@example.com","body":"hunter2-secret","n":1.0}`, `"confirmed"`, `"none"`)+`,`)
	}
	for _, tc := range []struct {
		name, protocol, asked, milder string
		between                       string  // "", or a request between the two
		snap, later                   *Config // later: of the second request, snap without
		act                           approval.Act
		after                         time.Duration
		want                          string
	}{
		{name: "denied", protocol: agenthook.Name, asked: grave, milder: mild, snap: byRisk, act: approval.ActDeny, want: "deny fine approval_denied"},
		{name: "denied, another id", protocol: agenthook.Name, asked: grave, milder: edit(t, mild, `"c1"`, `"c2"`), snap: byRisk, act: approval.ActDeny, want: "deny fine approval_denied"},
		{name: "pending", protocol: agenthook.Name, asked: grave, milder: mild, snap: byRisk, want: "ask fine approval_pending"},
		{name: "pending, another id", protocol: agenthook.Name, asked: grave, milder: edit(t, mild, `"c1"`, `"c2"`), snap: byRisk, want: "ask fine approval_pending"},
		{name: "approved", protocol: agenthook.Name, asked: grave, milder: mild, snap: byRisk, act: approval.ActApprove, want: "allow fine approval_granted"},
		{name: "cancelled", protocol: agenthook.Name, asked: grave, milder: mild, snap: byRisk, act: approval.ActCancel, want: "allow fine"},
		{name: "its time is up", protocol: agenthook.Name, asked: grave, milder: mild, snap: byRisk, act: approval.ActDeny, after: DefaultApprovalLifetime, want: "allow fine"},
		{name: "other policies", protocol: agenthook.Name, asked: grave, milder: mild, snap: byRisk, later: pushed, act: approval.ActDeny, want: "allow fine"},
		{name: "other arguments", protocol: agenthook.Name, asked: grave, milder: edit(t, mild, "a@example.com", "b@example.com"), snap: byRisk, act: approval.ActDeny, want: "allow fine"},
		{name: "another session", protocol: agenthook.Name, asked: grave, milder: edit(t, mild, `"s1"`, `"s2"`), snap: byRisk, act: approval.ActDeny, want: "allow fine"},
		{name: "the need of a person", protocol: agenthook.Name, asked: human, milder: preToolUse, snap: allowAll(t), act: approval.ActDeny, want: "deny ok approval_denied"},
		{name: "the need of a person, in mode observe", protocol: agenthook.Name, asked: human, milder: preToolUse, snap: observing(allowAll(t)), act: approval.ActDeny, want: "deny ok approval_denied"},
		{name: "a policy's ask, and then mode observe", protocol: agenthook.Name, asked: grave, milder: mild, snap: byRisk, later: observing(byRisk), act: approval.ActDeny, want: "allow fine"},
		{name: "a contract", protocol: aana.Name, asked: unconfirmed, milder: confirmedWrite, snap: allowAll(t), act: approval.ActDeny, want: "deny write_has_explicit_confirmation ok approval_denied"},
		{name: "a mandate", protocol: aump.Name, asked: string(doubtful.Body), milder: string(sure.Body), snap: EvaluatorsOnly(), act: approval.ActDeny, want: "deny within_mandate evaluators_only approval_denied"},
		{name: "the evidence that a contract asked for", protocol: aana.Name, asked: unconfirmed, milder: confirmedWrite, snap: allowAll(t), want: "allow write_has_explicit_confirmation ok"},
		{name: "the authentication that a contract asked for", protocol: aana.Name, asked: claimed, milder: authenticated, snap: allowAll(t), want: "allow private_read_has_authenticated_context ok"},
		{name: "the evidence that a contract deferred to", protocol: aana.Name, asked: unauthorized, milder: confirmedWrite, snap: allowAll(t), want: "allow write_has_explicit_confirmation ok"},
		{name: "a contract's defer, denied", protocol: aana.Name, asked: unauthorized, milder: confirmedWrite, snap: allowAll(t), act: approval.ActDeny, want: "deny write_has_explicit_confirmation ok approval_denied"},
		{name: "a policy asked, too", protocol: aana.Name, asked: unconfirmed, milder: confirmedWrite, snap: unsure, want: "ask write_has_explicit_confirmation ok approval_pending"},
		{name: "a runtime that recommended to ask", protocol: aana.Name, asked: recommended, milder: confirmedWrite, snap: allowAll(t), want: "ask write_has_explicit_confirmation ok approval_pending"},
		{name: "a policy's defer", protocol: agenthook.Name, asked: grave, milder: mild, snap: deferred, want: "allow fine"},
		{name: "a policy's defer, denied", protocol: agenthook.Name, asked: grave, milder: mild, snap: deferred, act: approval.ActDeny, want: "deny fine approval_denied"},
		{name: "a contract that lacks evidence, between", protocol: agenthook.Name, asked: mail(grave), between: unproved, milder: mail(mild), snap: byRisk, want: "ask fine approval_pending"},
		{name: "the need of a person, between", protocol: agenthook.Name, asked: grave, between: edit(t, human, `"c1"`, `"c2"`), milder: mild, snap: byRisk, want: "ask fine approval_pending"},
		{name: "a policy asked, and a contract deferred", protocol: agenthook.Name, asked: without(grave), milder: mail(mild), snap: byRisk, want: "ask fine approval_pending"},
		{name: "the need of a person, and a contract deferred", protocol: agenthook.Name, asked: without(human), milder: mail(preToolUse), snap: allowAll(t), want: "ask ok approval_pending"},
		{name: "a contract deferred, and one that lacks evidence between", protocol: agenthook.Name, asked: without(grave), between: unproved, milder: mail(mild), snap: byRisk, want: "ask fine approval_pending"},
		{name: "a rule's hour is over", protocol: agenthook.Name, asked: preToolUse, milder: preToolUse, snap: early, want: "ask fine approval_pending"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShelf()
			header := header
			switch tc.protocol {
			case agenthook.Name:
				header = nil // the body has a session
			case aump.Name:
				s.mandate = m
			}
			first := s.ask(t, tc.protocol, tc.asked, tc.snap, 0, header...)
			if first.Decision.Verdict == events.Allow || first.Decision.Approval == nil {
				t.Fatalf("asked: %s", codes(first))
			}
			if tc.act != "" {
				s.resolve(t, tc.act, tc.snap, time.Second)
			}
			snap := tc.snap
			if tc.later != nil {
				snap = tc.later
			}
			if tc.between != "" {
				between := s.ask(t, tc.protocol, tc.between, snap, 30*time.Second, header...)
				if d := between.Decision; d.Approval == nil || d.Approval.WorkflowID != first.Decision.Approval.WorkflowID {
					t.Fatalf("between: %s", codes(between))
				}
			}
			out := s.ask(t, tc.protocol, tc.milder, snap, max(time.Minute, tc.after), header...)
			d := out.Decision
			if codes(out) != tc.want {
				t.Fatalf("%s, want %s", codes(out), tc.want)
			}
			if d.Verdict != events.Allow && (d.Approval.WorkflowID != first.Decision.Approval.WorkflowID || d.NativeVerdict != out.protocol.NativeVerdict(d.Verdict) || out.Claims.Verdict != d.Verdict || out.Consumption.Spend != nil) {
				t.Errorf("%+v %+v", d, out.Consumption)
			}
		})
	}
}

// A workflow that waits for evidence alone gives way to one that waits for a person.
func TestPersonAfterEvidence(t *testing.T) {
	s, snap := newShelf(), allowAll(t)
	ask := func(after time.Duration, edits ...string) Outcome {
		return s.ask(t, aana.Name, edit(t, confirmedWrite, edits...), snap, after, events.HeaderSession, "s1", events.HeaderToolCallID, "c1")
	}
	evidence := ask(0, `"authorization_state":"confirmed"`, `"authorization_state":"validated"`)
	person := ask(time.Second, `"recommended_route":"accept"`, `"recommended_route":"ask"`)
	out := ask(2 * time.Second)
	if codes(out) != "ask write_has_explicit_confirmation ok approval_pending" || out.Decision.Approval.WorkflowID != person.Decision.Approval.WorkflowID ||
		person.Decision.Approval.WorkflowID == evidence.Decision.Approval.WorkflowID {
		t.Errorf("%s; %s; %s", codes(evidence), codes(person), codes(out))
	}
}

// So it does where a contract defers beside the ask for a person: no approval would lift the defer, and yet
// the person's ask is kept.
func TestPersonBesideADefer(t *testing.T) {
	s, snap := newShelf(), rules(t, "ask grave: risk.level == 'high'", "allow fine: true")
	claim := func(class, state string) string {
		body := edit(t, preToolUse, `"tool_input"`, `"operation_risk":"`+class+`","tool_input"`, `"password"`, `"body"`)
		if state == "" {
			return body
		}
		return edit(t, body, `"metadata":{`, `"metadata":{`+carrying("send_mail", `{"to":"a@example.com","body":"hunter2-secret","n":1.0}`, `"confirmed"`, `"`+state+`"`)+`,`)
	}
	evidence := s.ask(t, agenthook.Name, claim("read_only", "validated"), snap, 0)
	person := s.ask(t, agenthook.Name, claim("destructive_write", "none"), snap, time.Second)
	out := s.ask(t, agenthook.Name, claim("read_only", ""), snap, 2*time.Second)
	if codes(out) != "ask fine approval_pending" || out.Decision.Approval.WorkflowID != person.Decision.Approval.WorkflowID ||
		person.Decision.Approval.WorkflowID == evidence.Decision.Approval.WorkflowID {
		t.Errorf("%s; %s; %s", codes(evidence), codes(person), codes(out))
	}
}

// The own workflow of a call that is approved goes before that of another call of the same action.
func TestMilderClaimOfAnApprovedCall(t *testing.T) {
	s, snap := newShelf(), rules(t, "ask grave: risk.level == 'high'", "allow fine: true")
	claim := func(class, id string) string {
		return edit(t, preToolUse, `"tool_input"`, `"operation_risk":"`+class+`","tool_input"`, `"c1"`, `"`+id+`"`)
	}
	s.ask(t, agenthook.Name, claim("destructive_write", "c1"), snap, 0)
	s.resolve(t, approval.ActApprove, snap, time.Second)
	s.ask(t, agenthook.Name, claim("destructive_write", "c2"), snap, time.Minute) // a workflow of its own
	s.resolve(t, approval.ActApprove, snap, time.Minute)
	s.ask(t, agenthook.Name, claim("destructive_write", "c1"), snap, 2*time.Minute) // uses the first
	s.ask(t, agenthook.Name, claim("destructive_write", "c1"), snap, 2*time.Minute)
	s.resolve(t, approval.ActDeny, snap, 2*time.Minute)
	claims := func(want map[string]string) {
		t.Helper()
		for id, want := range want {
			if out := s.ask(t, agenthook.Name, claim("read_only", id), snap, 3*time.Minute); codes(out) != want {
				t.Errorf("%s: %s, want %s", id, codes(out), want)
			}
		}
	}
	claims(map[string]string{"c2": "allow fine approval_granted", "c1": "deny fine approval_denied"})
	// Of other policies it says nothing any more.
	snap.Revision++
	for slot, w := range s.held {
		if w.Status == approval.Denied {
			w.Policy.Revision++
			s.held[slot] = w
		}
	}
	claims(map[string]string{"c2": "deny fine approval_denied"})
}

// TestSameRunUnderAnotherKey: a call waits for a person, or was denied, and is asked for again with something dropped or changed
// that an approval is bound to, and by which it would be allowed.
func TestSameRunUnderAnotherKey(t *testing.T) {
	supervised := courierMandate(t, `"mode": "delegated"`, `"mode": "supervised"`)
	delegated := courierMandate(t, "aump_mnd_courier_01", "aump_mnd_courier_02", `"mode": "delegated"`, `"requires_trusted_ui_for_commitment": false, "mode": "delegated"`)
	careful := courierMandate(t, `"escalation": {`, `"escalation": {"confidence_threshold":0.65,`)
	commits := edit(t, under(supervised.Hash), `"summary"`, `"commitment":true,"summary"`)
	book := func(metadata string) string { return hook(t, "book", booking, metadata) }
	native := func(m *mandate.Mandate, edits ...string) string {
		r, _ := bookingUnder(m, edits...)
		return string(r.Body)
	}
	doubtful := native(careful, `"proposed_action"`, `"context":{"confidence":0.5},"proposed_action"`)
	grave := func(body string) string {
		return edit(t, body, `"metadata":{`, `"operation_risk":"destructive_write","metadata":{`)
	}
	mail := edit(t, preToolUse, `"password"`, `"body"`) // a contract's arguments hold no password
	bare := edit(t, preToolUse, `"tool_input":{"to":"a@example.com","password":"hunter2-secret","n":1.0},`, "")
	about := edit(t, preToolUse, `"evidence_phase"`, `"action":"send","resource_kind":"email","resource":"outbox","evidence_phase"`)
	for _, tc := range []struct {
		name, asked, milder string
		by                  string           // the protocol that asks first; AgentHook if empty
		then                string           // the protocol that asks then, the same if empty
		mandate, other      *mandate.Mandate // at first, and then
		held                bool
	}{
		{name: "no mandate", asked: book(commits), milder: book(""), mandate: supervised, held: true},
		{name: "another mandate", asked: book(commits), milder: book(edit(t, commits, supervised.Hash, delegated.Hash, supervised.ID, delegated.ID)),
			mandate: supervised, other: delegated, held: true},
		{name: "no commitment, carried", asked: book(commits), milder: book(under(supervised.Hash)), mandate: supervised, held: true},
		{name: "no commitment", by: aump.Name, asked: native(supervised, `"summary"`, `"commitment":true,"summary"`), milder: native(supervised), mandate: supervised,
			held: true},
		{name: "surer, and another summary", by: aump.Name, asked: doubtful, milder: native(careful, "hunter2-secret", "hunter2-secret."), mandate: careful,
			held: true},
		{name: "surer, and another amount", by: aump.Name, asked: doubtful, milder: native(careful, "1500", "1400"), mandate: careful},
		{name: "an action that it no longer names", asked: grave(about), milder: preToolUse, held: true},
		{name: "another protocol", asked: grave(mail), milder: confirmedWrite, then: aana.Name, held: true},
		{name: "another agent", asked: grave(preToolUse), milder: edit(t, preToolUse, `"bot"`, `"intern"`), held: true},
		{name: "no agent", asked: grave(preToolUse), milder: edit(t, preToolUse, `"agent_id":"bot",`, ""), held: true},
		{name: "another scope of the approval", asked: grave(preToolUse), milder: edit(t, preToolUse, `"metadata":{`, `"metadata":{"approval_scope":"x",`), held: true},
		{name: "another directory", asked: grave(preToolUse), milder: edit(t, preToolUse, `"metadata":{`, `"metadata":{"agent_cwd":"/x",`), held: true},
		{name: "no arguments", asked: grave(bare), milder: bare, held: true},
		{name: "no arguments, another id", asked: grave(bare), milder: edit(t, bare, `"c1"`, `"c2"`)},
		{name: "other arguments", asked: book(commits), milder: edit(t, book(""), "1500", "1400"), mandate: supervised},
		{name: "another tool", asked: grave(preToolUse), milder: edit(t, preToolUse, "send_mail", "draft_mail")},
	} {
		for _, act := range []approval.Act{"", approval.ActDeny, approval.ActCancel} {
			t.Run(tc.name+" "+string(act), func(t *testing.T) {
				s, snap := newShelf(), rules(t, "ask grave: has(risk.operation_risk) && risk.operation_risk == 'destructive_write'", "allow fine: true")
				ask := func(protocol, body string, m *mandate.Mandate, after time.Duration) Outcome {
					s.mandate = m
					var header []string
					if protocol != agenthook.Name {
						header = []string{events.HeaderSession, "s1", events.HeaderToolCallID, "c1"}
					}
					return s.ask(t, protocol, body, snap, after, header...)
				}
				by := cmp.Or(tc.by, agenthook.Name)
				first := ask(by, tc.asked, tc.mandate, 0)
				if first.Decision.Verdict != events.Ask {
					t.Fatalf("asked: %s", codes(first))
				}
				if act != "" {
					s.resolve(t, act, snap, time.Second)
				}
				out := ask(cmp.Or(tc.then, by), tc.milder, cmp.Or(tc.other, tc.mandate), time.Minute)
				switch d := out.Decision; {
				case !tc.held || act == approval.ActCancel:
					if d.Verdict != events.Allow {
						t.Error(codes(out))
					}
				case d.Verdict != events.Ask || !strings.Contains(codes(out), approval.ReasonEvasion) || d.Approval.WorkflowID == first.Decision.Approval.WorkflowID || out.Consumption.Spend != nil:
					t.Error(codes(out))
				}
			})
		}
	}
}

// TestSameCallWithoutArguments: one call is asked for with its arguments, and by a request that has none.
func TestSameCallWithoutArguments(t *testing.T) {
	const args = `"tool_input":{"to":"a@example.com","password":"hunter2-secret","n":1.0},`
	hook := edit(t, preToolUse, `"s1"`, `"sess_0123456789abcdef"`, `"c1"`, `"call_1"`)
	grave := edit(t, hook, `"tool_input"`, `"operation_risk":"destructive_write","tool_input"`)
	another := edit(t, grave, `"call_1"`, `"call_2"`)
	bare := edit(t, hook, args, "")
	invoked := edit(t, toolInvoked, "transfer_funds", "send_mail", `"sess_1"`, `"sess_0123456789abcdef"`)
	byRisk := rules(t, "ask grave: has(risk.operation_risk) && risk.operation_risk == 'destructive_write'", "allow fine: true")
	type step struct {
		protocol, body string
		act            approval.Act // of a reviewer, afterwards
		want           string
	}
	asked := func(act approval.Act) step { return step{agenthook.Name, grave, act, "ask grave fine"} }
	for _, tc := range []struct {
		name  string
		tools publisher.Registry
		steps []step
	}{
		{"AAEP, pending", nil, []step{asked(""), {aaep.Name, invoked, "", "ask fine approval_evasion approval_for_other_call"}}},
		{"AAEP, denied", nil, []step{asked(approval.ActDeny), {aaep.Name, invoked, "", "ask fine approval_evasion approval_for_other_call"}}},
		{"AgentHook, pending", nil, []step{asked(""), {agenthook.Name, bare, "", "ask fine approval_evasion approval_for_other_call"}}},
		{"AgentHook, denied", nil, []step{asked(approval.ActDeny), {agenthook.Name, bare, "", "ask fine approval_evasion approval_for_other_call"}}},
		{"a call that joined", nil, []step{asked(""), {agenthook.Name, another, "", "ask grave fine approval_pending"}, {aaep.Name, edit(t, invoked, `"call_1"`, `"call_2"`), "", "ask fine approval_evasion approval_for_other_call"}}},
		{"under an alias", desk(t), []step{{agenthook.Name, edit(t, grave, "send_mail", "email.send_message"), "", "ask grave fine"}, {aaep.Name, invoked, "", "ask fine approval_evasion approval_for_other_call"}}},
		{"denied without arguments", nil, []step{{agenthook.Name, edit(t, grave, args, ""), approval.ActDeny, "ask grave fine"}, {agenthook.Name, hook, "", "ask fine approval_evasion approval_for_other_call"}}},

		{"pending without arguments", nil, []step{{agenthook.Name, edit(t, grave, args, ""), "", "ask grave fine"}, {agenthook.Name, hook, "", "allow fine"}}},
		{"another id", nil, []step{asked(""), {aaep.Name, edit(t, invoked, `"call_1"`, `"call_2"`), "", "allow fine"}}},
		{"another tool", nil, []step{asked(""), {aaep.Name, edit(t, invoked, "send_mail", "draft_mail"), "", "allow fine"}}},
		{"another session", nil, []step{asked(""), {aaep.Name, edit(t, invoked, "abcdef", "abcde0"), "", "allow fine"}}},
		{"cancelled", nil, []step{asked(approval.ActCancel), {aaep.Name, invoked, "", "allow fine"}}},
		{"allowed, and then announced", nil, []step{{agenthook.Name, hook, "", "allow fine"}, {aaep.Name, invoked, "", "allow fine"}}},
		{"announced, and then allowed", nil, []step{{aaep.Name, invoked, "", "allow fine"}, {agenthook.Name, hook, "", "allow fine"}}},
		{"approved, and then announced", nil, []step{asked(approval.ActApprove), {aaep.Name, invoked, "", "allow fine"}, {agenthook.Name, grave, "", "allow grave fine approval_granted"}, {aaep.Name, invoked, "", "allow fine"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShelf()
			s.publishers = tc.tools
			for i, st := range tc.steps {
				if out := s.ask(t, st.protocol, st.body, byRisk, time.Duration(i)*time.Minute); codes(out) != st.want {
					t.Fatalf("step %d: %s, want %s", i+1, codes(out), st.want)
				}
				if st.act != "" {
					s.resolve(t, st.act, byRisk, time.Duration(i)*time.Minute+time.Second)
				}
			}
		})
	}
}

// TestWorkflowOfAnotherCall: an action that waits for a person or was denied in the slot of one call, because another
// call had an approval, is held and answered there under every id.
func TestWorkflowOfAnotherCall(t *testing.T) {
	grave := edit(t, preToolUse, `"tool_input"`, `"operation_risk":"destructive_write","tool_input"`)
	call := func(body, id string) string { return edit(t, body, `"c1"`, `"`+id+`"`) }
	byRisk := rules(t, "ask grave: has(risk.operation_risk) && risk.operation_risk == 'destructive_write'", "allow fine: true")
	for _, tc := range []struct {
		act                approval.Act // on the workflow of c2
		mild, again, third string       // c3 with a milder claim; c4, and then c2 or c5, as before
	}{
		{"", "ask fine approval_pending", "ask grave fine approval_pending", "ask grave fine approval_pending"},
		{approval.ActDeny, "deny fine approval_denied", "deny grave fine approval_denied", "deny grave fine approval_denied"},
		{approval.ActApprove, "allow fine", "ask grave fine", "ask grave fine approval_pending"},
	} {
		for _, used := range []bool{false, true} { // the approval of c1
			t.Run(fmt.Sprintf("%s, used %v", tc.act, used), func(t *testing.T) {
				s := newShelf()
				s.ask(t, agenthook.Name, grave, byRisk, 0)
				s.resolve(t, approval.ActApprove, byRisk, time.Second)
				s.ask(t, agenthook.Name, call(grave, "c2"), byRisk, 2*time.Second)
				if tc.act != "" {
					s.resolve(t, tc.act, byRisk, 3*time.Second)
				}
				if used {
					s.ask(t, agenthook.Name, grave, byRisk, 4*time.Second)
				}
				for i, step := range []struct{ body, want string }{
					{call(preToolUse, "c3"), tc.mild}, {call(grave, "c4"), tc.again}, {call(grave, "c5"), tc.third},
				} {
					got := strings.ReplaceAll(codes(s.ask(t, agenthook.Name, step.body, byRisk, 5*time.Second)), " approval_not_transferable", "")
					if got != step.want {
						t.Errorf("step %d: %s, want %s", i+1, got, step.want)
					}
				}
			})
		}
	}

	// A call that joined uses the approval, whichever slot it lies in, and once.
	s := newShelf()
	s.ask(t, agenthook.Name, grave, byRisk, 0)
	s.resolve(t, approval.ActApprove, byRisk, time.Second)
	s.ask(t, agenthook.Name, call(grave, "c2"), byRisk, 2*time.Second)
	s.ask(t, agenthook.Name, call(grave, "c3"), byRisk, 2*time.Second)
	s.resolve(t, approval.ActApprove, byRisk, 3*time.Second)
	for i, want := range []string{"allow grave fine approval_granted", "ask grave fine approval_not_transferable"} {
		if got := codes(s.ask(t, agenthook.Name, call(grave, "c3"), byRisk, 4*time.Second)); got != want {
			t.Errorf("ask %d of c3: %s, want %s", i+1, got, want)
		}
	}
}

// TestApprovalOfJoinedCall: a call that joined the workflow of another call uses its approval, whatever the workflows of
// further calls say.
func TestApprovalOfJoinedCall(t *testing.T) {
	grave := edit(t, preToolUse, `"tool_input"`, `"operation_risk":"destructive_write","tool_input"`)
	byRisk := rules(t, "ask grave: has(risk.operation_risk) && risk.operation_risk == 'destructive_write'", "allow fine: true")
	type step struct {
		id   string // of the call that asks
		act  approval.Act
		want string
	}
	first := []step{{"c1", approval.ActApprove, "ask grave fine"}, {"c2", "", "ask grave fine approval_not_transferable"}, {"c3", "", "ask grave fine approval_not_transferable approval_pending"}}
	used := step{"c1", approval.ActApprove, "allow grave fine approval_granted"} // what is approved is the workflow of c2 and c3
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"another one waits in the action's slot", []step{used, {"c4", "", "ask grave fine"}}},
		{"another one was denied in the action's slot", []step{used, {"c4", approval.ActDeny, "ask grave fine"}}},
		{"another one was denied in its own slot", []step{{"c3", approval.ActApprove, first[2].want}, {"c6", approval.ActDeny, "ask grave fine approval_not_transferable"}}},
	} {
		for retry, want := range map[string]string{grave: "allow grave fine approval_granted", preToolUse: "allow fine approval_granted"} {
			s, at := newShelf(), time.Duration(0)
			for i, st := range append(slices.Clone(first), tc.steps...) {
				at += time.Second
				got := codes(s.ask(t, agenthook.Name, edit(t, grave, `"c1"`, `"`+st.id+`"`), byRisk, at))
				if got != st.want {
					t.Errorf("%s: step %d: %s, want %s", tc.name, i+1, got, st.want)
				}
				if st.act != "" {
					at += time.Second
					s.resolve(t, st.act, byRisk, at)
				}
			}
			if got := codes(s.ask(t, agenthook.Name, edit(t, retry, `"c1"`, `"c3"`), byRisk, at+time.Second)); got != want {
				t.Errorf("%s: %s, want %s", tc.name, got, want)
			}
			if got := codes(s.ask(t, agenthook.Name, edit(t, grave, `"c1"`, `"c9"`), byRisk, at+time.Second)); strings.HasPrefix(got, "allow") {
				t.Errorf("%s: a call that did not ask before the approval: %s", tc.name, got)
			}
		}
	}
}

// TestApprovalBesideAnotherAgents: without a session, an agent uses its call's approval though it has joined the workflow
// that another agent opened under the same id since.
func TestApprovalBesideAnotherAgents(t *testing.T) {
	human := edit(t, preToolUse, `"metadata":{`, `"metadata":{"risk":{"risk_class":"write","requires_human_approval":true},`, `"session_id":"s1",`, ``)
	s, snap := newShelf(), allowAll(t)
	as := func(agent, call string, at int, want events.Verdict) {
		t.Helper()
		body := edit(t, human, `"agent_id":"bot"`, `"agent_id":"`+agent+`"`, `"c1"`, `"`+call+`"`)
		if out := s.ask(t, agenthook.Name, body, snap, time.Duration(at)*time.Second); out.Decision.Verdict != want {
			t.Errorf("%s, %s: %s, want %s", agent, call, codes(out), want)
		}
	}
	as("bot", "c3", 0, events.Ask)
	s.resolve(t, approval.ActApprove, snap, time.Second)
	as("erin", "c3", 2, events.Ask)
	as("bot", "c1", 3, events.Ask) // joins erin's
	as("bot", "c3", 4, events.Allow)
	as("bot", "c3", 5, events.Ask) // it was used up
}

// TestSameCallIDOfAnotherAgent: without a session, the request of another agent under the same id leaves a call its
// approval, and has its own one; a denial of it is one of the call.
func TestSameCallIDOfAnotherAgent(t *testing.T) {
	human := edit(t, preToolUse, `"metadata":{`, `"metadata":{"risk":{"risk_class":"write","requires_human_approval":true},`, `"session_id":"s1",`, ``)
	for id, bot := range map[string]string{"c1": human, "none": edit(t, human, `,"tool_call_id":"c1"`, ``)} {
		erin := edit(t, bot, `"agent_id":"bot"`, `"agent_id":"erin"`)
		for act, want := range map[approval.Act][]events.Verdict{ // of bot, bot again, erin
			"":                  {events.Allow, events.Ask, events.Ask},
			approval.ActDeny:    {events.Deny, events.Deny, events.Deny},
			approval.ActApprove: {events.Allow, events.Ask, events.Allow},
		} {
			s, snap := newShelf(), allowAll(t)
			s.ask(t, agenthook.Name, bot, snap, 0)
			s.resolve(t, approval.ActApprove, snap, time.Second)
			s.ask(t, agenthook.Name, erin, snap, 2*time.Second)
			if act != "" {
				s.resolve(t, act, snap, 3*time.Second)
			}
			for i, body := range []string{bot, bot, erin} {
				if out := s.ask(t, agenthook.Name, body, snap, time.Duration(4+i)*time.Second); out.Decision.Verdict != want[i] {
					t.Errorf("call %s, %q, request %d: %s, want %s", id, act, i+1, codes(out), want[i])
				}
			}
		}
	}
}
