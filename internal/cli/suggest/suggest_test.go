package suggest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// tester is a test, or one check of a property.
type tester interface {
	Helper()
	Fatalf(string, ...any)
}

// object decodes JSON as the admitter does.
func object(t tester, text string) map[string]any {
	t.Helper()
	tree, err := strictjson.ParseObject([]byte(text), strictjson.DefaultLimits)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return tree
}

func input(t tester, tool, args string) policy.Input {
	return policy.Input{Tenant: "acme", Source: "rt1", Protocol: "agenthook", EventType: "PreToolUse", Tool: tool, Args: object(t, args), Risk: map[string]any{"level": "low"}, Now: noon}
}

// seen is a call of which evidence shows everything.
func seen(in policy.Input) Call { return Call{Input: in, Shown: maps.Clone(in.Args), At: noon} }

// propose makes a proposal of calls, "TOOL JSON" each.
func propose(t testing.TB, calls ...string) Proposal {
	t.Helper()
	c := New("acme")
	for _, text := range calls {
		tool, args, _ := strings.Cut(text, " ")
		c.Add(seen(input(t, tool, args)))
	}
	p, err := c.Propose()
	if err != nil && !errors.Is(err, ErrNothing) {
		t.Fatalf("%v\n%s", err, p.Text)
	}
	return p
}

func (p Proposal) permits(in policy.Input) bool {
	return p.Set != nil && p.Set.Evaluate(in).Verdict == events.Allow
}

// takenUp is the wider rules of a proposal, without the # before them; nil if there are none.
func takenUp(t tester, p Proposal) *policy.Set {
	t.Helper()
	_, text, there := strings.Cut(p.Text, WiderMark)
	if !there {
		return nil
	}
	set, err := policy.Compile([]policy.Document{{Name: "wider.yaml", Data: []byte(strings.ReplaceAll("\n"+text, "\n#", "\n"))}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return set
}

func repeated(n int, format string) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(format, i))
	}
	return list
}

