package inforce

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/compliance/internal/protocol"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

var begin = time.Date(2026, 11, 20, 6, 42, 0, 0, time.UTC)

func text(name, tenants, extra string) events.PolicyDocument {
	return events.PolicyDocument{Name: name + ".yaml", Text: fmt.Sprintf(`apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata:
  name: %s
spec:
  match:
    %s
    protocols: [agenthook]
    tools: ["t_%s"]
  rules:
    - name: all
      when: 'true'
      verdict: allow
      reason: harmless%s
`, name, tenants, name, extra)}
}

func params(name string) events.PolicyDocument {
	return events.PolicyDocument{Name: name + ".yaml", Text: "apiVersion: countersign.dev/v1\nkind: Params\nmetadata:\n  name: " + name + "\nspec:\n  limits: [1, 2]\n"}
}

func digestOf(t testing.TB, docs []events.PolicyDocument) string {
	t.Helper()
	list := make([]policy.Document, len(docs))
	for i, d := range docs {
		list[i] = policy.Document{Name: d.Name, Data: []byte(d.Text)}
	}
	set, err := policy.Compile(list)
	if err != nil {
		t.Fatal(err)
	}
	return set.Digest()
}

func decision(t testing.TB, seq uint64, d events.Decision) evidence.Record {
	t.Helper()
	d.DecidedAt, d.Reasons, d.Tenant, d.Verdict = events.At(begin), []events.Reason{}, "acme", events.Allow
	b, err := events.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	return evidence.Record{Seq: seq, Tenant: "acme", Kind: evidence.KindDecision, Body: b}
}

type fake struct {
	changes  []Change
	policies map[uint64][]events.PolicyDocument
	mandates map[string][]string
}

