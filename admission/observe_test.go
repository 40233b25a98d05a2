package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// observing is a configuration in mode observe for tenant acme.
func observing(s *Config) *Config {
	out := Config{}
	if s != nil {
		out = *s
	}
	out.Observed = map[string]bool{"acme": true}
	return &out
}

// What policies refuse is let pass and is on record; nothing else changes.
func TestObserveDecisionTable(t *testing.T) {
	irreversible := edit(t, toolInvoked, `"tool":`, `"irreversible":true,"tool":`)
	human := edit(t, preToolUse, `"metadata":{`, `"metadata":{"risk":{"risk_class":"write","requires_human_approval":true},`)
	for name, c := range map[string]struct {
		protocol, body string
		snap           *Config
		want           string // verdict, would, codes of reasons
		reply          string // reason of the reply
	}{
		"allow":                {agenthook.Name, preToolUse, allowAll(t), "allow would allow: ok", "allowed_by_policy"},
		"deny":                 {agenthook.Name, preToolUse, rules(t, "allow ok: true", "deny never: true"), "allow would deny: ok(observe allow) never(observe deny)", "not_enforced; warning: mode observe: the policies would give deny"},
		"ask":                  {agenthook.Name, preToolUse, rules(t, "ask hm: true"), "allow would ask: hm(observe ask)", "not_enforced; warning: mode observe: the policies would give ask"},
		"defer":                {agenthook.Name, preToolUse, rules(t, "defer hm: true"), "allow would defer: hm(observe defer)", "not_enforced; warning: mode observe: the policies would give defer"},
		"no match":             {agenthook.Name, preToolUse, rules(t, "allow ok: tool == 'x'"), "allow would deny: no_policy_match(observe deny)", "not_enforced; warning: mode observe: the policies would give deny"},
		"no policy":            {agenthook.Name, preToolUse, &Config{PolicyErr: policy.ErrNoPolicies}, "allow would deny: no_policy(observe deny)", "not_enforced; warning: mode observe: the policies would give deny"},
		"evaluation error":     {agenthook.Name, preToolUse, rules(t, "allow ok: args.nope == 1"), "allow would deny: policy_error(observe deny)", "not_enforced; warning: mode observe: the policies would give deny"},
		"broken file":          {agenthook.Name, preToolUse, &Config{PolicyErr: errors.New("p.yaml:1: no")}, "deny would : policy_error", "policy_error"},
		"deceptive tool":       {agenthook.Name, edit(t, preToolUse, "send_mail", `send\u0000mail`), allowAll(t), "deny would : invalid_tool_name", "invalid_tool_name"},
		"deceptive argument":   {agenthook.Name, edit(t, preToolUse, `"to"`, `"to\u200b"`), allowAll(t), "deny would : invalid_argument_name", "invalid_argument_name"},
		"malformed":            {agenthook.Name, "{", allowAll(t), "deny would : not_json", "not_json"},
		"claim of a human":     {agenthook.Name, human, rules(t, "deny no: true"), "ask would deny: human_approval_required profile_invalid profile_invalid no(observe deny)", "human_approval_required"},
		"aaep irreversible":    {aaep.Name, irreversible, rules(t, "deny no: true"), "ask would deny: confirmation_required no(observe deny)", ""},
		"aaep has no argument": {aaep.Name, toolInvoked, rules(t, "allow ok: args.to == 'x'"), "allow would deny: policy_error(observe deny)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := Decide(request(c.protocol, c.body), observing(c.snap), inputs())
			d := out.Decision
			got := fmt.Sprintf("%s would %s:", d.Verdict, d.Would)
			for _, r := range d.Reasons {
				got += " " + r.Code
				if r.Action != "" {
					got += "(" + r.Action + " " + string(r.WouldVerdict) + ")"
				} else if r.WouldVerdict != "" {
					t.Errorf("reason %+v says what it would be, and is enforced", r)
				}
			}
			if got != c.want || d.Mode != events.ModeObserve {
				t.Errorf("got  %s (mode %q)\nwant %s", got, d.Mode, c.want)
			}
			if reply := replyOf(t, out); c.reply != "" && reply["reason"] != c.reply {
				t.Errorf("the reply says %v, want %s", reply["reason"], c.reply)
			}
			if d.Verdict == events.Allow && (out.Claims.Mode != events.ModeObserve || d.ObservedOnly() != (d.Would != events.Allow)) {
				t.Errorf("an allow with claims %+v, observed only %v", out.Claims, d.ObservedOnly())
			}
			if enforced := Decide(request(c.protocol, c.body), c.snap, inputs()); enforced.Decision.Verdict != d.EnforcedVerdict() {
				t.Errorf("enforced %s, and the record says that it would be %s", enforced.Decision.Verdict, d.EnforcedVerdict())
			}
			noSecrets(t, out)
		})
	}
}