// A proposal permits what was seen and refuses what is a little wider. wider are calls that the rules in
// comments permit.
func TestNeverWiderThanSeen(t *testing.T) {
	for name, c := range map[string]struct {
		seen    []string
		permits []string
		refuses []string
		wider   []string
		leftOut string
	}{
		"values": {
			seen: []string{`lookup {"id":7,"deep":true}`, `lookup {"id":8,"deep":true}`}, permits: []string{`lookup {"deep":true,"id":8.0}`},
			refuses: []string{`lookup {"id":9,"deep":true}`, `lookup {"id":"7","deep":true}`, `lookup {"id":7}`, `lookup {"id":7,"deep":true,"more":1}`, `lookup {"id":7,"deep":null}`, `Lookup {"id":7,"deep":true}`, `lookups {"id":7,"deep":true}`},
		},
		"combinations": {
			seen: []string{`lookup {"id":7,"deep":true}`, `lookup {"id":8,"deep":false}`}, refuses: []string{`lookup {"id":7,"deep":false}`, `lookup {"id":8,"deep":true}`},
		},
		"commands": {
			seen:    []string{`Bash {"command":"git status","description":"Look"}`, `Bash {"command":"go test ./...","description":"Run all the tests"}`},
			refuses: []string{`Bash {"command":"git status; rm -rf /","description":"Look"}`, `Bash {"command":"git push","description":"Look"}`, `Bash {"command":["git status"],"description":"Look"}`, `Bash {"command":"git status","description":"Peek"}`},
		},
		"many commands are listed": {
			seen: repeated(200, `Bash {"command":"make target-%d"}`), permits: []string{`Bash {"command":"make target-199"}`}, refuses: []string{`Bash {"command":"make target-200"}`},
		},
		"many combinations take several rules": {
			seen: repeated(400, `Bash {"command":"make target-%[1]d","description":"Make the target number %[1]d"}`), permits: []string{`Bash {"command":"make target-399","description":"Make the target number 399"}`},
			refuses: []string{`Bash {"command":"make target-399","description":"Make the target number 398"}`},
			wider:   []string{`Bash {"command":"make target-399","description":"x"}`},
		},
		"directories": {
			seen:    append(repeated(20, `Read {"file_path":"/work/src/f%d.go"}`), `Read {"file_path":"/work/.env.example"}`),
			wider:   []string{`Read {"file_path":"/work/src/other.go"}`, `Read {"file_path":"/work/.env.example"}`},
			refuses: []string{`Read {"file_path":"/work/.env"}`, `Read {"file_path":"/work/src/.env"}`, `Read {"file_path":"/work/src/deep/x.go"}`, `Read {"file_path":"/work/src/../secret"}`, `Read {"file_path":"/work/src/.."}`, `Read {"file_path":"/work/src/"}`, `Read {"file_path":"/work/x"}`, `Read {"file_path":"src/x.go"}`, `Read {"file_path":"/etc/passwd"}`, `Read {"file_path":7}`},
		},
		"servers": {
			seen: repeated(20, `WebFetch {"url":"https://docs.example.org/p/%d"}`), wider: []string{`WebFetch {"url":"https://docs.example.org/other?q=1"}`},
			refuses: []string{`WebFetch {"url":"http://docs.example.org/p/1"}`, `WebFetch {"url":"https://docs.example.org:8443/p/1"}`, `WebFetch {"url":"https://a@docs.example.org/p/1"}`, `WebFetch {"url":"https://docs.example.org.evil.example/"}`, `WebFetch {"url":"ftp://docs.example.org/"}`},
		},
		"content": {
			seen:    []string{`Write {"file_path":"/w/a.txt","content":"hello"}`},
			refuses: []string{`Write {"file_path":"/w/a.txt","content":"other"}`, `Write {"file_path":"/w/b.txt","content":"hello"}`, `Write {"file_path":"/w/a.txt","content":"longer"}`, `Write {"file_path":"/w/a.txt","content":null}`},
		},
		"long content": {
			seen: repeated(100, `Write {"file_path":"/w/a.txt","content":"%d`+strings.Repeat("x", 3000)+`"}`), leftOut: "larger than one file", refuses: []string{`Write {"file_path":"/w/b.txt","content":"hello"}`},
			wider: []string{`Write {"file_path":"/w/a.txt","content":"hello"}`},
		},
		"long contents of files": {
			seen: repeated(40, `Write {"file_path":"/w/%[1]d.txt","content":"%[1]d`+strings.Repeat("x", 3000)+`"}`), leftOut: "40 different ways",
			wider: []string{`Write {"file_path":"/w/a.txt","content":"hello"}`},
		},
		"nested": {
			seen: []string{`plan {"steps":[{"n":1,"done":false},null,2.5],"o":{}}`}, permits: []string{`plan {"o":{},"steps":[{"done":false,"n":1},null,2.5]}`}, refuses: []string{`plan {"steps":[{"n":1,"done":true},null,2.5],"o":{}}`, `plan {"steps":[],"o":{}}`},
		},
		"hostile texts": {
			seen: []string{`note {"t":"it's \"q\" \\n \u0000\u0007\u2028\u00a0\ufeff\ud83d\ude00 {a: b} # c\n- x'"}`, `note {"t":""}`}, permits: []string{`note {"t":"it's \"q\" \\n \u0000\u0007\u2028\u00a0\ufeff\ud83d\ude00 {a: b} # c\n- x'"}`, `note {"t":""}`},
			refuses: []string{`note {"t":" "}`, `note {"t":"it's"}`},
		},
		"no arguments":      {seen: []string{`ping {}`}, permits: []string{`ping {}`}, refuses: []string{`ping {"a":1}`}},
		"pattern in a name": {seen: []string{`read_* {"a":1}`}, refuses: []string{`read_x {"a":1}`}, leftOut: "stands for others"},
		"too many values":   {seen: repeated(1100, `lookup {"q":"question %d"}`), leftOut: "more different ways"},
		"many numbers":      {seen: repeated(1000, `lookup {"q":%d}`), refuses: []string{`lookup {"q":1000}`}},
		"a long value":      {seen: []string{`lookup {"q":["` + strings.Repeat("x", 9000) + `"]}`}, leftOut: "longer rule"},
	} {
		t.Run(name, func(t *testing.T) {
			p := propose(t, c.seen...)
			if c.leftOut != "" && (len(p.LeftOut) != 1 || !strings.Contains(p.LeftOut[0].Reason, c.leftOut) || p.LeftOut[0].Calls != len(c.seen)) {
				t.Errorf("left out: %+v", p.LeftOut)
			}
			at := func(text string) policy.Input {
				tool, args, _ := strings.Cut(text, " ")
				return input(t, tool, args)
			}
			if c.leftOut == "" {
				for _, text := range append(c.seen, c.permits...) {
					if in := at(text); !p.permits(in) {
						t.Errorf("refuses %s: %v\n%s", text, p.Set.Evaluate(in).Reasons, p.Text)
					}
				}
			}
			for _, text := range slices.Concat(c.refuses, c.wider) {
				if in := at(text); p.permits(in) && !slices.Contains(c.seen, text) {
					t.Errorf("permits %s\n%s", text, p.Text)
				}
			}
			if wide := takenUp(t, p); len(c.wider) > 0 {
				for _, text := range slices.Concat(c.wider, c.seen) {
					if wide.Evaluate(at(text)).Verdict != events.Allow {
						t.Errorf("the wider rules refuse %s\n%s", text, p.Text)
					}
				}
				for _, text := range c.refuses {
					if strings.HasPrefix(name, "direct") && wide.Evaluate(at(text)).Verdict == events.Allow {
						t.Errorf("the wider rules permit %s\n%s", text, p.Text)
					}
				}
			} else if wide != nil {
				t.Errorf("there are wider rules\n%s", p.Text)
			}
		})
	}
}

