package e2e_test

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A tenant's retention policy says what of a message may be stored in evidence at
// all: nothing else of it is in ClickHouse or in a bundle, decisions are as ever, and
// everything verifies, by the second verifier too.
func TestRetentionClasses(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	file, key := filepath.Join(dir, "acme.yaml"), filepath.Join(dir, "checkpoint.pub")
	ok(t, os.WriteFile(key, []byte(s.info(t).PublicKey+"\n"), 0o600))
	ok(t, os.WriteFile(file, []byte("version: 1\nname: acme\nretention: hashes\nsessions:\n  - {match: \"s-none\", retention: none}\n  - {match: \"s-full\", retention: full_transcript}\n"), 0o600))

	play := func(name string) (secret string) {
		secret = "herring " + randomText(t)
		r := s.runtime(t)
		call := preToolUse(name, "c1", "write_file", object{"path": "/workspace/c1", "text": secret})
		r.admit(t, "agenthook", call.bytes())
		r.publish(t, call)
		r.publish(t, postToolUse(call))
		s.settle(t)
		signed(t, s)
		return secret
	}
	before := play("s-before")
	if r := s.run(t, "retention", "lint", file).want(t, 0); !strings.Contains(r.out, "sessions s-none: none") || !strings.Contains(r.out, "all other sessions: hashes") {
		t.Errorf("lint: %s", r.out)
	}
	s.run(t, "retention", "push", file).want(t, 0)
	if r := s.run(t, "retention", "show").want(t, 0); !strings.Contains(r.out, "all other sessions: hashes") {
		t.Errorf("show: %s", r.out)
	}
	db := s.auditors(t)
	for _, tc := range []struct {
		name, secret, mark string
		kept               bool
	}{
		{"s-before", before, "", true}, {"s-hashes", play("s-hashes"), "retention_hashes", false},
		{"s-none", play("s-none"), "retention_none", false}, {"s-full", play("s-full"), "", true},
	} {
		in := number(t, db, "SELECT count() FROM evidence WHERE position(record, ?) > 0", tc.secret)
		marked := number(t, db, "SELECT count() FROM evidence WHERE session = ? AND kind IN ('request', 'event') AND position(record, 'redacted:retention_') > 0", tc.name)
		if (in > 0) != tc.kept || (marked > 0) == tc.kept || marked > 0 && marked != 3 {
			t.Errorf("%s: the text is in %d records, %d are marked", tc.name, in, marked)
		}
		if n := number(t, db, "SELECT count() FROM decisions WHERE session = ? AND tool = 'write_file' AND verdict = 'allow'", tc.name); n != 1 {
			t.Errorf("%s: %d decisions", tc.name, n)
		}
		bundle := filepath.Join(dir, tc.name+".zip")
		s.run(t, "export", "--session", tc.name, "--out", bundle).want(t, 0)
		tool(t, "verify", "--bundle", bundle, "--key", key).want(t, 0)
		if code, out := python(t, "--bundle", bundle, "--key", key); code != 0 {
			t.Errorf("%s: the second verifier: %s", tc.name, out)
		}
		text := unpacked(t, bundle)
		if got := strings.Contains(text["records.jsonl"], tc.secret); got != tc.kept {
			t.Errorf("%s: the text in the bundle: %v", tc.name, got)
		}
		for member, b := range text {
			if !tc.kept && strings.Contains(b, tc.secret) {
				t.Errorf("%s: the text is in %s", tc.name, member)
			}
		}
		if tc.mark != "" && !strings.Contains(text["report.html"], tc.mark) {
			t.Errorf("%s: the report does not name the class", tc.name)
		}
		s.verified(t, 0, "--session", tc.name)
	}
	s.verified(t, 0)
	s.sound(t)
}

// unpacked gives a bundle's members.
func unpacked(t testing.TB, file string) map[string]string {
	t.Helper()
	z, err := zip.OpenReader(file)
	ok(t, err)
	defer func() { _ = z.Close() }()
	out := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		ok(t, err)
		b, err := io.ReadAll(r)
		ok(t, err)
		_ = r.Close()
		out[f.Name] = string(b)
	}
	return out
}
