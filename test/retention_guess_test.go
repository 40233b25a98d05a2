package e2e_test

import (
	"archive/zip"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/digest"
)

var digestForm = regexp.MustCompile(`[0-9a-f]{64}`)

// digestsEverywhere collects whatever may be a digest, by where it stands: in the
// session's evidence as it was, in the tables, in a bundle, in the log and the
// buckets as they lie on the disk, and in the correlator's snapshot.
func digestsEverywhere(t testing.TB, s *system, rows []row, bundle string) map[string]map[string]bool {
	t.Helper()
	places := map[string]map[string]bool{}
	add := func(where string, text []byte) {
		if places[where] == nil {
			places[where] = map[string]bool{}
		}
		for _, d := range digestForm.FindAll(text, -1) {
			places[where][string(d)] = true
		}
	}
	for _, r := range rows {
		add("evidence", []byte(r.Record))
	}
	for _, table := range []string{"evidence", "decisions", "calls", "approvals"} {
		q, err := s.auditors(t).Query(t.Context(), "SELECT toString(tuple(*)) FROM "+table)
		ok(t, err)
		for q.Next() {
			var text string
			ok(t, q.Scan(&text))
			add("tables", []byte(text))
		}
		ok(t, q.Err())
		_ = q.Close()
	}
	z, err := zip.OpenReader(bundle)
	ok(t, err)
	defer z.Close()
	for _, f := range z.File {
		r, err := f.Open()
		ok(t, err)
		text, err := io.ReadAll(r)
		ok(t, err)
		add("bundle", text)
	}
	for where, dir := range map[string]string{"log and buckets": "nats", "snapshots": "state"} {
		_ = filepath.WalkDir(filepath.Join(s.data, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			add(where, text)
			for at := 0; where == "snapshots" && at+32 <= len(text); at++ { // they are binary
				places[where][hex.EncodeToString(text[at:at+32])] = true
			}
			return nil
		})
	}
	return places
}

// fitting tries ten thousand values in otherwise known messages and arguments
// against digests, in every form that there is, under every key that there is, and
// tells which values fit.
func fitting(t testing.TB, s *system, x secretSession, digests map[string]bool) (values []string) {
	t.Helper()
	tenant, keys := masterKey(t, s).Tenant("acme"), sessionKeys(t, s, "acme", x.name)
	tries := []func([]byte) string{digest.Plain, func(b []byte) string { return digest.Keyed(tenant, b) }}
	for _, k := range keys {
		tries = append(tries, digest.NewSession(k).Digest, func(b []byte) string { return digest.Keyed(k, b) })
	}
	// The same as docs/evidence-format.md has it, without the code that made them.
	for _, k := range keys {
		tries = append(tries, func(b []byte) string {
			own, sum := hmacOf(k, []byte("countersign/digest/v1")), sha256.Sum256(b)
			return ":" + hex.EncodeToString(hmacOf(own, sum[:]))
		})
	}
	for n := range 10_000 {
		guess := x.pin[:2] + fmt.Sprintf("%04d", n)
		for _, text := range x.texts {
			b := []byte(strings.ReplaceAll(text, "pw-"+x.pin, "pw-"+guess))
			for _, try := range tries {
				d := try(b)
				if digests[d[strings.LastIndexByte(d, ':')+1:]] {
					values = append(values, guess)
				}
			}
		}
	}
	return values
}

func hmacOf(key, text []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(text)
	return m.Sum(nil)
}
