package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// expire logs the record of an expiry of everything that sessions have now, and
// takes the texts.
func (w *world) expire(tenant string, sessions ...string) verify.ExpiryRecord {
	w.T.Helper()
	e := events.Expiry{ExpiryID: "x-" + sessions[0], Shard: shard, State: events.ErasureBegun, Part: 1, Parts: 1, Tenant: tenant, Policy: "keep@0011223344556677", At: events.At(begin), Writer: "auditor-1"}
	for _, session := range sessions {
		var seqs []uint64
		for _, r := range w.rows() {
			if r.Tenant == tenant && r.Session == session {
				seqs = append(seqs, r.Seq)
				w.expired[r.Seq] = uint64(w.size() + 1)
			}
		}
		e.Sessions = append(e.Sessions, events.ExpiredSession{Session: session, Index: 1, Sequences: retention.JoinSpans(seqs)})
		e.Records += uint64(len(seqs))
	}
	var err error
	e.Vouch, err = signing.SignExpiry(w.Signer, e)
	ok(w.T, err)
	return verify.ExpiryRecord{Row: w.Log(subject.Space{}.Control("GOV", events.ControlExpiry), nil, w.Encode(e)).Row()}
}

func (w *world) proved(x verify.ExpiryRecord) []verify.ExpiryRecord {
	w.T.Helper()
	var err error
	x.Proof, err = tree.InclusionProof(w, w.Tree.Size(), x.Row.Seq)
	ok(w.T, err)
	return []verify.ExpiryRecord{x}
}

// second runs the verifier that shares no code with this one.
func second(t *testing.T, w *world, file []byte) (code int, out string) {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 to run the second verifier with")
	}
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "b.zip"), file, 0o600))
	ok(t, os.WriteFile(filepath.Join(dir, "key"), []byte(w.VKey+"\n"), 0o600))
	cmd := exec.Command(path, "-I", "../../test/verifier/verify.py", "--bundle", filepath.Join(dir, "b.zip"), "--key", filepath.Join(dir, "key"))
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// What expired is in a bundle by its hash, says why, and verifies, with both
// verifiers; a text that is missing for no reason that the log knows does not. The
// record that says why is there whole, with the other sessions that it names.
func TestBundlesOfExpiredRecords(t *testing.T) {
	w, src := decidedWorld(t)
	before := fullBundle(t, w, src, nil, nil)
	session := "s1"
	x := w.expire("acme", session, "s2")
	gone := fullBundle(t, w, src, nil, func(in *Input) { in.Expiries = w.proved(x) })
	w.call("acme", session, events.Allow) // it goes on
	goes := fullBundle(t, w, src, nil, func(in *Input) { in.Expiries = w.proved(x) })
	whole := fullRange(t, w, src, func(in *Input) { in.Expiries = w.proved(x) })
	for name, tc := range map[string]struct {
		file []byte
		want string
		some bool
	}{"from before": {before, "", false}, "a session": {gone, Format, true}, "that went on": {goes, Format, true}, "a range": {whole, `"session":""`, true}} {
		rep := verifyWorld(t, w, tc.file, Options{})
		if !rep.OK || (rep.Expired > 0) != tc.some {
			t.Errorf("%s: %+v", name, rep)
		}
		_, members := unzip(t, tc.file)
		if tc.some && (!bytes.Contains(members["manifest.json"], []byte(tc.want)) || !bytes.Contains(members["manifest.json"], []byte(`"expired":`))) {
			t.Errorf("%s: %s", name, members["manifest.json"])
		}
		if tc.some && !bytes.Contains(members[memberExpiries], []byte("s2")) {
			t.Errorf("%s: %s", name, members[memberExpiries])
		}
		if says := strings.Contains(string(members[MemberReport]), "the tenant&#39;s retention policy let the text go, on "); says != tc.some {
			t.Errorf("%s: the report says that something expired: %v", name, says)
		}
		if readme := strings.Join(strings.Fields(string(members[memberReadme])), " "); !strings.Contains(readme, "records.parquet has the records of records.jsonl that have their text,") || !strings.Contains(readme, "--key CHECKPOINT.pub") {
			t.Errorf("%s: %s", name, readme)
		}
		if code, out := second(t, w, tc.file); code != 0 || tc.some && !strings.Contains(out, "expired") {
			t.Errorf("%s: the second verifier says %d: %s", name, code, out)
		}
	}
	for name, list := range map[string][]verify.ExpiryRecord{"without the expiry record": nil, "without its proof": {x}} {
		for kind, file := range map[string][]byte{
			"session": fullBundle(t, w, src, nil, func(in *Input) { in.Expiries = list }),
			"range":   fullRange(t, w, src, func(in *Input) { in.Expiries = list }),
		} {
			if rep := verifyWorld(t, w, file, Options{}); rep.OK || rep.ByCode[verify.CodeTextMissing] == 0 {
				t.Errorf("a %s %s: %s", kind, name, codes(rep))
			}
			if code, out := second(t, w, file); code != 1 {
				t.Errorf("a %s %s: the second verifier says %d: %s", kind, name, code, out)
			}
		}
	}
}

