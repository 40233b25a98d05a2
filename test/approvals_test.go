package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// review runs a command of the reviewer's.
func (s *system) review(t testing.TB, code int, args ...string) object {
	t.Helper()
	r := s.run(t, append(append([]string{"approvals"}, args...), "--json", "--timeout", "1m")...).want(t, code)
	var o object
	if r.out != "" {
		ok(t, json.Unmarshal([]byte(r.out), &o))
	}
	return o
}

// verdicts asks and checks the verdict; it gives the workflow of the reply.
func (r runtimeClient) verdicts(t testing.TB, want string, call object, headers ...string) (workflow string, a answer) {
	t.Helper()
	a = r.admit(t, "agenthook", call.bytes(), headers...)
	if a.verdict != want {
		t.Fatalf("%s, want %s: %s", a.verdict, want, a.msg.Data)
	}
	if h := a.msg.Header.Get("Countersign-Workflow-Id"); h != a.body.text("metadata.approval.workflow_id") {
		t.Errorf("header %q, body %s", h, a.msg.Data)
	}
	return a.body.text("metadata.approval.workflow_id"), a
}

// statuses are the approval records of a workflow in the evidence, in order.
func statuses(t testing.TB, s *system, sess, workflow string) (list []string) {
	t.Helper()
	s.settle(t)
	for _, r := range session(t, s.auditors(t), sess) {
		if b := r.body(t); r.Kind == "approval" && b.text("workflow_id") == workflow && b.text("refused") == "" {
			list = append(list, b.text("status"))
		}
	}
	return list
}

// ask, look, approve, retry: allowed once; then it is asked anew. Nothing else
// is covered.
func TestApproval(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	sess, call := "s-approval", askedCall("s-approval", "c1")
	id, _ := r.verdicts(t, "ask", call)
	if again, _ := r.verdicts(t, "ask", call); again != id {
		t.Errorf("a retry opened %s beside %s", again, id)
	}
	var listed []string
	for _, w := range s.review(t, 0, "list")["workflows"].([]any) {
		listed = append(listed, object(w.(map[string]any)).text("workflow_id"))
	}
	if !slices.Contains(listed, id) {
		t.Errorf("%s is not among %v", id, listed)
	}
	shown := s.run(t, "approvals", "show", id).want(t, 0)
	if !strings.Contains(shown.out, "send_email") || !strings.Contains(shown.out, `"press@newspaper.example"`) || !strings.Contains(shown.out, "(withheld)") {
		t.Errorf("the preview shows too much, or too little:\n%s", shown.out)
	}
	digest := s.review(t, 0, "show", id).text("workflow.preview_digest")
	if code := s.review(t, 1, "approve", id, "--preview-digest", "hmac-sha256:00").text("code"); code != "preview_mismatch" {
		t.Error(code)
	}
	if code := s.review(t, 0, "approve", id, "--preview-digest", digest, "--reason", "press office agrees").text("code"); code != "approved" {
		t.Error(code)
	}
	if code := s.review(t, 1, "deny", id).text("code"); code != "already_resolved" {
		t.Error(code)
	}
	other, _ := r.verdicts(t, "ask", call.with("tool_input.to", "press@evil.example"))
	r.verdicts(t, "ask", call.with("metadata.tool_call_id", "c2"))
	used, a := r.verdicts(t, "allow", call)
	if used != id || other == id || a.body.text("metadata.approval.status") != "approved" {
		t.Errorf("%s", a.msg.Data)
	}
	checkReceipt(t, s, "agenthook", call, a)
	if anew, _ := r.verdicts(t, "ask", call); anew == id {
		t.Error("the approval served twice")
	}
	if got := statuses(t, s, sess, id); !slices.Equal(got, []string{"pending", "approved", "consumed"}) {
		t.Errorf("%v", got)
	}
	if n := number(t, s.auditors(t), "SELECT count() FROM approvals WHERE workflow_id = ? AND status = 'approved' AND reason = 'press office agrees' AND approver != ''", id); n != 1 {
		t.Errorf("%d rows of the approval", n)
	}
	s.verified(t, 0, "--session", sess)
}

// What ran after an approval was allowed to run.
func TestApprovedCallRuns(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	heard := listen(t, s, "gov.findings.>")
	sess := "s-approved-run"
	call := askedCall(sess, "c1")
	id, _ := r.verdicts(t, "ask", call)
	s.run(t, "approvals", "approve", id, "--yes").want(t, 0)
	r.verdicts(t, "allow", call)
	r.publish(t, call)
	r.publish(t, postToolUse(call).with("metadata.approval", object{"required": true, "status": "approved", "workflow_id": id}))
	s.settle(t)
	expect(t, s, heard, sess, nil)
}

