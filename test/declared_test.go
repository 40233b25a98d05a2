package e2e_test

import (
	"strings"
	"testing"
)

// registered is a registration of the runtime, which declares that it has no model calls.
func registered(r runtimeClient) object {
	types := object{"PreLLMCall": "not_exposed"}
	for _, name := range strings.Fields("SessionStart SessionEnd UserPromptSubmit PostLLMCall ModelResponse PreToolUse PostToolUse AgentHandoff ErrorOccurred") {
		types[name] = "supported"
	}
	return object{"schema": "https://schemas.countersign.dev/countersign/publisher-registration/v1", "publisher": r.publisher, "fail_mode": "fail_closed",
		"manifest": object{
			"schema": "https://agenthook.org/schemas/publisher-manifest.v1.json", "schema_version": "1.0", "publisher_id": "com.example.declared", "display_name": "E2E",
			"maintainer": object{"name": "E", "url": "https://e.example"}, "runtime": object{"vendor": "E", "name": "E", "versions_tested": []string{}},
			"agenthook":   object{"version": "0.2", "source": "e2e-agent", "events": types},
			"entrypoints": object{"command": "c", "installer": "i"}, "config": object{"files": []string{}}, "limitations": []string{},
			"verification": object{"self_attested": true, "conformance": "pending", "last_tested": "2026-11-20", "commands": []string{}},
		}}
}

// A publisher's declarations reach the correlator through the log, and the publisher's events are
// checked against them. The admitter's decisions are checked against their requests; it breaks
// none of its own rules meanwhile.
func TestDeclaredAndJudged(t *testing.T) {
	t.Parallel()
	s := start(t, "--policy", policyDir(t, "all.yaml", allowAll))
	r := s.runtime(t)
	const sess = "s-declared"
	s.run(t, "publisher", "put", documentFile(t, registered(r).bytes())).want(t, 0)
	eventually(t, "the registration is honoured", func() error {
		if a := r.admit(t, "agenthook", hook(sess, "PreLLMCall").bytes()); a.body.text("reason") != "event_type_not_exposed" {
			return errorf("%s", a.body.text("reason"))
		}
		return nil
	})
	r.publish(t, hook(sess, "PreLLMCall"))
	r.publish(t, hook(sess, "ErrorOccurred").with("metadata", object{
		"tool_call_id": "c0", "error_type": "admission_fail_mode", "fail_mode_triggered": true, "outcome": "allow"}))

	revoked, denied, asked := object{"registration_status": "revoked"}, object{"verdict": "deny", "subscriber": "dlp"}, object{"verdict": "ask", "subscriber": "dlp"}
	for _, tc := range []struct {
		want string
		e    object
	}{
		{"allow", hook(sess, "SessionStart").with("metadata.managed_runtime", revoked)},
		{"allow", postToolUse(allowedCall(sess, "c1")).with("metadata.admission_verdict", denied)},
		{"deny", allowedCall(sess, "c2").with("metadata.managed_runtime", revoked)},
		{"deny", allowedCall(sess, "c3").with("metadata.admission_verdict", denied)},
		{"ask", allowedCall(sess, "c4").with("metadata.admission_verdict", asked)},
	} {
		if a := r.admit(t, "agenthook", tc.e.bytes()); a.verdict != tc.want {
			t.Errorf("%s is %s: %s", tc.e.text("event_type"), a.verdict, a.body.text("reason"))
		}
	}
	waits := allowedCall(sess, "c5").with("metadata.admission_verdict", asked)
	workflow, _ := r.verdicts(t, "ask", waits)
	s.run(t, "approvals", "approve", workflow, "--yes").want(t, 0)
	_, a := r.verdicts(t, "allow", waits)
	r.publish(t, postToolUse(waits).with("metadata.approval", object{"required": true, "status": "approved", "workflow_id": workflow, "decision_ref": a.id}))
	s.settle(t)

	db := s.auditors(t)
	for rule, want := range map[string]uint64{"AH-C-127": 1, "AH-C-072": 1} {
		if n := number(t, db, "SELECT count() FROM findings WHERE rule = ? AND session = ? AND (explanation LIKE '%declared not exposed%' OR explanation LIKE '%registered to fail closed%')", rule, sess); n < want {
			t.Errorf("%s was found %d times", rule, n)
		}
	}
	if n := number(t, db, "SELECT count() FROM findings WHERE rule IN ('AH-C-051', 'AH-C-071', 'AH-C-085', 'AH-C-086', 'AH-C-134')"); n != 0 {
		t.Errorf("%d findings about the admitter itself", n)
	}
	for _, from := range []string{"log", "clickhouse"} {
		s.run(t, "replay", "--session", sess, "--from", from).want(t, 0)
	}
}
