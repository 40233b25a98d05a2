package build_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// FuzzRecordKeepsNoSecret puts a password into a field that says so, and again,
// in several spellings, between any two texts, into keys, lists and headers. It is
// nowhere in the record, whatever the policy, and the record verifies.
func FuzzRecordKeepsNoSecret(f *testing.F) {
	f.Add("see ", " there", uint8(0), "agenthook")
	f.Add(`{"password":"`, `"}`, uint8(1), "aana")
	f.Add("%41%", "%zz", uint8(2), "aump")
	f.Add("\\u00", "&#6", uint8(3), "tool")
	f.Add("=", "==", uint8(4), "aaep")
	f.Add("[redacted:jwt", "]", uint8(5), "handoff")
	const secret = "Tr0ub4dor&3 \"x\"/ü"
	spell := []func(string) string{
		func(s string) string { return s },
		url.QueryEscape,
		url.PathEscape,
		func(s string) string {
			return base64.StdEncoding.EncodeToString([]byte("as agreed: " + s + ", regards"))
		},
		func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
		func(s string) string { b, _ := json.Marshal(s); return strings.Trim(string(b), `"`) },
	}
	plain, loose := evidencetest.New(f), evidencetest.NewWithPolicy(f, evidencetest.SamplePolicy)
	opts := plain.Options()
	f.Fuzz(func(t *testing.T, before, after string, how uint8, protocol string) {
		form := spell[int(how)%len(spell)](secret)
		text := before + " " + form + " " + after
		body, err := json.Marshal(map[string]any{"password": secret, "note": text, "list": []any{text, map[string]any{text: 1}}})
		if err != nil {
			t.Skip()
		}
		for _, b := range []*build.Builder{plain.Builder, loose.Builder} {
			m := events.LogMessage{Seq: 1, Time: evidencetest.Start, Subject: "gov.events.acme.r." + subjectToken(protocol) + ".s.x", Body: body, Header: map[string][]string{"X-Note": {text}}}
			built, err := b.Build(m, evidence.Head{}, plain.Keys)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []string{secret, form, strings.Trim(string(mustJSON(t, form)), `"`)} {
				if strings.Contains(string(built.Canonical), v) {
					t.Errorf("%q is left in %s", v, built.Canonical)
				}
			}
			if rep := evidencetest.VerifyRows(opts, []evidence.Row{built.Row()}); hasCode(rep, verify.CodeRedaction) || hasCode(rep, verify.CodeBody) {
				t.Errorf("%v\n%s", rep.Findings, built.Canonical)
			}
			if again, err := b.Build(m, evidence.Head{}, plain.Keys); err != nil || again.Hash != built.Hash {
				t.Error("two builds differ")
			}
		}
	})
}

func subjectToken(s string) string {
	if s == "" || len(s) > 20 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") != "" {
		return "agenthook"
	}
	return s
}

func mustJSON(t *testing.T, v any) []byte {
	b, err := json.Marshal(v)
	evidencetest.Must(t, err)
	return b
}

func hasCode(rep verify.Report, code verify.Code) bool {
	for _, p := range rep.Findings {
		if p.Code == code {
			return true
		}
	}
	return false
}
