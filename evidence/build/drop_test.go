package build_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/evidence/evidencetest"
)

const dropMail = "version: 1\nname: p\nrules:\n  - {name: mail, detectors: [email], action: drop}\n"

// A finding that drops its text takes the other findings of that text with it: the record
// verifies, and says of each that it was dropped.
func TestDropTakesAllFindingsOfItsText(t *testing.T) {
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	for name, c := range map[string]struct{ policy, body, header, headerValue string }{
		"one finding":        {policy: dropMail, body: `{"note":"write to dana@other.example"}`},
		"with a credential":  {policy: dropMail, body: `{"note":"write to dana@other.example with ` + token + `"}`},
		"with personal data": {policy: dropMail, body: `{"note":"call +49 30 901820 or write to dana@other.example"}`},
		"in a list":          {policy: dropMail, body: `{"notes":["write to dana@other.example or call +49 30 901820"]}`},
		"in a key":           {policy: dropMail, body: `{"dana@other.example ` + token + `":1}`},
		"below redacted keys": {policy: dropMail,
			body: `{"` + token + `":"dana@other.example","` + strings.Replace(token, "0", "X", 1) + `":5}`},
		"in a header's value": {policy: dropMail, body: `{}`, header: "X-Note", headerValue: "write to dana@other.example or call +49 30 901820"},
		"in a header's name": {body: `{}`, header: "4111-1111-1111-1111." + token, headerValue: "x",
			policy: "version: 1\nname: p\nrules:\n  - {name: keys, detectors: [github_token], action: drop}\n"},
		"in a truncated text": {body: `{"tool_input":{"note":"see ` + token + ` and more"}}`,
			policy: "version: 1\nname: p\nrules:\n  - {name: cut, paths: [tool_input.note], action: truncate, keep: 40}\n  - {name: keys, detectors: [github_token], action: drop}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := evidencetest.NewWithPolicy(t, c.policy)
			headers := map[string][]string{}
			if c.header != "" {
				headers[c.header] = []string{c.headerValue}
			}
			b := f.Log(evidencetest.EventSubject, headers, []byte(c.body))
			if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
				t.Errorf("%v\n%s", rep.Findings, b.Canonical)
			}
			for _, r := range b.Record.Redactions {
				if name != "below redacted keys" && r.Action != "drop" {
					t.Errorf("%s at %s: %s", r.Detector, r.Path, r.Action)
				}
			}
		})
	}
}

// Records of any policy verify, whatever findings stand beside one another.
func TestRecordsOfAnyPolicyVerify(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	one := func(list ...string) string { return list[r.IntN(len(list))] }
	text := func() string {
		var s []string
		for range 1 + r.IntN(4) {
			s = append(s, one("write to", "dana@other.example", "ghp_0123456789abcdefghijABCDEFGHIJ012345", "+49 30 901820", "password=hunter2x9", "4111 1111 1111 1111",
				"%64ana%40other.example", "zürich 😀", "ZGFuYUBvdGhlci5leGFtcGxlIGFuZCBtb3Jl"))
		}
		return strings.Join(s, one(" ", ", ", "; "))
	}
	var value func(depth int) any
	value = func(depth int) any {
		switch n := r.IntN(6); {
		case n < 3 || depth > 2:
			return text()
		case n == 3:
			return []any{value(depth + 1), value(depth + 1)}
		case n == 4:
			return r.IntN(1000000)
		}
		return map[string]any{one("note", "password", "email", "items", "x/y~z", text(), text()): value(depth + 1), one("b", text()): value(depth + 1)}
	}
	for range 500 {
		policy := "version: 1\nname: p\nrules:\n"
		for i := range 1 + r.IntN(3) {
			what := one("detectors: [email]", "detectors: [phone]", "detectors: [payment_card]", "detectors: [github_token]", "paths: [tool_input.note]", `paths: ["tool_input.**"]`, `paths: ["tool_input.items.*"]`)
			action := one("mask", "drop", "drop", "hash", "tokenise", "tokenise, scope: session")
			if !strings.Contains(what, "github") {
				action = one(action, action, "truncate, keep: 3", "truncate, keep: 30", "mask, last: 2")
			}
			policy += fmt.Sprintf("  - {name: r%d, %s, action: %s}\n", i, what, action)
		}
		body, err := json.Marshal(map[string]any{"tool_input": map[string]any{"note": value(0), "items": value(0), "b": value(0)}})
		evidencetest.Must(t, err)
		f := evidencetest.NewWithPolicy(t, policy)
		b := f.Log(evidencetest.EventSubject, map[string][]string{"X-Note": {text(), text()}, text(): {text()}}, body)
		if rep := evidencetest.VerifyRows(f.Options(), f.Rows()); !rep.OK {
			t.Fatalf("%v\n%s\n%s\n%s", rep.Findings, policy, body, b.Canonical)
		}
	}
}
