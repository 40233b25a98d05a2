package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/aioc"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	protocolevents "github.com/countersign-dev/countersign/events/protocol"
)

func TestResumePolicies(t *testing.T) {
	for _, tc := range []struct {
		name, resume    string
		same, otherCall string // what the retry of the same call, and one of another call, gets
		linked, named   string
	}{
		{"same event", "", "allow", "ask", "allow", "allow"},
		{"workflow id", approval.ResumeWorkflowID, "ask", "ask", "ask", "allow"},
		{"publisher waits", approval.ResumeWaits, "allow", "ask", "allow", "allow"},
		{"manual", approval.ResumeManual, "allow", "allow", "allow", "allow"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			second := edit(t, preToolUse, `"c1"`, `"c2"`, eventID, eventID2)
			for retry, want := range map[string]string{
				preToolUse: tc.same, second: tc.otherCall,
				edit(t, second, `"metadata":{`, `"metadata":{"retry":{"attempt":2,"previous_tool_call_id":"c1"},`): tc.linked,
				"named": tc.named,
			} {
				s, snap := newShelf(), asking(t)
				id := s.ask(t, agenthook.Name, preToolUse, snap, 0).Decision.Approval.WorkflowID
				for slot, w := range s.held {
					w.Terms.Resume = approval.ResumeSameEvent
					if tc.resume != "" {
						w.Terms.Resume = tc.resume
					}
					s.held[slot] = w
				}
				s.resolve(t, approval.ActApprove, snap, time.Second)
				var out Outcome
				if retry == "named" {
					out = s.ask(t, agenthook.Name, second, snap, time.Minute, events.HeaderWorkflow, id)
				} else {
					out = s.ask(t, agenthook.Name, retry, snap, time.Minute)
				}
				if string(out.Decision.Verdict) != want {
					t.Errorf("%s: %s, want %s", retry, codes(out), want)
				}
			}
		})
	}
}

// Another call of the same action waits for the same workflow, and the first of the two
// consumes it.
func TestRetryOfAnotherCallJoins(t *testing.T) {
	s, snap := newShelf(), asking(t)
	second := edit(t, preToolUse, `"c1"`, `"c2"`, eventID, eventID2)
	a, b := s.ask(t, agenthook.Name, preToolUse, snap, 0), s.ask(t, agenthook.Name, second, snap, time.Second)
	if a.Decision.Approval.WorkflowID != b.Decision.Approval.WorkflowID || b.Consumption.Approval.Unchanged {
		t.Fatalf("%s %s", codes(a), codes(b))
	}
	s.resolve(t, approval.ActApprove, snap, time.Minute)
	if out := s.ask(t, agenthook.Name, second, snap, 2*time.Minute); codes(out) != "allow external approval_granted" {
		t.Error(codes(out))
	}
	if out := s.ask(t, agenthook.Name, preToolUse, snap, 2*time.Minute); codes(out) != "ask external" {
		t.Error(codes(out))
	}
}

// A tool has the names that the catalogue gives it: a retry under another of them
// is the same action. Under a name that only the publisher says is the tool's, it
// is another.
func TestRetryUnderAnAlias(t *testing.T) {
	snap := asking(t)
	alias := edit(t, preToolUse, `"send_mail"`, `"email.send_message"`, `"c1"`, `"c2"`, eventID, eventID2)
	claimed := edit(t, preToolUse, `"send_mail"`, `"purge_mail"`, `"c1"`, `"c2","tool_identity":{"canonical_name":"email.send_message"}`, eventID, eventID2)
	for _, tc := range []struct {
		name   string
		second string
		desk   publisher.Registry
		same   bool
	}{
		{"an alias", alias, desk(t), true},
		{"an alias that no catalogue knows", alias, nil, false},
		{"a claim, no catalogue", claimed, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShelf()
			s.publishers = tc.desk
			a, b := s.ask(t, agenthook.Name, preToolUse, snap, 0), s.ask(t, agenthook.Name, tc.second, snap, time.Second)
			if a.Decision.Verdict != events.Ask || b.Decision.Verdict != events.Ask {
				t.Fatalf("%s; %s", codes(a), codes(b))
			}
			if same := a.Decision.Approval.WorkflowID == b.Decision.Approval.WorkflowID; same != tc.same {
				t.Errorf("the same workflow: %v", same)
			}
		})
	}
}

