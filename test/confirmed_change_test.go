package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// When a command that changes what decides has returned 0, no admitter decides by
// what was before; one that hangs is named.
func TestChangesAreInForceWhenTheCommandReturns(t *testing.T) {
	t.Parallel()
	allow := policyDir(t, "rockets.yaml", policyText("rockets", "launch_rocket", "allow"))
	deny := policyDir(t, "rockets.yaml", policyText("rockets", "launch_rocket", "deny"))
	s := start(t, "--policy", allow)
	r := s.runtime(t)
	second := s.standby(t, "admitter")
	calls := 0
	ask := func() answer {
		calls++
		return r.admit(t, "agenthook", unknownCall("s-confirmed", fmt.Sprint("call-", calls)).bytes())
	}
	var last answer
	for round := range 4 {
		dir, want := deny, "deny"
		if round%2 == 1 {
			dir, want = allow, "allow"
		}
		s.run(t, "policy", "push", dir).want(t, 0)
		for i := range 12 {
			if last = ask(); last.verdict != want {
				t.Errorf("round %d, request %d: %s", round, i, last.verdict)
			}
		}
	}

	old := last.kid()
	tool(t, "keys", "rotate", "--keys", s.keyDir()).want(t, 0)
	if out := s.run(t, "keys", "retire", "--keys", s.keyDir(), old).want(t, 0).out; !strings.Contains(out, "no admitter signs with the key") {
		t.Errorf("keys retire says %s", out)
	}
	for range 12 {
		if a := ask(); a.kid() == old {
			t.Error("a receipt is signed with the key that was retired")
		}
	}

	ok(t, syscall.Kill(second.pid, syscall.SIGSTOP))
	awake := func() { _ = syscall.Kill(second.pid, syscall.SIGCONT) }
	t.Cleanup(awake)
	got := s.run(t, "policy", "push", "--wait", "2s", deny).want(t, 5)
	if !strings.Contains(got.err, fmt.Sprintf("process %d ", second.pid)) {
		t.Errorf("the admitter that hangs is not named: %s", got.err)
	}
	awake()
	s.run(t, "policy", "push", deny).want(t, 0)
	for range 12 {
		if a := ask(); a.verdict != "deny" {
			t.Errorf("after the admitter went on: %s", a.verdict)
		}
	}
}
