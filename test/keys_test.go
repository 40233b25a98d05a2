package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/client/guard"
)

// keyDir is where `up` keeps the keys.
func (s *system) keyDir() string { return filepath.Join(s.data, "keys") }

// kid names the key that signed an answer's receipt.
func (a answer) kid() string {
	var k object
	_ = json.Unmarshal([]byte(a.msg.Header.Get("Countersign-Key")), &k)
	return k.text("kid")
}

// listed reads `countersign keys list`.
func (s *system) listed(t testing.TB) map[string]object {
	t.Helper()
	list := map[string]object{}
	for _, line := range strings.Split(strings.TrimSpace(s.run(t, "keys", "list", "--json").want(t, 0).out), "\n") {
		var k object
		ok(t, json.Unmarshal([]byte(line), &k))
		list[k.text("kid")] = k
	}
	return list
}

// A receipt key is rotated while runtimes send requests: no service is restarted, every request
// is answered, the receipts of both keys verify, and so does everything in the log.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	s := start(t)
	heard := listen(t, s, "gov.findings.acme.>")
	r := s.runtime(t)
	before := r.admit(t, "agenthook", allowedCall("s-rotate", "before").bytes())
	pids := s.info(t).PIDs

	type asked struct {
		request object
		answer  answer
	}
	var mu sync.Mutex
	var all []asked
	load, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	for n := range 4 {
		one := s.runtime(t)
		wg.Go(func() {
			for i := 0; load.Err() == nil; i++ {
				request := allowedCall(fmt.Sprint("s-rotate-", n), fmt.Sprint("c", i))
				a, err := one.ask("agenthook", request.bytes())
				if err != nil || a.verdict != "allow" {
					t.Errorf("%s: %v", a.verdict, err)
					return
				}
				mu.Lock()
				all = append(all, asked{request, a})
				mu.Unlock()
			}
		})
	}
	loaded := func(keys int) { // the requests so far were signed by so many keys
		eventually(t, fmt.Sprint("requests under way are signed by keys: ", keys), func() error {
			mu.Lock()
			defer mu.Unlock()
			by := map[string]bool{}
			for _, a := range all {
				by[a.answer.kid()] = true
			}
			if len(by) < keys {
				return fmt.Errorf("%v", by)
			}
			return nil
		})
	}
	loaded(1)
	out := tool(t, "keys", "rotate", "--keys", s.keyDir()).want(t, 0).out
	if !strings.Contains(out, before.kid()) {
		t.Errorf("the key that it replaces is not named:\n%s", out)
	}
	eventually(t, "another key signs", func() error {
		if kid := r.admit(t, "agenthook", allowedCall("s-rotate", "after").bytes()).kid(); kid == before.kid() {
			return fmt.Errorf("%s still signs", kid)
		}
		return nil
	})
	loaded(2)
	stop()
	wg.Wait()

	by := map[string]int{}
	for _, a := range all {
		by[a.answer.kid()]++
		checkReceipt(t, s, "agenthook", a.request, a.answer)
	}
	if len(by) != 2 || by[before.kid()] == 0 {
		t.Errorf("receipts by key: %v", by)
	}
	for name, pid := range s.info(t).PIDs {
		if pids[name] != pid {
			t.Errorf("%s was restarted", name)
		}
	}
	s.exact(t)
	if n := number(t, s.auditors(t), "SELECT count() FROM evidence WHERE subject = 'gov.control.GOV.key'"); n != 2 {
		t.Errorf("%d key records on the log", n)
	}
	for _, m := range heard() {
		if strings.Contains(string(m.Data), "forged_record") {
			t.Errorf("%s", m.Data)
		}
	}
	s.verified(t, 0)
	// A session that saw both keys: alone, and as a bundle that leaves the house.
	s.verified(t, 0, "--session", "s-rotate")
	bundle := filepath.Join(t.TempDir(), "session.zip")
	s.run(t, "export", "--session", "s-rotate", "--out", bundle).want(t, 0)
	tool(t, "verify", "--bundle", bundle, "--key", s.info(t).PublicKey).want(t, 0)
	if list := s.listed(t); len(list) != 2 || list[before.kid()]["vouched"] != true || list[before.kid()]["retired_at"] != nil {
		t.Errorf("keys list: %v", list)
	}
}

