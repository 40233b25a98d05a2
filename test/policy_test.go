package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// policyText is a policy that gives one verdict for one tool.
func policyText(name, tool, verdict string) string {
	return "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata:\n  name: " + name +
		"\nspec:\n  match:\n    tools: [\"" + tool + "\"]\n  rules:\n    - name: only\n      when: 'true'\n      verdict: " + verdict +
		"\n      reason: only_rule\n"
}

const brokenPolicy = "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata:\n  name: broken\nspec:\n  match:\n    tools: [\"*\"]\n" +
	"  rules:\n    - name: bad\n      when: 'tool =='\n      verdict: allow\n      reason: x\n"

// policyDir writes policy files; names and texts alternate.
func policyDir(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		ok(t, os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600))
	}
	return dir
}

func rocket(call string) object { return unknownCall("s-policy", call) }

// A pushed policy is in force without a restart, and the log says so.
func TestPolicyPush(t *testing.T) {
	t.Parallel()
	s := start(t, "--policy", policyDir(t, "rockets.yaml", policyText("rockets", "launch_rocket", "allow")))
	r := s.runtime(t)
	before := r.admit(t, "agenthook", rocket("c1").bytes())
	if before.verdict != "allow" {
		t.Fatalf("verdict %s by the first policy", before.verdict)
	}
	pids := s.info(t).PIDs
	s.run(t, "policy", "push", policyDir(t, "rockets.yaml", policyText("rockets", "launch_rocket", "deny"))).want(t, 0)
	var after answer
	eventually(t, "the pushed policy decides", func() error {
		if after = r.admit(t, "agenthook", rocket("c2").bytes()); after.verdict == "deny" {
			return nil
		}
		return errorf("verdict %s", after.verdict)
	})
	db := s.auditors(t)
	old, young := atSeq(t, db, before.seq).body(t), atSeq(t, db, after.seq).body(t)
	if old.text("policy.digest") == young.text("policy.digest") || young.text("policy.name") != "rockets" {
		t.Errorf("the decisions name the policies %v and %v", old["policy"], young["policy"])
	}
	eventually(t, "both sets are on the log", func() error {
		var digests []string
		for _, c := range evidence(t, db, "kind = 'control' AND subject = 'gov.control.GOV.policy'") {
			digests = append(digests, c.body(t).text("digest"))
		}
		if len(digests) < 2 || digests[0] != old.text("policy.digest") || digests[len(digests)-1] != young.text("policy.digest") {
			return errorf("control records of %v", digests)
		}
		return nil
	})
	s.exact(t)
	for name, pid := range s.info(t).PIDs {
		if pids[name] != pid {
			t.Errorf("%s was restarted", name)
		}
	}
	s.verified(t, 0)
}

// denies expects that everything is denied for a reason, and that health says
// that this is no healthy state.
func denies(t *testing.T, s *system, code string) {
	t.Helper()
	var a answer
	eventually(t, "deny "+code, func() error {
		a = s.runtime(t).admit(t, "agenthook", allowedCall("s-"+code, "c1").bytes())
		if a.verdict != "deny" || !strings.Contains(string(a.msg.Data), code) {
			return errorf("%s: %s", a.verdict, a.msg.Data)
		}
		return nil
	})
	if codes := reasons(atSeq(t, s.auditors(t), a.seq).body(t)); !slices.Contains(codes, code) {
		t.Errorf("the decision's reasons are %v", codes)
	}
	if status, body := health(t, s); status != http.StatusServiceUnavailable || !strings.Contains(body, "polic") {
		t.Errorf("health %d: %s", status, body)
	}
}

// Without a usable policy the services start, deny everything, say why, and are
// well again once there is one.
func TestUnusablePolicies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, code string
		args       []string
	}{
		{"none", "no_policy", []string{"--log-level", "info"}},
		{"one good and one broken file", "policy_error", []string{"--policy", policyDir(t, "a.yaml", policyText("a", "*", "allow"), "b.yaml", brokenPolicy)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t, tc.args...)
			denies(t, s, tc.code)
			s.run(t, "policy", "push", samplePolicies).want(t, 0)
			eventually(t, "good policies heal it", func() error {
				if a := s.runtime(t).admit(t, "agenthook", allowedCall("s-healed", "c1").bytes()); a.verdict != "allow" {
					return errorf("verdict %s", a.verdict)
				}
				if status, body := health(t, s); status != http.StatusOK {
					return errorf("health %d: %s", status, body)
				}
				return nil
			})
		})
	}
}

// A policy that breaks while the system runs denies everything: the previous set may have rules
// that were withdrawn.
func TestPolicyBreaksWhileRunning(t *testing.T) {
	t.Parallel()
	s := start(t)
	operator := s.connect(t, "operator")
	_, err := operator.Request("$KV.policies.mail", []byte(brokenPolicy), patience)
	ok(t, err)
	denies(t, s, "policy_error")
	s.run(t, "policy", "push", samplePolicies).want(t, 0)
	eventually(t, "good policies heal it", func() error {
		if a := s.runtime(t).admit(t, "agenthook", allowedCall("s-mended", "c1").bytes()); a.verdict != "allow" {
			return errorf("verdict %s", a.verdict)
		}
		return nil
	})
	s.exact(t)
}

// What is no set of policies is not pushed, and what is in force stays.
func TestPolicyPushRefuses(t *testing.T) {
	s := shared(t)
	inForce := s.run(t, "policy", "list", "--json").want(t, 0).out
	for _, tc := range []struct{ name, dir, says string }{
		{"empty directory", policyDir(t), "no policy"},
		{"missing directory", filepath.Join(t.TempDir(), "misspelt"), "misspelt"},
		{"broken file", policyDir(t, "a.yaml", policyText("a", "*", "allow"), "b.yaml", brokenPolicy), "b.yaml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := s.run(t, "policy", "push", tc.dir)
			if r.code == 0 || !strings.Contains(r.err, tc.says) {
				t.Errorf("exit %d: %s", r.code, r.err)
			}
			if now := s.run(t, "policy", "list", "--json").want(t, 0).out; now != inForce {
				t.Errorf("in force is now %s", now)
			}
			if r := tool(t, "policy", "lint", tc.dir); r.code == 0 {
				t.Error("lint finds nothing wrong")
			}
		})
	}
}