// What is around the arguments is part of the shape.
func TestShapeAroundTheArguments(t *testing.T) {
	p := propose(t, `lookup {"id":7}`)
	in := input(t, "lookup", `{"id":7}`)
	if !p.permits(in) {
		t.Fatalf("refuses what was seen\n%s", p.Text)
	}
	for name, change := range map[string]func(*policy.Input){
		"tenant": func(in *policy.Input) { in.Tenant = "globex" }, "publisher": func(in *policy.Input) { in.Source = "rt2" },
		"protocol": func(in *policy.Input) { in.Protocol = "aana" }, "event type": func(in *policy.Input) { in.EventType = "Other" },
		"action": func(in *policy.Input) { in.Action = "delete" }, "resource kind": func(in *policy.Input) { in.ResourceKind = "database" },
		"risk": func(in *policy.Input) { in.Risk = map[string]any{"level": "high"} }, "more risk": func(in *policy.Input) { in.Risk = map[string]any{"level": "low", "irreversible": true} },
		"no risk": func(in *policy.Input) { in.Risk = nil }, "agent": func(in *policy.Input) { in.Agent = "other" },
		"resource scope": func(in *policy.Input) { in.ResourceScope = "public" }, "resource": func(in *policy.Input) { in.Resource = "/etc" },
		"resource object": func(in *policy.Input) { in.Resource = map[string]any{"id": "1"} },
		"directory":       func(in *policy.Input) { in.Event = object(t, `{"metadata":{"agent_cwd":"/etc"}}`) },
		"server's tool": func(in *policy.Input) {
			in.Event = object(t, `{"metadata":{"tool_identity":{"source":"mcp_tools_call"}}}`)
		},
	} {
		other := in
		if change(&other); p.permits(other) {
			t.Errorf("permits another %s\n%s", name, p.Text)
		}
	}
}

// An approval was for one call: no rule may permit such a call for ever. What a limit counted is proposed, and
// its rule says that it has no limit.
func TestApprovedAndCountedCalls(t *testing.T) {
	c := New("acme")
	approved, counted := seen(input(t, "pay", `{"amount":5000000}`)), seen(input(t, "lookup", `{"id":7}`))
	approved.Approved, counted.Counted = true, true
	c.Add(approved)
	c.Add(counted)
	p, err := c.Propose()
	if err != nil || p.permits(approved.Input) || !p.permits(counted.Input) {
		t.Errorf("%v\n%s", err, p.Text)
	}
	if len(p.LeftOut) != 1 || p.LeftOut[0].Tool != "pay" || !strings.Contains(p.LeftOut[0].Reason, "a person approved it") {
		t.Errorf("left out: %+v", p.LeftOut)
	}
	if !strings.Contains(p.Text, "# limits counted 1 calls of this form; this rule has no limit\n") || p.Rules[0].Counted != 1 {
		t.Errorf("counted: %s", p.Text)
	}
}

