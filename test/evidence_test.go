package e2e_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// Any native client reads the evidence table: the columns are there, and the
// hash of every record is what docs/evidence-format.md says.
func TestEvidenceTable(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	call := allowedCall("s-table", "c1")
	r.admit(t, "agenthook", call.bytes())
	r.publish(t, call)
	s.exact(t)
	kindsSeen := map[string]bool{}
	prev := map[string]string{}
	for i, e := range evidence(t, s.auditors(t), "1") {
		kindsSeen[e.Kind] = true
		if e.Seq != uint64(i)+1 {
			t.Fatalf("row %d has sequence %d", i, e.Seq)
		}
		sum := sha256.Sum256([]byte("countersign/evidence/v1\x00" + e.Record))
		if e.RecordHash != string(sum[:]) {
			t.Errorf("sequence %d: hash %x is not the record's", e.Seq, e.RecordHash)
		}
		rec := e.record(t)
		for path, want := range map[string]string{"shard": e.Shard, "tenant": e.Tenant, "session": e.Session, "kind": e.Kind, "subject": e.Subject,
			"body_digest": e.BodyDigest, "broker_time": e.BrokerTime.UTC().Format("2006-01-02T15:04:05.000000000Z")} {
			if rec.text(path) != want {
				t.Errorf("sequence %d: %s is %q in the column and %q in the record", e.Seq, path, want, rec.text(path))
			}
		}
		if rec.text("session_prev") != prev[e.Tenant+"/"+e.Session] && rec["session_index"] != nil {
			t.Errorf("sequence %d does not continue session %q", e.Seq, e.Session)
		}
		if rec["session_index"] != nil {
			prev[e.Tenant+"/"+e.Session] = hex.EncodeToString(sum[:])
		}
	}
	for _, k := range []string{"request", "event", "decision", "call", "control"} {
		if !kindsSeen[k] {
			t.Errorf("no record of kind %s", k)
		}
	}
}

// The auditors' user reads and nothing else.
func TestReadonlyUser(t *testing.T) {
	s := shared(t)
	db := s.auditors(t)
	for _, statement := range []string{
		"INSERT INTO evidence (shard, seq) VALUES ('x', 1)", "ALTER TABLE evidence DELETE WHERE 1", "TRUNCATE TABLE evidence", "DROP TABLE evidence",
		"CREATE TABLE mine (a Int8) ENGINE = Memory", "SET readonly = 0", "SELECT * FROM file('/etc/passwd', 'LineAsString')",
		"SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString', 'line String')", "CREATE USER intruder",
	} {
		if err := db.Exec(context.Background(), statement); err == nil {
			t.Errorf("the read-only user may: %s", statement)
		}
	}
	s.verified(t, 0)
}

// The secrets of TestSecrets, by where they stand in the arguments. All are made
// up.
func plantedSecrets() map[string]string {
	fresh := strings.ToUpper(strings.ReplaceAll(uuid.NewString(), "-", ""))
	return map[string]string{
		"aws":      "AKIA" + fresh[:16],
		"password": "hunter2-" + fresh[:12],
		"listed":   "patient-" + fresh[4:20],
		"token":    "ghp_" + fresh + fresh[:4],
		"bearer":   "sk-live-" + strings.ToLower(fresh),
	}
}

// Secrets in arguments are on the bytes that subscribers of the log receive and
// nowhere else: not in any table, not in the export, not in a log.
func TestSecrets(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	secrets := plantedSecrets()
	const sess = "s-secrets"
	call := preToolUse(sess, "c1", "write_file", object{
		"path": "/workspace/x", "content": "key " + secrets["aws"] + " and " + secrets["token"],
		"password": secrets["password"], "nested": object{"patient": secrets["listed"]}, "headers": object{"Authorization": "Bearer " + secrets["bearer"]},
	}).with("metadata.redaction", object{"applied": true, "fields": []string{"tool_input.nested.patient"}})
	if a := r.admit(t, "agenthook", call.bytes()); a.verdict != "allow" {
		t.Fatalf("%s: %s", a.verdict, a.msg.Data)
	}
	seq := r.publish(t, call)
	r.publish(t, postToolUse(call))
	// Where no schema is kept, secrets are secrets nonetheless.
	r.put(t, r.subject("agenthook", sess, "unknown"), []byte(`{"password":"`+secrets["password"]+`","x":["`+secrets["aws"]+`"]}`))
	s.exact(t)
	signed(t, s)
	s.verified(t, 0)

	m, err := message(s.connect(t, "operator"), "GOV", object{"seq": seq})
	ok(t, err)
	if string(m.Data) != string(call.bytes()) {
		t.Error("the message on the log is not byte for byte what was published")
	}
	row := atSeq(t, s.auditors(t), seq)
	if !strings.HasPrefix(row.BodyDigest, "session-hmac-sha256:") || strings.Count(row.Record, `"commitment"`) < len(secrets) {
		t.Errorf("digest %.20s, record %s", row.BodyDigest, row.Record)
	}
	bundle := filepath.Join(t.TempDir(), "secrets.zip")
	s.run(t, "export", "--session", sess, "--out", bundle).want(t, 0)
	for name, secret := range secrets {
		for _, table := range tablesWith(t, s, secret) {
			t.Errorf("%s is in table %s", name, table)
		}
		for _, member := range membersWith(t, bundle, secret) {
			t.Errorf("%s is in %s of the export", name, member)
		}
		log, err := os.ReadFile(s.log)
		ok(t, err)
		if bytes.Contains(log, []byte(secret)) {
			t.Errorf("%s is in the services' log", name)
		}
	}
	if got := tablesWith(t, s, "s-secrets"); len(got) == 0 {
		t.Error("the search of the tables finds nothing at all")
	}
	if got := membersWith(t, bundle, "s-secrets"); len(got) == 0 {
		t.Error("the search of the export finds nothing at all")
	}
}

