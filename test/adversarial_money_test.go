package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/client/guard"
)

// spent is what the list of mandates says of one.
func spent(t testing.TB, s *system, id string) string {
	t.Helper()
	var list []json.RawMessage
	ok(t, json.Unmarshal([]byte(s.run(t, "mandate", "list", "--json").want(t, 0).out), &list))
	for _, m := range list {
		if strings.Contains(string(m), `"`+id+`"`) {
			return string(m)
		}
	}
	return ""
}

// A runtime reports false amounts: its final report counts, even beyond the budget, and nothing
// more is allowed then. Spending that it never reports cannot be counted (docs/mandates.md).
func TestAttackMoneySpentTwice(t *testing.T) {
	t.Parallel()
	s := amongOthers(t)
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
			if out := spent(t, s, id); !strings.Contains(out, want) {
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

	// Asked twice under one id, allowed twice with receipts of one allowance, reserved
	// once; run twice. The second run ran beside what was admitted, and is counted.
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

	// Reported as failed, so that the money is there again: it is not, while the
	// receipt holds. Then completed, which counts as well.
	if got := buy("c2", 400); got != "allowed" {
		t.Fatal(got)
	}
	pre = preToolUse(sess, "c2", "buy_tea", purchase(400))
	r.publish(t, postToolUse(pre).with("metadata.execution", object{"outcome": "failed"}))
	s.settle(t)
	books(`"settled_minor":600,"reserved_minor":400`)
	if got := buy("c3", 400); got != tooExpensive {
		t.Fatal(got)
	}
	r.publish(t, postToolUse(pre))
	books(`"settled_minor":1000,"reserved_minor":400`)
	s.settle(t)
	if names := strings.Join(ruleNames(t, s, sess), " "); strings.Count(names, "orphan_completion") < 2 && !strings.Contains(names, "conflict") {
		t.Errorf("a second outcome of c2 is no finding: %s", names)
	}
	if got := buy("c4", 1); got != tooExpensive {
		t.Errorf("after everything was spent: %s", got)
	}
	s.exact(t)
}

// A runtime runs one allow under other ids, as retries that it does not ask about. Each counts besides the reservation,
// and all but the first are found.
func TestAttackMoneyByRetries(t *testing.T) {
	t.Parallel()
	s := amongOthers(t)
	r := s.runtime(t)
	const id, sess = "aump_mnd_e2e_retries", "s-retries"
	m := shopping(id)
	hash := mandateHash(m)
	ask := func(call string, amount int) string {
		return evaluated(r.admit(t, "aump", underMandate(id, hash, purchase(amount)), "Countersign-Session", sess, "Countersign-Tool-Call-Id", call))
	}
	s.run(t, "mandate", "put", mandateFile(t, m)).want(t, 0)
	eventually(t, "the mandate is in force", func() error {
		if got := ask("c0", 0); got != "allowed" {
			return errorf("%s", got)
		}
		return nil
	})
	if got := ask("c1", 600); got != "allowed" {
		t.Fatal(got)
	}
	for _, call := range []any{"c2", "c3", nil} { // nil: without an id of its own
		pre := preToolUse(sess, "", "buy_tea", purchase(600)).with("metadata.tool_call_id", call).with("metadata.retry", object{"attempt": 2, "previous_tool_call_id": "c1"})
		r.publish(t, pre)
		r.publish(t, postToolUse(pre))
	}
	eventually(t, "the retries are counted", func() error {
		if out := spent(t, s, id); !strings.Contains(out, `"settled_minor":1800,"reserved_minor":600`) {
			return errorf("%s", out)
		}
		return nil
	})
	s.settle(t)
	if names := strings.Join(ruleNames(t, s, sess), " "); strings.Count(names, "receipt_reused") != 2 {
		t.Errorf("the findings are %s", names)
	}
	s.exact(t)
}

// An ending frees what decisions on its own call reserved: requests under the same
// id that are denied, for another action or another amount, free nothing.
func TestAttackMoneyFreedByAnotherCallsEnd(t *testing.T) {
	t.Parallel()
	s := amongOthers(t)
	r := s.runtime(t)
	const id, sess = "aump_mnd_e2e_other_end", "s-other-end"
	m := shopping(id)
	hash := mandateHash(m)
	ask := func(call string, action object) string {
		return evaluated(r.admit(t, "aump", underMandate(id, hash, action), "Countersign-Session", sess, "Countersign-Tool-Call-Id", call))
	}
	s.run(t, "mandate", "put", mandateFile(t, m)).want(t, 0)
	eventually(t, "the mandate is in force", func() error {
		if got := ask("c0", purchase(0)); got != "allowed" {
			return errorf("%s", got)
		}
		return nil
	})
	if got := ask("c1", purchase(600)); got != "allowed" {
		t.Fatal(got)
	}
	launch := purchase(600)
	launch["type"] = "launch_rocket"
	for range 3 {
		for _, other := range []object{launch, purchase(1001), purchase(700)} {
			if got := ask("c1", other); !strings.HasPrefix(got, "denied") {
				t.Fatalf("%v: %s", other, got)
			}
		}
		s.settle(t)
		eventually(t, "the correlator has closed the denied calls", func() error {
			out := s.run(t, "calls", "--session", sess, "--state", "denied", "--json").want(t, 0).out
			if !strings.Contains(out, `"denied"`) {
				return errorf("%s", out)
			}
			return nil
		})
		if got := ask("c2", purchase(600)); got != tooExpensive {
			t.Fatalf("600 of 1000 are reserved and their receipt holds; 600 more: %s", got)
		}
	}
	if out := spent(t, s, id); !strings.Contains(out, `"settled_minor":0,"reserved_minor":600`) {
		t.Errorf("%s", out)
	}
	s.exact(t)
}

// TestAttackMoneyInParallel: 64 callers ask, ask again, are denied, report and
// run as they like; what an executor then runs is within the budget. It takes less
// than a minute, so that nothing is released meanwhile.
func TestAttackMoneyInParallel(t *testing.T) {
	t.Parallel()
	s := alone(t)
	info := s.info(t)
	g, err := guard.New(guard.Options{Tenant: info.Tenant, PublicKey: info.PublicKey})
	ok(t, err)
	const id, sess, callers, rounds = "aump_mnd_e2e_parallel", "s-parallel", 64, 6
	m := shopping(id)
	hash := mandateHash(m)
	s.run(t, "mandate", "put", mandateFile(t, m)).want(t, 0)
	r := s.runtime(t)
	eventually(t, "the mandate is in force", func() error {
		if got := evaluated(r.admit(t, "aump", underMandate(id, hash, purchase(0)), "Countersign-Session", sess)); got != "allowed" {
			return errorf("%s", got)
		}
		return nil
	})
	conns := make([]runtimeClient, 8)
	for i := range conns {
		conns[i] = s.runtime(t)
	}
	var mu sync.Mutex
	var allowed, ran, answers int
	var wg sync.WaitGroup
	for i := range callers {
		random, r := rand.New(rand.NewPCG(1, uint64(i))), conns[i%len(conns)]
		wg.Go(func() {
			for range rounds {
				call, amount := fmt.Sprintf("c%d", random.IntN(12)), []int{60, 90, 2000}[random.IntN(3)]
				action := purchase(amount)
				if random.IntN(4) == 0 {
					action["type"] = "launch_rocket"
				}
				a, err := r.ask("aump", underMandate(id, hash, action), "Countersign-Session", sess, "Countersign-Tool-Call-Id", call)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				answers++
				mu.Unlock()
				if a.body.text("decision") != "allowed" {
					continue
				}
				pre := preToolUse(sess, call, "buy_tea", action)
				run := g.Run(t.Context(), guard.Execution{
					Receipt: a.msg.Header.Get("Countersign-Receipt"), Key: a.msg.Header.Get("Countersign-Key"), Source: info.Roles["runtime"].Publisher,
					Session: sess, ToolCallID: call, Tool: "buy_tea", Arguments: action.bytes(),
				}, func(context.Context) error { return nil })
				mu.Lock()
				allowed++
				if run == nil {
					ran += amount
				}
				mu.Unlock()
				if run != nil && guard.Code(run) != guard.CodeUsed {
					t.Error(run)
				}
				if outcome := []string{"succeeded", "failed", ""}[random.IntN(3)]; outcome != "" {
					r.publish(t, postToolUse(pre).with("metadata.execution", object{"outcome": outcome}))
				}
			}
		})
	}
	wg.Wait()
	if answers != callers*rounds || allowed == 0 || ran == 0 || ran > 1000 {
		t.Errorf("%d answers, %d allowed; executors ran %d of 1000", answers, allowed, ran)
	}
	t.Logf("%d answers, %d allowed, %d of 1000 ran", answers, allowed, ran)
	s.exact(t)
}

// What failed is free again once no receipt can be used any more, with half a
// minute for slow clocks, and not before.
func TestMoneyIsFreeAfterTheReceipt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for receipts to expire")
	}
	s := start(t, "--policy", policyDir(t, "short.yaml", `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: short}
spec:
  expiresAfter: 2s
  rules:
    - {name: tea, when: 'tool == "buy_tea"', verdict: allow, reason: tea}
`))
	r := s.runtime(t)
	const id, sess = "aump_mnd_e2e_free", "s-free"
	m := shopping(id)
	hash := mandateHash(m)
	buy := func(call string, amount int) string {
		return evaluated(r.admit(t, "aump", underMandate(id, hash, purchase(amount)), "Countersign-Session", sess, "Countersign-Tool-Call-Id", call))
	}
	s.run(t, "mandate", "put", mandateFile(t, m)).want(t, 0)
	eventually(t, "the mandate is in force", func() error {
		if got := buy("c1", 600); got != "allowed" {
			return errorf("%s", got)
		}
		return nil
	})
	asked := time.Now()
	r.publish(t, postToolUse(preToolUse(sess, "c1", "buy_tea", purchase(600))).with("metadata.execution", object{"outcome": "failed"}))
	s.settle(t)
	eventually(t, "the money is free", func() error {
		switch got := buy("c2", 600); got {
		case "allowed":
			return nil
		case tooExpensive:
			return errorf("%s", got)
		default:
			t.Fatal(got)
			return nil
		}
	})
	if after := time.Since(asked); after < 30*time.Second {
		t.Errorf("free after %s", after)
	}
	s.exact(t)
}
