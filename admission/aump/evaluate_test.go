package aump

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/schemas"
)

// TestConstraints: facts against operators.
func TestConstraints(t *testing.T) {
	for _, tc := range []struct {
		op, value, facts string // value "" if there is none
		holds            bool
	}{
		{"eq", `2`, `{"x":2.0}`, true}, {"eq", `2`, `{"x":3}`, false}, {"eq", `2`, `{"x":"2"}`, false}, {"eq", `"a"`, `{"x":"A"}`, false},
		{"eq", `false`, `{"x":false}`, true}, {"eq", `false`, `{"x":0}`, false}, {"eq", `false`, `{}`, false}, {"eq", `false`, `{"x":null}`, false},
		{"eq", `"a"`, `{"x":["a"]}`, false},
		{"ne", `"a"`, `{"x":"b"}`, true}, {"ne", `"a"`, `{"x":"a"}`, false}, {"ne", `"a"`, `{}`, false}, {"ne", `"a"`, `{"x":1}`, false},
		{"ne", `"a"`, `{"x":" A"}`, false}, {"ne", `1`, `{"x":2}`, true}, {"ne", `true`, `{"x":false}`, true}, {"ne", `"a"`, `{"x":{}}`, false},
		{"lt", `2`, `{"x":1}`, true}, {"lt", `2`, `{"x":2}`, false}, {"lte", `2`, `{"x":2}`, true}, {"lte", `2`, `{"x":2.01}`, false},
		{"gt", `2`, `{"x":3}`, true}, {"gt", `2`, `{"x":2}`, false}, {"gte", `2`, `{"x":2}`, true}, {"gte", `2`, `{"x":1}`, false},
		{"gte", `2`, `{"x":"3"}`, false}, {"gte", `2`, `{}`, false}, {"lte", `2`, `{"x":null}`, false}, {"lte", `2`, `{"x":true}`, false},
		{"in", `["a",1]`, `{"x":1}`, true}, {"in", `["a",1]`, `{"x":"b"}`, false}, {"in", `["a"]`, `{}`, false}, {"in", `["a"]`, `{"x":["a"]}`, false},
		{"not_in", `["a","b"]`, `{"x":"c"}`, true}, {"not_in", `["a","b"]`, `{"x":"b"}`, false}, {"not_in", `["a"]`, `{"x":"A "}`, false},
		{"not_in", `["a"]`, `{"x":1}`, false}, {"not_in", `["a"]`, `{}`, false},
		{"exists", ``, `{"x":0}`, true}, {"exists", ``, `{}`, false}, {"exists", ``, `{"x":null}`, false},
		{"exists", `true`, `{"x":false}`, true}, {"exists", `false`, `{}`, true}, {"exists", `false`, `{"x":1}`, false},
	} {
		value := ""
		if tc.value != "" {
			value = `,"value":` + tc.value
		}
		for _, part := range []string{"attributes", "terms"} {
			m := compiled(t, courier, "preferences.hard_constraints",
				fmt.Sprintf(`[{"id":"w","description":"in words"},{"id":"c","description":"d","field":"%s.deep.x","op":%q%s}]`, part, tc.op, value))
			if m.Violations != nil {
				t.Fatalf("%s %s: %v", tc.op, tc.value, m.Violations)
			}
			r := evaluate(m, fmt.Sprintf(`{"type":"book_courier","summary":"s","%s":{"deep":%s}}`, part, tc.facts), nil)
			want := "denied [hard_constraint_violation] [$.preferences.hard_constraints[1]]"
			if tc.holds {
				want = "allowed [] []"
			}
			if got := spaced(r); got != want {
				t.Errorf("%s.deep %s %s with %s: %s, want %s", part, tc.op, tc.value, tc.facts, got, want)
			}
		}
	}
}

func spaced(r Result) string { return fmt.Sprintf("%s %v %v", r.Decision, r.ReasonCodes(), r.Paths()) }

