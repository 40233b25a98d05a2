package subject

import (
	"strings"
	"testing"
)

// A subject is the same but for the names that producers choose: the session, and the type or its parts.
func TestRename(t *testing.T) {
	secret := func(value string) string {
		if value == "secret" || strings.HasPrefix(value, "secret word") {
			return strings.Replace(value, "secret", "x", 1)
		}
		return value
	}
	long := "secret word" + strings.Repeat("x", 600)
	for _, c := range []struct {
		space      Space
		subj, want string
	}{
		{Space{}, "gov.events.acme.rt1.agenthook.secret.PreToolUse", "gov.events.acme.rt1.agenthook.x.PreToolUse"},
		{Space{}, "gov.events.secret.secret.agenthook.s1.PreToolUse", "gov.events.secret.secret.agenthook.s1.PreToolUse"},
		{Space{}, "gov.events.acme.rt1.aaep.s1.agent.secret", "gov.events.acme.rt1.aaep.s1.agent.x"},
		{Space{}, "gov.events.acme.rt1.aaep.~.unknown", "gov.events.acme.rt1.aaep.~.unknown"},
		{Space{}, "foreign.secret", "foreign.secret"},
		{Space{Prefix: "own"}, "own.events.acme.rt1.agenthook.secret.PreToolUse", "own.events.acme.rt1.agenthook.x.PreToolUse"},
		{Space{}, Space{}.Event("acme", "rt1", "agenthook", long, "PreToolUse"), Space{}.Event("acme", "rt1", "agenthook", long, "PreToolUse")}, // hashed
		{Space{}, Space{}.Event("acme", "rt1", "agenthook", "secret word.b", "PreToolUse"), Space{}.Event("acme", "rt1", "agenthook", "x word.b", "PreToolUse")},
	} {
		if got := c.space.Rename(c.subj, secret); got != c.want {
			t.Errorf("%s: %s, want %s", c.subj, got, c.want)
		}
	}
	whole := func(value string) string {
		if value == "agent.secret" {
			return "[redacted]"
		}
		return value
	}
	subj := Space{}.Event("acme", "rt1", "aaep", "s1", "agent.secret")
	if p, err := (Space{}).Parse(Space{}.Rename(subj, whole)); err != nil || p.Type != "[redacted]" || p.Session != "s1" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestPatterns(t *testing.T) {
	for got, want := range map[string]string{
		Space{}.AllOf(Decisions, "acme"):           "gov.decisions.acme.>",
		Space{}.AllOf(Calls, "a*b"):                "gov.calls." + Escape("a*b") + ".>",
		Space{}.EventsOf("acme", "aaep", "s1", ""): "gov.events.acme.*.aaep.s1.>",
		Space{}.EventsOf("acme", "aaep", "", ""):   "gov.events.acme.*.aaep.*.>",
		Space{}.EventsOf("acme", "tool", "", "t"):  "gov.events.acme.*.tool.*.t",
		Space{}.Mandates("acme"):                   "gov.mandates.acme",
		Pattern(Mandates):                          "gov.mandates.<tenant>",
		Space{Prefix: "own"}.AllOf(Calls, "a"):     "own.calls.a.>",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
