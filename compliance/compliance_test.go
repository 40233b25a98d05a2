package compliance_test

import (
	"archive/zip"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/compliance"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

var (
	statementKey = ed25519.NewKeyFromSeed(derived("statement"))
	otherKey     = ed25519.NewKeyFromSeed(derived("other"))
)

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// bundle is a session's bundle, signed unless key is nil.
func bundle(t testing.TB, w *world, key ed25519.PrivateKey) []byte {
	t.Helper()
	in := w.input("acme", "s1")
	in.Attach = compliance.Attach
	if key != nil {
		in.Sign = compliance.Signer(key)
	}
	var out bytes.Buffer
	ok(t, evidence.WriteBundle(&out, in))
	return out.Bytes()
}

func sampleWorld(t testing.TB) *world {
	w := newWorld(t)
	w.call("acme", "s1", events.Allow)
	w.call("acme", "s2", events.Allow)
	w.call("acme", "s1", events.Deny)
	return w
}

func verify(t testing.TB, w *world, file []byte, c *compliance.Checker) evidence.Report {
	t.Helper()
	rep, err := evidence.VerifyBundleWith(bytes.NewReader(file), int64(len(file)), w.vkey, c.Check)
	ok(t, err)
	return rep
}

func unzip(t testing.TB, file []byte) (names []string, members map[string][]byte) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	ok(t, err)
	members = map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		ok(t, err)
		if members[f.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		names = append(names, f.Name)
	}
	return names, members
}

func TestBundleWithReportControlsAndStatement(t *testing.T) {
	w := sampleWorld(t)
	file := bundle(t, w, statementKey)
	if !bytes.Equal(file, bundle(t, w, statementKey)) {
		t.Error("the same evidence gives other bytes")
	}
	names, members := unzip(t, file)
	if got := strings.Join(names, " "); got != "manifest.json README.txt checkpoint.txt keys.json records.jsonl proofs.json decisions.jsonl findings.jsonl calls.jsonl approvals.jsonl report.html controls.json statement.dsse.json" {
		t.Error(got)
	}
	if n := bytes.Count(members["calls.jsonl"], []byte("\n")); n != 2 || len(members["approvals.jsonl"]) != 0 {
		t.Errorf("%d calls", n)
	}
	c := compliance.Checker{StatementKey: public(statementKey)}
	rep := verify(t, w, file, &c)
	if !rep.OK || rep.Records != 7 || rep.Decisions != 2 || len(c.Notes) != 0 {
		t.Errorf("%+v, notes %q", rep, c.Notes)
	}
	if !strings.Contains(string(members["report.html"]), "executed_despite_deny") || strings.Contains(string(members["report.html"]), "example.invalid") {
		t.Error("the report is not of this session")
	}
}

// Others read the envelope too: DSSE's own pre-authentication encoding, spelt out
// here, and an in-toto statement whose digests are the members'.
func TestStatementIsDSSE(t *testing.T) {
	_, members := unzip(t, bundle(t, sampleWorld(t), statementKey))
	var env struct {
		PayloadType, Payload string
		Signatures           []struct{ Keyid, Sig string }
	}
	ok(t, json.Unmarshal(members["statement.dsse.json"], &env))
	payload, err := base64.StdEncoding.DecodeString(env.Payload)
	ok(t, err)
	sig, err := base64.StdEncoding.DecodeString(env.Signatures[0].Sig)
	ok(t, err)
	signed := "DSSEv1 28 application/vnd.in-toto+json " + itoa(len(payload)) + " " + string(payload)
	if env.PayloadType != "application/vnd.in-toto+json" || !ed25519.Verify(public(statementKey), []byte(signed), sig) {
		t.Error("the signature does not verify as DSSE has it")
	}
	var s struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		PredicateType string
	}
	ok(t, json.Unmarshal(payload, &s))
	if s.Type != "https://in-toto.io/Statement/v1" || len(s.Subject) != len(members)-1 || s.PredicateType == "" {
		t.Errorf("%+v", s)
	}
	for _, m := range s.Subject {
		sum := sha256.Sum256(members[m.Name])
		if m.Digest["sha256"] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s has another digest", m.Name)
		}
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// One changed byte in any member fails, and names the member.
func TestChangedByteInAnyMember(t *testing.T) {
	w := sampleWorld(t)
	for name, key := range map[string]ed25519.PrivateKey{"signed": statementKey, "unsigned": nil} {
		file := bundle(t, w, key)
		_, members := unzip(t, file)
		for member, data := range members {
			if len(data) == 0 {
				continue
			}
			at := bytes.Index(file, data) + len(data)/2
			bad := bytes.Clone(file)
			bad[at] ^= 1
			c := compliance.Checker{}
			rep, err := evidence.VerifyBundleWith(bytes.NewReader(bad), int64(len(bad)), w.vkey, c.Check)
			if err != nil {
				if !strings.Contains(err.Error(), member) {
					t.Errorf("%s: %s: the error names another member: %v", name, member, err)
				}
				continue
			}
			if rep.OK || !slices.ContainsFunc(rep.Findings, func(p evidence.Finding) bool { return p.Field == member }) {
				t.Errorf("%s: a changed byte of %s: holds is %t, %v", name, member, rep.OK, rep.Findings)
			}
		}
	}
}

