package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
)

// shelf is a book in memory that does what the service's bucket does.
type shelf struct {
	held map[string]approval.Workflow // by slot
	rev  map[string]uint64
	log  []events.Approval
	n    int

	mandate    *mandate.Mandate
	publishers publisher.Registry
	counters   policy.Counters
}

func newShelf() *shelf { return &shelf{held: map[string]approval.Workflow{}, rev: map[string]uint64{}} }

func (s *shelf) WorkflowAt(tenant, slot string) (*approval.Workflow, uint64) {
	w, there := s.held[slot]
	if !there || w.Tenant != tenant {
		return nil, 0
	}
	return &w, s.rev[slot]
}

func (s *shelf) Find(tenant, id string) *approval.Workflow {
	for _, w := range s.held {
		if w.Tenant == tenant && w.ID == id {
			return &w
		}
	}
	return nil
}

func (s *shelf) SessionWorkflows(tenant, source, session string) (list []*approval.Workflow) {
	for _, w := range s.held {
		if w.Tenant == tenant && w.Source == source && w.Session == session {
			list = append(list, &w)
		}
	}
	return list
}

func (s *shelf) PendingCount(tenant, source string) (n int) {
	for _, w := range s.held {
		if w.Tenant == tenant && w.Source == source && w.Status == approval.Pending {
			n++
		}
	}
	return n
}

// ask decides at a time after noon and does what the verdict takes.
func (s *shelf) ask(t testing.TB, protocol, body string, snap *Config, after time.Duration, header ...string) Outcome {
	t.Helper()
	s.n++
	in, req := inputs(), request(protocol, body)
	in.Now, in.Approvals, in.DecisionID = noon.Add(after), s, fmt.Sprintf("01939d5e-0000-7000-8000-%012d", s.n)
	if s.mandate != nil {
		in.Mandates.Mandates = known{s.mandate}
	}
	in.Publishers, in.Counters = s.publishers, s.counters
	for i := 0; i+1 < len(header); i += 2 {
		if req.Header == nil {
			req.Header = map[string][]string{}
		}
		req.Header[header[i]] = []string{header[i+1]}
	}
	out := Decide(req, snap, in)
	if step := out.Consumption.Approval; step != nil && (!step.Unchanged || step.Records != nil) {
		if step.Revision != s.rev[step.Slot] {
			t.Fatalf("the step is for revision %d of %d", step.Revision, s.rev[step.Slot])
		}
		s.held[step.Slot], s.rev[step.Slot] = step.Next, s.rev[step.Slot]+1
		s.log = append(s.log, step.Records...)
	}
	noSecrets(t, out)
	return out
}

// resolve lets a reviewer act on the only workflow that is undecided.
func (s *shelf) resolve(t testing.TB, act approval.Act, snap *Config, after time.Duration) {
	t.Helper()
	for slot, w := range s.held {
		if w.Status != approval.Pending {
			continue
		}
		next, code, changed := w.Resolve(approval.Command{Act: act, Reviewer: "dana", PreviewDigest: w.PreviewDigest, At: noon.Add(after),
			IsMember:      func(string, string) bool { return true },
			CurrentPolicy: events.PolicyRef{Revision: snap.Revision, Digest: snap.Policies.Digest()}})
		if !changed {
			t.Fatal(code)
		}
		s.held[slot], s.rev[slot] = next, s.rev[slot]+1
		return
	}
	t.Fatal("nothing is pending")
}

func (s *shelf) records() string {
	var list []string
	for _, r := range s.log {
		list = append(list, r.Act+">"+r.Status)
	}
	return strings.Join(list, " ")
}

const (
	eventID  = "7D444840-9dc0-11d1-b245-5ffdce74fad2"
	eventID2 = "7D444840-9dc0-11d1-b245-5ffdce74fad3"
)

func asking(t testing.TB) *Config { return rules(t, "ask external: true") }

