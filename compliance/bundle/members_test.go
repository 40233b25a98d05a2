package bundle

import (
	"archive/zip"
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

var (
	statementKey = ed25519.NewKeyFromSeed(evidencetest.Derived("statement"))
	otherKey     = ed25519.NewKeyFromSeed(evidencetest.Derived("other"))
)

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// bundle is a session's bundle, signed unless key is nil.
func bundle(t testing.TB, w *world, key ed25519.PrivateKey) []byte {
	t.Helper()
	in := w.session("acme", "s1")
	in.SignKey = key
	return written(t, in)
}

func sampleWorld(t testing.TB) *world {
	w := newWorld(t)
	w.call("acme", "s1", events.Allow)
	w.call("acme", "s2", events.Allow)
	w.call("acme", "s1", events.Deny)
	return w
}

func verifyWorld(t testing.TB, w *world, file []byte, o Options) Result {
	t.Helper()
	rep, err := Verify(bytes.NewReader(file), int64(len(file)), w.VKey, o)
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
	if got := strings.Join(names, " "); got != "manifest.json README.txt checkpoint.txt keys.json records.jsonl cover.jsonl decisions.jsonl findings.jsonl calls.jsonl approvals.jsonl records.parquet in_force.json report.html controls.json statement.dsse.json" {
		t.Error(got)
	}
	if n := bytes.Count(members["calls.jsonl"], []byte("\n")); n != 2 || len(members["approvals.jsonl"]) != 0 {
		t.Errorf("%d calls", n)
	}
	c := Options{StatementKey: public(statementKey)}
	rep := verifyWorld(t, w, file, c)
	if !rep.OK || rep.Records != 7 || rep.Decisions != 2 || len(rep.Notes) != 0 {
		t.Errorf("%+v, notes %q", rep, rep.Notes)
	}
	if !strings.Contains(string(members["report.html"]), "executed_despite_deny") || strings.Contains(string(members["report.html"]), "example.invalid") {
		t.Error("the report is not of this session")
	}
}

// One changed byte in any member fails, and names the member.
func TestChangedByteInAnyMember(t *testing.T) {
	w, src := decidedWorld(t)
	for name, file := range map[string][]byte{"signed": fullBundle(t, w, src, statementKey, nil), "unsigned": fullBundle(t, w, src, nil, nil), "range": fullRange(t, w, src, nil)} {
		_, members := unzip(t, file)
		for member, data := range members {
			for _, part := range []int{0, len(data) / 3, len(data) / 2, len(data) - 1} {
				if len(data) == 0 {
					continue
				}
				bad := bytes.Clone(file)
				bad[bytes.Index(file, append([]byte(member), data...))+len(member)+part] ^= 1
				rep, err := Verify(bytes.NewReader(bad), int64(len(bad)), w.VKey, Options{})
				if err != nil && !strings.Contains(err.Error(), member) {
					t.Errorf("%s: %s: the error names another member: %v", name, member, err)
				}
				if err == nil && (rep.OK || !slices.ContainsFunc(rep.Findings, func(p verify.Finding) bool { return p.Field == member })) {
					t.Errorf("%s: byte %d of %s: holds is %t, %v", name, part, member, rep.OK, rep.Findings)
				}
			}
		}
	}
}

// pack writes members as a file in its one form.
func pack(t testing.TB, names []string, files map[string][]byte) []byte {
	t.Helper()
	var entries []zipEntry
	for _, name := range names {
		if data, there := files[name]; there {
			entries = append(entries, whole(name, data))
		}
	}
	var out bytes.Buffer
	ok(t, packEntries(&out, entries))
	return out.Bytes()
}

// forge changes members of a bundle as an attacker would: with a manifest that fits
// and, where there is a key, a statement.
func forge(t testing.TB, file []byte, key ed25519.PrivateKey, change func(files map[string][]byte)) []byte {
	t.Helper()
	names, files := unzip(t, file)
	change(files)
	var m Manifest
	ok(t, json.Unmarshal(files[memberManifest], &m))
	m.Members = slices.DeleteFunc(m.Members, func(l Member) bool { _, there := files[l.Name]; return !there })
	for i, l := range m.Members {
		m.Members[i] = member{l.Name, files[l.Name]}.manifestLine()
	}
	var err error
	files[memberManifest], err = events.Encode(m)
	ok(t, err)
	delete(files, MemberStatement)
	if key != nil {
		c := contents{Manifest: m}
		c.Checkpoint, err = tree.PeekCheckpoint(string(files[memberCheckpoint]))
		ok(t, err)
		files[MemberStatement], err = signStatement(key, c, append([]Member{member{memberManifest, files[memberManifest]}.manifestLine()}, m.Members...))
		ok(t, err)
	}
	return pack(t, names, files)
}

// replaced gives a member another content.
func replaced(name, content string) func(map[string][]byte) {
	return func(files map[string][]byte) { files[name] = []byte(content) }
}

// swap replaces a text in a member.
func swap(name, old, fresh string) func(map[string][]byte) {
	return func(files map[string][]byte) {
		if !bytes.Contains(files[name], []byte(old)) {
			panic(name + " has no " + old)
		}
		files[name] = bytes.Replace(files[name], []byte(old), []byte(fresh), 1)
	}
}

func codes(rep Result) string {
	var list []string
	for _, p := range rep.Findings {
		list = append(list, string(p.Code)+" in "+p.Field)
	}
	return strings.Join(list, ", ")
}

func TestDoctoredReportAndControlsAreFound(t *testing.T) {
	w := sampleWorld(t)
	for name, tc := range map[string]struct {
		change func(map[string][]byte)
		want   string
		notes  int
	}{
		"nothing":                     {func(map[string][]byte) {}, "", 0},
		"report":                      {swap(MemberReport, "critical", "harmless"), "bundle_report in report.html", 0},
		"controls":                    {swap(MemberControls, `"soc2:CC6.1"`, `"soc2:CC6.9"`), "bundle_controls in controls.json", 0},
		"report of another version":   {swap(MemberReport, "countersign/report/v1 ", "countersign/report/v0 "), "", 1},
		"an empty report":             {replaced(MemberReport, ""), "bundle_report in report.html", 0},
		"a report by hand":            {replaced(MemberReport, "<h1>No findings. All calls were allowed.</h1>"), "bundle_report in report.html", 0},
		"empty controls":              {replaced(MemberControls, "{}"), "bundle_controls in controls.json", 0},
		"controls of another edition": {swap(MemberControls, `"edition": "20`, `"edition": "19`), "", 1},
	} {
		c := Options{StatementKey: public(statementKey)}
		rep := verifyWorld(t, w, forge(t, bundle(t, w, statementKey), statementKey, tc.change), c)
		if codes(rep) != tc.want || rep.OK != (tc.want == "") || len(rep.Notes) != tc.notes {
			t.Errorf("%s: %s, want %s; notes %q", name, codes(rep), tc.want, rep.Notes)
		}
	}
}

func TestWhoSigned(t *testing.T) {
	w := sampleWorld(t)
	signed, unsigned := bundle(t, w, statementKey), bundle(t, w, nil)
	for name, tc := range map[string]struct {
		file    []byte
		checker Options
		want    string
		notes   int
	}{
		"by the key":            {signed, Options{StatementKey: public(statementKey)}, "", 0},
		"by another":            {signed, Options{StatementKey: public(otherKey)}, "bundle_statement in statement.dsse.json", 0},
		"by whom ever":          {signed, Options{}, "", 1},
		"by a known key":        {signed, Options{Known: []ed25519.PublicKey{public(otherKey), public(statementKey)}}, "", 0},
		"unsigned":              {unsigned, Options{}, "", 0},
		"unsigned, and must be": {unsigned, Options{StatementKey: public(statementKey)}, "bundle_statement in statement.dsse.json", 0},
	} {
		rep := verifyWorld(t, w, tc.file, tc.checker)
		if codes(rep) != tc.want || len(rep.Notes) != tc.notes {
			t.Errorf("%s: %q, want %q; notes %q", name, codes(rep), tc.want, rep.Notes)
		}
	}
}

// A true statement of another bundle does not fit this one.
func TestStatementOfAnotherBundle(t *testing.T) {
	w := sampleWorld(t)
	_, members := unzip(t, bundle(t, w, statementKey))
	foreign := w.session("acme", "s2")
	foreign.SignKey = statementKey
	names, files := unzip(t, written(t, foreign))
	files[MemberStatement] = members[MemberStatement]
	rep := verifyWorld(t, w, pack(t, names, files), Options{StatementKey: public(statementKey)})
	if rep.OK || !strings.Contains(rep.Findings[len(rep.Findings)-1].Detail, "other evidence") {
		t.Errorf("%+v", rep.Findings)
	}
}
