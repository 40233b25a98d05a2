package bundle

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

func (w *world) bundle(session string) []byte { return written(w.T, w.session("acme", session)) }

// places lists the first problem of each code that the format's own rules find.
func places(rep verify.Report) string {
	var out []string
	seen := map[verify.Code]bool{CodeReport: true, CodeControls: true, CodeTable: true, CodeInForce: true}
	for _, p := range rep.Findings {
		if !seen[p.Code] {
			seen[p.Code] = true
			out = append(out, fmt.Sprintf("%s@%d", p.Code, p.Seq))
		}
	}
	return strings.Join(out, " ")
}

func verifyBundle(f *world, b []byte) (Result, error) {
	return Verify(bytes.NewReader(b), int64(len(b)), f.VKey, Options{})
}

func TestBundleRoundTrip(t *testing.T) {
	f := everything(t)
	for _, session := range []string{"sess-a", "sess-b"} {
		b := f.bundle(session)
		if !bytes.Equal(b, f.bundle(session)) {
			t.Error("the same session gives other bytes")
		}
		rep, err := verifyBundle(f, b)
		ok(t, err)
		if !rep.OK || rep.Session != session || rep.Tenant != "acme" || rep.Signed != 13 || rep.Decisions != 1 {
			t.Errorf("%+v", rep)
		}
	}
	z, err := zip.NewReader(bytes.NewReader(f.bundle("sess-a")), int64(len(f.bundle("sess-a"))))
	ok(t, err)
	for _, file := range z.File { // any ZIP program reads it, checksums included
		r, err := file.Open()
		ok(t, err)
		if _, err := io.ReadAll(r); err != nil {
			t.Errorf("%s: %v", file.Name, err)
		}
	}
}

func TestWriterRefusesInput(t *testing.T) {
	w := mixed(t, 4)
	for name, tc := range map[string]struct {
		change func(*Input)
		want   error
	}{
		"empty":          {func(in *Input) { in.Rows = func(func(evidence.Row) error) error { return nil } }, ErrEmpty},
		"another tenant": {func(in *Input) { in.Tenant = "x" }, ErrInvalid},
		"no tenant":      {func(in *Input) { in.Tenant = "" }, ErrInvalid},
		"another shard":  {func(in *Input) { in.Shard = "GOV@1" }, ErrInvalid},
		"no texts":       {func(in *Input) { in.Decided = nil }, ErrInvalid},
		"no checkpoint":  {func(in *Input) { in.Checkpoint = "" }, tree.ErrCheckpoint},
		"not yet signed": {func(in *Input) { in.Checkpoint = mixed(t, 1).Checkpoint() }, ErrInvalid},
		"another session, or no range": {func(in *Input) {
			if in.Session != "" {
				in.Session = "x"
			}
			in.From, in.To = in.To, in.From
		}, ErrInvalid},
		"a session and a range": {func(in *Input) { in.Session, in.From, in.To = "s0", begin, w.time(w.size()) }, ErrInvalid},
		"neither":               {func(in *Input) { in.Session, in.From = "", in.To }, ErrInvalid},
		"another time":          {func(in *Input) { in.Session, in.From, in.To = "", w.time(5), w.time(6) }, ErrInvalid},
		"out of order": {func(in *Input) {
			changeRows(t, in, func(rows []evidence.Row) []evidence.Row { rows[0], rows[1] = rows[1], rows[0]; return rows })
		}, ErrInvalid},
		"broken record": {func(in *Input) {
			changeRows(t, in, func(rows []evidence.Row) []evidence.Row { rows[0].Record = "{"; return rows })
		}, evidence.ErrRecord},
		"no tree": {func(in *Input) {
			in.Nodes = func([]int64) ([]tlog.Hash, error) { return nil, io.ErrUnexpectedEOF }
		}, io.ErrUnexpectedEOF},
	} {
		for kind, in := range map[string]Input{"session": w.session("acme", "s0"), "range": w.ranged("acme", 0, w.size()+1)} {
			tc.change(&in)
			if _, err := Write(io.Discard, in); !errors.Is(err, tc.want) {
				t.Errorf("%s, a %s: %v", name, kind, err)
			}
		}
	}
}

