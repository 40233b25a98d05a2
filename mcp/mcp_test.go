package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/hook"
)

// What two readers could take for different messages is none.
func TestParseRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"nothing":               ``,
		"no JSON":               `hello`,
		"a text":                `"hello"`,
		"a batch":               `[{"jsonrpc":"2.0","id":1,"method":"tools/call"}]`,
		"two messages":          `{"jsonrpc":"2.0","method":"a"}{"jsonrpc":"2.0","method":"b"}`,
		"no version":            `{"id":1,"method":"ping"}`,
		"another version":       `{"jsonrpc":"1.0","id":1,"method":"ping"}`,
		"the method twice":      `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`,
		"the method escaped":    `{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"tools/call"}`,
		"another case":          `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`,
		"another case alone":    `{"jsonrpc":"2.0","id":1,"Method":"tools/call"}`,
		"a long s":              `{"jsonrpc":"2.0","id":1,"method":"ping","paramſ":{}}`,
		"a member twice inside": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}`,
		"no UTF-8":              "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\xff\"}",
		"half a pair":           `{"jsonrpc":"2.0","id":1,"method":"a\ud800"}`,
		"a line break":          "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":\r{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\"}\r}",
		"a mark in front":       "\ufeff{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
		"an id of null":         `{"jsonrpc":"2.0","id":null,"method":"tools/call"}`,
		"a fraction":            `{"jsonrpc":"2.0","id":1.0,"method":"ping"}`,
		"an exponent":           `{"jsonrpc":"2.0","id":1e3,"method":"ping"}`,
		"a long id":             `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 255) + `","method":"ping"}`,
		"a huge id":             `{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping"}`,
		"an object as id":       `{"jsonrpc":"2.0","id":{},"method":"ping"}`,
		"no method":             `{"jsonrpc":"2.0","id":1}`,
		"a method in capitals":  `{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"a"}}`,
		"a method and a blank":  `{"jsonrpc":"2.0","id":1,"method":"tools/call\n","params":{"name":"a"}}`,
		"a list in capitals":    `{"jsonrpc":"2.0","id":1,"method":"TOOLS/LIST"}`,
		"a method of null":      `{"jsonrpc":"2.0","id":1,"method":null}`,
		"a request and more":    `{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`,
		"result and error":      `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`,
		"a result for nothing":  `{"jsonrpc":"2.0","result":{}}`,
	} {
		if m, err := Parse([]byte(line + "\n")); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func TestParse(t *testing.T) {
	m, err := Parse([]byte("{\"jsonrpc\":\"2.0\",\"id\":\"\\u0061\",\"method\":\"tools\\/call\",\"params\":{\"n\":123456789012345678901}}\r\n"))
	if err != nil || !m.IsRequest() || m.Method != MethodCall || m.ID.Key() != "a" || string(m.ID) != `"\u0061"` {
		t.Errorf("%+v, %v", m, err)
	}
	if ID("1").Key() != ID(`"1"`).Key() {
		t.Error("1 and \"1\" are two ids")
	}
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`:                            Failed,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}`:                      Failed,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`:                                     Succeeded,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[],"resultType":"complete"}}`:             Succeeded,
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{}}}`: Unknown,
		`{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t"}}}`:                            Unknown,
		`{"jsonrpc":"2.0","id":1,"result":[]}`:                                                 Unknown,
	} {
		if m, err := Parse([]byte(line)); err != nil || m.Outcome() != want {
			t.Errorf("%s: %q, %v", line, m.Outcome(), err)
		}
	}
}