// A retired key is no longer believed by an executor that was told, and shows as
// retired everywhere; the key that signs cannot be retired.
func TestKeyRetirement(t *testing.T) {
	t.Parallel()
	s := start(t)
	nc := s.connect(t, "runtime")
	c := sdk(t, s, nc)
	call, args := sdkCall(allowedCall("s-retire", "c1"))
	v := c.Admit(context.Background(), call)
	old := s.runtime(t).admit(t, "agenthook", allowedCall("s-retire", "c0").bytes()).kid()
	tool(t, "keys", "retire", "--keys", s.keyDir(), old).want(t, 1).oneLine(t, "signs at present", "keys rotate")
	tool(t, "keys", "retire", "--keys", s.keyDir(), "0123456789abcdef").want(t, 1).oneLine(t, "--foreign")
	tool(t, "keys", "rotate", "--keys", s.keyDir()).want(t, 0)
	tool(t, "keys", "retire", "--keys", s.keyDir(), old).want(t, 0)
	eventually(t, "the retirement is published", func() error {
		if k := s.listed(t)[old]; k.text("retired_at") == "" {
			return fmt.Errorf("%v", k)
		}
		return nil
	})
	s.settle(t)
	if n := number(t, s.auditors(t), "SELECT count() FROM evidence WHERE subject = 'gov.control.GOV.key_retired' AND position(record, ?) > 0", old); n != 1 {
		t.Errorf("%d retirements on the log", n)
	}
	s.exact(t)
	s.verified(t, 0)

	if people := s.run(t, "keys", "list").want(t, 0).out; strings.Count(people, "retired") != 1 || strings.Count(people, "vouched") != 1 {
		t.Errorf("keys list:\n%s", people)
	}
	// The executor: until it is told, what the old key signed holds.
	ok(t, c.Guard().Check(v.Execution(args)))
	retirement, err := os.ReadFile(filepath.Join(s.keyDir(), "retired-"+old+".json"))
	ok(t, err)
	ok(t, c.Guard().Trust(retirement))
	if err := v.Permits(args); guard.Code(err) != "receipt_key_retired" {
		t.Errorf("%v", err)
	}
	again := c.Admit(context.Background(), call)
	ok(t, again.Permits(args))
}

// admit believes an allow only if its receipt verifies and binds the request.
func TestAdmitCommandChecksReceipts(t *testing.T) {
	t.Parallel()
	s := start(t)
	info := s.info(t)
	runtime := info.Roles["runtime"]
	key := filepath.Join(s.keyDir(), "checkpoint.pub")
	foreign := t.TempDir()
	tool(t, "provision", "--keys", foreign).want(t, 0)
	direct := []string{"admit", "--protocol", "agenthook", "--timeout", "1m", "--server", info.NATSURL, "--user", runtime.User, "--password", runtime.Password,
		"--inbox-prefix", runtime.InboxPrefix}
	with := func(call object, flags ...string) []string {
		return append(append(append([]string{}, direct...), flags...), file(t, call.bytes()))
	}
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"allow without a key", with(allowedCall("s-cli-r", "c1")), 1, "--key"},
		{"allow with the key", with(allowedCall("s-cli-r", "c2"), "--key", key), 0, ""},
		{"allow with the key as text", with(allowedCall("s-cli-r", "c3"), "--key", info.PublicKey), 0, ""},
		{"allow with another installation's key", with(allowedCall("s-cli-r", "c4"), "--key", filepath.Join(foreign, "checkpoint.pub")), 1, "key that is not known"},
		{"allow, insecurely", with(allowedCall("s-cli-r", "c5"), "--insecure-no-receipt"), 0, ""},
		{"ask without a key", with(askedCall("s-cli-r", "c6")), 3, ""},
		{"deny without a key", with(deniedCall("s-cli-r", "c7")), 4, ""},
		{"an event that proposes nothing", with(hook("s-cli-r", "SessionStart")), 0, ""},
		{"a file that is not there", with(allowedCall("s-cli-r", "c8"), "--key", "/absent"), 2, "/absent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := tool(t, tc.args...).want(t, tc.code)
			if tc.says != "" {
				r.oneLine(t, tc.says)
			}
			if printed := r.out != ""; printed == (tc.code == 1 || tc.code == 2) {
				t.Errorf("standard output: %s", r.out)
			}
		})
	}
	t.Run("aaep", func(t *testing.T) {
		s.run(t, "admit", "--timeout", "1m", "--protocol", "aaep", file(t, invoked("sess_clir", "call_1", "find_flights").bytes())).want(t, 0)
	})
	t.Run("impostor", func(t *testing.T) { admitBelievesNoImpostor(t, s) })
}

// admitBelievesNoImpostor lets an impostor with the admitter's password, but not its key, answer:
// without a receipt, and with the receipt of another call.
func admitBelievesNoImpostor(t *testing.T, s *system) {
	t.Helper()
	genuine := s.runtime(t).admit(t, "agenthook", allowedCall("s-cli-i", "c1").bytes())
	release := s.holdDown(t, "admitter")
	defer release()
	thief := s.service(t, "admitter")
	var answered int
	var mu sync.Mutex
	for range 9 { // the one that is held down is in the group as well
		_, err := thief.QueueSubscribe("gov.admit.>", "admitter", func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			h := nats.Header{"Countersign-Verdict": {"allow"}, "Countersign-Decision-Id": {"x"}}
			if answered++; answered%2 == 0 {
				h = genuine.msg.Header
			}
			_ = m.RespondMsg(&nats.Msg{Header: h, Data: []byte(`{"decision":"allow"}`)})
		})
		ok(t, err)
	}
	ok(t, thief.Flush())
	request := file(t, allowedCall("s-cli-i", "c2").bytes())
	eventually(t, "the impostor has answered twice", func() error {
		r := s.run(t, "admit", "--protocol", "agenthook", "--timeout", "2s", request).want(t, 1)
		if r.oneLine(t, "deny"); r.out != "" {
			t.Fatalf("printed %s", r.out)
		}
		mu.Lock()
		defer mu.Unlock()
		if answered < 2 {
			return fmt.Errorf("%d answers", answered)
		}
		return nil
	})
}