// A catalogue that comes while an action waits makes no other action of it.
func TestCatalogueComesWhileWaiting(t *testing.T) {
	s := newShelf()
	body := edit(t, preToolUse, `"evidence_phase"`, `"action":"send","resource_kind":"email","resource":"outbox","evidence_phase"`)
	s.ask(t, agenthook.Name, body, asking(t), 0)
	s.publishers = desk(t)
	if out := s.ask(t, agenthook.Name, body, rules(t, `allow fine: tool == "email.send_message"`), time.Second); out.Decision.Verdict != events.Allow {
		t.Error(codes(out))
	}
}

// A call that was not there when it was approved gets a workflow of its own,
// and leaves the approval to whom it was given.
func TestApprovalIsLeftToItsCall(t *testing.T) {
	s, snap := newShelf(), asking(t)
	s.ask(t, agenthook.Name, preToolUse, snap, 0)
	s.resolve(t, approval.ActApprove, snap, time.Second)
	second := edit(t, preToolUse, `"c1"`, `"c2"`, eventID, eventID2)
	for i, want := range []string{"ask external approval_not_transferable", "ask external approval_pending"} {
		if out := s.ask(t, agenthook.Name, second, snap, time.Minute); codes(out) != want {
			t.Errorf("%d: %s", i, codes(out))
		}
	}
	if out := s.ask(t, agenthook.Name, preToolUse, snap, 2*time.Minute); codes(out) != "allow external approval_granted" {
		t.Error(codes(out))
	}
	s.resolve(t, approval.ActApprove, snap, 3*time.Minute)
	if out := s.ask(t, agenthook.Name, second, snap, 4*time.Minute); codes(out) != "allow external approval_granted" {
		t.Error(codes(out))
	}
}

// AH-C-077, H-09: doing the same to the same by another tool does not get past a
// pending ask.
func TestBypassPendingAskByAnotherTool(t *testing.T) {
	about := `"action":"send","resource_kind":"email","resource":"outbox","evidence_phase"`
	asked := edit(t, preToolUse, `"evidence_phase"`, about)
	other := edit(t, asked, "send_mail", "post", `"c1"`, `"c2"`, eventID, eventID2)
	snap := rules(t, `ask external: tool == "send_mail"`, `allow fine: tool != "send_mail"`)
	for _, tc := range []struct{ name, old, new, want string }{
		{"the same resource", "", "", "ask fine approval_evasion"},
		{"another resource", "outbox", "drafts", "allow fine"},
		{"another action", `"send"`, `"read"`, "allow fine"},
		{"another session", `"s1"`, `"s2"`, "allow fine"},
		{"an unknown resource", `"outbox"`, `"unknown"`, "allow fine"},
		{"an observation", "PreToolUse", "PostToolUse", "allow observational"},
	} {
		for _, act := range []approval.Act{"", approval.ActDeny} {
			s := newShelf()
			s.ask(t, agenthook.Name, asked, snap, 0)
			if act != "" {
				s.resolve(t, act, snap, time.Second)
			}
			body := edit(t, other, tc.old, tc.new)
			if tc.name == "an observation" {
				body = edit(t, body, `"evidence_phase":"pre_commit",`, "")
			}
			if out := s.ask(t, agenthook.Name, body, snap, time.Minute); codes(out) != tc.want {
				t.Errorf("%s after %q: %s, want %s", tc.name, act, codes(out), tc.want)
			}
		}
	}
	// Once that is approved, too, it may run; and when the first is over, nothing is
	// in the way.
	s := newShelf()
	s.ask(t, agenthook.Name, asked, snap, 0)
	s.resolve(t, approval.ActCancel, snap, time.Second)
	if out := s.ask(t, agenthook.Name, other, snap, time.Minute); codes(out) != "allow fine" {
		t.Error(codes(out))
	}
}