// repack changes members and packs them again, and nothing that says what they are.
func repack(t *testing.T, b []byte, change func(map[string][]byte)) []byte {
	t.Helper()
	names, files := unzip(t, b)
	change(files)
	return pack(t, names, files)
}

func TestBundleTampering(t *testing.T) {
	f := everything(t)
	good := f.bundle("sess-a")
	for name, tc := range map[string]struct {
		change func(map[string][]byte)
		codes  string
		field  string // named by one of the problems
	}{
		"record": {swap(memberRecords, `"weather"`, `"whether"`), "session_chain@3 inclusion_proof@0 bundle_member@0", memberRecords},
		"last record": {func(m map[string][]byte) {
			lines := bytes.SplitAfter(m[memberRecords], []byte("\n"))
			m[memberRecords] = bytes.Join(lines[:6], nil)
		}, "inclusion_proof@0 bundle_member@0", memberCover},
		"no records":      {replaced(memberRecords, ""), "inclusion_proof@0 bundle_records@0 bundle_member@0", memberRecords},
		"cover":           {swap(memberCover, `"hash":"`, `"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","level":0}`+"\n"+`{"hash":"`), "inclusion_proof@0 bundle_member@0", memberCover},
		"a height":        {swap(memberCover, `"level":0`, `"level":1`), "inclusion_proof@0 bundle_member@0", memberCover},
		"made a range":    {swap(memberManifest, `"session":"sess-a"`, `"session":""`), "bundle_records@2 bundle_member@0", memberRecords},
		"another session": {swap(memberManifest, `"session":"sess-a"`, `"session":"sess-b"`), "bundle_member@0", memberManifest},
		"checkpoint":      {swap(memberCheckpoint, "\n13\n", "\n14\n"), "checkpoint_invalid@0 inclusion_proof@0 bundle_member@0", memberCheckpoint},
		"key":             {swap(memberKeys, `"use":"receipt"`, `"use":"receibt"`), "key_vouch@0 decision_key_unknown@3 approval_key_unknown@10 bundle_member@0", memberKeys},
		"no keys":         {func(m map[string][]byte) { m[memberKeys] = []byte("[]") }, "decision_key_unknown@3 approval_key_unknown@10 bundle_member@0", memberKeys},
		"readme":          {swap(memberReadme, "offline", "online"), "bundle_member@0", memberReadme},
		"finding":         {swap(memberFindings, "high", "low"), "bundle_member@0", memberFindings},
		"decision":        {swap(memberDecisions, "allow", "deny"), "bundle_member@0", memberDecisions},
		"manifest":        {swap(memberManifest, `"records":7`, `"records":8`), "bundle_member@0", memberManifest},
		"manifest tenant": {swap(memberManifest, `"tenant":"acme"`, `"tenant":"acne"`), "bundle_member@0", memberManifest},
	} {
		t.Run(name, func(t *testing.T) {
			rep, err := verifyBundle(f, repack(t, good, tc.change))
			ok(t, err)
			named := slices.ContainsFunc(rep.Findings, func(p verify.Finding) bool { return p.Field == tc.field })
			if places(rep.Report) != tc.codes || rep.OK || !named {
				t.Errorf("%s, want %s (%v)", places(rep.Report), tc.codes, rep.Findings)
			}
		})
	}
}

// keys.json is in its one order, whatever the manifest lists.
func TestKeysInAnotherOrder(t *testing.T) {
	f := everything(t)
	in := f.session("acme", "sess-a")
	first := f.KeyRecord()
	var err error
	f.Receipt, err = signing.NewPrivateKey(evidencetest.Derived("another"))
	ok(t, err)
	in.Keys = []events.KeyRecord{first, f.KeyRecord()}
	file := written(t, in)
	if rep, err := verifyBundle(f, file); err != nil || !rep.OK {
		t.Fatalf("%v %v", err, rep.Findings)
	}
	rep, err := verifyBundle(f, repack(t, file, func(m map[string][]byte) {
		var keys []json.RawMessage
		ok(t, json.Unmarshal(m[memberKeys], &keys))
		other, err := json.Marshal([]json.RawMessage{keys[1], keys[0]})
		ok(t, err)
		m[memberManifest] = bytes.Replace(m[memberManifest], []byte(member{"", m[memberKeys]}.manifestLine().SHA256), []byte(member{"", other}.manifestLine().SHA256), 1)
		m[memberKeys] = other
	}))
	ok(t, err)
	if !slices.ContainsFunc(rep.Findings, func(p verify.Finding) bool { return p.Code == verify.CodeMember && p.Field == memberKeys }) {
		t.Errorf("%v", rep.Findings)
	}
}

