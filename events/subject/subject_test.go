package subject_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events/subject"
)

var long = strings.Repeat("x", 65)

const longHash = "~hff9bd5c36b4b2a1ab7a5f3cd7ab1d0d3a2ff27b4ea3ed2b2c2eb7c5d2e52eb5e"

func TestEscape(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"plain", "sess_Ab-9", "sess_Ab-9"},
		{"64 characters", strings.Repeat("x", 64), strings.Repeat("x", 64)},
		{"absent", "", "~"},
		{"dot", "a.b", "~YS5i"},
		{"wildcard for a token", "*", "~Kg"},
		{"wildcard for the rest", ">", "~Pg"},
		{"space", "a b", "~YSBi"},
		{"line break", "a\r\nPUB x 0", "~YQ0KUFVCIHggMA"},
		{"NUL", "\x00", "~AA"},
		{"absence as text", "~", "~fg"},
		{"an escaped token as text", "~YS5i", "~fllTNWk"},
		{"not UTF-8", "\xff", "~_w"},
		{"not ASCII", "é", "~w6k"},
		{"full width", "ａ", "~772B"},
		{"base64 that begins with h", "\x87.", "~hy4"},
		{"longest escaped", strings.Repeat(".", 47), "~" + strings.Repeat("Li4u", 15) + "Li4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := subject.Escape(tt.text)
			if got != tt.want {
				t.Errorf("Escape(%q) = %s, want %s", tt.text, got, tt.want)
			}
			if back, exact := subject.Unescape(got); back != tt.text || !exact {
				t.Errorf("Unescape(%s) = %q, %v", got, back, exact)
			}
		})
	}
}

func TestEscapeHashesLongText(t *testing.T) {
	for _, text := range []string{long, strings.Repeat(".", 48), longHash, strings.Repeat("é", 1000)} {
		tok := subject.Escape(text)
		if len(tok) != 66 || !strings.HasPrefix(tok, "~h") {
			t.Errorf("Escape(%.20q…) = %s", text, tok)
		}
		if back, exact := subject.Unescape(tok); exact || back != tok {
			t.Errorf("Unescape(%s) = %q, %v: the text is not in it", tok, back, exact)
		}
	}
}

// Tokens that Escape does not write have no meaning, so that no session has two subjects.
func TestUnescapeRefuses(t *testing.T) {
	for _, tok := range []string{
		"", "*", ">", "a b", "a.b", "a~", "~!", "~YQ", "~YS5i=", "~YS5j\n", "~YS5", "~Kh", "~h", "~~",
		strings.ToUpper(longHash), "~h" + strings.Repeat("g", 64), longHash[:65], longHash + "0",
		long, "~" + strings.Repeat("Li4u", 16), // should have been hashed
	} {
		if s, exact := subject.Unescape(tok); exact {
			t.Errorf("Unescape(%q) = %q, as if Escape had written it", tok, s)
		}
	}
}

