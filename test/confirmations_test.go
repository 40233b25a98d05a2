package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// transfer is an invocation that cannot be undone.
func transfer(session, call string) object {
	return aaepEvent(session, "tool.invoked", object{"tool": "transfer", "tool_call_id": call, "risk_level": "high", "irreversible": true})
}

// question asks the user about a call.
func question(session, token, call string, seconds int) object {
	return aaepEvent(session, "awaiting.confirmation", object{
		"urgency": "critical", "action": "Transfer 100 EUR", "consequence": "The money is gone.", "reply_token": token, "timeout_seconds": seconds,
		"default_decision": "reject", "irreversible": true, "risk_level": "high", "extra_context": object{"tool_call_id": call},
	})
}

func reply(token, decision string) object {
	return object{"type": "confirmation.reply", "reply_token": token, "decision": decision, "subscription_id": "sub_1", "timestamp": now()}
}

// A user's confirmation, from the log alone: needed for what cannot be undone,
// good for one allow, given in time or not at all (AAEP-C-100 to C-105).
func TestConfirmations(t *testing.T) {
	t.Parallel()
	policies := policyDir(t, "all.yaml", policyText("all", "*", "allow"))
	s := start(t, "--policy", policies)
	r, db := s.runtime(t), s.auditors(t)
	sess := aaepSession("confirmations")
	answered := func(token, decision string) uint64 {
		return r.put(t, r.subject("aaep", "", "confirmation.reply"), reply(token, decision).bytes())
	}
	want := func(call, verdict string, codes ...string) answer {
		t.Helper()
		a := r.admit(t, "aaep", transfer(sess, call).bytes())
		var got []string
		for _, c := range reasons(a.body) {
			if strings.HasPrefix(c, "confirmation_") {
				got = append(got, c)
			}
		}
		if a.verdict != verdict || !slices.Equal(got, codes) {
			t.Errorf("%s: %s %v, want %s %v", call, a.verdict, got, verdict, codes)
		}
		return a
	}
	r.publish(t, aaepEvent(sess, "session.started", nil))
	want("call_none", "ask", "confirmation_required")

	r.publish(t, question(sess, "rpl_yes", "call_yes", 300))
	eventually(t, "the question is known", func() error {
		a := r.admit(t, "aaep", transfer(sess, "call_yes").bytes())
		if codes := reasons(a.body); a.verdict != "ask" || !slices.Contains(codes, "confirmation_pending") {
			return errorf("%s %v", a.verdict, codes)
		}
		return nil
	})
	answerSeq := answered("rpl_yes", "accept")
	a := want("call_yes", "allow", "confirmation_accepted")
	want("call_yes", "ask", "confirmation_required", "confirmation_used")
	want("call_other", "ask", "confirmation_required")
	if a.seq <= answerSeq {
		t.Errorf("decided at %d on an answer at %d", a.seq, answerSeq)
	}

	r.publish(t, question(sess, "rpl_no", "call_no", 300))
	answered("rpl_no", "reject")
	want("call_no", "deny", "confirmation_declined")

	late := r.publish(t, question(sess, "rpl_late", "call_late", 1))
	asked := atSeq(t, db, late).BrokerTime
	eventually(t, "its time is over", func() error {
		if left := time.Until(asked.Add(time.Second)); left > 0 {
			return errorf("%v are left", left)
		}
		return nil
	})
	forged := reply("rpl_late", "accept").with("timestamp", asked.UTC().Format("2006-01-02T15:04:05.000Z"))
	r.put(t, r.subject("aaep", "", "confirmation.reply"), forged.bytes())
	answered("rpl_late", "accept")
	want("call_late", "ask", "confirmation_required", "confirmation_expired")

	// What was confirmed and allowed breaks no rule; what was not does.
	for _, call := range []string{"call_yes", "call_none"} {
		r.publish(t, transfer(sess, call))
		r.publish(t, completed(sess, call, "transfer"))
	}
	s.settle(t)
	var grave []string
	for _, row := range evidence(t, db, "kind = 'finding' AND session = ?", sess) {
		f := row.body(t)
		if f.text("rule") == "AAEP-C-100" && f.text("severity") != "info" {
			grave = append(grave, f.text("tool_call_id"))
		}
	}
	if !slices.Equal(grave, []string{"call_none"}) {
		t.Errorf("AAEP-C-100 of %v, want call_none alone", grave)
	}
	s.exact(t)
	s.verified(t, 0)

	// A restart forgets nothing.
	ok(t, s.stop())
	s = startIn(t, s.dir, "--policy", policies)
	r = s.runtime(t)
	want("call_yes", "ask", "confirmation_required", "confirmation_used")
	want("call_no", "deny", "confirmation_declined")
}

// Published by the tool, an answer reaches the admitter as well.
func TestConfirmationByCommand(t *testing.T) {
	t.Parallel()
	s := start(t, "--policy", policyDir(t, "all.yaml", policyText("all", "*", "allow")))
	sess := aaepSession("command")
	dir := t.TempDir()
	file := func(name string, docs ...object) string {
		var lines []string
		for _, d := range docs {
			lines = append(lines, string(d.bytes()))
		}
		path := filepath.Join(dir, name)
		ok(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
		return path
	}
	request := file("request.json", transfer(sess, "call_1"))
	s.run(t, "admit", "--protocol", "aaep", request).want(t, 3)
	s.run(t, "publish", "--protocol", "aaep", file("session.jsonl",
		aaepEvent(sess, "session.started", nil), question(sess, "rpl_1", "call_1", 300), reply("rpl_1", "accept"))).want(t, 0)
	out := s.run(t, "admit", "--protocol", "aaep", request).want(t, 0)
	var d object
	ok(t, json.Unmarshal([]byte(out.out), &d))
	if !slices.Contains(reasons(d), "confirmation_accepted") {
		t.Error(out.out)
	}
	s.run(t, "admit", "--protocol", "aaep", request).want(t, 3)
}
