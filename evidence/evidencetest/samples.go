package evidencetest

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	policies "github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/evidence/tree"
)

const ClassPolicy = "keep@0123456789abcdef"

// NewWithClass is a fixture with one class for all sessions.
func NewWithClass(t testing.TB, c retention.Class) *Fixture {
	t.Helper()
	f := New(t)
	f.Builder = f.Builder.WithClasses(func(string, string) (retention.Class, string) { return c, ClassPolicy })
	return f
}

// SamplePolicy uses every action.
const SamplePolicy = `version: 1
name: sample
rules:
  - {name: own-mail, detectors: [email], values: ["*@acme.example"], action: allow}
  - {name: mail, detectors: [email], action: tokenise}
  - {name: card, detectors: [payment_card], action: mask, last: 4}
  - {name: phone, detectors: [phone], action: hash}
  - {name: memo, paths: [tool_input.memo], action: drop}
  - {name: text, paths: [tool_input.text], action: truncate, keep: 5}
  - {name: user, headers: [X-User], action: tokenise, scope: session}
`

// NewWithPolicy is a fixture with a redaction policy for its tenant.
func NewWithPolicy(t testing.TB, text string) *Fixture {
	t.Helper()
	f := New(t)
	p, err := policies.Parse("sample.yaml", []byte(text))
	Must(t, err)
	f.Builder = f.Builder.WithPolicies(func(tenant string) (*policies.Policy, error) {
		if tenant != "acme" {
			return policies.Builtin(), nil
		}
		return p, nil
	})
	return f
}

const PersonalEvent = `{"event_id":"evt_1","tool_input":{"to":"Dana@Other.example","cc":"eve@acme.example","card":"4111 1111 1111 1111","memo":{"a":["x"]},` +
	`"text":"hello, dana@other.example","call":"+49 30 901820","key":"ghp_0123456789abcdefghijABCDEFGHIJ012345"}}`

// Sized pads an event's text argument to a body of about n bytes.
func Sized(event, filler string, n int) []byte {
	pad := strings.Repeat(filler, n/len(filler)+1)[:max(n-len(event), 1)]
	return []byte(strings.Replace(event, `"metadata"`, `"note":"`+strings.TrimRight(pad, " ")+`","metadata"`, 1))
}

const CleanText = "looked at 17 pages and wrote a short summary for the user. "

const EventSubject = "gov.events.acme.runtime-1.agenthook.sess-a.PreToolUse"

// SampleTexts are JSON values in canonical form and next to it.
var SampleTexts = []string{
	`null`, `true`, `false`, `0`, `-0`, `-1`, `00`, `01`, `-01`, `1.0`, `0.5`, `-0.25`, `1e3`, `1E3`, `1e-7`, `1e-6`, `0.000001`, `0.0000001`, `123456789012345`, `9007199254740992`,
	`9007199254740993`, `100000000000000000000`, `1e21`, `0.1`, `0.10`, `.5`, `5.`, `+1`, `0.30000000000000004`, `1.7976931348623157e+308`,
	`""`, `"a"`, `"\n"`, `"\u000a"`, `"\u0001"`, `"\u001f"`, `"\u001F"`, `"\u0041"`, `"\/"`, `"/"`, `"\""`, `"\\"`, `"é"`, `"\u00e9"`, `"😀"`, `"\ud83d\ude00"`, "\"\x7f\"", "\"\x01\"",
	"\"\xff\"", `"abcdefgh\"ijklmnop"`, `"abcdefg"`, `"abcdefgh"`, `"abcdefghi\`, `"unended`, `"\u2028"`, "\"\u2028\"", `"\x"`, `"\u00"`,
	`[]`, `[ ]`, `[1]`, `[1,2]`, `[1,]`, `[,1]`, `[1 ,2]`, `{}`, `{ }`, `{"a":1}`, `{"a":1,"b":2}`, `{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"a":1,}`, `{"a" :1}`, `{"A":1,"a":2}`, `{"":1}`,
	`{"é":1,"z":2}`, `{"z":1,"é":2}`, `{"\n":1}`, `{"😀":1,"דּ":2}`, `{"דּ":1,"😀":2}`, `{"a":[{"b":[null,{"c":"d"}]}]}`, strings.Repeat("[", 90) + strings.Repeat("]", 90), `nul`, `truex`, ``,
}

func NewWitness(t testing.TB, name string) (tree.Witness, note.Verifier) {
	t.Helper()
	skey, vkey, err := tree.NewWitnessKey(bytes.NewReader(Derived(name)), name)
	Must(t, err)
	w, err := tree.WitnessSigner(skey + "\n")
	Must(t, err)
	v, err := tree.NewWitness(vkey)
	Must(t, err)
	if w.Name() != name || v.Name() != name {
		t.Fatalf("%s %s", w.Name(), v.Name())
	}
	return w, v
}
