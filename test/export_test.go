package e2e_test

import (
	"archive/zip"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// membersOf reads all members of a bundle, as any ZIP program does.
func membersOf(t testing.TB, file string) map[string][]byte {
	t.Helper()
	z, err := zip.OpenReader(file)
	ok(t, err)
	defer z.Close()
	members := map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		ok(t, err)
		if members[f.Name], err = io.ReadAll(r); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
	return members
}

// The report of a bundle is readable, and its statement is signed by the exporter's key.
func TestExportForPeople(t *testing.T) {
	t.Parallel()
	s := borrowed(t)
	dir := t.TempDir()
	bundle, key := filepath.Join(dir, "b.zip"), filepath.Join(dir, "checkpoint.pub")
	tool(t, "keys", "statement", "--keys", dir).want(t, 0)
	statementKey, statementPub := filepath.Join(dir, "statement.key"), filepath.Join(dir, "statement.pub")
	s.run(t, "export", "--session", "small-1", "--out", bundle, "--sign-key", statementKey).want(t, 0)
	ok(t, os.WriteFile(key, []byte(s.info(t).PublicKey+"\n"), 0o600))
	// From here on no command is told where a system is.

	r := tool(t, "verify", "--bundle", bundle, "--key", key, "--statement-key", statementPub).want(t, 0)
	if !strings.Contains(r.out, "holds") || strings.Contains(r.out, "NOTE:") {
		t.Errorf("%s%s", r.out, r.err)
	}
	if r := tool(t, "verify", "--bundle", bundle, "--key", key).want(t, 0); !strings.Contains(r.out, "whose key that is was not checked") {
		t.Errorf("nothing says that the signer is not known: %s", r.out)
	}
	members := membersOf(t, bundle)
	page := string(members["report.html"])
	for _, want := range []string{"<!DOCTYPE html>", "small-1", "agenthook", "countersign verify --bundle"} {
		if !strings.Contains(page, want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "http://") || strings.Contains(page, "https://") {
		t.Error("the report runs or loads something")
	}
	var index struct {
		Entries []struct{ ID string }
		Without []any `json:"no_records_here"`
	}
	ok(t, json.Unmarshal(members["controls.json"], &index))
	if len(index.Entries) == 0 || len(index.Without) == 0 {
		t.Errorf("%d controls with records, %d without", len(index.Entries), len(index.Without))
	}
	statementOf(t, members, statementPub)
	// Who was not to sign it did not.
	tool(t, "keys", "statement", "--keys", filepath.Join(dir, "other")).want(t, 0)
	tool(t, "verify", "--bundle", bundle, "--key", key, "--statement-key", filepath.Join(dir, "other", "statement.pub")).want(t, 1)
}

// statementOf checks the statement with nothing of Countersign: DSSE, in-toto, the
// members' digests.
func statementOf(t testing.TB, members map[string][]byte, publicFile string) {
	t.Helper()
	text, err := os.ReadFile(publicFile)
	ok(t, err)
	block, _ := pem.Decode(text)
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	ok(t, err)
	var env struct {
		PayloadType, Payload string
		Signatures           []struct{ Sig string }
	}
	ok(t, json.Unmarshal(members["statement.dsse.json"], &env))
	payload, err := base64.StdEncoding.DecodeString(env.Payload)
	ok(t, err)
	sig, err := base64.StdEncoding.DecodeString(env.Signatures[0].Sig)
	ok(t, err)
	signed := fmt.Sprintf("DSSEv1 28 application/vnd.in-toto+json %d %s", len(payload), payload)
	if env.PayloadType != "application/vnd.in-toto+json" || !ed25519.Verify(public.(ed25519.PublicKey), []byte(signed), sig) {
		t.Error("the statement is not signed by the key")
	}
	var st struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		PredicateType string
	}
	ok(t, json.Unmarshal(payload, &st))
	if st.Type != "https://in-toto.io/Statement/v1" || st.PredicateType == "" {
		t.Errorf("it is no statement of in-toto: type %q, predicate type %q", st.Type, st.PredicateType)
	}
	if len(st.Subject) != len(members)-1 {
		t.Errorf("the statement is over %d members of %d", len(st.Subject), len(members)-1)
	}
	for _, m := range st.Subject {
		sum := sha256.Sum256(members[m.Name])
		if m.Digest["sha256"] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s has another digest than its statement says", m.Name)
		}
	}
}

// Everything of a tenant between two times, and nothing else; the file proves
// itself with the key alone.
func TestExportRange(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.runtime(t)
	begin := time.Now().UTC()
	for i := range 12 {
		call := allowedCall(fmt.Sprint("s-range-", i%3), fmt.Sprint("c", i))
		r.admit(t, "agenthook", call.bytes())
		r.publish(t, call)
	}
	s.exact(t)
	end := time.Now().UTC()
	call := allowedCall("s-late", "late")
	r.admit(t, "agenthook", call.bytes())
	s.exact(t)
	signed(t, s)

	dir := t.TempDir()
	bundle, key := filepath.Join(dir, "range.zip"), filepath.Join(dir, "checkpoint.pub")
	ok(t, os.WriteFile(key, []byte(s.info(t).PublicKey+"\n"), 0o600))
	export := func(out string, from, to time.Time, more ...string) result {
		return s.run(t, append([]string{"export", "--from", from.Format(time.RFC3339Nano), "--to", to.Format(time.RFC3339Nano), "--out", out}, more...)...)
	}
	export(bundle, begin, end).want(t, 0)
	tool(t, "verify", "--bundle", bundle, "--key", key).want(t, 0)
	members := membersOf(t, bundle)
	lines := bytes.Split(bytes.TrimSuffix(members["records.jsonl"], []byte("\n")), []byte("\n"))
	kinds := map[any]int{}
	for _, line := range lines {
		var rec object
		ok(t, json.Unmarshal(line, &rec))
		kinds[rec["kind"]]++
		at, err := time.Parse(time.RFC3339Nano, rec["broker_time"].(string))
		ok(t, err)
		if rec["tenant"] != "acme" || at.Before(begin) || !at.Before(end) || rec["session"] == "s-late" {
			t.Errorf("a record of another tenant or time: %s", line)
		}
	}
	if kinds["request"] != 12 || kinds["decision"] != 12 || kinds["event"] < 12 || bytes.Count(members["decisions.jsonl"], []byte("\n")) != 12 {
		t.Errorf("%v", kinds)
	}

	// What cannot be exported leaves nothing behind.
	none := filepath.Join(dir, "none.zip")
	export(none, begin.Add(-48*time.Hour), begin.Add(-47*time.Hour)).want(t, 1).oneLine(t, "no record in this time range")
	export(none, begin, time.Now().Add(time.Hour)).want(t, 2).oneLine(t, "still being written")
	export(none, end, begin).want(t, 2).oneLine(t, "the range is empty")
	if r := export(none, begin, end, "--tenant", "nobody").want(t, 1); !strings.Contains(r.err, `no record in this time range: tenant "nobody"`) { // below the progress of the proof, if that takes long
		t.Errorf("%s", r.err)
	}
	export(bundle, begin, end).want(t, 2).oneLine(t, "--force")
	left, err := os.ReadDir(dir)
	ok(t, err)
	if names := slices.Collect(func(yield func(string) bool) {
		for _, e := range left {
			if !yield(e.Name()) {
				return
			}
		}
	}); len(names) != 2 {
		t.Errorf("files are left behind: %v", names)
	}
}