// TestDisclosures: field names against rules, under both profiles.
func TestDisclosures(t *testing.T) {
	m := func(byDefault string) *mandate.Mandate {
		return compiled(t, courier, "disclosure.default", `"`+byDefault+`"`,
			"disclosure.allowed", `[{"field":"purpose.summary","condition":"c"},{"field":"negotiation.target_price_minor","condition":"c"},{"field":"preferences","condition":"c"}]`,
			"disclosure.prohibited", `[{"field":"principal.subject","condition":"c"}]`,
			"negotiation.protected_fields", `["target_price_minor"]`,
			"preferences.soft_preferences", `[{"id":"early","description":"d","protected":true},{"id":"green","description":"d"}]`,
			"preferences.private_notes", `["The warehouse is empty by Friday."]`)
	}
	for _, tc := range []struct {
		field, byDefault string
		reference, hard  bool // whether it may be told
	}{
		{"purpose.summary", "deny", true, true},
		{"purpose.intent", "deny", false, false},
		{"purpose.intent", "allow", true, true},
		{"principal.subject", "allow", false, false},
		{"Principal.Subject", "allow", true, false},
		{" principal.subject ", "allow", true, false},
		{"principal.subject.did", "allow", true, false},
		{"principal", "allow", true, false},
		{"principal['subject']", "allow", true, false},
		{"$.principal.subject", "allow", true, false},
		{"principal.subjects", "allow", true, true},
		{"negotiation.target_price_minor", "deny", false, false}, // protected wins over allowed
		{"target_price_minor", "allow", false, false},
		{"foo.target_price_minor", "allow", false, false},
		{"foo.target_price_minor.value", "allow", true, false},
		{"negotiation", "allow", true, false},
		{"negotiation.max_rounds", "allow", true, true},
		{"preferences.private_notes", "allow", false, false},
		{"foo.private_notes", "allow", false, false},
		{"private_notes", "allow", true, false},
		{"private_notes[0]", "allow", true, false},
		{"preferences.private_notes[0]", "allow", true, false},
		{"preferences", "deny", true, false}, // allowed, but it holds what is not
		{"preferences.soft_preferences", "allow", true, false},
		{"preferences.soft_preferences.early", "allow", true, false},
		{"preferences.soft_preferences.green", "allow", true, true},
		{"soft_preferences.early", "allow", true, false},
		{"soft_preferences.green", "allow", true, true},
		{"preferences.soft_preferences[0]", "allow", true, false}, // its place
		{"preferences.soft_preferences[0].description", "allow", true, false},
		{"soft_preferences[0]", "allow", true, false},
		{"preferences.soft_preferences[1]", "allow", true, true},
		{"", "allow", true, false},
		{"..", "allow", true, false},
		{"", "deny", false, false},
	} {
		for p, may := range map[call.Profile]bool{ref: tc.reference, call.ProfileHardened: tc.hard} {
			action := fmt.Sprintf(`{"type":"book_courier","summary":"s","disclosures":[{"field":%q,"content":"c"}]}`, tc.field)
			r := evaluate(m(tc.byDefault), action, func(in *Input) { in.Profile = p })
			want := "denied [disclosure_denied] [$.proposed_action.disclosures[0].field]"
			if may {
				want = "allowed [] []"
			}
			if got := spaced(r); got != want {
				t.Errorf("%q, default %s, %s: %s, want %s", tc.field, tc.byDefault, p, got, want)
			}
		}
	}
}

// TestMandateIsPreparedOnce counts allocations: an evaluation must not prepare the lists of the mandate anew for every
// item of the request.
func TestMandateIsPreparedOnce(t *testing.T) {
	const items = 2000
	names, fields := "", ""
	for i := range 50 {
		names += fmt.Sprintf(`,"Secret Name %d"`, i)
		fields += fmt.Sprintf(`,{"field":"negotiation.Field%d","condition":"c"}`, i)
	}
	m := compiled(t, courier, "disclosure.default", `"allow"`, "disclosure.prohibited", "["+fields[1:]+"]", "negotiation.protected_fields", "["+names[1:]+"]",
		"preferences.private_notes", "["+names[1:]+"]", "compliance", `{"prohibited_decision_factors":[`+names[1:]+`]}`)
	action := `{"type":"book_courier","summary":"s","disclosures":[` + strings.Repeat(`{"field":"Purpose","content":"Some Text"},`, items) + `{"field":"x","content":"c"}],"decision_factors":[` +
		strings.Repeat(`"Price",`, items) + `"x"]}`
	var in Input
	r := evaluate(m, action, func(x *Input) { in = *x })
	if r.Decision != wire.Allowed {
		t.Fatal(spaced(r))
	}
	if n := testing.AllocsPerRun(1, func() { r = Evaluate(in) }); n > 20*items {
		t.Errorf("%.0f allocations for %d items", n, items)
	}
}