// What evidence hides is in no part of a proposal, and its calls are left out.
func TestHiddenValuesAreNotProposed(t *testing.T) {
	const secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	c := New("acme")
	call := seen(input(t, "lookup", `{"token":"`+secret+`","id":7}`))
	call.Shown["token"] = "[redacted:credential_field]"
	c.Add(call)
	withheld := seen(input(t, "lookup", `{"id":8}`))
	withheld.Shown = nil
	c.Add(withheld)
	c.Add(seen(input(t, secret, `{"id":9}`)))
	named := seen(input(t, "lookup", `{"`+secret+`":1}`))
	c.Add(named)
	content := seen(input(t, "Write", `{"file_path":"/w/a","content":"`+secret+`"}`))
	content.Shown["content"] = "[redacted:github_token]"
	c.Add(content)
	place := seen(input(t, "lookup", `{"id":10}`))
	place.Input.Resource = secret
	c.Add(place)
	by := seen(input(t, "lookup", `{"id":11}`))
	by.Hidden = true
	c.Add(by)
	c.Add(seen(input(t, "lookup", `{"id":12}`)))
	p, err := c.Propose()
	if err != nil {
		t.Fatal(err)
	}
	all, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(all), secret) {
		t.Errorf("the proposal quotes the secret: %s", all)
	}
	left := 0
	for _, l := range p.LeftOut {
		left += l.Calls
	}
	if left != 7 || p.Calls != 1 {
		t.Errorf("%d left out, %d proposed\n%s", left, p.Calls, p.Text)
	}
}

