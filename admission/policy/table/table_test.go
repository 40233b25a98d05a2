package table

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/policy"
)

var now = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

const policies = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: mail}
spec:
  match: {tools: [send_email]}
  rules:
    - name: colleagues
      when: 'has(args.to) && args.to == "bob@acme.example"'
      verdict: allow
      reason: internal_recipient
    - name: strangers
      when: 'has(args.to) && args.to != "bob@acme.example"'
      verdict: ask
      reason: external_recipient
---
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: money}
spec:
  match: {tools: [pay]}
  rules:
    - name: too-much
      when: 'args.amout > 1000'
      verdict: deny
      reason: too_much
---
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: rate}
spec:
  match: {tools: [fetch]}
  rules:
    - name: read
      when: 'true'
      verdict: allow
      reason: read_only
    - name: often
      when: 'true'
      limit: {max: 10, per: 1h}
      verdict: deny
      reason: too_often
`

func options(t testing.TB) Options {
	t.Helper()
	set, err := policy.Compile([]policy.Document{{Name: "p.yaml", Data: []byte(policies)}})
	if err != nil {
		t.Fatal(err)
	}
	return Options{Policies: set, Now: now,
		File:     func(string) ([]byte, error) { return nil, os.ErrNotExist },
		Mandates: func(string) (mandate.Source, error) { return nil, os.ErrNotExist }}
}

const cases = `
defaults:
  protocol: tool
  headers: {Countersign-Session: s1, Countersign-Tool-Call-Id: c1}
cases:
`

// parsed reads a table of cases that are written below cases.
func parsed(t testing.TB, text string) Table {
	t.Helper()
	tab, err := Parse("t.yaml", []byte(cases+text))
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func TestRun(t *testing.T) {
	for _, c := range []struct{ name, text, problems string }{
		{"passes", `
  - {name: a, request: {agentName: a, turn: 1, toolName: send_email, parsedArguments: {to: bob@acme.example}}, expect: {verdict: allow, reasons: [internal_recipient], not: [external_recipient], rules: [mail/colleagues], policy: mail}}`, ""},
		{"another verdict", `
  - {name: a, request: {agentName: a, turn: 1, toolName: send_email, parsedArguments: {to: x}}, expect: {verdict: deny}}`, "verdict: want deny, got ask"},
		{"another reason", `
  - {name: a, request: {agentName: a, turn: 1, toolName: send_email, parsedArguments: {to: x}}, expect: {verdict: ask, reasons: [internal_recipient]}}`,
			"reasons: want internal_recipient, got external_recipient"},
		{"a reason that must not be", `
  - {name: a, request: {agentName: a, turn: 1, toolName: send_email, parsedArguments: {to: x}}, expect: {verdict: ask, not: [external_recipient]}}`,
			"reasons: external_recipient must not be among external_recipient"},
		{"another rule", `
  - {name: a, request: {agentName: a, turn: 1, toolName: send_email, parsedArguments: {to: x}}, expect: {verdict: ask, rules: [mail/colleagues]}}`,
			"rules: want mail/colleagues to match; those that matched: mail/strangers"},
		{"a rule that fails", `
  - {name: a, request: {agentName: a, turn: 1, toolName: pay, parsedArguments: {amount: 5000}}, expect: {verdict: deny, rules: [money/too-much]}}`,
			"rules: want money/too-much to match; it failed (policy_error)"},
		{"another policy", `
  - {name: a, request: {agentName: a, turn: 1, toolName: nothing, parsedArguments: {}}, expect: {verdict: deny, policy: mail}}`, "policy: want mail, got none"},
		{"a change", `
  - {name: a, request: {agentName: a, turn: 1, toolName: send_email, parsedArguments: {to: x}}, change: {/parsedArguments/to: bob@acme.example}, expect: {verdict: allow}}`, ""},
		{"a member taken out", `
  - {name: a, request: {agentName: a, turn: 1, toolName: send_email, parsedArguments: {to: x}}, change: {/parsedArguments/to: null}, expect: {verdict: deny, reasons: [no_policy_match]}}`, ""},
		{"a change of what is not JSON", `
  - {name: a, raw: 'no json', change: {/a: b}, expect: {verdict: deny}}`, "the request cannot be changed"},
		{"what is not JSON", `
  - {name: a, raw: 'no json', expect: {verdict: deny}}`, ""},
		{"a file that is not there", `
  - {name: a, file: nowhere.json, expect: {verdict: deny}}`, "reading the request: file does not exist"},
		{"mandates that are not there", `
  - {name: a, mandates: nowhere, request: {}, expect: {verdict: deny}}`, "file does not exist"},
		{"below the limit", `
  - {name: a, counted: 9, request: {agentName: a, turn: 1, toolName: fetch, parsedArguments: {}}, expect: {verdict: allow}}`, ""},
		{"beyond the limit", `
  - {name: a, counted: 10, request: {agentName: a, turn: 1, toolName: fetch, parsedArguments: {}}, expect: {verdict: deny, reasons: [too_often]}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Run(parsed(t, c.text), options(t))[0]
			if got := strings.Join(r.Mismatches, "; "); c.problems == "" && got != "" || !strings.Contains(got, c.problems) || r.Passed != (c.problems == "") {
				t.Errorf("passed %t: %s (%s %v)", r.Passed, got, r.Verdict, r.Reasons)
			}
		})
	}
}