func TestBundleThatCannotBeRead(t *testing.T) {
	f := everything(t)
	good := f.bundle("sess-a")
	zipped := func(names []string, method uint16) []byte {
		var buf bytes.Buffer
		w := zip.NewWriter(&buf)
		for _, n := range names {
			m, err := w.CreateHeader(&zip.FileHeader{Name: n, Method: method})
			ok(t, err)
			_, err = m.Write([]byte("{}"))
			ok(t, err)
		}
		ok(t, w.Close())
		return buf.Bytes()
	}
	names := memberNames(false, false)
	without := func(gone ...string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(gone, n) })
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
		"order":          {zipped(append([]string{memberReadme, memberManifest}, names[2:]...), zip.Store), `"README.txt" is out of order`},
		"no cover":       {zipped(without(memberCover), zip.Store), "member cover.jsonl is missing"},
		"missing":        {zipped(names[:3], zip.Store), "member keys.json is missing"},
		"compressed":     {zipped(names, zip.Deflate), "manifest.json is not stored plainly"},
		"other format":   {with(swap(memberManifest, "bundle/v1", "bundle/v9")), `manifest.json: format "countersign/bundle/v9"; this program reads countersign/bundle/v1: export it again`},
		"earlier range":  {with(swap(memberManifest, "bundle/v1", "range/v1")), `format "countersign/range/v1"; this program reads countersign/bundle/v1: export it again`},
		"earlier one":    {zipped(append(without(memberCover), "proofs.json"), zip.Store), "an earlier build wrote it: export it again"},
		"expired":        {with(swap(memberManifest, `"records":7`, `"expired":1,"records":7`)), "member expiries.json is missing, and the manifest says that 1 texts expired"},
		"manifest json":  {with(func(m map[string][]byte) { m[memberManifest] = []byte("{") }), "manifest.json: not_json"},
		"manifest extra": {with(swap(memberManifest, `{`, `{"a":1,`)), "manifest.json: a member is unknown"},
		"keys":           {with(func(m map[string][]byte) { m[memberKeys] = []byte(`[{"kid":"a","kid":"b"}]`) }), "keys.json: duplicate_key"},
		"cover":          {with(replaced(memberCover, "[]\n")), "cover.jsonl line 1: not a subtree"},
		"checkpoint":     {with(func(m map[string][]byte) { m[memberCheckpoint] = []byte("x") }), "checkpoint.txt"},
		"record":         {with(swap(memberRecords, `"v":1}`, `"v":1 }`)), "records.jsonl line 1"},
		"record line":    {with(func(m map[string][]byte) { m[memberRecords] = bytes.TrimSuffix(m[memberRecords], []byte("\n")) }), "records.jsonl line 7"},
	} {
		_, err := verifyBundle(f, tc.file)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
	if _, err := Verify(bytes.NewReader(good), maxSize+1, f.VKey, Options{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
	if _, err := Verify(bytes.NewReader(good), int64(len(good)), "nonsense", Options{}); !errors.Is(err, signing.ErrCheckpointKey) {
		t.Errorf("key: %v", err)
	}
	bomb := bytes.Clone(good)
	at := bytes.Index(bomb, []byte("PK\x01\x02"))
	copy(bomb[at+20:], []byte{0xff, 0xff, 0xff, 0x0f, 0xff, 0xff, 0xff, 0x0f}) // the directory claims 256 MiB
	if _, err := verifyBundle(f, bomb); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "more bytes than the file") {
		t.Errorf("bomb: %v", err)
	}
	overlap := bytes.Clone(good)
	for range 2 { // of the first two entries each claims more than half of the file
		at := bytes.Index(overlap, []byte("PK\x01\x02"))
		copy(overlap[at:], "pk")
		for _, field := range []int{20, 24} {
			binary.LittleEndian.PutUint32(overlap[at+field:], uint32(len(good)*6/10))
		}
	}
	overlap = bytes.ReplaceAll(overlap, []byte("pk\x01\x02"), []byte("PK\x01\x02"))
	if _, err := verifyBundle(f, overlap); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "more bytes than the file") {
		t.Errorf("members that overlap: %v", err)
	}
	hidden := append([]byte("#!/bin/sh\n"), good...) // data before the archive, which ZIP programs do not mind
	if rep, err := verifyBundle(f, hidden); err == nil && rep.OK {
		t.Error("hidden data passed")
	}
}

