package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/aioc"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

const preamble = "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: "

func trial(action string) string {
	return "---\n" + preamble + "trial}\nspec:\n  validationActions: [" + action + "]\n  rules:\n" +
		"    - {name: no, when: 'true', verdict: deny, reason: policy_error, message: 'Soon no more.'}\n"
}

const allowing = preamble + "p}\nspec:\n  rules:\n    - {name: a, when: 'event_type == \"PreToolUse\"', verdict: allow, reason: fine}\n"

func TestTrialsAreKeptAndDecideNothing(t *testing.T) {
	for action, reason := range map[string]string{"audit": "allowed_by_policy", "warn": "allowed_by_policy; warning: Soon no more."} {
		out := Decide(request(agenthook.Name, preToolUse), compiled(t, allowing+trial(action)), inputs())
		last := out.Decision.Reasons[len(out.Decision.Reasons)-1]
		if out.Decision.Verdict != events.Allow || last.Action != action || last.WouldVerdict != events.Deny || last.Policy != "trial/no" || out.Decision.Policy.Name != "p" {
			t.Errorf("%s: %+v", action, out.Decision)
		}
		if got := replyOf(t, out)["reason"]; got != reason {
			t.Errorf("%s: %v", action, got)
		}
		if warns := len(out.Warnings()) > 0; warns != (action == "warn") {
			t.Errorf("%s: %v", action, out.Warnings())
		}
		// A refusal says why it is one, whatever a trial says.
		refused := Decide(request(agenthook.Name, preToolUse), compiled(t, strings.Replace(allowing, "PreToolUse", "Other", 1)+trial(action)), inputs())
		if got := replyOf(t, refused)["reason"]; refused.Decision.Verdict != events.Deny || got != policy.CodeNoMatch {
			t.Errorf("%s: %v", action, got)
		}
	}
}

// However many policies warn, and in whatever script, the warnings leave a client room for the other headers.
func TestWarningsAreBounded(t *testing.T) {
	for many, long := range map[int]int{1: 1000, 10: 1000, 16: 1, 17: 1, 200: 1} {
		var policies strings.Builder
		for n := range many {
			fmt.Fprintf(&policies, "---\n%sw%d}\nspec:\n  validationActions: [warn]\n  rules: [{name: no, when: 'true', verdict: deny, reason: no, message: '%d %s'}]\n", preamble, n, n, strings.Repeat("試", long))
		}
		out := Decide(request(agenthook.Name, preToolUse), compiled(t, allowing+policies.String()), inputs())
		warnings := out.Warnings()
		told, more := len(warnings), 0
		if n, err := fmt.Sscanf(warnings[told-1], "and %d more", &more); n == 1 && err == nil {
			told--
		}
		if size := len(strings.Join(warnings, "")); told == 0 || told > 16 || told+more != many || size > 5000 || told < 16 && size+3*long < 4000 && more > 0 {
			t.Errorf("of %d: %d, and %d more, of %d bytes", many, told, more, size)
		}
		if reason := replyOf(t, out)["reason"]; strings.Count(reason.(string), "試") != many*long {
			t.Errorf("of %d: %v", many, reason)
		}
	}
}

// A trial's reason has a code that aioc takes for a failure of the policies, and
// must not be taken for one.
func TestTrialsDoNotFailAGate(t *testing.T) {
	body := `{"agentName":"A","toolName":"lookup","rawArguments":"{}","parsedArguments":{},"runContext":{"context":{}},"turn":1}`
	plain := Decide(request(aioc.NameTool, body), compiled(t, strings.Replace(allowing, `event_type == "PreToolUse"`, "true", 1)), inputs())
	with := Decide(request(aioc.NameTool, body), compiled(t, strings.Replace(allowing, `event_type == "PreToolUse"`, "true", 1)+trial("audit")), inputs())
	a, b := replyOf(t, plain), replyOf(t, with)
	if plain.Decision.Verdict != events.Allow || with.Decision.Verdict != events.Allow || a["reason"] != b["reason"] {
		t.Errorf("%v, with a trial %v", a, b)
	}
}

// Where a protocol's own evaluator decides, silence with a trial is silence.
func TestTrialsBesideAnotherEvaluator(t *testing.T) {
	silent := strings.Replace(allowing, "PreToolUse", "Other", 1)
	out := Decide(aanaRequest(confirmedWrite), compiled(t, silent+trial("audit")), inputs())
	last := out.Decision.Reasons[len(out.Decision.Reasons)-1]
	if out.Decision.Verdict != events.Allow || last.Action != "audit" || replyOf(t, out)["route"] != "accept" {
		t.Errorf("%s %+v", codes(out), last)
	}
}