func (f fake) Changes(last uint64, yield func(Change) error) error {
	for _, c := range f.changes {
		if c.Seq <= last {
			if err := yield(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f fake) Policies(r uint64) ([]events.PolicyDocument, string, error) {
	if f.policies[r] == nil {
		return nil, "gone", nil
	}
	return f.policies[r], "", nil
}

func (f fake) Mandate(id string) ([]string, string, error) {
	if f.mandates[id] == nil {
		return nil, "gone", nil
	}
	return f.mandates[id], "", nil
}

// collect makes the file for decisions, and makes sure that it passes its check.
func collect(t testing.TB, src Source, records ...evidence.Record) File {
	t.Helper()
	b, err := Collect("acme", func(yield func(evidence.Record) error) error {
		for _, r := range records {
			if err := yield(r); err != nil {
				return err
			}
		}
		return nil
	}, src)
	if err != nil {
		t.Fatal(err)
	}
	var refs Refs
	for _, r := range records {
		refs.Add(r)
	}
	f, wrong := refs.Check(b)
	if len(wrong) > 0 {
		t.Errorf("its own file is wrong: %q", wrong)
	}
	return f
}

func change(seq, revision uint64, digest string, docs []events.PolicyDocument) Change {
	return Change{Seq: seq, At: events.At(begin), Change: events.PolicyChange{Revision: revision, Digest: digest, Documents: docs, Author: "dana", Message: "why"}}
}

func TestTextsOfPolicies(t *testing.T) {
	own, everybody, others, both := text("own", "tenants: [acme]", ""), text("everybody", "", ""), text("others", "tenants: [globex]", ""), text("both", "tenants: [acme, globex]", "")
	secret := text("secret", "tenants: [acme]", "\n      message: ask with password=Zx81kQq7plz9")
	for _, tc := range []struct {
		name  string
		docs  []events.PolicyDocument
		given []events.PolicyDocument // what the log has, if not docs
		want  string
		names string
		why   string
	}{
		{"own", []events.PolicyDocument{own}, nil, TextComplete, "own.yaml", ""},
		{"own and everybody's", []events.PolicyDocument{everybody, own}, nil, TextComplete, "everybody.yaml own.yaml", ""},
		{"with parameters", []events.PolicyDocument{own, params("shared")}, nil, TextComplete, "own.yaml shared.yaml", ""},
		{"another tenant's", []events.PolicyDocument{others, own}, nil, TextPartial, "own.yaml", "other tenants"},
		{"another tenant's, and parameters", []events.PolicyDocument{others, own, params("shared")}, nil, TextPartial, "own.yaml", "other tenants"},
		{"one for two", []events.PolicyDocument{both, own}, nil, TextPartial, "own.yaml", "other tenants"},
		{"only others'", []events.PolicyDocument{others}, nil, TextMissing, "", "other tenants"},
		{"a secret", []events.PolicyDocument{secret}, nil, TextPartial, "secret.yaml", "redacted"},
		{"another text", []events.PolicyDocument{own}, []events.PolicyDocument{everybody}, TextMissing, "", "another digest"},
		{"a text that is none", []events.PolicyDocument{own}, []events.PolicyDocument{{Name: "x", Text: "{"}}, TextMissing, "", "cannot be compiled"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			digest, given := digestOf(t, tc.docs), tc.given
			if given == nil {
				given = tc.docs
			}
			f := collect(t, fake{changes: []Change{change(3, 7, digest, given)}}, decision(t, 5, events.Decision{Policy: &events.PolicyRef{Name: "own", Revision: 7, Digest: digest}}))
			p := f.Policies[0]
			var names []string
			for _, d := range p.Documents {
				names = append(names, d.Name)
				if strings.Contains(d.Text, "globex") || strings.Contains(d.Text, "Zx81kQq7plz9") {
					t.Errorf("what must not be shown is: %s", d.Text)
				}
			}
			if p.Text != tc.want || strings.Join(names, " ") != tc.names || !strings.Contains(p.Why, tc.why) || p.Seq != 3 {
				t.Errorf("%+v", p)
			}
			if (p.Message == "") != (p.Withheld > 0 || p.Documents == nil) {
				t.Errorf("message %q", p.Message)
			}
		})
	}
}

// What is listed: what decisions name, and what was in force from the first record
// to the last, each once.
func TestWhatIsListed(t *testing.T) {
	docs := func(name string) []events.PolicyDocument { return []events.PolicyDocument{text(name, "", "")} }
	var changes []Change
	for i, seq := range []uint64{1, 2, 10, 12, 13, 99} { // two admitters record 12 and 13, the same change
		revision := []uint64{1, 2, 3, 4, 4, 5}[i]
		d := docs(fmt.Sprint("p", revision))
		changes = append(changes, change(seq, revision, digestOf(t, d), d))
	}
	ref := func(i int) *events.PolicyRef {
		return &events.PolicyRef{Revision: changes[i].Change.Revision, Digest: changes[i].Change.Digest}
	}
	lost := &events.PolicyRef{Revision: 8, Digest: "sha256:00"}
	f := collect(t, fake{changes: changes}, decision(t, 5, events.Decision{Policy: ref(0)}), decision(t, 11, events.Decision{Policy: ref(2)}),
		decision(t, 20, events.Decision{Policy: ref(2)}), decision(t, 21, events.Decision{Policy: lost}))
	var got []string
	for _, p := range f.Policies {
		got = append(got, fmt.Sprintf("%d:%d@%d %s", p.Revision, p.Decisions, p.Seq, p.Text))
	}
	if want := "1:1@1 complete, 2:0@2 complete, 3:2@10 complete, 4:0@12 complete, 8:1@0 missing"; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
	if u := f.Policies[2].Use; u.First != 11 || u.Last != 20 {
		t.Errorf("%+v", u)
	}
}

// The compiler's error names files, policies, rules and parts of conditions: it is shown only where
// every document of the set is.
func TestErrorOfAnotherTenantsPolicy(t *testing.T) {
	broken := text("vip-payees", "tenants: [globex]", "")
	own := text("own", "tenants: [acme]", "")
	const why = "vip-payees.yaml:14: when is not valid CEL"
	for _, tc := range []struct {
		name    string
		docs    []events.PolicyDocument
		omitted bool
		shown   bool
	}{
		{"own", []events.PolicyDocument{own}, false, true},
		{"another tenant's", []events.PolicyDocument{own, broken}, false, false},
		{"not readable", []events.PolicyDocument{own, {Name: "vip-payees.yaml", Text: "{"}}, false, false},
		{"not in the log", nil, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := change(6, 7, "", tc.docs)
			c.Change.Error, c.Change.Omitted = why, tc.omitted
			p := collect(t, fake{changes: []Change{c}}, decision(t, 5, events.Decision{}), decision(t, 9, events.Decision{})).Policies[0]
			if (p.Error == why) != tc.shown || p.Error == "" || strings.Contains(p.Error, "vip") && !tc.shown {
				t.Errorf("error %q", p.Error)
			}
		})
	}
}

func TestOmittedTextsComeFromTheBucket(t *testing.T) {
	docs := []events.PolicyDocument{text("own", "", "")}
	digest := digestOf(t, docs)
	c := change(3, 7, digest, nil)
	c.Change.Omitted = true
	d := decision(t, 5, events.Decision{Policy: &events.PolicyRef{Revision: 7, Digest: digest}})
	if p := collect(t, fake{changes: []Change{c}, policies: map[uint64][]events.PolicyDocument{7: docs}}, d).Policies[0]; p.Text != TextComplete {
		t.Errorf("%+v", p)
	}
	if p := collect(t, fake{changes: []Change{c}}, d).Policies[0]; p.Text != TextMissing || p.Why != "gone" {
		t.Errorf("%+v", p)
	}
}

const mandateText = `{"id":"aump_mnd_01","version":"0.1.0","type":"mandate","purpose":"pay invoices","status":"active"}`

func TestMandates(t *testing.T) {
	hashOf := func(text string) string { _, hash := protocol.Rows["aump"].Mandate(text); return hash }
	hash := hashOf(mandateText)
	if hash == "" {
		t.Fatal("the mandate has no hash")
	}
	for _, tc := range []struct {
		name, hash string
		docs       []string
		want, why  string
	}{
		{"there", hash, []string{`{"id":"x"}`, mandateText}, TextComplete, ""},
		{"another text", hash, []string{strings.Replace(mandateText, "invoices", "bills", 1)}, TextMissing, "has this hash"},
		{"gone", hash, nil, TextMissing, "gone"},
		{"a secret", hashOf(strings.Replace(mandateText, "pay invoices", "password=Zx81kQq7plz9", 1)), []string{strings.Replace(mandateText, "pay invoices", "password=Zx81kQq7plz9", 1)}, TextPartial, "redacted"},
		{"no text at all", hash, []string{"{", "[]", "\xff"}, TextMissing, "has this hash"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := fake{}
			if tc.docs != nil {
				src.mandates = map[string][]string{"aump_mnd_01": tc.docs}
			}
			m := collect(t, src, decision(t, 5, events.Decision{Mandate: &events.MandateRef{ID: "aump_mnd_01", Hash: tc.hash}})).Mandates[0]
			if m.Text != tc.want || !strings.Contains(m.Why, tc.why) || strings.Contains(m.Document, "Zx81kQq7plz9") || (m.Document == "") != (m.Text == TextMissing) {
				t.Errorf("%+v", m)
			}
			if m.Document != "" && !json.Valid([]byte(m.Document)) {
				t.Errorf("not JSON: %s", m.Document)
			}
		})
	}
}

