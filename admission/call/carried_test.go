package call

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

func TestCompanionAppliesTo(t *testing.T) {
	c := &Companion{Name: "aump", Member: "aump", Headers: []string{"Mandate-Id"}}
	for name, row := range map[string]struct {
		protocol string
		header   map[string][]string
		carrier  map[string]any
		want     bool
	}{
		"nothing":                    {"agenthook", nil, nil, false},
		"carried":                    {"agenthook", nil, map[string]any{"aump": 1}, true},
		"carried, null":              {"agenthook", nil, map[string]any{"aump": nil}, true},
		"another document":           {"agenthook", nil, map[string]any{"aana": 1}, false},
		"named":                      {"agenthook", map[string][]string{"Mandate-Id": {""}}, nil, true},
		"a header without values":    {"agenthook", map[string][]string{"Mandate-Id": {}}, nil, false},
		"another spelling":           {"agenthook", map[string][]string{"mandate-id": {"m"}}, nil, false},
		"the protocol's own request": {"aump", map[string][]string{"Mandate-Id": {"m"}}, map[string]any{"aump": 1}, false},
	} {
		if got := c.AppliesTo(row.protocol, row.header, row.carrier); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// carrier records the request that it reads.
type carrier struct {
	Protocol
	read *Request
}

func (c carrier) Read(r Request) (Call, Opinion) {
	*c.read = r
	return Call{}, Opinion{}
}

// A carried document is read as a request of the call's session, call and agent, with the headers that its
// protocol reads and no others.
func TestCarriedRead(t *testing.T) {
	var got Request
	c := Carried{
		Request: Request{Tenant: "acme", Header: map[string][]string{"A": {"1"}, "a": {"2"}, "B": {"3"}, events.HeaderSession: {"of the message"}}},
		Call:    Call{Session: "s1", ToolCallID: "c1"},
	}
	c.Read(carrier{read: &got}, map[string]any{"b": 1, "a": "x"}, []string{"A", "C"})
	if string(got.Body) != `{"a":"x","b":1}` || got.Tenant != "acme" {
		t.Errorf("%s", got.Body)
	}
	want := map[string][]string{"A": {"1", "2"}, events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}}
	for h, v := range want {
		if !slices.Equal(got.Header[h], v) {
			t.Errorf("header %s is %v, want %v", h, got.Header[h], v)
		}
	}
	if len(got.Header) != len(want) || len(c.Request.Header) != 4 {
		t.Errorf("%v, of %v", got.Header, c.Request.Header)
	}
}

func TestBodyOrHeader(t *testing.T) {
	for name, c := range map[string]struct {
		header     map[string][]string
		body, want string
		code       string
	}{
		"neither":           {nil, "", "", ""},
		"the body":          {nil, "b", "b", ""},
		"the header":        {map[string][]string{"H": {"h"}}, "", "h", ""},
		"both agree":        {map[string][]string{"H": {"b"}, "h": {"b"}}, "b", "b", ""},
		"they differ":       {map[string][]string{"H": {"h"}}, "b", "b", CodeHeaderConflict},
		"two values":        {map[string][]string{"H": {"x", "y"}}, "", "x", CodeHeaderConflict},
		"another spelling":  {map[string][]string{"H": {"x"}, "h": {"y"}}, "", "x", CodeHeaderConflict},
		"only the spelling": {map[string][]string{"h": {"y"}}, "", "", ""},
		"no UTF-8":          {map[string][]string{"H": {"\xff"}}, "b", "b", "invalid_utf8"},
	} {
		var o Opinion
		got := o.BodyOrHeader("e", Request{Header: c.header}, "H", c.body)
		code := ""
		if len(o.Reasons) > 0 {
			code = o.Reasons[0].Code
		}
		if got != c.want || code != c.code || o.Malformed != (c.code != "") {
			t.Errorf("%s: %q %q", name, got, code)
		}
	}
}

func TestTextAt(t *testing.T) {
	tree := map[string]any{"a": "1", "b": map[string]any{"c": "2", "d": 3}}
	for pointer, want := range map[string]string{"/a": "1", "/b/c": "2", "/b/d": "", "/b": "", "/a/c": "", "/x/y/z": "", "": ""} {
		if got := TextAt(tree, pointer); got != want {
			t.Errorf("%s: %q", pointer, got)
		}
	}
}

// Paths into a carried document become paths into the request; paths into the mandate stay.
func TestMergeCarriedRebasesPaths(t *testing.T) {
	for path, want := range map[string]string{
		"/proposed_action": "/metadata/aump/proposed_action", "$.proposed_action.amount": "$.metadata.aump.proposed_action.amount", "$.limits": "$.limits", "": "/metadata/aump",
	} {
		o := Opinion{Verdict: events.Allow}
		o.MergeCarried(Opinion{Verdict: events.Deny, Reasons: []events.Reason{{Evaluator: "e", Code: "c", Path: path}}}, "/metadata/aump")
		if o.Verdict != events.Deny || len(o.Reasons) != 1 || o.Reasons[0].Path != want {
			t.Errorf("%q: %+v", path, o.Reasons)
		}
	}
	var o Opinion
	o.MergeCarried(Opinion{Reasons: []events.Reason{{Code: "c", Path: "/p"}}}, "")
	if o.Reasons[0].Path != "/p" {
		t.Errorf("%+v", o.Reasons)
	}
}