func TestDeniedApproval(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	call := askedCall("s-approval-deny", "c1")
	id, _ := r.verdicts(t, "ask", call)
	out := s.run(t, "approvals", "deny", id, "--reason", "not today").want(t, 0)
	if !strings.Contains(out.out, id) {
		t.Error(out.out)
	}
	for _, c := range []object{call, call.with("metadata.tool_call_id", "c2").with("event_id", "7d444840-9dc0-41d1-b245-5ffdce74fad2")} {
		if w, a := r.verdicts(t, "deny", c); w != id || a.body.text("reason") != "approval_denied" || a.body.text("metadata.approval.status") != "denied" {
			t.Errorf("%s", a.msg.Data)
		}
	}
	s.run(t, "approvals", "approve", id).want(t, 1).oneLineLast(t, "already_resolved")
}

// oneLineLast is oneLine for commands that show something before.
func (r result) oneLineLast(t testing.TB, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	if !strings.Contains(lines[len(lines)-1], text) {
		t.Errorf("the last line does not say %q:\n%s", text, r.err)
	}
}

// The requester cannot approve: neither with its own credentials, nor by what it
// says, nor by talking to the bucket or the log.
func TestBypassRequesterApprovesItself(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	call := askedCall("s-approval-self", "c1")
	id, _ := r.verdicts(t, "ask", call)
	digest := s.review(t, 0, "show", id).text("workflow.preview_digest")
	me := s.info(t).Roles["runtime"]
	cmd := s.run(t, "approvals", "approve", id, "--preview-digest", digest, "--user", me.User, "--password", me.Password, "--inbox-prefix", me.InboxPrefix).want(t, 1)
	cmd.oneLine(t, "may not review")
	claim := object{"required": true, "status": "approved", "workflow_id": id, "reviewer_ref": "dana"}
	r.verdicts(t, "ask", call.with("metadata.approval", claim))
	reply, err := r.nc.Request("$KV.approvals.x", []byte("{}"), 200*time.Millisecond)
	if err == nil {
		t.Errorf("a runtime wrote into the bucket: %s", reply.Data)
	}
	r.verdicts(t, "ask", call)
	if got := statuses(t, s, "s-approval-self", id); slices.Contains(got, "approved") {
		t.Errorf("%v", got)
	}
}

// Approvals, and the times at which they end, survive kills of the admitter and
// restarts of everything.
func TestApprovalsSurvive(t *testing.T) {
	t.Parallel()
	dir, policies := t.TempDir(), t.TempDir()
	for name, seconds := range map[string]int{"slow_tool": 3600, "quick_tool": 2} {
		policy := fmt.Sprintf("apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: %s}\nspec:\n  match: {tools: [%s]}\n  expiresAfter: %ds\n  rules: [{name: r, when: 'true', verdict: ask, reason: look}]\n",
			strings.ReplaceAll(name, "_", "-"), name, seconds)
		ok(t, os.WriteFile(filepath.Join(policies, name+".yaml"), []byte(policy), 0o600))
	}
	s := startIn(t, dir, "--policy", policies)
	r := s.runtime(t)
	call := preToolUse("s-survive", "c1", "slow_tool", object{"n": 1})
	quick := preToolUse("s-survive", "c2", "quick_tool", object{"n": 1}).with("resource", "q")
	id, _ := r.verdicts(t, "ask", call)
	expiring, _ := r.verdicts(t, "ask", quick)
	s.run(t, "approvals", "approve", id).want(t, 0)
	pid := s.info(t).PIDs["admitter"]
	ok(t, syscall.Kill(pid, syscall.SIGKILL))
	eventually(t, "the admitter is back", func() error {
		if s.info(t).PIDs["admitter"] == pid {
			return errorf("still the old one")
		}
		_, err := r.ask("agenthook", unknownCall("s-survive", "c9").bytes())
		return err
	})
	ok(t, s.stop())
	s = startIn(t, dir, "--policy", policies)
	r = s.runtime(t)
	if used, _ := r.verdicts(t, "allow", call); used != id {
		t.Errorf("allowed by %s", used)
	}
	r.verdicts(t, "ask", call)
	eventually(t, "the other workflow expires by itself", func() error {
		if got := statuses(t, s, "s-survive", expiring); !slices.Equal(got, []string{"pending", "expired"}) {
			return errorf("%v", got)
		}
		return nil
	})
	if s.review(t, 1, "approve", expiring).text("code") != "workflow_expired" {
		t.Error("an expired workflow was approved")
	}
	s.exact(t)
}