func TestApprovalOfARetry(t *testing.T) {
	s, snap := newShelf(), asking(t)
	first := s.ask(t, agenthook.Name, preToolUse, snap, 0)
	ref := *first.Decision.Approval
	if codes(first) != "ask external" || ref.Status != "pending" || ref.ResumePolicy != "retry_same_event" || !ref.ExpiresAt.Equal(noon.Add(DefaultApprovalLifetime)) {
		t.Fatalf("%s %+v", codes(first), ref)
	}
	again := s.ask(t, agenthook.Name, preToolUse, snap, time.Minute)
	if codes(again) != "ask external approval_pending" || again.Decision.Approval.WorkflowID != ref.WorkflowID || !again.Decision.ExpiresAt.Equal(ref.ExpiresAt.Time) {
		t.Fatalf("%s %+v", codes(again), again.Decision.Approval)
	}
	s.resolve(t, approval.ActApprove, snap, 2*time.Minute)
	granted := s.ask(t, agenthook.Name, preToolUse, snap, 3*time.Minute)
	d := granted.Decision
	if codes(granted) != "allow external approval_granted" || d.NativeVerdict != "allow" || d.Approval.WorkflowID != ref.WorkflowID || d.Approval.Status != "consumed" ||
		d.Approval.ActionID != ref.ActionID || !d.ExpiresAt.Equal(noon.Add(4*time.Minute)) {
		t.Fatalf("%s %+v", codes(granted), d.Approval)
	}
	if err := verify(t, granted, about(), noon.Add(3*time.Minute)); err != nil {
		t.Error(err)
	}
	reply := replyOf(t, granted)
	if a := reply["metadata"].(map[string]any)["approval"].(map[string]any); reply["decision"] != "allow" || a["status"] != "approved" {
		t.Errorf("reply %v", reply)
	}
	anew := s.ask(t, agenthook.Name, preToolUse, snap, 4*time.Minute)
	if codes(anew) != "ask external" || anew.Decision.Approval.WorkflowID == ref.WorkflowID {
		t.Errorf("the approval served twice: %s", codes(anew))
	}
	if got := s.records(); got != "open>pending consume>consumed open>pending" {
		t.Error(got)
	}
}

// An approval is for one action, one call, one session, one publisher and one
// snapshot of policies, and holds for its time.
func TestBypassApprovalStretched(t *testing.T) {
	other := rules(t, "ask external: true", "allow also: true")
	later := asking(t)
	later.Revision++
	for _, tc := range []struct {
		name, old, new, want string
		snap                 *Config
		after                time.Duration
	}{
		{name: "other arguments", old: "a@example.com", new: "b@example.com", want: "ask external approval_for_other_call"},
		{name: "more arguments", old: `"n":1.0`, new: `"n":1.0,"m":2`, want: "ask external approval_for_other_call"},
		{name: "another tool", old: "send_mail", new: "send_mail2", want: "ask external approval_for_other_call"},
		{name: "another call", old: `"c1"`, new: `"c2"`, want: "ask external approval_not_transferable"},
		{name: "another session", old: `"s1"`, new: `"s2"`, want: "ask external"},
		{name: "no session", old: `"session_id":"s1",`, new: "", want: "ask weak_scope@/session_id external"},
		{name: "other policies", snap: other, want: "ask external also approval_policy_changed"},
		{name: "another revision of the same policies", snap: later, want: "ask external approval_policy_changed"},
		{name: "too late", after: DefaultApprovalLifetime, want: "ask external"},
		{name: "its action", old: `"evidence_phase"`, new: `"action":"delete","evidence_phase"`, want: "ask external approval_for_other_call"},
		{name: "another directory", old: `"metadata":{`, new: `"metadata":{"agent_cwd":"/srv/product",`, want: "ask external approval_for_other_call"},
		{name: "its resource", old: `"evidence_phase"`, new: `"resource":"x","evidence_phase"`, want: "ask external approval_for_other_call"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, snap := newShelf(), asking(t)
			s.ask(t, agenthook.Name, preToolUse, snap, 0)
			s.resolve(t, approval.ActApprove, snap, time.Second)
			if tc.snap != nil {
				snap = tc.snap
			}
			out := s.ask(t, agenthook.Name, edit(t, preToolUse, tc.old, tc.new), snap, max(time.Minute, tc.after))
			if codes(out) != tc.want || out.Decision.Approval.Status != "pending" {
				t.Errorf("%s, want %s", codes(out), tc.want)
			}
		})
	}
}

