package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// untilVerdict asks until the verdict is the one that a pushed set gives.
func untilVerdict(t *testing.T, r runtimeClient, verdict string, ask func(n int) object) (a answer) {
	t.Helper()
	n := 0
	eventually(t, "verdict "+verdict, func() error {
		n++
		if a = r.admit(t, "agenthook", ask(n).bytes()); a.verdict == verdict {
			return nil
		}
		return errorf("verdict %s", a.verdict)
	})
	return a
}

// member gives a value of any kind as text, "" if it is not there.
func member(o object, path string) string {
	var v any = map[string]any(o)
	for _, k := range strings.Split(path, ".") {
		m, _ := v.(map[string]any)
		if v = m[k]; v == nil {
			return ""
		}
	}
	return fmt.Sprint(v)
}

// jsonLines decodes what a command printed.
func jsonLines(t *testing.T, text string) (list []object) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var o object
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		list = append(list, o)
	}
	return list
}

// explained runs explain and demands that the decision replays to the same.
func explained(t *testing.T, s *system, id string) object {
	t.Helper()
	x := jsonLines(t, s.run(t, "explain", "--json", id).want(t, 0).out)[0]
	if member(x, "decision.decision_id") != id || member(x, "replay.same") != "true" || member(x, "signature.valid") != "true" || member(x, "signature.vouched") != "true" {
		t.Fatalf("explained: %v", x)
	}
	return x
}

// A candidate is simulated against what was asked, put in force, and taken back:
// the simulation says what the push does, and after the rollback everything is
// decided as before. Every decision on the way can be made again from the log.
func TestPolicyIsChangedSafely(t *testing.T) {
	t.Parallel()
	limited := func(most int) string {
		return policyText("letters", "send_letter", "allow") + fmt.Sprintf("    - name: many\n      when: 'true'\n      limit: {max: %d, per: 24h}\n      verdict: deny\n      reason: too_many\n", most)
	}
	s := start(t, "--policy", policyDir(t, "rockets.yaml", policyText("rockets", "launch_rocket", "allow"), "files.yaml", policyText("files", "write_file", "allow"), "letters.yaml", limited(2)))
	r := s.runtime(t)
	ask := func(stage string) func(int) object {
		return func(n int) object { return unknownCall("s-change", fmt.Sprint("call-", stage, "-", n)) }
	}
	allowed := untilVerdict(t, r, "allow", ask("first"))
	file := r.admit(t, "agenthook", allowedCall("s-change", "call-file").bytes())
	denied := r.admit(t, "agenthook", deniedCall("s-change", "call-db").bytes())
	if file.verdict != "allow" || denied.verdict != "deny" {
		t.Fatalf("verdicts %s and %s by the first set", file.verdict, denied.verdict)
	}

	candidate := policyDir(t, "rockets.yaml", policyText("rockets", "launch_rocket", "deny"), "files.yaml", policyText("files", "write_file", "allow"), "letters.yaml", limited(2))
	lines := jsonLines(t, s.run(t, "policy", "simulate", "--json", "--since", "1h", candidate).want(t, 0).out)
	changed, sum := lines[:len(lines)-1], lines[len(lines)-1]
	if len(changed) != 1 || member(changed[0], "decision_id") != allowed.id || member(changed[0], "old") != "allow" || member(changed[0], "new") != "deny" ||
		member(sum, "summary.changed") != "1" || member(sum, "summary.decisions") != "3" || member(sum, "summary.cannot_be_replayed") != "0" {
		t.Fatalf("simulated: %v", lines)
	}
	s.run(t, "policy", "simulate", "--exit-code", candidate).want(t, 1)
	for n := range 6 {
		r.admit(t, "agenthook", preToolUse("s-change", fmt.Sprint("call-letter-", n), "send_letter", object{"n": n}).bytes())
	}
	more := policyDir(t, "rockets.yaml", policyText("rockets", "launch_rocket", "allow"), "files.yaml", policyText("files", "write_file", "allow"), "letters.yaml", limited(4))
	lines = jsonLines(t, s.run(t, "policy", "simulate", "--json", more).want(t, 0).out)
	if sum := lines[len(lines)-1]; member(sum, "summary.changed") != "2" || member(sum, "summary.cannot_be_replayed") != "0" {
		t.Errorf("a limit of 4 in place of 2, over 6 letters: %v", lines)
	}

	if out := s.run(t, "policy", "push", "--dry-run", candidate).want(t, 0).out; !strings.Contains(out, "nothing was changed") {
		t.Errorf("dry run: %s", out)
	}
	if diff := s.run(t, "policy", "diff", candidate).want(t, 0).out; !strings.Contains(diff, "+      verdict: deny") {
		t.Errorf("diff: %s", diff)
	}
	s.run(t, "policy", "push", "--author", "alice", "--message", "no rockets", candidate).want(t, 0)
	nowDenied := untilVerdict(t, r, "deny", ask("second"))
	if again := s.run(t, "policy", "push", candidate).want(t, 0).out; !strings.Contains(again, "nothing to change") {
		t.Errorf("pushed twice: %s", again)
	}

	past := history(t, s)
	if len(past) != 2 || member(past[1], "author") != "alice" || member(past[1], "message") != "no rockets" || member(past[1], "in_force") != "true" || member(past[0], "in_force") != "false" {
		t.Fatalf("history: %v", past)
	}
	first := member(past[0], "revision")
	s.run(t, "policy", "rollback", "--to", first, "--author", "bob").want(t, 0)
	after := untilVerdict(t, r, "allow", ask("third"))
	if past = history(t, s); len(past) != 3 || member(past[2], "rollback_to") != first || member(past[2], "digest") != member(past[0], "digest") {
		t.Fatalf("history: %v", past)
	}
	if diff := s.run(t, "policy", "diff", "--revision", first).want(t, 0).out; !strings.Contains(diff, "no difference") {
		t.Errorf("after the rollback: %s", diff)
	}

	for id, by := range map[string]string{allowed.id: "countersign", file.id: "countersign", denied.id: "countersign", nowDenied.id: "alice", after.id: "bob"} {
		if x := explained(t, s, id); member(x, "policies.author") != by {
			t.Errorf("%s was decided by policies of %s, not %s", id, member(x, "policies.author"), by)
		}
	}
	x := explained(t, s, nowDenied.id)
	reasons := x["reasons"].([]any)
	if rule := object(reasons[0].(map[string]any)); member(rule, "rule.policy") != "rockets" || member(rule, "rule.when") != "true" || member(rule, "rule.verdict") != "deny" {
		t.Errorf("reasons: %v", reasons)
	}
	recordsOfPolicies(t, s, "countersign", "alice", "bob")
	s.exact(t)
	s.verified(t, 0)
}

