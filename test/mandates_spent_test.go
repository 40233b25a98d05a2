package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestMoneyStaysSpent: what a runtime spends as the pages allow stays spent, whatever happens to the session.
func TestMoneyStaysSpent(t *testing.T) {
	s := start(t)
	r := s.runtime(t)
	const id = "aump_mnd_e2e_pantry"
	// admit has a purchase allowed so many times, and returns its announcement.
	admit := func(hash, sess string, amount, times int) object {
		t.Helper()
		for range times {
			if got := evaluated(r.admit(t, "aump", underMandate(id, hash, purchase(amount)), "Countersign-Session", sess, "Countersign-Tool-Call-Id", "c1")); got != "allowed" {
				t.Fatalf("%d: %s", amount, got)
			}
		}
		return preToolUse(sess, "c1", "buy_tea", purchase(amount))
	}
	put := func(budget int) (hash string) {
		t.Helper()
		m := shopping(id).with("authority.budget.max_total_minor", budget)
		s.run(t, "mandate", "put", mandateFile(t, m)).want(t, 0)
		return mandateHash(m)
	}
	spends := func(settled int) {
		t.Helper()
		want := fmt.Sprintf(`"currency":"EUR","settled_minor":%d,"reserved_minor":0`, settled)
		eventually(t, fmt.Sprint(settled, " are spent"), func() error {
			if out := s.run(t, "mandate", "list", "--json").want(t, 0).out; !strings.Contains(out, want) {
				return errorf("%s", out)
			}
			return nil
		})
	}

	// A session is erased and goes on, with an id that it had before.
	hash := put(1000)
	r.publish(t, postToolUse(admit(hash, "s-erased", 600, 1)))
	spends(600)
	s.settle(t)
	s.run(t, "retention", "erase", "--session", "s-erased", "--reason", "request 17", "--quiet", "0s", "--yes").want(t, 0)
	r.publish(t, postToolUse(admit(hash, "s-erased", 400, 1)))
	spends(1000)

	// A call is asked for again and again while a person decides, announced, and then its runtime is gone.
	hash = put(1600)
	r.publish(t, admit(hash, "s-patient", 600, 33))
	r.publish(t, hook("s-patient", "SessionEnd"))
	spends(1600)
}