// What an approval is for is also the directory in which the call runs, and its reviewer sees it.
func TestApprovalHoldsTheDirectory(t *testing.T) {
	in := func(dir string) string {
		return edit(t, preToolUse, `"metadata":{`, `"metadata":{"agent_cwd":"`+dir+`",`)
	}
	s, snap := newShelf(), asking(t)
	s.ask(t, agenthook.Name, in("/workspace/throwaway"), snap, 0)
	for _, w := range s.held {
		if w.Preview.Dir != "/workspace/throwaway" {
			t.Errorf("the reviewer sees the directory %q", w.Preview.Dir)
		}
	}
	s.resolve(t, approval.ActApprove, snap, time.Second)
	for _, tc := range []struct{ dir, want string }{
		{"/workspace/product", "ask external approval_for_other_call"}, {"/workspace/throwaway", "allow external approval_evasion approval_granted"}, // the other directory's waits
	} {
		if out := s.ask(t, agenthook.Name, in(tc.dir), snap, time.Minute); codes(out) != tc.want {
			t.Errorf("%s: %s, want %s", tc.dir, codes(out), tc.want)
		}
	}
}

// A deny stays one, whatever was approved.
func TestBypassApprovalOfADeny(t *testing.T) {
	s, snap := newShelf(), rules(t, `ask external: source != "never"`)
	s.ask(t, agenthook.Name, preToolUse, snap, 0)
	s.resolve(t, approval.ActApprove, snap, time.Second)
	body := edit(t, preToolUse, `"metadata":{`, `"metadata":{"validation":{"status":"failed"},`)
	out := s.ask(t, agenthook.Name, body, snap, time.Minute)
	if out.Decision.Verdict != events.Deny || out.Consumption.Approval != nil || out.Decision.Approval != nil {
		t.Errorf("%s %+v", codes(out), out.Consumption.Approval)
	}
}

// What a publisher says of approvals finds a workflow and proves nothing.
func TestBypassPublisherClaimsAnApproval(t *testing.T) {
	s, snap := newShelf(), asking(t)
	id := s.ask(t, agenthook.Name, preToolUse, snap, 0).Decision.Approval.WorkflowID
	claim := func(workflow string) string {
		return edit(t, preToolUse, `"metadata":{`, `"metadata":{"approval":{"required":true,"status":"approved","workflow_id":"`+workflow+`","reviewer_ref":"dana"},`)
	}
	if out := s.ask(t, agenthook.Name, claim(id), snap, time.Minute); codes(out) != "ask publisher_approval_ignored@/metadata/approval external approval_pending" {
		t.Error(codes(out))
	}
	changed := edit(t, claim(id), "a@example.com", "evil@example.com")
	s.resolve(t, approval.ActApprove, snap, time.Minute)
	if out := s.ask(t, agenthook.Name, changed, snap, 2*time.Minute); !strings.HasSuffix(codes(out), "external approval_for_other_call") || out.Decision.Verdict != events.Ask {
		t.Error(codes(out))
	}
	unknown := edit(t, claim("wf-of-nobody"), "a@example.com", "c@example.com")
	if out := s.ask(t, agenthook.Name, unknown, snap, 2*time.Minute); !strings.HasSuffix(codes(out), "external approval_unknown") || out.Decision.Verdict != events.Ask {
		t.Error(codes(out))
	}
}