func history(t *testing.T, s *system) (list []object) {
	t.Helper()
	ok(t, json.Unmarshal([]byte(s.run(t, "policy", "history", "--json").want(t, 0).out), &list))
	return list
}

// recordsOfPolicies requires that evidence has the authors of the policy changes in order, each
// with the text in force from then on.
func recordsOfPolicies(t *testing.T, s *system, authors ...string) {
	t.Helper()
	eventually(t, "the changes are in evidence", func() error {
		var got []string
		for _, c := range evidence(t, s.auditors(t), "kind = 'control' AND subject = 'gov.control.GOV.policy'") {
			body := c.body(t)
			docs, _ := body["documents"].([]any)
			if len(docs) != 3 || !strings.Contains(fmt.Sprint(docs), "launch_rocket") {
				return errorf("a change with the documents %v", docs)
			}
			got = append(got, member(body, "author"))
		}
		if !slices.Equal(got, authors) {
			return errorf("authors %q", got)
		}
		return nil
	})
}

// What explain prints holds no argument, unless it is asked for the request.
func TestExplainKeepsArgumentsToItself(t *testing.T) {
	s := shared(t)
	a := s.runtime(t).admit(t, "agenthook", askedCall("s-explain", "call-secret").bytes())
	for _, args := range [][]string{{"explain", a.id}, {"explain", "--json", a.id}} {
		out := s.run(t, args...).want(t, 0).out
		if strings.Contains(out, "marker-call-secret") || strings.Contains(out, "newspaper.example") {
			t.Errorf("%v prints arguments:\n%s", args, out)
		}
		if !strings.Contains(out, "external_recipient") {
			t.Errorf("%v does not say why:\n%s", args, out)
		}
	}
	out := s.run(t, "explain", "--show-request", a.id).want(t, 0).out
	if !strings.Contains(out, "marker-call-secret") || !strings.Contains(out, "raw arguments") {
		t.Errorf("with the request:\n%s", out)
	}
	s.run(t, "explain", "01a1f875-4fa9-7406-990a-133a994cbdf3").want(t, 1).oneLine(t, "the log has no such decision")
}

// Of two concurrent pushes one fails: neither overwrites the other unseen.
func TestPolicyPushIsCompareAndSet(t *testing.T) {
	t.Parallel()
	s := start(t)
	one, two := policyDir(t, "a.yaml", policyText("a", "one", "allow")), policyDir(t, "a.yaml", policyText("a", "two", "allow"))
	codes := make(chan result, 2)
	for _, dir := range []string{one, two} {
		go func() { codes <- s.run(t, "policy", "push", dir) }()
	}
	a, b := <-codes, <-codes
	// Either one came after the other and saw it, or it was refused.
	if a.code+b.code > 1 || a.code != 0 && !strings.Contains(a.err, "meanwhile") || b.code != 0 && !strings.Contains(b.err, "meanwhile") {
		t.Errorf("exit %d: %s; exit %d: %s", a.code, a.err, b.code, b.err)
	}
	if past := history(t, s); len(past) != 3-(a.code+b.code) {
		t.Errorf("history: %v", past)
	}
}

// The largest set that can be pushed decides, is in the log as it was written,
// and verifies; a larger one is refused before anything is changed.
func TestLargePolicySet(t *testing.T) {
	t.Parallel()
	s := start(t)
	large := func(bytes int) string {
		return policyDir(t, "rockets.yaml", policyText("rockets", "launch_rocket", "allow")+strings.Repeat("# "+strings.Repeat("x", 77)+"\n", bytes/80))
	}
	s.run(t, "policy", "push", large(800<<10)).want(t, 1).oneLine(t, "the set of policies is too large", "bytes in 1 files")
	if past := history(t, s); len(past) != 1 {
		t.Errorf("history: %v", past)
	}
	s.run(t, "policy", "push", large(740<<10)).want(t, 0)
	a := untilVerdict(t, s.runtime(t), "allow", func(n int) object { return unknownCall("s-large", fmt.Sprint("call-", n)) })
	explained(t, s, a.id)
	s.exact(t)
	s.verified(t, 0)
}