// What was asked only because of another workflow is free once that is over, or of other policies; a
// reviewer's no to it stays.
func TestEvasionEnds(t *testing.T) {
	about := `"action":"send","resource_kind":"email","resource":"outbox","evidence_phase"`
	asked := edit(t, preToolUse, `"evidence_phase"`, about)
	other := edit(t, asked, "send_mail", "post", `"c1"`, `"c2"`, eventID, eventID2)
	snap := rules(t, `ask external: tool == "send_mail"`, `allow fine: tool != "send_mail"`)
	free := rules(t, "allow free: true")
	for _, tc := range []struct {
		name           string
		other          bool // the other tool asks while the first waits
		first, evasion approval.Act
		later          *Config
		want           string
	}{
		{"the first is cancelled", true, approval.ActCancel, "", snap, "allow fine"},
		{"the first waits", true, "", "", snap, "ask fine approval_evasion approval_pending"},
		{"a reviewer denied the other", true, approval.ActCancel, approval.ActDeny, snap, "deny fine approval_denied"},
		{"other policies, the first waits", false, "", "", free, "allow free"},
		{"other policies, the first was denied", false, approval.ActDeny, "", free, "allow free"},
		{"other policies, both wait", true, "", "", free, "allow free"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShelf()
			s.ask(t, agenthook.Name, asked, snap, 0)
			if !tc.other && tc.first != "" {
				s.resolve(t, tc.first, snap, time.Second)
			}
			if tc.other {
				w := s.ask(t, agenthook.Name, other, snap, time.Second).Decision.Approval.WorkflowID
				for slot, h := range s.held {
					act := map[bool]approval.Act{true: tc.evasion, false: tc.first}[h.ID == w]
					if act != "" {
						s.held[slot], _, _ = h.Resolve(approval.Command{Act: act, Reviewer: "dana", At: noon.Add(time.Second)})
					}
				}
			}
			if out := s.ask(t, agenthook.Name, other, tc.later, time.Minute); codes(out) != tc.want {
				t.Errorf("%s, want %s", codes(out), tc.want)
			}
		})
	}
}

// What holds the same arguments up no more, such as a defer, still holds other arguments up.
func TestEvasionOfADefer(t *testing.T) {
	about := `"action":"send","resource_kind":"email","resource":"outbox","evidence_phase"`
	asked := edit(t, preToolUse, `"evidence_phase"`, `"operation_risk":"destructive_write",`+about)
	mild := edit(t, asked, "destructive_write", "read_only")
	snap := rules(t, "defer grave: risk.level == 'high'", "allow fine: true")
	for body, want := range map[string]string{mild: "allow fine", edit(t, mild, "a@example.com", "b@example.com", `"c1"`, `"c2"`): "ask fine approval_evasion"} {
		s := newShelf()
		s.ask(t, agenthook.Name, asked, snap, 0)
		if out := s.ask(t, agenthook.Name, body, snap, time.Minute); codes(out) != want {
			t.Errorf("%s, want %s", codes(out), want)
		}
	}
}

func TestEvasionCanBeApproved(t *testing.T) {
	about := `"action":"send","resource_kind":"email","resource":"outbox","evidence_phase"`
	asked := edit(t, preToolUse, `"evidence_phase"`, about)
	other := edit(t, asked, "send_mail", "post", `"c1"`, `"c2"`, eventID, eventID2)
	snap := rules(t, `ask external: tool == "send_mail"`, `allow fine: tool != "send_mail"`)
	s := newShelf()
	first := s.ask(t, agenthook.Name, asked, snap, 0)
	if out := s.ask(t, agenthook.Name, other, snap, 0); out.Decision.Approval.WorkflowID == first.Decision.Approval.WorkflowID {
		t.Fatal("another action joined")
	}
	for slot, w := range s.held {
		if w.ID != first.Decision.Approval.WorkflowID {
			next, code, changed := w.Resolve(approval.Command{Act: approval.ActApprove, Reviewer: "dana", PreviewDigest: w.PreviewDigest, At: noon,
				CurrentPolicy: events.PolicyRef{Revision: snap.Revision, Digest: snap.Policies.Digest()}})
			if !changed {
				t.Fatal(code)
			}
			s.held[slot] = next
		}
	}
	if out := s.ask(t, agenthook.Name, other, snap, time.Minute); codes(out) != "allow fine approval_evasion approval_granted" {
		t.Error(codes(out))
	}
}