// In every protocol the reply of what is only observed is that of an allow, and the record is none
// of a permission: no policy is named as the one that gave it.
func TestObserveInEveryProtocol(t *testing.T) {
	m := courierMandate(t)
	for _, p := range proposals(m) {
		for _, verdict := range []events.Verdict{events.Allow, events.Ask, events.Defer, events.Deny} {
			t.Run(p.protocol+" "+string(verdict), func(t *testing.T) {
				out := p.decide(p.body, observing(gates(t, "verdict: "+string(verdict)+", reason: ok")), m)
				d := out.Decision
				if d.Verdict != events.Allow || d.Would != verdict || d.Approval != nil || out.Consumption.Approval != nil || out.NoReceipt {
					t.Errorf("%s, would %s, approval %v, no receipt %v", d.Verdict, d.Would, d.Approval, out.NoReceipt)
				}
				if named := d.Policy.Name != ""; named != (verdict == events.Allow) {
					t.Errorf("the record names policy %q", d.Policy.Name)
				}
				body, err := out.Reply()
				if err != nil {
					t.Fatal(err)
				}
				plain := p.decide(p.body, anything(t), m)
				allowed, err := plain.Reply()
				if err != nil {
					t.Fatal(err)
				}
				for _, word := range []string{`"decision":"allow"`, `"route":"accept"`, `"decision":"allowed"`, `"verdict":"allow"`} {
					if strings.Contains(string(allowed), word) != strings.Contains(string(body), word) {
						t.Errorf("the reply and that of an allow differ in %s:\n%s\n%s", word, body, allowed)
					}
				}
			})
		}
	}
}

// A caller cannot choose the mode: no header, member or name of its request does.
func TestNoCallerChoosesTheMode(t *testing.T) {
	never := rules(t, "deny never: true")
	bodies := map[string]string{
		"plain":             preToolUse,
		"member":            edit(t, preToolUse, `{"event_id"`, `{"mode":"observe","would":"allow","event_id"`),
		"metadata":          edit(t, preToolUse, `"metadata":{`, `"metadata":{"mode":"observe","countersign":{"mode":"observe"},`),
		"argument":          edit(t, preToolUse, `"n":1.0`, `"mode":"observe"`),
		"source":            edit(t, preToolUse, `"claude-code"`, `"observe"`),
		"evidence":          edit(t, preToolUse, `"pre_commit"`, `"observational"`),
		"another's session": edit(t, preToolUse, `"s1"`, `"observe"`),
	}
	header := map[string][]string{}
	for _, name := range []string{events.HeaderMode, "countersign-mode", "Countersign-Observe", "COUNTERSIGN-MODE", "mode"} {
		header[name] = []string{events.ModeObserve}
	}
	for name, body := range bodies {
		req := request(agenthook.Name, body)
		req.Header = header
		for which, snap := range map[string]*Config{
			"of an admitter that enforces":        never,
			"of one that observes another tenant": {Policies: never.Policies, Observed: map[string]bool{"globex": true, "ACME": true, "": true, "*": true}},
		} {
			out := Decide(req, snap, inputs())
			if d := out.Decision; d.Verdict != events.Deny || d.Mode != "" || d.Would != "" || out.Claims.Mode != "" {
				t.Errorf("%s, %s: verdict %s, mode %q, would %q", name, which, d.Verdict, d.Mode, d.Would)
			}
		}
	}
}

// A limit whose count is not known is a failure of the service, and refuses in every mode.
func TestObserveRefusesWhatIsNotKnown(t *testing.T) {
	limited := compiled(t, preamble+"p}\nspec:\n  rules:\n    - {name: a, when: 'true', verdict: allow, reason: fine}\n"+
		"    - {name: b, when: 'true', limit: {max: 5, per: 1h}, verdict: deny, reason: too_many}\n")
	out := Decide(request(agenthook.Name, preToolUse), observing(limited), inputs())
	if d := out.Decision; d.Verdict != events.Deny || d.Would != "" || !strings.Contains(codes(out), policy.CodeCounters) {
		t.Errorf("%s, would %q", codes(out), d.Would)
	}
}

// An observed allow counts, like every call that runs.
func TestObservedCallsCount(t *testing.T) {
	limited := compiled(t, preamble+"p}\nspec:\n  rules:\n    - {name: b, when: 'true', limit: {max: 5, per: 1h}, verdict: deny, reason: too_many}\n")
	in := inputs()
	in.Counters = policy.NoCounts{}
	if out := Decide(request(agenthook.Name, preToolUse), observing(limited), in); out.Decision.Verdict != events.Allow || len(out.Consumption.Counts) == 0 {
		t.Errorf("%s counts %v", codes(out), out.Consumption.Counts)
	}
}