// The texts that an expiry takes of a session go together. A holder of bundles from before and after it
// cannot hide chosen records as expired: both verifiers refuse the mixture, and no writer makes it while
// an expiry is being carried out.
func TestPartOfAnExpiry(t *testing.T) {
	w, src := decidedWorld(t)
	before := w.rows()
	x := w.expire("acme", "s1", "s2")
	w.call("acme", "s1", events.Allow) // it goes on, under no expiry
	list := w.proved(x)
	of := func(session string) (seqs []uint64) {
		for _, r := range before {
			if r.Tenant == "acme" && r.Session == session {
				seqs = append(seqs, r.Seq)
			}
		}
		return seqs
	}
	s1 := of("s1")
	for name, tc := range map[string]struct {
		kept []uint64 // the records with their text
		hold bool
	}{
		"all are gone": {nil, true}, "the end is hidden": {s1[:4], false}, "the middle is hidden": {slices.Delete(slices.Clone(s1), 2, 4), false},
		"one is hidden": {s1[:len(s1)-1], false}, "one session as a whole": {of("s2"), true},
	} {
		mix := func(rows []evidence.Row) []evidence.Row {
			for i, r := range rows {
				if slices.Contains(tc.kept, r.Seq) {
					rows[i] = before[r.Seq-1]
				}
			}
			return rows
		}
		for kind, in := range map[string]Input{"session": w.session("acme", "s1"), "range": w.ranged("acme", 0, w.size()+1)} {
			in.Decided, in.Expiries = src, list
			changeRows(t, &in, mix)
			var out bytes.Buffer
			_, err := write(&out, in)
			ok(t, err)
			file := out.Bytes()
			rep := verifyWorld(t, w, file, Options{})
			if rep.OK != tc.hold || !tc.hold && rep.ByCode[verify.CodeTextMissing] != 1 {
				t.Errorf("%s, a %s: %s", name, kind, codes(rep))
			}
			if code, out := second(t, w, file); (code == 0) != tc.hold {
				t.Errorf("%s, a %s: the second verifier says %d: %s", name, kind, code, out)
			}
			if _, err = Write(io.Discard, in); (err == nil) != tc.hold || !tc.hold && !strings.Contains(err.Error(), "try again") {
				t.Errorf("%s, a %s: the writer says %v", name, kind, err)
			}
		}
	}
}

// TestExpiryOfNothing: a signed expiry that names a session without sequences is no reason for anything.
func TestExpiryOfNothing(t *testing.T) {
	texts := newExpiryTally([]events.Expiry{{ExpiryID: "x1", Tenant: "acme", Sessions: []events.ExpiredSession{{Session: "s1", Index: 1}}}})
	texts.addRow(evidence.Row{Tenant: "acme", Session: "s1", Seq: 1})
	if n := texts.inOrder[0]; n.gone+n.kept != 0 {
		t.Errorf("%d records count as gone, %d as kept", n.gone, n.kept)
	}
}

// What is no expiry of this log gives no reason, also beside one that is: both verifiers refuse it,
// because the report would state it.
func TestInventedExpiries(t *testing.T) {
	w, src := decidedWorld(t)
	x := w.expire("acme", "s1")
	invented := x
	invented.Row.Record = strings.Replace(x.Row.Record, "keep@0011223344556677", "mine@0011223344556677", 1)
	invented.Row.RecordHash = evidence.HashRecord([]byte(invented.Row.Record))
	invented.Proof = w.proved(x)[0].Proof
	unproved := x
	for name, more := range map[string]verify.ExpiryRecord{"with a changed text": invented, "without a proof": unproved} {
		list := append(w.proved(x), more)
		for kind, file := range map[string][]byte{
			"session": fullBundle(t, w, src, nil, func(in *Input) { in.Expiries = list }),
			"range":   fullRange(t, w, src, func(in *Input) { in.Expiries = list }),
		} {
			if rep := verifyWorld(t, w, file, Options{}); rep.OK || !strings.Contains(codes(rep), "bundle_member in expiries.json") {
				t.Errorf("a %s with one %s: %s", kind, name, codes(rep))
			}
			if code, out := second(t, w, file); code != 1 {
				t.Errorf("a %s with one %s: the second verifier says %d: %s", kind, name, code, out)
			}
		}
	}
}

