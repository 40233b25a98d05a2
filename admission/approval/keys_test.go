package approval

import (
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/subject"
)

func TestKeys(t *testing.T) {
	base := keysOf(t, theAction())
	for _, tc := range []struct {
		name                      string
		change                    func(*Action)
		strict, call, evade, runs bool // whether the keys are the same
	}{
		{"the same", func(*Action) {}, true, true, true, true},
		{"another call", func(a *Action) { a.Call = "c2" }, true, false, true, true},
		{"other arguments", func(a *Action) { a.Args = []byte(`{"to":"b@example.com"}`) }, false, false, true, false},
		{"no arguments", func(a *Action) { a.Args = nil }, false, false, true, false},
		{"empty arguments", func(a *Action) { a.Args = []byte(`{}`) }, false, false, true, false},
		{"another tool", func(a *Action) { a.Tool = "post" }, false, false, true, false},
		{"another protocol", func(a *Action) { a.Protocol = "tool" }, false, false, true, true},
		{"another mandate", func(a *Action) { a.Mandate = "sha256:m" }, false, false, true, true},
		{"another action under the mandate", func(a *Action) { a.Mandated = []byte(`{"total":1}`) }, false, false, true, true},
		{"another resource", func(a *Action) { a.Resource = map[string]any{"id": "x"} }, false, false, false, true},
		{"another kind", func(a *Action) { a.Kind = "file" }, false, false, false, true},
		{"another action", func(a *Action) { a.Action = "read" }, false, false, false, true},
		{"another scope", func(a *Action) { a.Scope = "local" }, false, false, true, true},
		{"another agent that proposes it", func(a *Action) { a.Agent = "x" }, false, false, true, true},
		{"another scope of the approval", func(a *Action) { a.ApprovalScope = "x" }, false, false, true, true},
		{"words about the arguments", func(a *Action) { a.Does, a.Args = a.Args, []byte(`{"summary":"x","to":"a@example.com"}`) }, false, false, true, true},
		{"another directory", func(a *Action) { a.Dir = "/srv" }, false, false, true, true},
		{"another session", func(a *Action) { a.Session = "s2" }, false, false, false, false},
		{"another source", func(a *Action) { a.Source = "rt2" }, false, false, false, false},
		{"another tenant", func(a *Action) { a.Tenant = "globex" }, false, false, false, false},
		{"another agent that takes over", func(a *Action) { a.ToAgent = "x" }, false, false, true, false},
	} {
		a := theAction()
		tc.change(&a)
		k := keysOf(t, a)
		if (k.Action == base.Action) != tc.strict || (k.Slot == base.Slot) != tc.strict || (k.ActionID == base.ActionID) != tc.strict {
			t.Errorf("%s: strict", tc.name)
		}
		if (k.CallSlot == base.CallSlot) != tc.call || k.CallSlot == k.Slot {
			t.Errorf("%s: slot of the call", tc.name)
		}
		if (k.Evasion == base.Evasion) != tc.evade || (k.Runs == base.Runs) != tc.runs {
			t.Errorf("%s: evasion", tc.name)
		}
	}
}

// Where the loose keys find no call that waits or was denied, no claim makes it another one.
func TestClaimsWithoutASession(t *testing.T) {
	a := theAction()
	a.Session = ""
	other := a
	other.Agent, other.ApprovalScope = "x", "y"
	if keysOf(t, a) != keysOf(t, other) {
		t.Error("another agent or scope asks for a workflow of its own, and passes the denial of the first")
	}
}

// Without arguments the whole document tells actions apart, so that a tool's
// name alone approves nothing.
func TestKeysWithoutArguments(t *testing.T) {
	a := Action{Tenant: "acme", Source: "rt1", Tool: "t", Event: map[string]any{"summary": "one"}}
	b := a
	b.Event = map[string]any{"summary": "two"}
	c := Action{Tenant: "acme", Source: "rt1", Tool: "t", Body: keyed([]byte("1"))}
	d := c
	d.Body = keyed([]byte("2"))
	seen := map[string]bool{}
	for _, x := range []Action{a, b, c, d} {
		seen[keysOf(t, x).Slot] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d slots", len(seen))
	}
}

func TestNoEvasionKeyForTheUnknown(t *testing.T) {
	for name, change := range map[string]func(*Action){
		"no resource": func(a *Action) { a.Resource = nil }, "empty resource": func(a *Action) { a.Resource = "" }, "unknown resource": func(a *Action) { a.Resource = "unknown" },
		"no kind": func(a *Action) { a.Kind = "" }, "unknown kind": func(a *Action) { a.Kind = "unknown" }, "no action": func(a *Action) { a.Action = "" }, "no session": func(a *Action) { a.Session = "" },
	} {
		a := theAction()
		change(&a)
		if k := keysOf(t, a); k.Evasion != "" || k.Slot == "" {
			t.Errorf("%s: %+v", name, k)
		}
	}
}

// Where a request or a workflow has no arguments, tool and call id tell whether they are about one call.
func TestToolKey(t *testing.T) {
	toolOf := func(change func(*Action)) string {
		a := theAction()
		a.Args = nil
		change(&a)
		k := keysOf(t, a)
		if k.Runs != "" {
			t.Error(k.Runs)
		}
		return k.Tool
	}
	base := toolOf(func(*Action) {})
	for name, tc := range map[string]struct {
		change func(*Action)
		same   bool
	}{
		"another id":                    {func(a *Action) { a.Call = "c2" }, true},
		"another agent that takes over": {func(a *Action) { a.ToAgent = "x" }, true},
		"another tool":                  {func(a *Action) { a.Tool = "post" }, false},
		"another session":               {func(a *Action) { a.Session = "s2" }, false},
		"another source":                {func(a *Action) { a.Source = "rt2" }, false},
		"another tenant":                {func(a *Action) { a.Tenant = "globex" }, false},
	} {
		if key := toolOf(tc.change); key == "" || (key == base) != tc.same {
			t.Errorf("%s: %s", name, key)
		}
	}
	if base != keysOf(t, theAction()).Tool {
		t.Error("with arguments")
	}
	for name, change := range map[string]func(*Action){"no tool": func(a *Action) { a.Tool = "" }, "no session": func(a *Action) { a.Session = "" }} {
		if key := toolOf(change); key != "" {
			t.Errorf("%s: %s", name, key)
		}
	}
}

// Where no more calls find room, every call may wait.
func TestWaitsForCall(t *testing.T) {
	w := Workflow{Calls: []string{"c1"}}
	full := Workflow{Calls: make([]string, MaxCalls)}
	if !w.WaitsForCall("c1") || w.WaitsForCall("c2") || w.WaitsForCall("") || !full.WaitsForCall("c2") || full.WaitsForCall("") {
		t.Error("wrong")
	}
}

func TestStoreKey(t *testing.T) {
	valid := regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)
	slot, seen := strings.Repeat("a", 64), map[string]string{}
	for _, tenant := range []string{"acme", "a.b", "~", "=", "a b", "*", ">", "ümlaut", strings.Repeat("x", 200), subject.Escape("a.b"), "=YS5i", "YS5i"} {
		key := StoreKey(tenant, slot)
		if !valid.MatchString(key) || strings.Count(key, ".") != 1 {
			t.Errorf("%q: %s", tenant, key)
		}
		if other, taken := seen[key]; taken {
			t.Errorf("%q and %q have one key", tenant, other)
		}
		seen[key] = tenant
	}
}