// The same table gives the same results, whenever it is run.
func TestRunIsDeterministic(t *testing.T) {
	tab := parsed(t, `
  - {name: a, request: {agentName: a, turn: 1, toolName: send_email, parsedArguments: {to: x, n: 1.50}}, expect: {verdict: ask}}`)
	if a, b := fmt.Sprint(Run(tab, options(t))), fmt.Sprint(Run(tab, options(t))); a != b {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestConfirmation(t *testing.T) {
	const event = `{"@context": "https://aaep-protocol.org/context/v1", type: "aaep:agent.tool.invoked", event_id: evt_00000000000000000000000000000001,
    session_id: sess_00000001, sequence_number: 0, timestamp: "2026-11-20T08:59:59Z", producer: {agent_id: a}, urgency: critical, aaep_version: 1.0.0,
    summary_normal: "Books.", tool: fetch, tool_call_id: call_1, risk_level: high, irreversible: true}`
	tab, err := Parse("t.yaml", []byte("cases:\n  - {name: none, protocol: aaep, request: "+event+", expect: {verdict: allow}}\n"+
		"  - {name: accepted, protocol: aaep, confirmation: accepted, request: "+event+", expect: {verdict: allow}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := Run(tab, options(t))
	if r[0].Passed || !r[1].Passed {
		t.Errorf("without: %+v\naccepted: %+v", r[0], r[1])
	}
}

// Every mistake is reported with its line.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"nothing", "", "t.yaml:1: the table has no cases"},
		{"no list", "cases: 3\n", "t.yaml:1: cases must be a list"},
		{"no cases", "cases: []\n", "the table has no cases"},
		{"a key that nobody knows", "cases: []\nverdicts: 3\n", `t.yaml:2: the table has no key "verdicts"`},
		{"an expectation that nobody knows", "cases:\n- name: a\n  protocol: tool\n  request: {}\n  expect:\n    verdict: allow\n    reason: [x]\n",
			`t.yaml:7: expect has no key "reason"`},
		{"no verdict", "cases:\n- {name: a, protocol: tool, request: {}, expect: {reasons: [x]}}\n", "expect needs verdict"},
		{"a verdict that is none", "cases:\n- {name: a, protocol: tool, request: {}, expect: {verdict: alow}}\n", `"alow" is none of allow, ask, defer, deny`},
		{"no expectation", "cases:\n- {name: a, protocol: tool, request: {}}\n", "a case needs expect"},
		{"no protocol", "cases:\n- {name: a, request: {}, expect: {verdict: allow}}\n", `case "a" names no protocol`},
		{"a protocol that nobody knows", "cases:\n- {name: a, protocol: toool, request: {}, expect: {verdict: allow}}\n", `"toool" is none of`},
		{"no request", "cases:\n- {name: a, protocol: tool, expect: {verdict: allow}}\n", "exactly one of request, file and raw"},
		{"two requests", "cases:\n- {name: a, protocol: tool, raw: x, request: {}, expect: {verdict: allow}}\n", "exactly one of request, file and raw"},
		{"two of one name", "cases:\n- {name: a, protocol: tool, raw: x, expect: {verdict: deny}}\n- {name: a, protocol: tool, raw: x, expect: {verdict: deny}}\n",
			`t.yaml:3: two cases are named "a"`},
		{"no pointer", "cases:\n- {name: a, protocol: tool, raw: x, change: {to: y}, expect: {verdict: deny}}\n", "not a JSON pointer"},
		{"not a number", "cases:\n- {name: a, protocol: tool, request: {a: .nan}, expect: {verdict: deny}}\n", "nothing that JSON has"},
		{"a tag", "cases:\n- {name: a, protocol: tool, request: {a: !!binary aGk=}, expect: {verdict: deny}}\n", "nothing that JSON has"},
		{"a key twice in a request", "cases:\n- {name: a, protocol: tool, request: {a: 1, a: 2}, expect: {verdict: deny}}\n", "t.yaml:2"},
		{"two documents", "cases: []\n---\ncases: []\n", "one YAML document"},
		{"no UTF-8", "\xff", "not UTF-8"},
		{"a header twice", "cases:\n- name: a\n  protocol: tool\n  raw: x\n  headers: {X-A: one, X-A: two}\n  expect: {verdict: deny}\n", `t.yaml:5: headers has the key "X-A" twice`},
		{"a change twice", "cases:\n- {name: a, protocol: tool, request: {}, change: {/a: 1, /a: 2}, expect: {verdict: deny}}\n", `change has the key "/a" twice`},
		{"a tag on a text", "cases:\n- {name: a, protocol: tool, raw: x, expect: {verdict: !!str allow}}\n", "verdict must be a string"},
		{"a time that is none", "cases:\n- {name: a, protocol: tool, now: today, raw: x, expect: {verdict: deny}}\n", "RFC 3339"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("t.yaml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v", err)
			}
			var e *Error
			if !errors.As(err, &e) || e.File != "t.yaml" || e.Line < 1 {
				t.Errorf("no place: %#v", err)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	tab, err := Parse("t.yaml", []byte(`
policies: ../p
defaults: {protocol: tool, tenant: globex, source: rt, now: 2026-11-20T09:00:00Z, strict: true, headers: {A: a, B: b}}
cases:
  - {name: x, raw: x, expect: {verdict: deny}}
  - {name: y, protocol: aaep, tenant: acme, headers: {B: [c, d]}, raw: x, expect: {verdict: deny}}
`))
	if err != nil {
		t.Fatal(err)
	}
	x, y := tab.Cases[0], tab.Cases[1]
	if tab.Policies != "../p" || x.Protocol != "tool" || x.Tenant != "globex" || x.Source != "rt" || !x.Now.Equal(now) || !x.Strict || fmt.Sprint(x.Headers) != "map[A:[a] B:[b]]" {
		t.Errorf("%+v", x)
	}
	if y.Protocol != "aaep" || y.Tenant != "acme" || fmt.Sprint(y.Headers) != "map[A:[a] B:[c d]]" || y.Line != 6 {
		t.Errorf("%+v", y)
	}
}

// A request written in YAML is the JSON that one would expect.
func TestRequests(t *testing.T) {
	for yaml, json := range map[string]string{
		`{a: 1, b: 1.5, c: 1e3, d: -0}`:                        `{"a":1,"b":1.5,"c":1000,"d":0}`,
		`{a: "1", b: yes, c: true, d: null, e: ~}`:             `{"a":"1","b":"yes","c":true,"d":null,"e":null}`,
		`{a: 2026-11-20, b: 2026-11-20T09:00:00Z}`:             `{"a":"2026-11-20","b":"2026-11-20T09:00:00Z"}`,
		`{a: [x, [1], {}], b: {}}`:                             `{"a":["x",[1],{}],"b":{}}`,
		`{a: &x {n: 1}, b: *x}`:                                `{"a":{"n":1},"b":{"n":1}}`,
		`{a: 0x10, b: 0o7, c: 1_000, d: 12345678901234567890}`: ``,
	} {
		tab, err := Parse("t.yaml", []byte("cases:\n- {name: a, protocol: tool, request: "+yaml+", expect: {verdict: deny}}\n"))
		if json == "" {
			if err == nil {
				t.Logf("%s gives %s", yaml, tab.Cases[0].Request)
			}
			continue
		}
		if err != nil || string(tab.Cases[0].Request) != json {
			t.Errorf("%s gives %s, %v", yaml, tab.Cases[0].Request, err)
		}
	}
}

func TestAliasesCannotGrowWithoutBound(t *testing.T) {
	var b strings.Builder
	b.WriteString("cases:\n- name: a\n  protocol: tool\n  expect: {verdict: deny}\n  request:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "    a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	if _, err := Parse("t.yaml", []byte(b.String())); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("%v", err)
	}
}

func TestApply(t *testing.T) {
	for _, c := range []struct {
		path, want string
		value      any
	}{
		{"/a", `{"a":1,"l":[1,2]}`, 1}, {"/new/deep", `{"a":{"b":"x"},"l":[1,2],"new":{"deep":1}}`, 1}, {"/a/b", `{"a":{},"l":[1,2]}`, nil},
		{"/l/0", `{"a":{"b":"x"},"l":[9,2]}`, 9}, {"/l/1", `{"a":{"b":"x"},"l":[1]}`, nil}, {"/l/-", `{"a":{"b":"x"},"l":[1,2,3]}`, 3},
		{"/not/there", `{"a":{"b":"x"},"l":[1,2]}`, nil}, {"/x~1y~0", `{"a":{"b":"x"},"l":[1,2],"x/y~":1}`, 1},
		{"/a/b/c", "", 1}, {"/l/7", "", 1}, {"/l/x", "", 1},
	} {
		got, err := applyChanges([]byte(`{"a":{"b":"x"},"l":[1,2]}`), []Change{{Path: c.path, Value: c.value}})
		if c.want == "" && err == nil || c.want != "" && string(got) != c.want {
			t.Errorf("%s = %v: %s, %v", c.path, c.value, got, err)
		}
	}
}

func TestUncovered(t *testing.T) {
	tab := parsed(t, `
  - {name: a, request: {agentName: a, turn: 1, toolName: send_email, parsedArguments: {to: x}}, expect: {verdict: ask}}
  - {name: b, counted: 50, request: {agentName: a, turn: 1, toolName: fetch, parsedArguments: {}}, expect: {verdict: deny}}
  - {name: c, request: {agentName: a, turn: 1, toolName: pay, parsedArguments: {amount: 5000}}, expect: {verdict: deny}}`)
	rules, err := policy.Rules([]policy.Document{{Name: "p.yaml", Data: []byte(policies)}})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range rules {
		ids = append(ids, r.ID())
	}
	if got := fmt.Sprint(Uncovered(ids, Run(tab, options(t)))); got != "[mail/colleagues money/too-much]" {
		t.Errorf("%s of %v", got, ids)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(cases + "  - {name: a, request: {a: 1}, change: {/a/b: 2}, expect: {verdict: deny}}\n"))
	f.Add([]byte("cases: &a [*a]\n"))
	f.Add([]byte("cases:\n- {name: a, protocol: aaep, now: 2026-11-20T09:00:00Z, raw: '{', counted: 3, confirmation: accepted, expect: {verdict: deny, rules: [a/b]}}\n"))
	f.Add([]byte("defaults: {headers: {A: [b]}}\ncases: [{}]\n"))
	o := options(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		tab, err := Parse("t.yaml", data)
		if err != nil {
			return
		}
		for _, r := range Run(tab, o) {
			if r.Passed && len(r.Mismatches) > 0 || !r.Passed && len(r.Mismatches) == 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}
