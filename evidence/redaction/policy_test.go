package redaction

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

func parse(t *testing.T, rules string) *Policy {
	t.Helper()
	p, err := Parse("acme.yaml", []byte("version: 1\nname: acme\nrules:\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTreat(t *testing.T) {
	p := parse(t, `
  - {name: own-mail, detectors: [email], values: ["*@acme.example", "support@*"], action: allow}
  - {name: mail-join, detectors: [email], protocols: [agenthook], action: tokenise}
  - {name: card, detectors: [payment_card], action: mask, last: 4}
  - {name: open, paths: [tool_input.public], action: allow}
  - {name: notes, paths: ["items.*.note", /a~1b], action: drop}
  - {name: head, headers: [X-User], action: hash}
  - {name: rest, detectors: [personal], action: truncate, keep: 3}
`)
	for name, tc := range map[string]struct {
		scope                       Scope
		detector, path, value, want string
	}{
		"value":             {Scope{Protocol: "aaep"}, redact.Email, "/x", "Dana@ACME.example", "allow own-mail"},
		"value, prefix":     {Scope{}, redact.Email, "/x", "support@x.example", "allow own-mail"},
		"other value":       {Scope{Protocol: "agenthook"}, redact.Email, "/x", "dana@x.example", "tokenise mail-join"},
		"other protocol":    {Scope{Protocol: "aaep"}, redact.Email, "/x", "dana@x.example", "truncate rest"},
		"measure":           {Scope{}, redact.Card, "/x", "4111", "mask card"},
		"group":             {Scope{}, redact.Phone, "/x", "+49", "truncate rest"},
		"path":              {Scope{}, redact.Phone, "/tool_input/public", "+49", "allow open"},
		"below path":        {Scope{}, redact.Phone, "/tool_input/public/0/x", "+49", "allow open"},
		"executed":          {Scope{}, redact.Phone, "/metadata/tool_input_executed/public", "+49", "allow open"},
		"beside path":       {Scope{}, redact.Phone, "/tool_input/publicity", "+49", "truncate rest"},
		"in data":           {Scope{InData: true}, redact.Phone, "/data/tool_input/public", "+49", "allow open"},
		"never, allowed":    {Scope{}, redact.CredentialField, "/tool_input/public", "x", "mask "},
		"declared, allowed": {Scope{}, redact.DeclaredField, "/tool_input/public", "x", "mask "},
		"wildcard":          {Scope{}, redact.PolicyField, "/items/7/note", "x", "drop notes"},
		"secret dropped":    {Scope{}, "github_token", "/items/7/note", "x", "drop notes"},
		"escaped":           {Scope{}, redact.PolicyField, "/a~1b", "x", "drop notes"},
		"header":            {Scope{Header: "x-user"}, redact.Email, "/0", "a@b.example", "hash head"},
		"other header":      {Scope{Header: "x-other"}, redact.Phone, "/0", "+49", "truncate rest"},
		"nothing says":      {Scope{}, redact.HighEntropy, "/x", "x", "mask "},
	} {
		got := p.treatmentFor(tc.scope, tc.detector, tc.path, tc.value)
		_, rule, _ := strings.Cut(got.Rule, "/")
		if s := got.Action.String() + " " + rule; s != tc.want {
			t.Errorf("%s: %s, want %s", name, s, tc.want)
		}
	}
	c := p.Config(Scope{InData: true})
	if fmt.Sprint(c.Forced) != "[data.items.*.note /data/a~1b]" || c.ForcedAll {
		t.Errorf("forced: %v, %v", c.Forced, c.ForcedAll)
	}
	if c := p.Config(Scope{Header: "X-USER"}); !c.ForcedAll || len(c.Forced) > 0 {
		t.Errorf("header: %v, %v", c.Forced, c.ForcedAll)
	}
}

func TestParseRefuses(t *testing.T) {
	rule := func(s string) string { return "version: 1\nname: acme\nrules:\n  - " + s + "\n" }
	for name, tc := range map[string]struct{ text, want string }{
		"empty":                 {"", "x.yaml:1: the file is empty"},
		"unknown key":           {"version: 1\nname: a\nrule: []\n", `x.yaml:3: a redaction policy has no key "rule"`},
		"unknown rule key":      {rule("{name: a, detector: email, action: mask}"), `x.yaml:4: a rule has no key "detector"`},
		"key twice":             {"version: 1\nname: a\nname: b\nrules: []\n", "x.yaml:3: a redaction policy has the key \"name\" twice"},
		"no version":            {"name: a\nrules: []\n", "needs version"},
		"version":               {"version: 2\nname: a\nrules: []\n", "x.yaml:1: version must be a whole number between 1 and 1"},
		"name":                  {"version: 1\nname: A b\nrules: []\n", `x.yaml:2: name "A b" must look like`},
		"builtin":               {"version: 1\nname: builtin\nrules: []\n", "choose another"},
		"two documents":         {"version: 1\nname: a\nrules: []\n---\nversion: 1\n", "second document"},
		"action":                {rule("{name: a, detectors: [email], action: keep}"), "action must be"},
		"no action":             {rule("{name: a, detectors: [email]}"), "a rule needs action"},
		"about nothing":         {rule("{name: a, action: mask}"), "what is it about"},
		"detector":              {rule("{name: a, detectors: [emial], action: mask}"), `there is no detector "emial"`},
		"protocol":              {rule("{name: a, detectors: [email], protocols: [smtp], action: mask}"), "protocol must be one of"},
		"same name":             {rule("{name: a, detectors: [email], action: mask}\n  - {name: a, detectors: [iban], action: mask}"), "x.yaml:5: there is a rule \"a\" already"},
		"secret allowed":        {rule("{name: a, detectors: [github_token], action: allow}"), "x.yaml:4: what github_token finds may never be released"},
		"declared allowed":      {rule("{name: a, detectors: [declared_field], action: allow}"), "may never be released"},
		"protocol list allowed": {rule("{name: a, detectors: [never_store], action: allow}"), "may never be released"},
		"mandate allowed":       {rule("{name: a, detectors: [protected_field], action: truncate, keep: 3}"), "may never be released"},
		"secret's last":         {rule("{name: a, detectors: [credential_field], action: mask, last: 2}"), "may never be released"},
		"guess allowed":         {rule("{name: a, detectors: [high_entropy_value], action: allow}"), "at named places only"},
		"truncate":              {rule("{name: a, detectors: [email], action: truncate}"), "truncate needs keep"},
		"keep":                  {rule("{name: a, detectors: [email], action: mask, keep: 3}"), "truncate needs keep, and nothing else"},
		"scope":                 {rule("{name: a, detectors: [email], action: hash, scope: session}"), "scope is for tokenise"},
		"another scope":         {rule("{name: a, detectors: [email], action: tokenise, scope: world}"), "tenant (the default) or session"},
		"last":                  {rule("{name: a, detectors: [email], action: hash, last: 3}"), "last goes with mask"},
		"last too many":         {rule("{name: a, detectors: [email], action: mask, last: 5}"), "last must be a whole number between 1 and 4"},
		"all values":            {rule(`{name: a, detectors: [email], values: ["*"], action: allow}`), "matches everything"},
		"empty list":            {rule("{name: a, detectors: [], action: mask}"), "detectors is empty"},
		"empty path":            {rule(`{name: a, paths: [""], action: mask}`), "is empty"},
		"path of nothing":       {rule(`{name: a, paths: ["$"], action: mask}`), "names nothing"},
		"header":                {rule(`{name: a, headers: ["X Y"], action: mask}`), "not the name of a header"},
		"number for a name":     {rule("{name: 7, detectors: [email], action: mask}"), "must be a string"},
		"alias":                 {"version: 1\nname: a\nrules:\n  - &x {name: a, detectors: [email], action: mask}\n  - *x\n", "must be a mapping"},
		"tag":                   {"version: 1\nname: !!str a\nrules: []\n", "must be a string"},
		"yaml":                  {"version: [1\n", "x.yaml:1:"},
		"large":                 {strings.Repeat("#", MaxBytes+1), "at most"},
		"many":                  {"version: 1\nname: a\nrules: [" + strings.Repeat("a,", MaxRules+1) + "]\n", "at most 64"},
	} {
		p, err := Parse("x.yaml", []byte(tc.text))
		if p != nil || !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestID(t *testing.T) {
	a, b := parse(t, "  []\n"), parse(t, "  []\n\n")
	if a.ID() == b.ID() || !strings.HasPrefix(a.ID(), "acme@") || len(a.ID()) != len("acme@")+16 || a.Name() != "acme" || Builtin().ID() != BuiltinID {
		t.Errorf("%s, %s", a.ID(), b.ID())
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("version: 1\nname: a\nrules:\n  - {name: a, detectors: [email, personal], paths: [a.b], headers: [X], protocols: [aump], values: [\"*x\"], action: mask, last: 2}\n"))
	f.Add([]byte("version: 1\nname: a\nrules: [*x]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse("f", text)
		if (p == nil) == (err == nil) {
			t.Fatal("neither a policy nor an error, or both")
		}
		if err != nil {
			return
		}
		for _, d := range redact.Detectors() { // whatever it says, what may never be released is not
			got := p.Config(Scope{Protocol: "aana"}).Treat(d, "/a/b", "x@x")
			if !redact.Releasable(d) && (got.Action == redact.Allow || got.Action == redact.Truncate || got.KeepLast > 0) {
				t.Errorf("%s is released by %s", d, text)
			}
		}
	})
}