// tablesWith lists the tables of the owner, and the server's own logs, that hold
// a text in any column.
func tablesWith(t testing.TB, s *system, text string) (found []string) {
	t.Helper()
	db := s.owner(t)
	var tables []struct {
		Database string `ch:"database"`
		Name     string `ch:"name"`
	}
	ok(t, db.Select(context.Background(), &tables,
		"SELECT database, name FROM system.tables WHERE (database = currentDatabase() OR (database = 'system' AND name LIKE '%_log')) AND engine LIKE '%MergeTree'"))
	for _, table := range tables {
		if number(t, db, fmt.Sprintf("SELECT count() FROM `%s`.`%s` WHERE position(formatRow('JSONEachRow', *), ?) > 0", table.Database, table.Name), text) > 0 {
			found = append(found, table.Name)
		}
	}
	return found
}

// membersWith lists the members of a zip that hold a text.
func membersWith(t testing.TB, path, text string) (found []string) {
	t.Helper()
	z, err := zip.OpenReader(path)
	ok(t, err)
	defer z.Close()
	for _, f := range z.File {
		r, err := f.Open()
		ok(t, err)
		b, err := io.ReadAll(r)
		ok(t, err)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, f.Name)
		}
	}
	return found
}

// The bundle verifies elsewhere, with nothing but the file and the key; one
// flipped bit and it does not.
func TestExport(t *testing.T) {
	t.Parallel()
	s := borrowed(t)
	elsewhere := t.TempDir()
	bundle, key := filepath.Join(elsewhere, "b.zip"), filepath.Join(elsewhere, "checkpoint.pub")
	s.run(t, "export", "--session", "small-1", "--out", bundle).want(t, 0)
	s.run(t, "export", "--session", "small-1", "--out", bundle).want(t, 2).oneLine(t, "--force")
	s.run(t, "export", "--session", "nobody", "--out", filepath.Join(elsewhere, "no.zip")).want(t, 1).oneLine(t, "nobody")
	ok(t, os.WriteFile(key, []byte(s.info(t).PublicKey+"\n"), 0o600))
	// From here on no command is told where a system is.

	alone := func(file string) result {
		return tool(t, "verify", "--bundle", file, "--key", key)
	}
	if r := alone(bundle).want(t, 0); !strings.Contains(r.out, "holds") {
		t.Errorf("%s", r.out)
	}
	whole, err := os.ReadFile(bundle)
	ok(t, err)
	forged := filepath.Join(elsewhere, "forged.zip")
	for i := range 24 {
		at := i * (len(whole) - 1) / 23
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		ok(t, os.WriteFile(forged, b, 0o600))
		if r := alone(forged); r.code != 1 || r.err+r.out == "" {
			t.Errorf("byte %d of %d flipped: exit %d\n%s%s", at, len(whole), r.code, r.out, r.err)
		}
	}
	ok(t, os.WriteFile(forged, whole[:len(whole)/2], 0o600))
	alone(forged).want(t, 1).oneLine(t, "forged.zip")
	// Another installation's key proves nothing.
	ok(t, os.WriteFile(key, []byte("countersign.dev/checkpoint+00000000+AZ8MF+fN9cZ6kBPyKV1PZD3QFNpqSfpTNuyWjwZUmnoD\n"), 0o600))
	if r := alone(bundle); r.code == 0 {
		t.Error("it verifies under a key that is not the installation's")
	}
}
