package e2e_test

import (
	"strings"
	"testing"
)

// Money against which a runtime lies: what it reports in the end counts, even
// beyond the budget, and nothing more is allowed then. What it never reports
// nobody can count (docs/mandates.md).
func TestAttackMoneySpentTwice(t *testing.T) {
	s := start(t)
	r := s.runtime(t)
	const id, sess = "aump_mnd_e2e_twice", "s-twice"
	m := shopping(id)
	hash := mandateHash(m)
	buy := func(call string, amount int) string {
		return evaluated(r.admit(t, "aump", underMandate(id, hash, purchase(amount)), "Countersign-Session", sess, "Countersign-Tool-Call-Id", call))
	}
	books := func(want string) {
		t.Helper()
		eventually(t, "the books say "+want, func() error {
			if out := s.run(t, "mandate", "list", "--json").want(t, 0).out; !strings.Contains(out, want) {
				return errorf("%s", out)
			}
			return nil
		})
	}
	s.run(t, "mandate", "put", mandateFile(t, m)).want(t, 0)
	eventually(t, "the mandate is in force", func() error {
		if got := buy("c0", 0); got != "allowed" {
			return errorf("%s", got)
		}
		return nil
	})

	// Asked twice under one id, allowed twice with a receipt each, reserved once;
	// run twice. The second run ran beside what was admitted, and is counted.
	if a, b := buy("c1", 300), buy("c1", 300); a != "allowed" || b != "allowed" {
		t.Fatalf("%s, %s", a, b)
	}
	books(`"settled_minor":0,"reserved_minor":300`)
	pre := preToolUse(sess, "c1", "buy_tea", purchase(300))
	r.publish(t, postToolUse(pre))
	r.publish(t, postToolUse(pre))
	books(`"settled_minor":600,"reserved_minor":0`)
	s.settle(t)
	if names := strings.Join(ruleNames(t, s, sess), " "); !strings.Contains(names, "orphan_completion") {
		t.Errorf("what ran twice is no finding: %s", names)
	}

	// Reported as failed, so that the money is there again, and then completed: both
	// count, the budget is exceeded, and that is the end of it.
	if got := buy("c2", 400); got != "allowed" {
		t.Fatal(got)
	}
	pre = preToolUse(sess, "c2", "buy_tea", purchase(400))
	r.publish(t, postToolUse(pre).with("metadata.execution", object{"outcome": "failed"}))
	books(`"settled_minor":600,"reserved_minor":0`)
	if got := buy("c3", 400); got != "allowed" {
		t.Fatal(got)
	}
	r.publish(t, postToolUse(preToolUse(sess, "c3", "buy_tea", purchase(400))))
	books(`"settled_minor":1000,"reserved_minor":0`)
	r.publish(t, postToolUse(pre))
	s.settle(t)
	if names := strings.Join(ruleNames(t, s, sess), " "); strings.Count(names, "orphan_completion") < 2 && !strings.Contains(names, "conflict") {
		t.Errorf("a second outcome of c2 is no finding: %s", names)
	}
	if got := buy("c4", 1); got != tooExpensive {
		t.Errorf("after everything was spent: %s", got)
	}
	s.exact(t)
}
