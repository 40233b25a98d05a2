package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// In mode observe a call that the policies deny is let pass, and the record says that they would
// have denied it. Without the mode the same system denies it again. No caller can choose.
func TestObserve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir, "--policy", samplePolicies, "--mode", "observe")
	r := s.runtime(t)
	observed := r.admit(t, "agenthook", deniedCall("s-observe", "call-observed").bytes())
	const gauge = `countersign_tenants_observed{service="admitter"}`
	if _, samples := scraped(t, s.info(t).HTTPURL); samples[gauge] != 1 {
		t.Errorf("%s = %v", gauge, samples[gauge])
	}
	if observed.verdict != "allow" || observed.msg.Header.Get("Countersign-Mode") != "observe" || observed.receipt == "" ||
		!strings.Contains(observed.body.text("reason"), "not_enforced") {
		t.Fatalf("verdict %s, headers %v, %s", observed.verdict, observed.msg.Header, observed.msg.Data)
	}
	var health struct {
		Observed int `json:"tenants_observed"`
	}
	res, err := http.Get(s.info(t).HTTPURL + "/healthz")
	ok(t, err)
	ok(t, json.NewDecoder(res.Body).Decode(&health))
	ok(t, res.Body.Close())
	if res.StatusCode != http.StatusOK || health.Observed != 1 {
		t.Errorf("health: %s, %+v", res.Status, health)
	}
	if out := s.run(t, "doctor").want(t, 0).out; !strings.Contains(out, "mode observe") || !strings.Contains(out, "NOT refused, for acme") {
		t.Errorf("doctor: %s", out)
	}
	if bad := r.admit(t, "agenthook", []byte(`{"event_type":`)); bad.verdict != "deny" {
		t.Errorf("bad input: %s", bad.verdict)
	}
	body := atSeq(t, s.auditors(t), observed.seq).body(t)
	if body.text("verdict") != "allow" || body.text("mode") != "observe" || body.text("would") != "deny" || body.text("policy.name") != "" {
		t.Errorf("recorded: %v", body)
	}
	eventually(t, "the typed table has what would have been refused", func() error {
		const query = "SELECT count() FROM decisions WHERE mode = 'observe' AND would = 'deny' AND has(`reasons.action`, 'observe')"
		if n := number(t, s.auditors(t), query); n != 1 {
			return errorf("%d rows", n)
		}
		return nil
	})
	if x := explained(t, s, observed.id); member(x, "decision.would") != "deny" {
		t.Errorf("explained: %v", x)
	}
	if text := s.run(t, "explain", observed.id).want(t, 0).out; !strings.Contains(text, "the policies were not enforced; they would have given deny") {
		t.Errorf("explained: %s", text)
	}
	sum := jsonLines(t, s.run(t, "policy", "simulate", "--json", "--since", "1h", samplePolicies).want(t, 0).out)
	if member(sum[len(sum)-1], "summary.changed") != "0" {
		t.Errorf("simulated by the same policies: %v", sum)
	}
	suggested := suggestedPolicies(t, s, r)
	hook := s.hook(t, "claude-code", "20s").countersign(t, "hook", "doctor", "claude-code").want(t, 1).out
	if line := lineWith(hook, "policies are enforced"); !strings.Contains(line, "FAILED") || !strings.Contains(line, "mode observe is on") {
		t.Errorf("doctor of the gate: %s", hook)
	}
	ok(t, s.stop())

	s = startIn(t, dir)
	r = s.runtime(t)
	_, samples := scraped(t, s.info(t).HTTPURL)
	if n, there := samples[gauge]; n != 0 || !there {
		t.Errorf("enforced again, %s = %v, %t", gauge, n, there)
	}
	if out := s.run(t, "doctor").out; strings.Contains(out, "observe") {
		t.Errorf("enforced again, doctor: %s", out)
	}
	for name, a := range map[string]answer{
		"the same call": r.admit(t, "agenthook", deniedCall("s-observe", "call-denied").bytes()),
		"with a header": r.admit(t, "agenthook", deniedCall("s-observe", "call-header").bytes(), "Countersign-Mode", "observe"),
		"with a member": r.admit(t, "agenthook", deniedCall("s-observe", "call-member").with("mode", "observe").bytes()),
	} {
		body := atSeq(t, s.auditors(t), a.seq).body(t)
		if a.verdict != "deny" || a.msg.Header.Get("Countersign-Mode") != "" || body.text("mode") != "" || body.text("would") != "" {
			t.Errorf("%s: verdict %s, headers %v, record %v", name, a.verdict, a.msg.Header, body)
		}
	}
	explained(t, s, observed.id)
	s.run(t, "policy", "push", policyDir(t, "seen.yaml", suggested)).want(t, 0)
	untilVerdict(t, r, "allow", func(n int) object { return unknownCall("s-seen", "call-ran") })
	if a := r.admit(t, "agenthook", unknownCall("s-seen", "call-other").bytes()); a.verdict != "deny" {
		t.Errorf("a target that was not seen: %s", a.verdict)
	}
	s.exact(t)
	s.verified(t, 0)
}

// suggestedPolicies lets a call run that no policy permits, and returns what policy suggest makes of
// it.
func suggestedPolicies(t *testing.T, s *system, r runtimeClient) (yaml string) {
	t.Helper()
	pre := unknownCall("s-seen", "call-ran")
	if a := r.admit(t, "agenthook", pre.bytes()); a.verdict != "allow" {
		t.Fatalf("verdict %s", a.verdict)
	}
	r.publish(t, postToolUse(pre))
	eventually(t, "the call is proposed", func() error {
		p := jsonLines(t, s.run(t, "policy", "suggest", "--from", "1d", "--json").want(t, 0).out)[0]
		if yaml = p.text("policies"); member(p, "seen.ran") != "1" || member(p, "calls") != "1" || member(p, "would_have_changed.changed") != "1" {
			return errorf("%v", p)
		}
		return nil
	})
	if text := s.run(t, "policy", "suggest").want(t, 0).out; !strings.HasSuffix(text, yaml) || !strings.Contains(text, "# 3 decisions: 1 calls were permitted and ran, 1 did not run") {
		t.Errorf("for people: %s", text)
	}
	return yaml
}
