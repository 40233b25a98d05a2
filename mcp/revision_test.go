package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The headers of a request without a session say what its body says, or it does not pass.
func TestCheckHeaders(t *testing.T) {
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	const task = `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t-1","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	const read = `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///é","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	for name, c := range map[string]struct {
		body   string
		header http.Header
		fits   bool
	}{
		"as the body":        {body, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"tools/call"}, HeaderName: {"t"}}, true},
		"in Base64":          {read, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"resources/read"}, HeaderName: {"=?base64?ZmlsZTovLy/DqQ==?="}}, true},
		"no Base64":          {read, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"resources/read"}, HeaderName: {"=?base64?*?="}}, false},
		"another tool":       {body, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"tools/call"}, HeaderName: {"u"}}, false},
		"two tools":          {body, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"tools/call"}, HeaderName: {"t", "u"}}, false},
		"no tool":            {body, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"tools/call"}}, false},
		"another method":     {body, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"tools/list"}, HeaderName: {"t"}}, false},
		"another revision":   {body, http.Header{HeaderRevision: {"2025-11-25"}, HeaderMethod: {"tools/call"}, HeaderName: {"t"}}, false},
		"no revision within": {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}`, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"ping"}}, false},
		"a task":             {task, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"tasks/get"}, HeaderName: {"t-1"}}, true},
		"another task":       {task, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"tasks/get"}, HeaderName: {"t-2"}}, false},
		"a method no more":   {strings.Replace(task, "tasks/get", "tasks/result", 1), http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"tasks/result"}}, true}, // its server says so
		"no task":            {task, http.Header{HeaderRevision: {Stateless}, HeaderMethod: {"tasks/get"}}, false},
		"a notification":     {`{"jsonrpc":"2.0","method":"x"}`, http.Header{HeaderRevision: {Stateless}}, true},
	} {
		m, err := Parse([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.CheckHeaders(c.header); (err == nil) != c.fits || err != nil && !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, _ := Parse([]byte(read))
	if h := m.Headers(nil); h[HeaderName] != "=?base64?ZmlsZTovLy/DqQ==?=" || h[HeaderMethod] != "resources/read" {
		t.Errorf("the headers for a server: %v", h)
	}
	m, _ = Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"a\r\nX-Y: z","params":{}}`))
	if h := m.Headers(nil); h[HeaderMethod] != "=?base64?YQ0KWC1ZOiB6?=" {
		t.Errorf("a method with a line break: %v", h)
	}
}

// A call repeats in headers the arguments that the tool's schema names, as they were admitted.
func TestArgumentHeaders(t *testing.T) {
	l, err := ParseListing([]byte(`{"tools":[{"name":"t","inputSchema":{"type":"object","x-mcp-header":"Root","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},"b":{"x-mcp-header":"B"},"plain":{"type":"string"},
		"in":{"properties":{"deep":{"x-mcp-header":"Deep"}}},"bad":{"x-mcp-header":"A: b\\r\\nAuthorization"},"none":{"x-mcp-header":7}}}}]}`))
	if err != nil || len(l.Tools) != 1 {
		t.Fatal(l, err)
	}
	find := func(name string) (Tool, bool) { return l.Tools[0].WithoutDefinition(), name == "t" }
	for arguments, want := range map[string]string{
		`{"region":"eu","n":7,"b":true,"plain":"x","in":{"deep":"d"}}`: "B=true Deep=d N=7 Region=eu",
		`{"region":"é","n":-3.0,"b":false,"in":{}}`:                    "B=false N=-3 Region==?base64?w6k=?=",
		`{"region":"","n":1e3}`:                                        "N=1000 Region==?base64??=",
		`{"region":"a\r\nAuthorization: x","n":1.5}`:                   "Region==?base64?YQ0KQXV0aG9yaXphdGlvbjogeA==?=",
		`{"region":null,"n":9007199254740993,"b":[1],"in":"x"}`:        "",
		`{"bad":"x","none":"y"}`:                                       "",
		`[]`:                                                           "",
	} {
		m := Message{ID: "1", Method: MethodCall, Params: json.RawMessage(`{"name":"t","arguments":` + arguments + `}`)}
		var got []string
		for name, value := range m.Headers(find) {
			if rest, is := strings.CutPrefix(name, headerArgument); is {
				got = append(got, rest+"="+value)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %s, want %s", arguments, text, want)
		}
	}
	const begin, end, levels = `{"x-mcp-header":"A","properties":{"a":`, `}}`, 4000
	deep := argumentHeaders(json.RawMessage(strings.Repeat(begin, levels) + "{}" + strings.Repeat(end, levels)))
	var many []string
	for i := range 2 * maxArgumentHeaders {
		many = append(many, fmt.Sprintf(`"a%d":{"x-mcp-header":"A"}`, i))
	}
	wide := argumentHeaders(json.RawMessage(`{"properties":{` + strings.Join(many, ",") + `}}`))
	if len(deep) != maxArgumentDepth || len(wide) != maxArgumentHeaders {
		t.Errorf("a deep schema has %d headers, one with many %d", len(deep), len(wide))
	}
}

func TestProgressToken(t *testing.T) {
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"p"},"progressToken":"q"}}`: `"p"`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7}}`:                            `7`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                                                                    ``,
	} {
		if m, err := Parse([]byte(line)); err != nil || m.ProgressToken() != want {
			t.Errorf("%s: %s, %v", line, m.ProgressToken(), err)
		}
	}
}