func TestBuildAndParse(t *testing.T) {
	var s subject.Space
	const evil = "a.*.>"
	const esc = "~YS4qLj4"
	tests := []struct {
		got, want string
		parsed    subject.Parsed
	}{
		{s.Admit("acme", "tool"), "gov.admit.acme.tool",
			subject.Parsed{Class: subject.Admit, Tenant: "acme", Protocol: "tool"}},
		{s.Admit(evil, ">"), "gov.admit." + esc + ".~Pg",
			subject.Parsed{Class: subject.Admit, Tenant: evil, Protocol: ">"}},
		{s.Resolve("acme"), "gov.resolve.acme", subject.Parsed{Class: subject.Resolve, Tenant: "acme"}},
		{s.Follow("acme"), "gov.follow.acme", subject.Parsed{Class: subject.Follow, Tenant: "acme"}},
		{s.Event("acme", "rt-1", "aaep", "sess_1", "agent.tool.invoked"), "gov.events.acme.rt-1.aaep.sess_1.agent.tool.invoked",
			subject.Parsed{Class: subject.Events, Tenant: "acme", Publisher: "rt-1", Protocol: "aaep", Session: "sess_1", Type: "agent.tool.invoked"}},
		{s.Event("acme", evil, "agenthook", "", "Pre>ToolUse.*"), "gov.events.acme." + esc + ".agenthook.~.~UHJlPlRvb2xVc2U.~Kg",
			subject.Parsed{Class: subject.Events, Tenant: "acme", Publisher: evil, Protocol: "agenthook", Type: "Pre>ToolUse.*"}},
		{s.Event("acme", "p", "aaep", "s", ""), "gov.events.acme.p.aaep.s.~",
			subject.Parsed{Class: subject.Events, Tenant: "acme", Publisher: "p", Protocol: "aaep", Session: "s"}},
		{s.Event("acme", "p", "aaep", "s", "a..b."), "gov.events.acme.p.aaep.s.a.~.b.~",
			subject.Parsed{Class: subject.Events, Tenant: "acme", Publisher: "p", Protocol: "aaep", Session: "s", Type: "a..b."}},
		{s.Request("acme", "rt-1", "agenthook", "s"), "gov.events.acme.rt-1.agenthook.s.request",
			subject.Parsed{Class: subject.Events, Tenant: "acme", Publisher: "rt-1", Protocol: "agenthook", Session: "s", Type: subject.TypeRequest}},
		{s.Decision("acme", "deny", "s 1"), "gov.decisions.acme.deny.~cyAx",
			subject.Parsed{Class: subject.Decisions, Tenant: "acme", Verdict: "deny", Session: "s 1"}},
		{s.Call("acme", "open", ""), "gov.calls.acme.open.~",
			subject.Parsed{Class: subject.Calls, Tenant: "acme", State: "open"}},
		{s.Finding("acme", "high", "s"), "gov.findings.acme.high.s",
			subject.Parsed{Class: subject.Findings, Tenant: "acme", State: "high", Session: "s"}},
		{s.Approval("acme", "pending", "wf.1"), "gov.approvals.acme.pending.~d2YuMQ",
			subject.Parsed{Class: subject.Approvals, Tenant: "acme", State: "pending", Workflow: "wf.1"}},
		{s.Control("GOV", "tick"), "gov.control.GOV.tick",
			subject.Parsed{Class: subject.Control, Shard: "GOV", Kind: "tick"}},
		{s.Quarantine("acme"), "gov.quarantine.acme", subject.Parsed{Class: subject.Quarantine, Tenant: "acme"}},
		{s.Checkpoints("GOV@20261120T064150.123456789Z"), "gov.checkpoints.~R09WQDIwMjYxMTIwVDA2NDE1MC4xMjM0NTY3ODla",
			subject.Parsed{Class: subject.Checkpoints, Shard: "GOV@20261120T064150.123456789Z"}},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("built %s, want %s", tt.got, tt.want)
		}
		parsed, err := s.Parse(tt.got)
		if err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(tt.parsed, parsed); d != "" {
			t.Errorf("%s:\n%s", tt.got, d)
		}
	}
	if got := s.All(subject.Events); got != "gov.events.>" {
		t.Errorf("All: %s", got)
	}
}

func TestParseRefuses(t *testing.T) {
	var s subject.Space
	for _, subj := range []string{
		"", "gov", "gov.", "gov.events", "gov.events.", "governor.events.a.b.c.d.e", "x.events.a.b.c.d.e", "GOV.control.GOV.tick",
		"gov.unknown.a", "gov.Decisions.acme.deny.s",
		"gov.decisions.acme.deny", "gov.decisions.acme.deny.s.t", "gov.decisions.acme..s", "gov.decisions..deny.s", "gov.control.GOV.tick.x",
		"gov.events.acme.p.aaep.s", "gov.events.acme.p.aaep.s.", "gov.events.acme.p.aaep.s.a..b",
		// wildcards and anything else that is not escaped
		"gov.decisions.*.deny.s", "gov.decisions.acme.>", "gov.decisions.acme.deny.>", "gov.events.>", "gov.events.acme.p.aaep.s.>",
		"gov.decisions.acme.deny.s 1", "gov.decisions.acme.deny.s$1", "gov.decisions.acmé.deny.s",
		// one value in two spellings
		"gov.decisions.~YWNtZQ.deny.s", "gov.decisions.acme.deny.~YS5i=", "gov.decisions.acme.deny.~Kh",
		"gov.events.acme.p.aaep.s.~YS5i", "gov.events.acme.p.aaep.s.~cmVxdWVzdA", "gov.events.acme.p.aaep.s.agent.~dG9vbA",
		"gov.decisions.acme.deny.~H" + longHash[2:], "gov.decisions.acme.deny.~h" + strings.Repeat("G", 64),
	} {
		if p, err := s.Parse(subj); !errors.Is(err, subject.ErrForeign) {
			t.Errorf("Parse(%q) = %+v, %v", subj, p, err)
		}
	}
}

