package evidence

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
)

func verifyBundle(f *fixture, b []byte) (Report, error) {
	return VerifyBundle(bytes.NewReader(b), int64(len(b)), f.vkey)
}

func TestBundleRoundTrip(t *testing.T) {
	f := newFixture(t)
	f.session()
	for _, session := range []string{"sess-a", "sess-b"} {
		b := f.bundle(session)
		if !bytes.Equal(b, f.bundle(session)) {
			t.Error("the same session gives other bytes")
		}
		rep, err := verifyBundle(f, b)
		must(t, err)
		if !rep.OK || rep.Session != session || rep.Tenant != "acme" || rep.Signed != 13 || rep.Decisions != 1 {
			t.Errorf("%+v", rep)
		}
	}
	z, err := zip.NewReader(bytes.NewReader(f.bundle("sess-a")), int64(len(f.bundle("sess-a"))))
	must(t, err)
	for _, file := range z.File { // any ZIP program reads it, checksums included
		r, err := file.Open()
		must(t, err)
		if _, err := io.ReadAll(r); err != nil {
			t.Errorf("%s: %v", file.Name, err)
		}
	}
}

func TestWriteBundleRefuses(t *testing.T) {
	f := newFixture(t)
	f.session()
	in := f.sessionInput("sess-a")
	good := BundleInput{Shard: in.Shard, Tenant: in.Tenant, Session: in.Session, Rows: in.Rows, Proofs: in.Proofs, Checkpoint: in.Checkpoint.Text}
	for name, change := range map[string]func(*BundleInput){
		"no rows":       func(b *BundleInput) { b.Rows, b.Proofs = nil, nil },
		"no proof":      func(b *BundleInput) { b.Proofs = b.Proofs[1:] },
		"no session":    func(b *BundleInput) { b.Session = "" },
		"other session": func(b *BundleInput) { b.Session = "x" },
		"other shard":   func(b *BundleInput) { b.Shard = "x" },
		"no checkpoint": func(b *BundleInput) { b.Checkpoint = "" },
		"broken record": func(b *BundleInput) { b.Rows = slices.Clone(b.Rows); b.Rows[0].Record = "{" },
	} {
		bad := good
		change(&bad)
		if err := WriteBundle(io.Discard, bad); !errors.Is(err, ErrBundle) && !errors.Is(err, ErrCheckpoint) && !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// repack changes members and packs them again, manifest digests included, as
// an attacker would.
func repack(t *testing.T, b []byte, change func(map[string][]byte)) []byte {
	t.Helper()
	members, err := unpackZip(bytes.NewReader(b), int64(len(b)), memberNames)
	must(t, err)
	files := map[string][]byte{}
	for _, m := range members {
		files[m.name] = m.data
	}
	change(files)
	var out bytes.Buffer
	for i, m := range members {
		members[i].data = files[m.name]
	}
	must(t, packZip(&out, members))
	return out.Bytes()
}

func replace(name, old, new string) func(map[string][]byte) {
	return func(files map[string][]byte) {
		if !bytes.Contains(files[name], []byte(old)) {
			panic(name + " has no " + old)
		}
		files[name] = bytes.Replace(files[name], []byte(old), []byte(new), 1)
	}
}

func TestBundleTampering(t *testing.T) {
	f := newFixture(t)
	f.session()
	good := f.bundle("sess-a")
	for name, tc := range map[string]struct {
		change func(map[string][]byte)
		codes  string
		field  string // named by one of the problems
	}{
		"record": {replace(memberRecords, `"weather"`, `"whether"`), "inclusion_proof@2 session_chain@3 bundle_member@0", memberRecords},
		"last record": {func(m map[string][]byte) {
			lines := bytes.SplitAfter(m[memberRecords], []byte("\n"))
			m[memberRecords] = bytes.Join(lines[:6], nil)
		}, "bundle_proofs@0 bundle_member@0", memberProofs},
		"proof":           {replace(memberProofs, `"path":["`, `"path":["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","`), "inclusion_proof@2 bundle_member@0", memberProofs},
		"proof size":      {replace(memberProofs, `"size":13`, `"size":12`), "bundle_proofs@0 bundle_member@0", memberProofs},
		"checkpoint":      {replace(memberCheckpoint, "\n13\n", "\n14\n"), "checkpoint_invalid@0 bundle_proofs@0 bundle_member@0", memberCheckpoint},
		"key":             {replace(memberKeys, `"use":"receipt"`, `"use":"receibt"`), "key_vouch@0 decision_key_unknown@3 approval_key_unknown@10 bundle_member@0", memberKeys},
		"no keys":         {func(m map[string][]byte) { m[memberKeys] = []byte("[]") }, "decision_key_unknown@3 approval_key_unknown@10 bundle_member@0", memberKeys},
		"readme":          {replace(memberReadme, "offline", "online"), "bundle_member@0", memberReadme},
		"finding":         {replace(memberFindings, "high", "low"), "bundle_member@0", memberFindings},
		"decision":        {replace(memberDecisions, "allow", "deny"), "bundle_member@0", memberDecisions},
		"manifest":        {replace(memberManifest, `"records":7`, `"records":8`), "bundle_member@0", memberManifest},
		"manifest tenant": {replace(memberManifest, `"tenant":"acme"`, `"tenant":"acne"`), "bundle_member@0", memberManifest},
	} {
		t.Run(name, func(t *testing.T) {
			rep, err := verifyBundle(f, repack(t, good, tc.change))
			must(t, err)
			named := slices.ContainsFunc(rep.Findings, func(p Finding) bool { return p.Field == tc.field })
			if codes(rep) != tc.codes || rep.OK || !named {
				t.Errorf("%s, want %s (%v)", codes(rep), tc.codes, rep.Findings)
			}
		})
	}
}

func TestBundleThatCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.session()
	good := f.bundle("sess-a")
	zipped := func(names []string, method uint16) []byte {
		var buf bytes.Buffer
		w := zip.NewWriter(&buf)
		for _, n := range names {
			m, err := w.CreateHeader(&zip.FileHeader{Name: n, Method: method})
			must(t, err)
			_, err = m.Write([]byte("{}"))
			must(t, err)
		}
		must(t, w.Close())
		return buf.Bytes()
	}
	with := func(change func(map[string][]byte)) []byte { return repack(t, good, change) }
	for name, tc := range map[string]struct {
		file []byte
		says string
	}{
		"empty":          {nil, "not a ZIP"},
		"truncated":      {good[:len(good)-1], "not a ZIP"},
		"half":           {good[:len(good)/2], "not a ZIP"},
		"unknown member": {zipped([]string{memberManifest, "evil.sh"}, zip.Store), `unknown member "evil.sh"`},
		"zip slip":       {zipped([]string{"../../etc/passwd"}, zip.Store), `unknown member "../../etc/passwd"`},
		"twice":          {zipped([]string{memberManifest, memberManifest}, zip.Store), `"manifest.json" is there twice`},
		"order":          {zipped(append([]string{memberReadme, memberManifest}, memberNames[2:]...), zip.Store), `"README.txt" is out of order`},
		"no proofs":      {zipped(slices.DeleteFunc(slices.Clone(memberNames), func(n string) bool { return n == memberProofs }), zip.Store), "member proofs.json is missing"},
		"missing":        {zipped(memberNames[:3], zip.Store), "member keys.json is missing"},
		"compressed":     {zipped(memberNames, zip.Deflate), "manifest.json is not stored plainly"},
		"other format":   {with(replace(memberManifest, "bundle/v1", "bundle/v9")), `manifest.json: format "countersign/bundle/v9"; this program reads countersign/bundle/v1, `},
		"format of more": {with(replace(memberManifest, "bundle/v1", "bundle/v2")), "member calls.jsonl is missing"},
		"manifest json":  {with(func(m map[string][]byte) { m[memberManifest] = []byte("{") }), "manifest.json: not_json"},
		"manifest extra": {with(replace(memberManifest, `{`, `{"a":1,`)), "manifest.json: a member is unknown"},
		"keys":           {with(func(m map[string][]byte) { m[memberKeys] = []byte(`{"a":1,"a":2}`) }), "keys.json: duplicate_key"},
		"proofs":         {with(func(m map[string][]byte) { m[memberProofs] = []byte(`[]`) }), "proofs.json"},
		"checkpoint":     {with(func(m map[string][]byte) { m[memberCheckpoint] = []byte("x") }), "checkpoint.txt"},
		"record":         {with(replace(memberRecords, `"v":1}`, `"v":1 }`)), "records.jsonl line 1"},
		"record line":    {with(func(m map[string][]byte) { m[memberRecords] = bytes.TrimSuffix(m[memberRecords], []byte("\n")) }), "records.jsonl line 7"},
		"no records":     {with(func(m map[string][]byte) { m[memberRecords] = nil }), "records.jsonl is empty"},
	} {
		_, err := verifyBundle(f, tc.file)
		if !errors.Is(err, ErrBundle) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
	if _, err := VerifyBundle(bytes.NewReader(good), MaxBundleSize+1, f.vkey); !errors.Is(err, ErrBundle) {
		t.Errorf("too large: %v", err)
	}
	if _, err := VerifyBundle(bytes.NewReader(good), int64(len(good)), "nonsense"); !errors.Is(err, signing.ErrCheckpointKey) {
		t.Errorf("key: %v", err)
	}
	bomb := bytes.Clone(good)
	at := bytes.Index(bomb, []byte("PK\x01\x02"))
	copy(bomb[at+20:], []byte{0xff, 0xff, 0xff, 0x0f, 0xff, 0xff, 0xff, 0x0f}) // the directory claims 256 MiB
	if _, err := verifyBundle(f, bomb); !errors.Is(err, ErrBundle) || !strings.Contains(err.Error(), "more bytes than the file") {
		t.Errorf("bomb: %v", err)
	}
	hidden := append([]byte("#!/bin/sh\n"), good...) // data before the archive, which ZIP programs do not mind
	if rep, err := verifyBundle(f, hidden); err == nil && rep.OK {
		t.Error("hidden data passed")
	}
}

// Not one byte of a bundle can change without the verification failing.
func TestAnyChangedByteOfABundleIsFound(t *testing.T) {
	f := newFixture(t)
	f.admit("s", "0199a000-0000-7000-8000-000000000001", events.Allow, "{}")
	good := f.bundle("s")
	step := 1
	if testing.Short() {
		step = 37
	}
	for i := 0; i < len(good); i += step {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if rep, err := verifyBundle(f, bad); err == nil && rep.OK {
			t.Fatalf("byte %d of %d changed and nobody noticed", i, len(good))
		}
	}
}

func FuzzVerifyBundle(f *testing.F) {
	x := newFixture(f)
	x.session()
	good := x.bundle("sess-b")
	f.Add([]byte("PK"), 0, 0)
	f.Add([]byte(`{"format":"countersign/bundle/v1"}`), 40, 200)
	f.Add([]byte{}, 100, 101)
	f.Fuzz(func(t *testing.T, patch []byte, at, cut int) {
		at, cut = min(max(at, 0), len(good)), min(max(cut, 0), len(good))
		bad := slices.Concat(good[:at], patch, good[max(at, cut):])
		rep, err := verifyBundle(x, bad)
		if err == nil && rep.OK && !bytes.Equal(bad, good) {
			t.Error("a changed bundle verifies")
		}
	})
}

func TestProofsSurviveTheirFile(t *testing.T) {
	want := proofsFile{Size: 3, Proofs: []recordProof{{Seq: 1, Path: []tlog.Hash{{1}, {2}}}}}
	b, err := events.Encode(want)
	must(t, err)
	got, err := events.DecodeRecord[proofsFile](b)
	must(t, err)
	if got.Size != 3 || got.Proofs[0].Path[1] != want.Proofs[0].Path[1] {
		t.Errorf("%+v", got)
	}
}