// Not one byte of a bundle can change without the verification failing, by the rules
// of the format alone. Within the members that are known by their digests every
// 97th byte is tried.
func TestAnyChangedByteOfABundleIsFound(t *testing.T) {
	f := newWorld(t)
	f.Admit("s", "0199a000-0000-7000-8000-000000000001", events.Allow, "{}")
	key, err := signing.CheckpointVerifier(f.VKey)
	ok(t, err)
	for kind, step := range map[string]int{"session": 1, "range": 41} {
		good := f.bundle("s")
		if kind == "range" {
			good = written(t, f.ranged("acme", 0, f.size()+1))
		}
		_, files := unzip(t, good)
		within := func(i int) bool {
			return slices.ContainsFunc(attachedNames(false), func(name string) bool {
				at := bytes.Index(good, files[name])
				return i >= at && i < at+len(files[name])
			})
		}
		if testing.Short() {
			step = 37
		}
		for i := 0; i < len(good); i += step {
			if i%97 != 0 && within(i) {
				continue
			}
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			if rep, _, err := prove(bytes.NewReader(bad), int64(len(bad)), key); err == nil && rep.Total == 0 {
				t.Fatalf("%s: byte %d of %d changed and nobody noticed", kind, i, len(good))
			}
		}
	}
}

// What is asked of a bundle beside that it holds: witnesses, and keys that were not
// retired by then.
func TestBundleOptions(t *testing.T) {
	f := everything(t)
	key, err := signing.CheckpointVerifier(f.VKey)
	ok(t, err)
	witness := func(name string) (tree.Witness, note.Verifier) {
		skey, vkey, err := tree.NewWitnessKey(bytes.NewReader(evidencetest.Derived(name)), name)
		ok(t, err)
		w, err := tree.WitnessSigner(skey + "\n")
		ok(t, err)
		v, err := tree.NewWitness(vkey)
		ok(t, err)
		return w, v
	}
	w, v := witness("w")
	_, other := witness("other")
	in := f.session("acme", "sess-a")
	in.Checkpoint, _, err = tree.Cosign(w, in.Checkpoint, note.VerifierList(key), nil, nil, begin)
	ok(t, err)
	file := written(t, in)
	retired := func(after time.Duration) []events.KeyRetirement {
		k := events.KeyRetirement{KeyID: f.Receipt.ID, Use: "receipt", RetiredAt: events.At(begin.Add(after))}
		var err error
		k.Vouch, err = signing.SignRetirement(f.Signer, k)
		ok(t, err)
		return []events.KeyRetirement{k}
	}
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"its witness":      {Options{Witnesses: []note.Verifier{v}}, ""},
		"twice":            {Options{Witnesses: []note.Verifier{v, v}, Quorum: 2}, "witness_quorum@0"},
		"one of two":       {Options{Witnesses: []note.Verifier{v, other}, Quorum: 1}, ""},
		"two of two":       {Options{Witnesses: []note.Verifier{v, other}}, "witness_quorum@0"},
		"retired later on": {Options{Retired: retired(time.Hour)}, ""},
		"retired before":   {Options{Retired: retired(-time.Second)}, "decision_key_retired@3 approval_key_retired@10"},
	} {
		rep, err := Verify(bytes.NewReader(file), int64(len(file)), f.VKey, tc.options)
		if err != nil || places(rep.Report) != tc.want || rep.OK != (tc.want == "") {
			t.Errorf("%s: %v %s, want %s", name, err, places(rep.Report), tc.want)
		}
		if cosigned := len(tc.options.Witnesses) > 0; cosigned != (len(rep.Cosigned) == 1) {
			t.Errorf("%s: cosigned by %v", name, rep.Cosigned)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	f := everything(b)
	file := f.bundle("sess-a")
	for b.Loop() {
		if rep, err := verifyBundle(f, file); err != nil || !rep.OK {
			b.Fatal(err, rep.Findings)
		}
	}
}