// forge makes a bundle as somebody would who changes what he likes and writes a
// manifest that fits.
func forge(t testing.TB, w *world, key ed25519.PrivateKey, change func(name string, data []byte) []byte) []byte {
	t.Helper()
	in := w.input("acme", "s1")
	in.Attach = func(c evidence.BundleContents) ([]evidence.BundleMember, error) {
		list, err := compliance.Attach(c)
		for i := range list {
			list[i].Data = change(list[i].Name, list[i].Data)
		}
		return list, err
	}
	if key != nil {
		in.Sign = compliance.Signer(key)
	}
	var out bytes.Buffer
	ok(t, evidence.WriteBundle(&out, in))
	return out.Bytes()
}

func swap(member, old, fresh string) func(string, []byte) []byte {
	return func(name string, data []byte) []byte {
		if name != member {
			return data
		}
		if !bytes.Contains(data, []byte(old)) {
			panic(member + " has no " + old)
		}
		return bytes.Replace(data, []byte(old), []byte(fresh), 1)
	}
}

func codes(rep evidence.Report) string {
	var list []string
	for _, p := range rep.Findings {
		list = append(list, string(p.Code)+" in "+p.Field)
	}
	return strings.Join(list, ", ")
}

func TestDoctoredReportAndControlsAreFound(t *testing.T) {
	w := sampleWorld(t)
	for name, tc := range map[string]struct {
		change func(string, []byte) []byte
		want   string
		notes  int
	}{
		"nothing":                     {func(_ string, b []byte) []byte { return b }, "", 0},
		"report":                      {swap(evidence.MemberReport, "critical", "harmless"), "bundle_report in report.html", 0},
		"controls":                    {swap(evidence.MemberControls, `"soc2:CC6.1"`, `"soc2:CC6.9"`), "bundle_controls in controls.json", 0},
		"report of another version":   {swap(evidence.MemberReport, "countersign/report/v2 ", "countersign/report/v0 "), "", 1},
		"controls of another edition": {swap(evidence.MemberControls, `"edition": "20`, `"edition": "19`), "", 1},
	} {
		c := compliance.Checker{StatementKey: public(statementKey)}
		rep := verify(t, w, forge(t, w, statementKey, tc.change), &c)
		if codes(rep) != tc.want || rep.OK != (tc.want == "") || len(c.Notes) != tc.notes {
			t.Errorf("%s: %s, want %s; notes %q", name, codes(rep), tc.want, c.Notes)
		}
	}
}

func TestWhoSigned(t *testing.T) {
	w := sampleWorld(t)
	signed, unsigned := bundle(t, w, statementKey), bundle(t, w, nil)
	for name, tc := range map[string]struct {
		file    []byte
		checker compliance.Checker
		want    string
		notes   int
	}{
		"by the key":            {signed, compliance.Checker{StatementKey: public(statementKey)}, "", 0},
		"by another":            {signed, compliance.Checker{StatementKey: public(otherKey)}, "bundle_statement in statement.dsse.json", 0},
		"by whom ever":          {signed, compliance.Checker{}, "", 1},
		"by a known key":        {signed, compliance.Checker{Known: []ed25519.PublicKey{public(otherKey), public(statementKey)}}, "", 0},
		"unsigned":              {unsigned, compliance.Checker{}, "", 0},
		"unsigned, and must be": {unsigned, compliance.Checker{StatementKey: public(statementKey)}, "bundle_statement in statement.dsse.json", 0},
	} {
		rep := verify(t, w, tc.file, &tc.checker)
		if codes(rep) != tc.want || len(tc.checker.Notes) != tc.notes {
			t.Errorf("%s: %q, want %q; notes %q", name, codes(rep), tc.want, tc.checker.Notes)
		}
	}
}

// A true statement of another bundle does not fit this one.
func TestStatementOfAnotherBundle(t *testing.T) {
	w := sampleWorld(t)
	_, members := unzip(t, bundle(t, w, statementKey))
	foreign := w.input("acme", "s2")
	foreign.Attach = compliance.Attach
	foreign.Sign = func(evidence.BundleContents, []evidence.ManifestMember) ([]byte, error) {
		return members[evidence.MemberStatement], nil
	}
	var out bytes.Buffer
	ok(t, evidence.WriteBundle(&out, foreign))
	c := compliance.Checker{StatementKey: public(statementKey)}
	rep := verify(t, w, out.Bytes(), &c)
	if rep.OK || !strings.Contains(rep.Findings[len(rep.Findings)-1].Detail, "other evidence") {
		t.Errorf("%+v", rep.Findings)
	}
}