func TestApprovalBacklog(t *testing.T) {
	s, snap := newShelf(), asking(t)
	s.ask(t, agenthook.Name, preToolUse, snap, 0)
	for _, w := range s.held {
		for i := range approval.MaxOpen - 1 {
			w.ID = fmt.Sprint(i)
			s.held[fmt.Sprint("slot", i)] = w
		}
	}
	out := s.ask(t, agenthook.Name, edit(t, preToolUse, "a@example.com", "b@example.com"), snap, time.Second)
	if !strings.HasSuffix(codes(out), "approval_backlog_full") || out.Decision.Verdict != events.Deny || out.Consumption.Approval != nil || out.Decision.Approval != nil {
		t.Error(codes(out))
	}
}

// A call without arguments is told from another by all that it says, never by
// its tool alone.
func TestBypassApprovedByToolNameAlone(t *testing.T) {
	snap := rules(t, "ask look: true")
	bare := edit(t, preToolUse, `"tool_input":{"to":"a@example.com","password":"hunter2-secret","n":1.0},`, "")
	for protocol, tc := range map[string]struct{ body, old, new string }{
		agenthook.Name: {bare, `"agent_id":"bot"`, `"agent_id":"tob"`},
		aaep.Name:      {toolInvoked, "Transferring.", "Deleting."},
	} {
		s := newShelf()
		s.ask(t, protocol, tc.body, snap, 0)
		s.resolve(t, approval.ActApprove, snap, time.Second)
		if out := s.ask(t, protocol, edit(t, tc.body, tc.old, tc.new), snap, time.Minute); out.Decision.Verdict != events.Ask {
			t.Errorf("%s: %s", protocol, codes(out))
		}
		if out := s.ask(t, protocol, tc.body, snap, time.Minute); out.Decision.Verdict != events.Allow {
			t.Errorf("%s: the same: %s", protocol, codes(out))
		}
	}
}

// No reviewer can stand in for the user whom AAEP wants to be asked.
func TestBypassReviewerConfirmsForTheUser(t *testing.T) {
	s, snap := newShelf(), rules(t, "allow fine: true")
	body := edit(t, toolInvoked, `"summary_normal"`, `"irreversible":true,"summary_normal"`)
	out := s.ask(t, aaep.Name, body, snap, 0)
	if out.Decision.Verdict != events.Ask || out.Decision.Approval != nil || out.Consumption.Approval != nil {
		t.Errorf("%s %+v", codes(out), out.Decision.Approval)
	}
}