// Of a message that is not passed on, the id is known if all readers take the same one.
func TestUnreadID(t *testing.T) {
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{"text":"abc\ud83d"}}`:         "answers 1",
		"{\"jsonrpc\":\"2.0\",\"result\":\"\xff\",\"id\":\"x\"}":         `answers "x"`,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`:              "answers 1",
		`{"jsonrpc":"2.0","id":7.0,"result":{}}`:                         "answers 7",
		`{"jsonrpc":"2.0","id":1e2,"error":{"code":1,"message":"m"}}`:    "answers 100",
		`{"jsonrpc":"2.0","id":1,"result":{"id":2,"id":3,"method":"x"}}`: "answers 1",
		`{"id":1,"method":"a\ud800","method":"b"}`:                       "asks 1",
		`{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`:                    "",
		`{"jsonrpc":"2.0","id":1,"ID":2,"result":{}}`:                    "",
		`{"jsonrpc":"2.0","id":1,"method":"a","result":{}}`:              "",
		`{"jsonrpc":"2.0","id":1}`:                                       "",
		`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`:   "",
		`{"jsonrpc":"2.0","id":1.5,"result":{}}`:                         "",
		`{"jsonrpc":"2.0","id":1e300,"result":{}}`:                       "",
		`{"jsonrpc":"2.0","id":"\ud800","result":{}}`:                    "",
		`{"jsonrpc":"2.0","id":{},"result":{}}`:                          "",
		`{"jsonrpc":"2.0","id":1,"result":{}}{"id":2}`:                   "",
		`{"jsonrpc":"2.0","id":1,"result":{}`:                            "",
		`[{"jsonrpc":"2.0","id":1,"result":{}}]`:                         "",
		`npm warn`:                                                       "",
	} {
		id, answers := UnreadID([]byte(line))
		got := "asks " + string(id)
		if answers {
			got = "answers " + string(id)
		}
		if id == "" {
			got = ""
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"x","result":{"tools":[{"name":"t","inputSchema":{}}]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Parse(line)
		id, answers := UnreadID(line)
		if err != nil {
			return
		}
		if id != m.ID || id != "" && answers != (m.Method == "") {
			t.Errorf("the id of what cannot be read is %q, that of what can %q", id, m.ID)
		}
		var loose struct{ Method string } // reads members in any case
		if json.Unmarshal(line, &loose) != nil || loose.Method != m.Method {
			t.Errorf("another reader finds the method %q, not %q", loose.Method, m.Method)
		}
		_, _ = ReadCall(m.Method, m.Params)
		if l, err := ParseListing(m.Result); err == nil {
			p := Pins{}
			p.Compare(l.Tools, true)
			if c := p.Compare(l.Tools, true); len(c.Changed) > 0 || c.Edited {
				t.Error("the same tools are not the same")
			}
		}
	})
}