func TestDeniedRetry(t *testing.T) {
	s, snap := newShelf(), asking(t)
	s.ask(t, agenthook.Name, preToolUse, snap, 0)
	s.resolve(t, approval.ActDeny, snap, time.Second)
	for _, call := range []string{"c1", "c2"} { // another id does not buy another answer
		out := s.ask(t, agenthook.Name, edit(t, preToolUse, `"c1"`, `"`+call+`"`), snap, time.Minute)
		if codes(out) != "deny external approval_denied" || out.Decision.Approval.Status != "denied" || !out.Consumption.Approval.Unchanged || !out.Decision.ExpiresAt.IsZero() {
			t.Errorf("%s: %s", call, codes(out))
		}
		if r := replyOf(t, out); r["decision"] != "deny" || r["reason"] != "approval_denied" {
			t.Errorf("%v", r)
		}
	}
	if out := s.ask(t, agenthook.Name, preToolUse, snap, DefaultApprovalLifetime); codes(out) != "ask external" {
		t.Errorf("after its time: %s", codes(out))
	}
}

// A workflow that the service has cancelled since the policies changed is explained like one that has
// not been yet; a reviewer's cancellation is not such a reason.
func TestCancelledForOtherPolicies(t *testing.T) {
	s, snap := newShelf(), asking(t)
	for by, want := range map[string]string{"": "ask external approval_policy_changed", "dana": "ask external"} {
		s.ask(t, agenthook.Name, preToolUse, snap, 0)
		for slot, w := range s.held {
			w.Status, w.By, w.Reason = approval.Cancelled, by, approval.ReasonPolicyChanged
			s.held[slot] = w
		}
		if out := s.ask(t, agenthook.Name, preToolUse, snap, time.Minute); codes(out) != want {
			t.Errorf("cancelled by %q: %s, want %s", by, codes(out), want)
		}
	}
}

// A workflow that another one replaces ends on the log first.
func TestReplacedWorkflowsAreRecorded(t *testing.T) {
	s, snap := newShelf(), asking(t)
	s.ask(t, agenthook.Name, preToolUse, snap, 0)
	s.ask(t, agenthook.Name, preToolUse, snap, DefaultApprovalLifetime)
	snap.Revision++
	out := s.ask(t, agenthook.Name, preToolUse, snap, DefaultApprovalLifetime+time.Minute)
	if got := s.records(); got != "open>pending expire>expired open>pending cancel>cancelled open>pending" {
		t.Errorf("%s; %s", got, codes(out))
	}
}

// What an approval is for is also the agent and the approval_scope, such as the caller of a gate. A call of another
// agent or caller that waits, or was denied, does not decide this one, and does not let it pass.
func TestApprovalIsOfOneCaller(t *testing.T) {
	alice := edit(t, preToolUse, `"metadata":{`, `"metadata":{"approval_scope":"alice",`)
	for name, other := range map[string]string{
		"another caller": edit(t, alice, `"alice"`, `"bob"`, "c1", "c2"), "no caller": edit(t, preToolUse, "c1", "c2"),
		"another agent": edit(t, alice, `"bot"`, `"intern"`, "c1", "c2"), "no agent": edit(t, alice, `"agent_id":"bot",`, "", "c1", "c2"),
	} {
		for act, want := range map[approval.Act]string{
			"": "ask external approval_evasion", approval.ActDeny: "ask external approval_evasion", approval.ActApprove: "ask external",
		} {
			s, snap := newShelf(), asking(t)
			first := s.ask(t, agenthook.Name, alice, snap, 0)
			if act != "" {
				s.resolve(t, act, snap, time.Second)
			}
			out := s.ask(t, agenthook.Name, other, snap, time.Minute)
			if codes(out) != want || out.Decision.Approval.WorkflowID == first.Decision.Approval.WorkflowID {
				t.Errorf("%s, the first one %q: %s, want %s", name, act, codes(out), want)
			}
			if out = s.ask(t, agenthook.Name, alice, snap, 2*time.Minute); act == approval.ActApprove && out.Decision.Verdict != events.Allow {
				t.Errorf("%s: the call that was approved: %s", name, codes(out))
			}
		}
	}
}