func TestGolden(t *testing.T) {
	p := propose(t, `Bash {"command":"git status"}`, `Bash {"command":"git status"}`, `Bash {"command":"it's"}`, `lookup {"id":7}`)
	const want = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata:
  name: seen-agenthook-bash
spec:
  match:
    tenants: ["acme"]
    protocols: ["agenthook"]
    tools: ["Bash"]
  params:
    seen1:
      - "git status"
      - "it's"
  rules:
    # 3 calls, 2026-11-20 12:00:00 to 2026-11-20 12:00:00
    # "command": 2 values
    # such as {"command":"git status"}
    # such as {"command":"it's"}
    - name: seen-1
      when: 'event_type == "PreToolUse" && action == "" && resource_kind == "" && risk == {"level": "low"} && size(args) == 1 && "command" in args && source == "rt1" && agent == "" && resource_scope == "" && resource == null && agent_tool.kind == "shell" && agent_tool.dir == "" && type(args["command"]) == string && (args["command"] in params.seen1)'
      verdict: allow
      reason: seen_before
---
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata:
  name: seen-agenthook-lookup
spec:
  match:
    tenants: ["acme"]
    protocols: ["agenthook"]
    tools: ["lookup"]
  rules:
    # 1 calls, 2026-11-20 12:00:00 to 2026-11-20 12:00:00
    # "id": 1 value
    # such as {"id":7}
    - name: seen-1
      when: 'event_type == "PreToolUse" && action == "" && resource_kind == "" && risk == {"level": "low"} && size(args) == 1 && "id" in args && source == "rt1" && agent == "" && resource_scope == "" && resource == null && agent_tool.kind == "other" && agent_tool.dir == "" && args["id"] == 7'
      verdict: allow
      reason: seen_before
`
	if p.Text != want {
		t.Errorf("got\n%s", p.Text)
	}
	for _, f := range policy.Lint([]policy.Document{{Name: File, Data: []byte(p.Text)}}) {
		if f.Severity == policy.SeverityError {
			t.Errorf("lint: %+v", f)
		}
	}
}

// Whatever was seen, the proposal compiles and permits all of it that is not left out, and no call
// that differs in tool, names, types or number of arguments.
func TestProposalPermitsExactlyTheShapes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		texts := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"/a/b", "/a/.c", "/", "/x/../y", "https://a.example/x", "~/x", "a'b\"c\\d\n"}))
		value := rapid.Custom(func(rt *rapid.T) any {
			switch rapid.IntRange(0, 5).Draw(rt, "kind") {
			case 0:
				return nil
			case 1:
				return rapid.Bool().Draw(rt, "b")
			case 2:
				return rapid.SampledFrom([]any{1, -7, 2.5, -1e-9, 1 << 53, 0.1, 0.0}).Draw(rt, "n")
			case 3:
				return []any{texts.Draw(rt, "e"), nil, map[string]any{"k": texts.Draw(rt, "v")}}
			}
			return texts.Draw(rt, "s")
		})
		names := rapid.SampledFrom([]string{"path", "command", "content", "a b", "it's", "x"})
		var inputs []policy.Input
		c := New("acme")
		for range rapid.IntRange(1, 12).Draw(rt, "calls") {
			args, err := json.Marshal(rapid.MapOfN(names, value, 0, 3).Draw(rt, "args"))
			if err != nil {
				rt.Fatal(err)
			}
			in := input(t, rapid.SampledFrom([]string{"Bash", "Write", "lookup", "read.file"}).Draw(rt, "tool"), string(args))
			inputs = append(inputs, in)
			c.Add(seen(in))
		}
		p, err := c.Propose()
		if errors.Is(err, ErrNothing) {
			return
		}
		if err != nil {
			rt.Fatalf("%v\n%s", err, p.Text)
		}
		left := 0
		for _, l := range p.LeftOut {
			left += l.Calls
		}
		refused := 0
		shapes := map[string]bool{}
		for _, in := range inputs {
			shapes[in.Tool+shapeName(&in)] = true
			if !p.permits(in) {
				refused++
			}
		}
		if refused > left || p.Calls+left != len(inputs) {
			rt.Fatalf("%d refused, %d left out, %d proposed of %d\n%s", refused, left, p.Calls, len(inputs), p.Text)
		}
		for _, in := range inputs {
			other := in
			other.Args = maps.Clone(in.Args)
			switch name := names.Draw(rt, "changed"); rapid.IntRange(0, 2).Draw(rt, "change") {
			case 0:
				delete(other.Args, name)
			case 1:
				other.Args[name] = value.Draw(rt, "other")
			default:
				other.Tool = "unseen"
			}
			text, err := json.Marshal(other.Args)
			if err != nil {
				rt.Fatal(err)
			}
			other = input(t, other.Tool, string(text))
			if !shapes[other.Tool+shapeName(&other)] && p.permits(other) {
				rt.Fatalf("permits %s %v\n%s", other.Tool, other.Args, p.Text)
			}
		}
	})
}

// fieldsOfPolicies are the values of a call that a proposal must not widen.
func fieldsOfPolicies(in policy.Input) string {
	return CanonicalForm([]any{in.Tenant, in.Source, in.Protocol, in.EventType, in.Tool, in.Action, in.ResourceKind, in.ResourceScope, in.Resource, in.Agent, orEmpty(in.Risk), in.Args, orEmpty(in.Event)})
}

// Every request that a proposal permits equals one that was seen, in all that policies read. The domains are
// small, so that most requests are made of parts that were seen.
func TestPermitsOnlySeenCalls(t *testing.T) {
	request := rapid.Custom(func(rt *rapid.T) policy.Input {
		one := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(rt, name) }
		file := fmt.Sprintf("/w/%s/f%d", one("dir", "a", "b"), rapid.IntRange(0, 30).Draw(rt, "file"))
		var args string
		tool := one("tool", "Bash", "Write", "Read", "lookup", "WebFetch")
		switch tool {
		case "Bash":
			args = fmt.Sprintf(`{"command":%q,"description":%q}`, one("command", "make", "make x", ""), one("description", "a", "b"))
		case "Write":
			args = fmt.Sprintf(`{"file_path":%q,"content":%q}`, one("path", "/w/a", "/w/b"), one("content", "one", "two", strings.Repeat("long ", 100)))
		case "Read":
			args = fmt.Sprintf(`{"file_path":%q}`, file)
		case "WebFetch":
			args = fmt.Sprintf(`{"url":"https://h%d.example/%s"}`, rapid.IntRange(0, 20).Draw(rt, "host"), one("page", "x", "y"))
		default:
			args = fmt.Sprintf(`{"id":%d,"deep":%s,"list":[%s]}`, rapid.IntRange(0, 3).Draw(rt, "id"), one("deep", "true", "null"), one("list", "1", `"1"`, ""))
		}
		in := input(rt, tool, args)
		in.Source, in.Agent, in.ResourceScope = one("source", "rt1", "rt2"), one("agent", "", "a"), one("scope", "", "local")
		in.Resource = rapid.SampledFrom([]any{nil, "", "r", map[string]any{"id": "r"}}).Draw(rt, "resource")
		in.Event = object(rt, one("event", "{}", `{"metadata":{"agent_cwd":"/w"}}`))
		return in
	})
	rapid.Check(t, func(rt *rapid.T) {
		c, calls := New("acme"), map[string]bool{}
		for _, in := range rapid.SliceOfN(request, 1, 60).Draw(rt, "seen") {
			calls[fieldsOfPolicies(in)] = true
			c.Add(seen(in))
		}
		p, err := c.Propose()
		if err != nil {
			rt.Fatalf("%v\n%s", err, p.Text)
		}
		takenUp(rt, p)
		for _, in := range rapid.SliceOfN(request, 1, 60).Draw(rt, "asked") {
			if p.permits(in) && !calls[fieldsOfPolicies(in)] {
				rt.Fatalf("permits %s\n%s", fieldsOfPolicies(in), p.Text)
			}
		}
	})
}