type counter int64

func (k counter) Total(string, time.Duration, time.Time) (int64, bool) { return int64(k), true }

func TestWhatIsCountedIsRecordedAndTaken(t *testing.T) {
	limits := preamble + "p}\nspec:\n  rules:\n    - {name: a, when: 'true', verdict: allow, reason: fine}\n" +
		"    - {name: b, when: 'true', limit: {max: 5, per: 1m, by: [session]}, verdict: deny, reason: enough}\n"
	for total, want := range map[counter]string{4: "allow fine", 5: "deny fine enough"} {
		in := inputs()
		in.Counters = total
		out := Decide(request(agenthook.Name, preToolUse), compiled(t, limits), in)
		d := out.Decision
		if codes(out) != want || len(d.Counts) != 1 || d.Counts[0].Total != int64(total) || strings.Contains(d.Counts[0].Key, "s1") {
			t.Errorf("%s %+v", codes(out), d.Counts)
		}
		if took := len(out.Consumption.Counts) == 1; took != (d.Verdict == events.Allow) {
			t.Errorf("%s takes %+v", d.Verdict, out.Consumption.Counts)
		}
		// The record is enough to make the decision again.
		in.Counters = policy.RecordedTotals(d.Counts)
		again := Decide(request(agenthook.Name, preToolUse), compiled(t, limits), in)
		if codes(again) != want || !slices.Equal(again.Decision.Counts, d.Counts) {
			t.Errorf("again: %s", codes(again))
		}
	}
	out := Decide(request(agenthook.Name, preToolUse), compiled(t, limits), inputs())
	if codes(out) != "deny fine counter_unavailable" || replyOf(t, out)["reason"] == nil {
		t.Errorf("without counters: %s", codes(out))
	}
	// Offline there is no state, and so nothing was counted before.
	line := EvaluateLine([]byte(preToolUse), Offline{Protocol: agenthook.Name, Now: noon, Config: compiled(t, limits)})
	if !strings.HasPrefix(string(line), `{"verdict":"allow"`) {
		t.Errorf("%s", line)
	}
}

// A trial of a limit refuses nothing while its total is not known: the count is recorded, and takes nothing.
func TestTrialOfALimitThatIsNotKnown(t *testing.T) {
	limit := "---\n" + preamble + "trial}\nspec:\n  validationActions: [audit]\n  rules:\n" +
		"    - {name: b, when: 'true', limit: {max: 5, per: 1m}, verdict: deny, reason: enough}\n"
	for mode, config := range map[string]*Config{"enforce": compiled(t, allowing+limit), "observe": observing(compiled(t, allowing+limit))} {
		for name, counters := range map[string]policy.Counters{"no totals": nil, "not known": policy.Totals{}, "known": counter(2)} {
			in := inputs()
			in.Counters = counters
			out := Decide(request(agenthook.Name, preToolUse), config, in)
			if takes := len(out.Consumption.Counts); out.Decision.Verdict != events.Allow || len(out.Decision.Counts) != 1 || takes == 1 != (name == "known") {
				t.Errorf("%s, %s: %s takes %d, records %+v", mode, name, out.Decision.Verdict, takes, out.Decision.Counts)
			}
		}
	}
}

// Lint names exactly the protocols of which the own evaluator decides where no rule matches.
func TestLintKnowsTheEvaluators(t *testing.T) {
	text := preamble + "p}\nspec:\n  match: {protocols: [agenthook]}\n  rules:\n    - {name: a, when: 'tool == \"x\"', verdict: allow, reason: fine}\n"
	found := policy.Lint([]policy.Document{{Name: "p", Data: []byte(text)}})
	if len(found) != 1 || found[0].Code != policy.LintEvaluatorAlone {
		t.Fatalf("%+v", found)
	}
	_, list, _ := strings.Cut(found[0].Message, "protocols ")
	list, _, _ = strings.Cut(list, ":")
	for name, p := range protocols {
		if named := slices.Contains(strings.Split(list, ", "), name); named != p.HasNativeEvaluator() {
			t.Errorf("%s is named: %v, in %q", name, named, list)
		}
	}
}