// forged changes the file that was made for a decision of a policy set and a mandate, and checks it.
func forged(t *testing.T, change func(*File)) []string {
	t.Helper()
	docs := []events.PolicyDocument{text("own", "", "")}
	ref := events.PolicyRef{Revision: 7, Digest: digestOf(t, docs)}
	_, hash := protocol.Rows["aump"].Mandate(mandateText)
	rec := decision(t, 5, events.Decision{Policy: &ref, Mandate: &events.MandateRef{ID: "aump_mnd_01", Hash: hash}})
	f := collect(t, fake{changes: []Change{{Seq: 3, Change: events.PolicyChange{Revision: 7, Digest: ref.Digest, Documents: docs}}},
		mandates: map[string][]string{"aump_mnd_01": {mandateText}}}, rec)
	change(&f)
	b, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var refs Refs
	refs.Add(rec)
	_, wrong := refs.Check(b)
	return wrong
}

// What the file says of a text is exactly one of the words that the check knows, and fits what is there.
func TestForgedFilesAreRefused(t *testing.T) {
	_, hash := protocol.Rows["aump"].Mandate(mandateText)
	for name, tc := range map[string]struct {
		change func(*File)
		want   string
	}{
		"nothing": {func(*File) {}, ""},
		"a word for the text of policies": {func(f *File) {
			f.Policies[0].Text = "complete; it gives the digest"
			f.Policies[0].Documents[0].Text = "# FORGED"
		}, `its text is said to be "complete; it gives the digest"`},
		"a word for the text of a mandate": {func(f *File) { f.Mandates[0].Text, f.Mandates[0].Document = "", "{}" }, `its text is said to be ""`},
		"documents of a missing text":      {func(f *File) { f.Policies[0].Text = TextMissing }, "said to be missing, and is here"},
		"a missing mandate":                {func(f *File) { f.Mandates[0].Text = TextMissing }, "said to be missing, and is here"},
		"nothing of a partial text":        {func(f *File) { f.Policies[0].Text, f.Policies[0].Documents = TextPartial, nil }, "nothing of it is here"},
		"withheld, and complete":           {func(f *File) { f.Policies[0].Withheld = 7 }, "said to be complete, and is not"},
		"redacted, and complete":           {func(f *File) { f.Policies[0].Documents[0].Redacted = []string{"email"} }, "said to be complete, and is not"},
		"a mandate redacted, and complete": {func(f *File) { f.Mandates[0].Redacted = []string{"email"} }, "said to be complete, and is not"},
		"an error of a set that decided":   {func(f *File) { f.Policies[0].Error = "FORGED" }, "has a digest, and an error"},
		"a mandate with signatures": {func(f *File) {
			f.Mandates[0].Document = strings.Replace(f.Mandates[0].Document, `"status":"active"`, `"signatures":[{"by":"the board"}],"status":"active"`, 1)
		}, "not exactly what its hash covers"},
		"a mandate in another form": {func(f *File) { f.Mandates[0].Document = mandateText }, "not exactly what its hash covers"},
		"a mandate that no decision names": {func(f *File) {
			f.Mandates = append(f.Mandates, Mandate{ID: "aump_mnd_parcels_1", Hash: hash, Text: TextMissing})
		}, "no decision names it"},
	} {
		wrong := strings.Join(forged(t, tc.change), "; ")
		if !strings.Contains(wrong, tc.want) || (wrong == "") != (tc.want == "") {
			t.Errorf("%s: %q, want %q", name, wrong, tc.want)
		}
	}
}