// A call is what its server will read, or none.
func TestReadCall(t *testing.T) {
	for name, params := range map[string]string{
		"nothing":             ``,
		"null":                `null`,
		"no name":             `{"arguments":{}}`,
		"a name that is none": `{"name":["a"]}`,
		"another case":        `{"name":"a","Arguments":{"path":"b"}}`,
		"a method as name":    `{"name":"resources/read"}`,
		"a control character": `{"name":"a\u0007"}`,
		"a long name":         `{"name":"` + strings.Repeat("a", 129) + `"}`,
		"arguments of null":   `{"name":"a","arguments":null}`,
		"a list of arguments": `{"name":"a","arguments":[]}`,
		"an argument twice":   `{"name":"a","arguments":{"b":1,"b":2}}`,
		"an argument's case":  `{"name":"a","arguments":{"b":1,"B":2}}`,
		"an unsafe integer":   `{"name":"a","arguments":{"b":9007199254740993}}`,
		"one in a fraction":   `{"name":"a","arguments":{"b":9007199254740993.0}}`,
		"one in an exponent":  `{"name":"a","arguments":{"b":9.007199254740993e15}}`,
		"deep arguments":      `{"name":"a","arguments":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat(`}`, 71),
		"arguments of 2 MiB":  `{"name":"a","arguments":{"b":"` + strings.Repeat("x", 2<<20) + `"}}`,
		"a user's answers":    `{"name":"a","arguments":{},"inputResponses":{"r":"/etc/shadow"}}`,
		"a new member":        `{"name":"a","arguments":{},"x":1}`,
	} {
		if c, err := ReadCall(MethodCall, json.RawMessage(params)); !errors.Is(err, ErrCall) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	c, err := ReadCall(MethodCall, json.RawMessage(`{"name":"a","arguments":{ "b" : 1.0 },"_meta":{"claudecode/toolUseId":"toolu_1"}}`))
	if err != nil || string(c.Arguments) != `{ "b" : 1.0 }` || c.CallID != "toolu_1" {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = ReadCall(MethodRead, json.RawMessage(`{"uri":"file:///x","_meta":{"progressToken":1}}`))
	if err != nil || c.Name != MethodRead || string(c.Arguments) != `{"uri":"file:///x"}` {
		t.Errorf("%+v, %v", c, err)
	}
}

const twoTools = `{"tools":[{"name":"a","description":"A","inputSchema":{"maximum":9223372036854775807}},{"name":"b","inputSchema":{}}],"nextCursor":"n"}`

func mustList(t *testing.T, text string) Listing {
	t.Helper()
	l, err := ParseListing(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A definition is the accepted one if nothing in it has changed but its spelling.
func TestPins(t *testing.T) {
	p := Pins{}
	if c := p.Compare(mustList(t, twoTools).Tools, true); len(c.Changed) > 0 || !c.Edited || len(p) != 2 {
		t.Fatalf("the first listing: %+v", c)
	}
	respelled := `{"tools":[{"inputSchema":{"maximum":9223372036854775807},"description":"\u0041",  "name":"a"}]}`
	if c := p.Compare(mustList(t, respelled).Tools, true); len(c.Changed) > 0 || c.Edited {
		t.Errorf("another spelling is a change: %+v", c)
	}
	for _, text := range []string{
		strings.Replace(twoTools, `"A"`, `"A!"`, 1), strings.Replace(twoTools, "807", "806", 1),
		strings.Replace(twoTools, `"description":"A"`, `"description":"A","annotations":{"readOnlyHint":true}`, 1),
		strings.Replace(twoTools, `"description":"A"`, `"description":"A","_meta":{"x":1}`, 1),
	} {
		seen := ""
		if p["a"].Changed != nil {
			seen = p["a"].Changed.Digest
		}
		c := p.Compare(mustList(t, text).Tools, true)
		if len(c.Changed) != 1 || c.Changed[0].Name != "a" || !c.Edited {
			t.Errorf("%s: %+v", text, c)
		}
		if err := p.Accept("a", seen); err == nil {
			t.Error("a definition is accepted that was not shown")
		}
	}
	if err := p.Accept("b", p["b"].Digest); err == nil {
		t.Error("a definition is accepted that has not changed")
	}
	if err := p.Accept("a", p["a"].Changed.Digest); err != nil || !strings.Contains(string(p["a"].Definition), `"_meta"`) || p["a"].Changed != nil {
		t.Errorf("accepted: %v %+v", err, p["a"])
	}
	if c := p.Compare(mustList(t, `{"tools":[{"name":"c"}]}`).Tools, false); len(c.Changed) != 1 || c.Edited || len(p) != 2 {
		t.Errorf("a closed list took in a tool: %+v", c)
	}
}

// A server that lists ever new tools, or large ones, fills no memory: what is beyond the bounds is not
// accepted.
func TestPinsAreBounded(t *testing.T) {
	p := Pins{}
	names := make([]Tool, MaxPins+1)
	for i := range names {
		names[i] = Tool{Name: fmt.Sprint("t", i), Digest: "d"}
	}
	if c := p.Compare(names, true); len(p) != MaxPins || len(c.NoRoom) != 1 || len(c.Changed) != 0 {
		t.Errorf("%d tools are accepted, %d are not", len(p), len(c.NoRoom))
	}
	p = Pins{}
	large := make([]Tool, 2+maxPinBytes/MaxDefinition)
	for i := range large {
		large[i] = Tool{Name: fmt.Sprint("t", i), Digest: "d", Definition: make([]byte, MaxDefinition)}
	}
	if c := p.Compare(large, true); p.size() > maxPinBytes || len(c.NoRoom) != 2 {
		t.Errorf("%d bytes of definitions are kept", p.size())
	}
	large[0].Digest = "another"
	if c := p.Compare(large[:1], true); len(c.Changed) != 1 || p.size() > maxPinBytes {
		t.Errorf("a changed definition is kept past the bound: %d bytes", p.size())
	}
	if l := mustList(t, `{"tools":[{"name":"a","description":"`+strings.Repeat("x", MaxDefinition)+`"}]}`); len(l.Tools) != 0 || l.Unfit != 1 {
		t.Error("a definition of more than MaxDefinition bytes is used")
	}
}

func TestListing(t *testing.T) {
	for _, text := range []string{``, `null`, `[]`, `{}`, `{"tools":{}}`, `{"tools":[],"Tools":[]}`} {
		if _, err := ParseListing(json.RawMessage(text)); err == nil {
			t.Errorf("%s is a list of tools", text)
		}
	}
	l := mustList(t, `{"tools":[{"name":"a"},{"name":"b"},{"name":"a","x":1},{"name":"resources/read"},{"name":"c","Name":"d"},{"name":"é"},5]}`)
	if len(l.Tools) != 1 || l.Tools[0].Name != "b" || l.Unfit != 6 {
		t.Errorf("%+v", l)
	}
	l = mustList(t, twoTools)
	if all, err := l.Without(func(Tool) bool { return true }); err != nil || all != nil {
		t.Errorf("nothing is left out, and the list is written anew: %s, %v", all, err)
	}
	some, err := l.Without(func(t Tool) bool { return t.Name == "a" })
	if err != nil || !bytes.Contains(some, []byte("9223372036854775807")) || bytes.Contains(some, []byte(`"b"`)) || !bytes.Contains(some, []byte(`"nextCursor":"n"`)) {
		t.Errorf("%s, %v", some, err)
	}
	const odd = `{ "name": "a","description":"1 < 2 && 3 > 2` + "\u2028" + `","inputSchema": { } }`
	l = mustList(t, `{"tools":[`+odd+`,{"name":"b"}],"nextCursor":"n"}`)
	some, err = l.Without(func(t Tool) bool { return t.Name == "a" })
	if want := `{"jsonrpc":"2.0","id":7,"result":{"nextCursor":"n","tools":[` + odd + `]}}`; err != nil || string(Result("7", some)) != want {
		t.Errorf("%s, %v, want %s", Result("7", some), err, want)
	}
	none, err := l.Without(func(Tool) bool { return false })
	if err != nil || string(none) != `{"nextCursor":"n","tools":[]}` {
		t.Errorf("of all tools none: %s, %v", none, err)
	}
}

// What a server says of its tool raises the risk and never lowers it; every event is one of AgentHook.
func TestEvents(t *testing.T) {
	v := Event{ID: "0ee315a8-af5c-4626-a910-50b5121e38ca", Time: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), Session: "s", CallID: "c", Adapter: "v1"}
	for annotations, want := range map[string]string{
		`{}`: "unknown", `{"readOnlyHint":true,"destructiveHint":false,"openWorldHint":false,"idempotentHint":true}`: "unknown",
		`{"openWorldHint":true}`: "external_side_effect", `{"readOnlyHint":true,"openWorldHint":true,"destructiveHint":true}`: "destructive_write",
		`"x"`: "unknown",
	} {
		l := mustList(t, `{"tools":[{"name":"t","annotations":`+annotations+`}]}`)
		c := Call{Server: "kit", Name: "t", Arguments: json.RawMessage(`{"a":1}`), Tool: &l.Tools[0]}
		raw, err := c.Propose(v)
		if err != nil {
			t.Fatal(err)
		}
		e, err := agenthook.Decode(raw, strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		risk := e.Risk
		identity := e.ToolIdentity
		if risk == nil || risk.RiskClass != want || e.OperationRisk != "unknown" || identity.SchemaHash != l.Tools[0].Digest || e.ToolName != "mcp__kit__t" {
			t.Errorf("%s: %+v %+v", annotations, risk, e)
		}
	}
	// The report of a call is no larger than the question.
	large := Call{Server: "kit", Name: "t", Arguments: json.RawMessage(`{"a":"` + strings.Repeat("<b>&", 1000) + `"}`)}
	asked, err := large.Propose(v)
	reported, also := large.Report(v, v.Time, v.Time, Succeeded, hook.Approval{Workflow: "wf-1", Decision: "01a21769-d6cf-7a64-a867-98a2421eba7f"})
	if overhead := 1000; errors.Join(err, also) != nil || max(len(asked), len(reported)) > len(large.Arguments)+overhead {
		t.Errorf("%d and %d bytes for arguments of %d, %v %v", len(asked), len(reported), len(large.Arguments), err, also)
	}
	l := mustList(t, twoTools)
	raw, err := ReportChanges("kit", slices.Repeat([]Change{{Tool: "a", Accepted: "sha256:" + strings.Repeat("0", 64), Offered: l.Tools[0].Digest}}, 101), v)
	if err != nil || bytes.Count(raw, []byte(l.Tools[0].Digest)) != 102 || !bytes.Contains(raw, []byte(`"changed_tools_total":101`)) {
		t.Errorf("%s, %v", raw, err)
	}
	if e, err := agenthook.Decode(raw, strictjson.DefaultLimits); err != nil || e.ToolName != "mcp__kit__a" {
		t.Errorf("%+v, %v", e, err)
	}
	if CheckServerName("a__b") == nil || CheckServerName("a_") == nil || CheckServerName("") == nil || CheckServerName("../x") == nil || CheckServerName("files.v1") != nil {
		t.Error("names of servers")
	}
}

// A proposal limits its approval to the caller and the _meta, and every event names the caller, however long its name is.
func TestCallersOnRecord(t *testing.T) {
	entra := `{"issuer":"https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0","subject":"AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ"}`
	scopes := map[string]Call{}
	for _, c := range []Call{
		{}, {Meta: strings.Repeat("0", 64)}, {Meta: strings.Repeat("1", 64)}, {Caller: `{"subject":"dana"}`}, {Caller: `{"subject":"dana"}`, Meta: strings.Repeat("0", 64)}, {Caller: entra},
		{Caller: `{"x":"` + strings.Repeat("é", 5000) + `1"}`}, {Caller: `{"x":"` + strings.Repeat("é", 5000) + `2"}`, Meta: strings.Repeat("1", 64)},
	} {
		c.Server, c.Name, c.Arguments = "kit", "t", json.RawMessage(`{}`)
		asked, err := c.Propose(Event{})
		blocked, also := c.ReportBlocked(Event{}, "ask")
		var a, b struct {
			Metadata struct {
				Scope  *string `json:"approval_scope"`
				Caller *string `json:"gateway_caller"`
			}
		}
		if err = errors.Join(err, also, json.Unmarshal(asked, &a), json.Unmarshal(blocked, &b)); err != nil {
			t.Fatal(err)
		}
		scope, caller := a.Metadata.Scope, a.Metadata.Caller
		if (scope == nil) != (c.Caller+c.Meta == "") || (caller == nil) != (c.Caller == "") || (b.Metadata.Caller == nil) != (caller == nil) {
			t.Fatalf("%s %s", asked, blocked)
		}
		if caller != nil && (*b.Metadata.Caller != *caller || *caller != c.Caller && (c.Caller == entra || !strings.HasPrefix(c.Caller, (*caller)[:90]))) {
			t.Errorf("the caller of %s: %s", asked, blocked)
		}
		if scope == nil {
			continue
		}
		if other, taken := scopes[*scope]; taken || len(*scope) > 400 {
			t.Errorf("%q is the scope of %+v and %+v", *scope, c, other)
		}
		scopes[*scope] = c
	}
}

// Two calls with another _meta are two calls, but for what differs from call to call.
func TestMetaOfACall(t *testing.T) {
	read := func(meta string) string {
		c, err := ReadCall(MethodCall, json.RawMessage(`{"name":"a","arguments":{},"_meta":`+meta+`}`))
		if err != nil {
			t.Fatalf("%s: %v", meta, err)
		}
		return c.Meta
	}
	for _, passing := range []string{`null`, `{}`, `{"progressToken":1}`, `{"claudecode/toolUseId":"x","traceparent":"y"}`, `{"io.modelcontextprotocol/clientInfo":{}}`} {
		if got := read(passing); got != "" {
			t.Errorf("%s: %s", passing, got)
		}
	}
	one := read(`{"vendor/mode":"dry","progressToken":1}`)
	if one == "" || one != read(`{"progressToken":2, "vendor/mode" : "dry"}`) || one == read(`{"vendor/mode":"real"}`) {
		t.Error("the members of a vendor do not make a call another one")
	}
	if one = read(`{"account":17527760684230403,"\u0062":0.1}`); one != read(`{"b":0.1, "account":17527760684230403}`) {
		t.Error("the order and the spelling of members make a call another one")
	}
	for _, other := range []string{`{"account":17527760684230404,"b":0.1}`, `{"account":17527760684230403,"b":0.10000000000000000001}`} {
		if one == read(other) {
			t.Errorf("%s: the numbers of another call are rounded to those of this one", other)
		}
	}
	if _, err := ReadCall(MethodCall, json.RawMessage(`{"name":"a","arguments":{},"_meta":{"x":1,"x":2}}`)); !errors.Is(err, ErrCall) {
		t.Errorf("a member of _meta twice: %v", err)
	}
}