// A long name is compared in one form with all names of a list.
func TestLongNamesAreFoldedOnce(t *testing.T) {
	long := strings.Repeat("Long Name ", 10_000)
	list := make([]string, 200)
	values := make([]any, len(list))
	for i := range list {
		list[i] = fmt.Sprintf("Item %d names", i)
		values[i] = list[i]
	}
	for what, compare := range map[string]func() bool{
		"isListed": func() bool { return isListed(list, long) }, "namedAfter": func() bool { return namedAfter(list, long) }, "not_in": func() bool { return !noneOf(long, values) },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if compare() {
			t.Errorf("%s: the name is on the list", what)
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 2<<20 {
			t.Errorf("%s: a name of 100 kB makes %d MiB of garbage", what, grown>>20)
		}
	}
}

func TestManyDisclosures(t *testing.T) {
	m := compiled(t, courier, "disclosure.allowed", `[{"field":"purpose.summary","condition":"c"}]`)
	r := evaluate(m, `{"type":"book_courier","summary":"s","disclosures":[{"field":"purpose.summary","content":"c"},{"field":"foo.private_notes","content":"c"},{"field":"purpose.intent","content":"c"}]}`, nil)
	if got := spaced(r); got != "denied [disclosure_denied] [$.proposed_action.disclosures[1].field $.proposed_action.disclosures[2].field]" {
		t.Error(got)
	}
	list := ""
	for range 5000 {
		list += `,{"field":"x","content":"c"}`
	}
	r = evaluate(m, `{"type":"book_courier","summary":"s","disclosures":[`+list[1:]+`]}`, nil)
	if len(r.Findings) != maxPaths+1 || r.Decision != wire.Denied || r.Findings[maxPaths].Code != CodeReasonsCut {
		t.Errorf("%d findings", len(r.Findings))
	}
}

func TestLedgerThatGivesMoney(t *testing.T) {
	for _, s := range []mandate.Spend{{Reserved: -5000, Settled: 5000}, {Reserved: 5000, Settled: -5000}} {
		if r := evaluate(compiled(t, courier), fair, func(in *Input) { in.Spend = s }); r.Decision != wire.Denied {
			t.Errorf("%+v: %s", s, spaced(r))
		}
	}
}

func TestNoMandate(t *testing.T) {
	for name, in := range map[string]Input{
		"none":      {Ref: wire.Ref{ID: "aump_mnd_x"}},
		"a bad one": {Mandate: compiled(t, courier, "status", `"paused"`)},
	} {
		in.Now = noon
		want := "denied [schema_invalid] [$]"
		if in.Mandate == nil {
			want = "denied [mandate_not_found] [$.mandate_ref.id]"
		}
		if got := spaced(Evaluate(in)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestReferenceMismatch(t *testing.T) {
	m := compiled(t, courier)
	other := compiled(t, courier, "authority.budget.max_total_minor", "20001")
	for name, tc := range map[string]struct {
		ref     wire.Ref
		profile call.Profile
		want    string
	}{
		"right":                {wire.Ref{ID: m.ID, Hash: m.Hash}, "", "allowed [] []"},
		"another hash":         {wire.Ref{ID: m.ID, Hash: other.Hash}, "", "denied [mandate_hash_mismatch] [$.mandate_ref.hash]"},
		"no hash":              {wire.Ref{ID: m.ID}, "", "denied [mandate_hash_mismatch] [$.mandate_ref.hash]"},
		"another id":           {wire.Ref{ID: "aump_mnd_x", Hash: m.Hash}, "", "denied [mandate_hash_mismatch] [$.mandate_ref.id]"},
		"another id and hash":  {wire.Ref{ID: "aump_mnd_x", Hash: other.Hash}, "", "denied [mandate_hash_mismatch] [$.mandate_ref.id $.mandate_ref.hash]"},
		"no hash, reference":   {wire.Ref{ID: m.ID}, ref, "allowed [] []"},
		"unknown profile":      {wire.Ref{ID: m.ID}, "lenient", "denied [mandate_hash_mismatch] [$.mandate_ref.hash]"},
		"digits in upper case": {wire.Ref{ID: m.ID, Hash: upperHash(m.Hash)}, "", "allowed [] []"},
	} {
		r := evaluate(m, book, func(in *Input) { in.Ref, in.Profile = tc.ref, tc.profile })
		if got := spaced(r); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// agentsOf is a registry in which every publisher is registered for these agents.
type agentsOf struct {
	publisher.Registry
	ids []string
}

func (a agentsOf) Agents(string, string) []string { return a.ids }

func (agentsOf) IrreversibleAction(string, string, string) bool { return false }

// A mandate that a publisher may not know of is answered and recorded like one that does not exist: for
// publishers registered for other agents alone whatever they name, and for unregistered ones with another hash than
// the mandate's. A publisher that is registered for its agent learns that the hash is another, and not which it is.
func TestNoAnswerTellsThatAMandateExists(t *testing.T) {
	m := compiled(t, courier)
	older := compiled(t, courier, "authority.budget.max_total_minor", "20001")
	unreadable := &mandate.Mandate{Mandate: &wire.Mandate{ID: m.ID}, Violations: []schemas.Violation{{}}}
	const wipe = `{"type":"wipe","summary":"x","amount":{"currency":"USD","total_minor":99999999}}`
	mine, others := []string{m.Agent.ID}, []string{"agent-kitchen"}
	for name, tc := range map[string]struct {
		held, named *mandate.Mandate
		agents      []string
		want        string // "": as if there were none
	}{
		"another hash":                               {m, older, nil, ""},
		"another hash, registered for others":        {m, older, others, ""},
		"the hash, registered for others":            {m, m, others, ""},
		"unreadable":                                 {unreadable, m, nil, ""},
		"unreadable, registered for some":            {unreadable, m, mine, ""},
		"another hash, registered for its agent":     {m, older, mine, "denied [mandate_hash_mismatch] [$.mandate_ref.hash]"},
		"the hash":                                   {m, m, nil, "denied [scope_violation hard_constraint_violation currency_mismatch"},
		"the hash, registered for its agent as well": {m, m, append(others, mine...), "denied [scope_violation hard_constraint_violation currency_mismatch"},
	} {
		asked := func(s store) (answer, string) {
			r := request(s, envelope(tc.named, wipe, ""), noon)
			r.Publishers = agentsOf{ids: tc.agents}
			a := ask(t, r)
			return a, fmt.Sprint(string(a.raw), a.opinion, a.call.Mandate, a.call.Reservation)
		}
		a, got := asked(holding(tc.held))
		if none, unknown := asked(holding()); tc.want == "" && got != unknown {
			t.Errorf("%s: %s, and without a mandate %s", name, got, unknown)
		} else if none.String() != "denied [mandate_not_found] [$.mandate_ref.id]" || !strings.HasPrefix(a.String(), tc.want) {
			t.Errorf("%s: %s, want %s", name, a, tc.want)
		}
		if text := string(a.raw); !strings.Contains(text, tc.named.Hash) {
			t.Errorf("%s: the reply must name the hash of the request and no other: %s", name, text)
		}
	}
}

// A mandate is for one agent: the one that the request claims.
func TestMandateOfAnotherAgent(t *testing.T) {
	m := compiled(t, courier)
	const mine, denied = "allowed [] []", "denied [scope_violation] [$.agent.id]"
	for name, tc := range map[string]struct {
		claim   string
		profile call.Profile
		want    string
	}{
		"nothing to compare with":    {"", "", mine},
		"claimed":                    {"agent-courier", "", mine},
		"another claimed":            {"agent-kitchen", "", denied},
		"claimed by its name":        {"Courier agent", "", denied},
		"another claimed, reference": {"agent-kitchen", ref, mine},
	} {
		r := evaluate(m, book, func(in *Input) { in.Agent, in.Profile = tc.claim, tc.profile })
		if got := spaced(r); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestSignaturePolicies(t *testing.T) {
	for _, tc := range []struct {
		state  wire.SignatureState
		denied string // the policies under which it is denied
	}{
		{wire.SignatureNone, "[required other]"},
		{wire.SignatureVerified, "[]"},
		{wire.SignatureUnverifiable, "[ if_present required other]"},
		{wire.SignatureInvalid, "[ if_present required other]"},
		{"", "[if_present required other]"},
	} {
		m := *compiled(t, courier)
		m.Signatures = tc.state
		var denied []mandate.SignaturePolicy
		for _, p := range []mandate.SignaturePolicy{mandate.SignaturesAuto, mandate.SignaturesOff, mandate.SignaturesIfPresent, mandate.SignaturesRequired, "other"} {
			r := evaluate(&m, book, func(in *Input) { in.Signatures = p })
			if r.Decision == wire.Denied {
				denied = append(denied, p)
				if got := spaced(r); got != "denied [signature_invalid] [$.signatures]" {
					t.Error(got)
				}
			}
		}
		if got := fmt.Sprint(denied); got != tc.denied {
			t.Errorf("%q is denied under %s, want %s", tc.state, got, tc.denied)
		}
	}
}

func upperHash(h string) string { return "sha256-" + strings.ToUpper(strings.TrimPrefix(h, "sha256-")) }