// Every protocol says the same in its own words, whether its own evaluator asked
// or a policy; and what is approved is what was looked at.
func TestRepliesOfAnApprovedCall(t *testing.T) {
	const toolCall = `{"agentName":"Finance Agent","toolName":"export_report","rawArguments":"{\"reportId\":\"r1\"}","parsedArguments":{"reportId":"r1"},"runContext":{"context":{}},"turn":3}`
	const handoffCall = `{"fromAgentName":"Triage Agent","toAgentName":"Finance Agent","handoffPayload":{"reason":"r1"},"runContext":{"context":{}},"turn":2}`
	m := courierMandate(t)
	supervised := courierMandate(t, `"delegated"`, `"supervised"`, `"book_courier"`, `"book_courier", "place_order"`)
	booking := strings.Replace(bookVan, "HASH", m.Hash, 1)
	order := edit(t, strings.Replace(bookVan, "HASH", supervised.Hash, 1), `"book_courier"`, `"place_order"`)
	unconfirmed := edit(t, confirmedWrite, `"confirmed"`, `"user_claimed"`)
	gate := func(match string) *Config {
		return compiled(t, "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec: {match: {"+match+"}, rules: [{name: r, when: 'true', verdict: ask, reason: look}]}\n")
	}
	for _, tc := range []struct {
		name, protocol, body, member, asked, approved string
		old, new                                      string
		mandate                                       *mandate.Mandate
		snap                                          *Config
	}{
		{"agenthook", agenthook.Name, preToolUse, "decision", "ask", "allow", "a@example.com", "b@example.com", m, asking(t)},
		{"aaep", aaep.Name, toolInvoked, "verdict", "ask", "allow", "Transferring.", "Deleting.", m, asking(t)},
		{"aana by policy", aana.Name, confirmedWrite, "recommended_action", "ask", "accept", "a@example.com", "b@example.com", m, asking(t)},
		{"aana by itself", aana.Name, unconfirmed, "recommended_action", "ask", "accept", "a@example.com", "b@example.com", m, allowAll(t)},
		{"aump by policy", aump.Name, booking, "decision", "requires_escalation", "allowed", "1500", "1501", m, asking(t)},
		{"aump by itself", aump.Name, order, "decision", "requires_escalation", "allowed", "1500", "1501", supervised, EvaluatorsOnly()},
		{"aioc tool", aioc.NameTool, toolCall, "decision", "require_approval", "allow", "r1", "r2", m, gate("tools: [export_report]")},
		{"aioc tool by another agent", aioc.NameTool, toolCall, "decision", "require_approval", "allow", "Finance Agent", "Support Agent", m, gate("tools: [export_report]")},
		{"aioc handoff", aioc.NameHandoff, handoffCall, "decision", "require_approval", "allow", "r1", "r2", m, gate("toAgents: [Finance Agent]")},
		{"aioc handoff to another", aioc.NameHandoff, handoffCall, "decision", "require_approval", "allow", "Finance Agent", "Finance Boss", m, gate("protocols: [handoff]")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShelf()
			s.mandate = tc.mandate
			headers := []string{events.HeaderSession, "s1", events.HeaderToolCallID, "c1"}
			if tc.protocol == agenthook.Name || tc.protocol == aaep.Name {
				headers = nil
			}
			say := func(body string, after time.Duration) (Outcome, string) {
				out := s.ask(t, tc.protocol, body, tc.snap, after, headers...)
				word, _ := replyOf(t, out)[tc.member].(string)
				return out, word
			}
			out, word := say(tc.body, 0)
			if word != tc.asked || out.Decision.Approval.Status != "pending" {
				t.Fatalf("asked: %s, %s", word, codes(out))
			}
			reply, _ := out.Reply()
			if expiry, stated := protocolevents.ReplyExpiry(tc.protocol, reply); !stated || !expiry.Equal(out.Decision.Approval.ExpiresAt.Time) {
				t.Errorf("the expiry %v is not %v: %s", expiry, out.Decision.Approval.ExpiresAt, reply)
			}
			s.resolve(t, approval.ActApprove, tc.snap, time.Second)
			changed := strings.ReplaceAll(tc.body, tc.old, tc.new)
			if out, word := say(changed, time.Minute); changed == tc.body || word != tc.asked || out.Decision.Verdict == events.Allow {
				t.Errorf("changed: %s, %s", word, codes(out))
			}
			out, word = say(tc.body, time.Minute)
			if word != tc.approved || out.Decision.Verdict != events.Allow || out.Decision.Approval.Status != "consumed" {
				b, _ := out.Reply()
				t.Errorf("approved: %s, %s\n%s", word, codes(out), b)
			}
			if b, _ := out.Reply(); tc.protocol == agenthook.Name && !strings.Contains(string(b), `"decision_ref":"`+out.Decision.DecisionID+`"`) {
				t.Errorf("the Post event is not told what to name: %s", b)
			}
		})
	}
}

func TestPreviewInTheWorkflow(t *testing.T) {
	s := newShelf()
	s.ask(t, agenthook.Name, preToolUse, asking(t), 0)
	for _, w := range s.held {
		b, err := events.Encode(w)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), secret) || strings.Contains(string(b), "a@example.com") {
			t.Errorf("a raw argument in %s", b)
		}
		if w.Preview.Tool != "send_mail" || w.Preview.Policy != "p" || !slices.Equal(w.Preview.Reasons, []string{"external"}) || len(w.Preview.Arguments) != 3 ||
			!strings.HasPrefix(w.PreviewDigest, "hmac-sha256:") || !strings.HasPrefix(w.ActionDigest, "hmac-sha256:") {
			t.Errorf("%+v", w)
		}
	}
}