// A row without a text cannot be made another's, or another hash's.
func TestDoctoredExpiredRow(t *testing.T) {
	w, src := decidedWorld(t)
	x := w.expire("acme", "s1")
	for name, change := range map[string]func(*evidence.Row){
		"the hash":        func(r *evidence.Row) { r.RecordHash[0] ^= 1 },
		"the tenant":      func(r *evidence.Row) { r.Tenant, r.Subject = "acme", strings.Replace(r.Subject, ".acme.", ".beta.", 1) },
		"the kind":        func(r *evidence.Row) { r.Kind = evidence.KindControl },
		"a text that was": func(r *evidence.Row) { r.Kind = evidence.KindCall },
	} {
		bad := fullBundle(t, w, src, nil, func(in *Input) {
			in.Expiries = w.proved(x)
			changeRows(t, in, func(rows []evidence.Row) []evidence.Row { change(&rows[0]); return rows })
		})
		if rep := verifyWorld(t, w, bad, Options{}); rep.OK {
			t.Errorf("%s: it holds", name)
		}
		if code, out := second(t, w, bad); code != 1 {
			t.Errorf("%s: the second verifier says %d: %s", name, code, out)
		}
	}
}

// The list of expiry records is there exactly if the manifest says that texts
// expired: for both verifiers, and whatever else fits.
func TestExpiriesAreStated(t *testing.T) {
	w, src := decidedWorld(t)
	none := map[string][]byte{"session": fullBundle(t, w, src, nil, nil), "range": fullRange(t, w, src, func(in *Input) { in.SignKey = nil })}
	x := w.expire("acme", "s1")
	some := map[string][]byte{"session": fullBundle(t, w, src, nil, func(in *Input) { in.Expiries = w.proved(x) }),
		"range": fullRange(t, w, src, func(in *Input) { in.Expiries, in.SignKey = w.proved(x), nil })}
	for kind := range none {
		names, files := unzip(t, none[kind])
		files[memberExpiries] = []byte("[]")
		var m Manifest
		ok(t, json.Unmarshal(files[memberManifest], &m))
		m.Members = append(m.Members, member{memberExpiries, files[memberExpiries]}.manifestLine())
		files[memberManifest] = w.Encode(m)
		for what, tc := range map[string]struct {
			file []byte
			says string
		}{
			"missing":  {forge(t, some[kind], nil, func(m map[string][]byte) { delete(m, memberExpiries) }), "member expiries.json is missing, and the manifest says that"},
			"too many": {pack(t, append(names, memberExpiries), files), "member expiries.json is there, and the manifest says of no text"},
		} {
			_, err := Verify(bytes.NewReader(tc.file), int64(len(tc.file)), w.VKey, Options{})
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s, %s: %v", kind, what, err)
			}
			if code, out := second(t, w, tc.file); code != 1 || !strings.Contains(out, map[string]string{"missing": "nothing says why", "too many": "manifest.json: expiries.json is there"}[what]) {
				t.Errorf("%s, %s: the second verifier says %d: %s", kind, what, code, out)
			}
		}
	}
}

// Whatever a line is, it is read to what gives the same line again, or refused.
func FuzzReadLine(f *testing.F) {
	w, _ := decidedWorld(f)
	rows := w.rows()[1:2]
	w.expire("acme", "s1")
	for _, r := range append(rows, w.rows()[1]) {
		rec, err := recordOf(r)
		ok(f, err)
		text, err := lineOf(r, rec)
		ok(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"expired":{}}`))
	f.Add([]byte(`{"expired":{"body_digest":"","broker_time":"2026-11-20T06:42:00.000000000Z","kind":"event","record_hash":"00","seq":1,"session":"s","shard":"x","subject":"y","tenant":"t"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		row, rec, err := readLine(text)
		if err != nil {
			return
		}
		again, err := lineOf(row, rec)
		if err != nil || string(again) != string(text) || row.Seq != rec.Seq {
			t.Fatalf("%q: %q, %v", text, again, err)
		}
	})
}

func FuzzReadExpiries(f *testing.F) {
	w, _ := decidedWorld(f)
	l, _, err := expiriesMember([]verify.ExpiryRecord{w.expire("acme", "s1")}, 1, 20)
	ok(f, err)
	f.Add(l.data)
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, notes, err := readExpiries(data)
		if err == nil && len(list) != len(notes) {
			t.Fatalf("%d records, %d notes", len(list), len(notes))
		}
		verify.NewVerifier(verify.Options{Shard: shard, Expiries: list})
	})
}