func TestParseKeepsHashes(t *testing.T) {
	var s subject.Space
	p, err := s.Parse(s.Event("acme", "p", "aaep", long, "a."+long))
	hash := subject.Escape(long)
	if err != nil || p.Session != hash || p.Type != "a."+hash {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestPrefix(t *testing.T) {
	s := subject.Space{Prefix: "eu.gov"}
	subj := s.Decision("acme", "allow", "s")
	if subj != "eu.gov.decisions.acme.allow.s" {
		t.Error(subj)
	}
	if p, err := s.Parse(subj); err != nil || p.Tenant != "acme" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := (subject.Space{}).Parse(subj); !errors.Is(err, subject.ErrForeign) {
		t.Error("a subject of another space was accepted")
	}
}

// TestBuiltSubjectsAreLiteral checks that no value can make a subject with a
// wildcard, an empty token, white space or another number of tokens.
func TestBuiltSubjectsAreLiteral(t *testing.T) {
	var s subject.Space
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[.*>~ a-zA-Z0-9_\-\r\n]{0,70}`), rapid.SampledFrom([]string{"", ".", "*", ">", "~", long}))
	rapid.Check(t, func(t *rapid.T) {
		v := [5]string{}
		for i := range v {
			v[i] = text.Draw(t, "value")
		}
		subj := s.Event(v[0], v[1], v[2], v[3], v[4])
		if want := 2 + 4 + len(strings.Split(v[4], ".")); len(strings.Split(subj, ".")) != want {
			t.Fatalf("%q has not %d tokens", subj, want)
		}
		if strings.ContainsAny(subj, "*> \t\r\n") || strings.Contains(subj, "..") || strings.HasSuffix(subj, ".") {
			t.Fatalf("%q is no literal subject", subj)
		}
		p, err := s.Parse(subj)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range []string{p.Tenant, p.Publisher, p.Protocol, p.Session} {
			if tok := subject.Escape(v[i]); got != v[i] && got != tok || got == tok && got != v[i] && len(tok) != 66 {
				t.Fatalf("%q came back as %q", v[i], got)
			}
		}
	})
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "~", "*", ">", ".", "a.b", "plain", long, longHash, "~YS5i", "\xff", "\x87."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tok := subject.Escape(s)
		if tok == "" || len(tok) > 66 || strings.ContainsAny(tok, ".*> \t\r\n\x00") {
			t.Fatalf("Escape(%q) = %q is no token", s, tok)
		}
		back, exact := subject.Unescape(tok)
		if exact && back != s || !exact && len(tok) != 66 {
			t.Fatalf("Escape(%q) = %s, Unescape gives %q, %v", s, tok, back, exact)
		}
		// And the other way round: what Unescape takes for exact, Escape writes.
		if text, exact := subject.Unescape(s); exact && subject.Escape(text) != s {
			t.Fatalf("Unescape(%q) = %q, which Escape writes %q", s, text, subject.Escape(text))
		}
	})
}

func FuzzParse(f *testing.F) {
	var s subject.Space
	for _, subj := range []string{
		s.Event("acme", "p", "aaep", "s", "agent.tool.invoked"), s.Decision("a.b", "deny", ""), s.Control("GOV", "tick"),
		s.Approval("acme", "pending", long), s.Checkpoints("GOV@1"), "gov.events.*.>", "gov.events......", "gov.decisions.a.b.~h",
	} {
		f.Add(subj)
	}
	build := map[subject.Class]func(p subject.Parsed) string{
		subject.Admit:       func(p subject.Parsed) string { return s.Admit(p.Tenant, p.Protocol) },
		subject.Resolve:     func(p subject.Parsed) string { return s.Resolve(p.Tenant) },
		subject.Events:      func(p subject.Parsed) string { return s.Event(p.Tenant, p.Publisher, p.Protocol, p.Session, p.Type) },
		subject.Decisions:   func(p subject.Parsed) string { return s.Decision(p.Tenant, p.Verdict, p.Session) },
		subject.Calls:       func(p subject.Parsed) string { return s.Call(p.Tenant, p.State, p.Session) },
		subject.Findings:    func(p subject.Parsed) string { return s.Finding(p.Tenant, p.State, p.Session) },
		subject.Approvals:   func(p subject.Parsed) string { return s.Approval(p.Tenant, p.State, p.Workflow) },
		subject.Control:     func(p subject.Parsed) string { return s.Control(p.Shard, p.Kind) },
		subject.Quarantine:  func(p subject.Parsed) string { return s.Quarantine(p.Tenant) },
		subject.Checkpoints: func(p subject.Parsed) string { return s.Checkpoints(p.Shard) },
	}
	f.Fuzz(func(t *testing.T, subj string) {
		p, err := s.Parse(subj)
		if err != nil {
			if !errors.Is(err, subject.ErrForeign) {
				t.Fatal(err)
			}
			return
		}
		if strings.Contains(subj, "~h") {
			return // may hold a hash, which has no way back
		}
		if got := build[p.Class](p); got != subj {
			t.Fatalf("%q was accepted, but is built as %q", subj, got)
		}
	})
}