// The file shows what a mandate's hash covers: not its signatures, which nothing here proves.
func TestSignaturesAreNotShown(t *testing.T) {
	signed := strings.Replace(mandateText, `"status"`, `"signatures":[{"by":"anybody"}],"status"`, 1)
	covered, hash := protocol.Rows["aump"].Mandate(signed)
	m := collect(t, fake{mandates: map[string][]string{"aump_mnd_01": {signed}}}, decision(t, 5, events.Decision{Mandate: &events.MandateRef{ID: "aump_mnd_01", Hash: hash}})).Mandates[0]
	if m.Text != TextComplete || m.Document != covered || strings.Contains(m.Document, "anybody") {
		t.Errorf("%+v", m)
	}
}

func FuzzCheck(f *testing.F) {
	own := []events.PolicyDocument{text("own", "tenants: [acme]", "")}
	good, err := File{Policies: []Policy{{Revision: 7, Digest: digestOf(f, own), Text: TextComplete, Documents: []Document{{"own.yaml", own[0].Text, nil}}}}}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":"countersign/in-force/v1","mandates":[{"decisions":0,"hash":"x","id":"y","text":"missing"}],"policies":[]}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var refs Refs
		if _, wrong := refs.Check(b); len(wrong) == 0 {
			file, err := decode(b)
			if err != nil {
				t.Fatal(err)
			}
			again, err := file.Encode()
			if err != nil || string(again) != string(b) {
				t.Errorf("%s holds and is written as %s", b, again)
			}
		}
	})
}

// A bundle that would name too many mandates is not made, since it would not hold.
func TestTooManyMandates(t *testing.T) {
	for n, want := range map[int]error{maxRefs: nil, maxRefs + 1: ErrTooMany} {
		b, err := Collect("acme", func(yield func(evidence.Record) error) error {
			for i := range n {
				if err := yield(decision(t, uint64(i+1), events.Decision{Mandate: &events.MandateRef{ID: fmt.Sprint("m", i), Hash: "sha256:00"}})); err != nil {
					return err
				}
			}
			return nil
		}, fake{})
		if !errors.Is(err, want) || (len(b) == 0) != (want != nil) {
			t.Errorf("%d mandates: %d bytes, %v", n, len(b), err)
		}
	}
}
