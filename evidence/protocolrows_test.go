package evidence_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/evidence/toyprotocol"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// TestToyProtocolInEvidence: one row is enough for records of a protocol to be built, redacted
// and verified, with and without anything to redact.
func TestToyProtocolInEvidence(t *testing.T) {
	const toySubject = "gov.events.acme.rt1.toy.s1.start"
	const clean, private = `{"id":"e1","toy":"start","words":"a short summary"}`, `{"id":"e2","toy":"start","words":"a short summary","diary":"swordfish","tool":"dig deep"}`
	headers := map[string][]string{"Toy-Id": {"t-1"}, "X-Note": {"herring"}}
	for _, tc := range []struct {
		name string
		row  bool
		set  retention.Class
		body string
		want []string
		not  []string
	}{
		{"clean", true, 0, clean, []string{clean}, nil},
		{"private", true, 0, private, []string{`"diary":"[redacted:never_store]"`, `"tool":"dig deep"`}, []string{"swordfish"}},
		{"no row", false, 0, private, []string{`"diary":"swordfish"`}, nil},
		{"summaries", true, retention.SummaryOnly, private, []string{`"id":"e2"`, "a short summary", `"Toy-Id":["t-1"]`}, []string{"swordfish", "dig deep", "herring"}},
		{"hashes", true, retention.Hashes, private, []string{`"id":"e2"`, `"toy":"start"`}, []string{"swordfish", "a short summary", "dig deep", "herring"}},
		{"no row keeps nothing", false, retention.Hashes, private, []string{"redacted:retention_hashes"}, []string{`"id":"e2"`, "t-1", "swordfish"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.row {
				toyprotocol.AddRow(t)
			}
			f := evidencetest.NewWithClass(t, tc.set)
			b := f.Log(toySubject, headers, []byte(tc.body))
			for _, want := range tc.want {
				if !strings.Contains(string(b.Canonical), want) {
					t.Errorf("%s is not in %s", want, b.Canonical)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(string(b.Canonical), not) {
					t.Errorf("%s is in %s", not, b.Canonical)
				}
			}
			if rep := verify.Session(f.SessionInput("s1")); !rep.OK || rep.Records != 1 {
				t.Errorf("verified: %+v", rep)
			}
		})
	}
}
