package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Who holds the database's server answers each query as it likes, and puts behind the
// newest checkpoint what it likes. An answer that is proved is made of the bytes that
// were proved: it stays what it was before, or the command fails.
func TestProvedAnswersNeedNoServer(t *testing.T) {
	t.Parallel()
	s := smallSystem(t)
	db := s.owner(t)
	const sess = "small-1"
	proved := [][]string{
		{"findings", "--json", "--proved"},
		{"calls", "--json", "--proved"},
		{"audit", "ask", "no-verdict", "--json", "--proved"},
		{"audit", "ask", "despite-no", "--json", "--proved"},
		{"chain", "--session", sess, "--json", "--proved"},
		{"session", sess, "--json", "--proved"},
	}
	want := map[string]string{}
	for _, args := range proved {
		want[strings.Join(args, " ")] = s.run(t, args...).want(t, 0).out
	}
	same := func(t *testing.T, mayFail bool, list ...[]string) {
		t.Helper()
		for _, args := range list {
			r := s.run(t, args...)
			if r.out != want[strings.Join(args, " ")] && !(mayFail && r.code != 0) {
				t.Errorf("%v gives another answer than before (exit %d):\n%s\n%s\n%s", args, r.code, r.err, r.out, want[strings.Join(args, " ")])
			}
		}
	}

	t.Run("NULL in an index", func(t *testing.T) {
		for _, tc := range []struct {
			table, column, typ, replace string
			by                          [][]string // the commands that read the table
		}{
			{"findings", "shard", "LowCardinality(Nullable(String))", "'info' AS severity, finding_id AS withdraws, concat('x', finding_id) AS finding_id", proved[:1]},
			{"calls", "shard", "LowCardinality(Nullable(String))", "'invented' AS tool_call_id, 'invented' AS call_id, 'completed' AS state, '' AS decision_id", proved[1:2]},
			{"calls", "seq", "Nullable(UInt64)", "'invented' AS tool_call_id, 'invented' AS call_id, 'completed' AS state, '' AS decision_id", proved[1:3]},
		} {
			if longSweeps {
				tc.by = proved[:3]
			}
			put := replaced(t, db, tc.table, "CREATE TABLE other ENGINE = MergeTree ORDER BY tuple() AS SELECT * REPLACE (CAST("+tc.column+", '"+tc.typ+"') AS "+tc.column+") FROM "+tc.table,
				"INSERT INTO other SELECT * REPLACE (CAST(NULL, '"+tc.typ+"') AS "+tc.column+", "+tc.replace+") FROM "+tc.table)
			rep, _ := s.report(t)
			if rep.OK || !rep.code("derived_row") || !rep.code("schema_differs") {
				t.Errorf("a Nullable %s of table %s: verify says %+v", tc.column, tc.table, rep.Problems)
			}
			same(t, false, tc.by...)
			put()
		}
		s.verified(t, 0)
	})

	t.Run("a view that sees who asks", func(t *testing.T) {
		put := replaced(t, db, "findings", "CREATE VIEW other DEFINER = CURRENT_USER SQL SECURITY DEFINER AS SELECT * FROM findings_first WHERE (SELECT count() FROM system.processes WHERE query LIKE '%taken_back%' AND query NOT LIKE '%AS side%' AND user = 'countersign_ro') = 0")
		same(t, false, proved[0])
		if rep, _ := s.report(t); !rep.code("schema_differs") {
			t.Errorf("verify does not name the view: %+v", rep.Problems)
		}
		if r := s.run(t, "doctor"); r.code == 0 || !strings.Contains(r.out, "schema_differs") {
			t.Errorf("doctor does not name the view: %s", r.out)
		}
		put()
	})

	t.Run("evidence is a view without the end of a session", func(t *testing.T) {
		last := number(t, db, "SELECT max(seq) FROM evidence WHERE session = '"+sess+"'")
		put := replaced(t, db, "evidence", fmt.Sprintf("CREATE VIEW other DEFINER = CURRENT_USER SQL SECURITY DEFINER AS SELECT *, redacted FROM evidence_first WHERE seq != %d", last))
		s.run(t, "export", "--session", sess, "--out", filepath.Join(t.TempDir(), "bundle.zip")).want(t, 1).says(t, fmt.Sprintf("gap at sequence %d", last))
		s.verified(t, 1, "--session", sess)
		if rep, _ := s.report(t); !rep.code("gap") || !rep.code("schema_differs") {
			t.Errorf("verify says %+v", rep.Problems)
		}
		put()
	})

	t.Run("a text that is another each time", func(t *testing.T) {
		put := replaced(t, db, "evidence", "CREATE TABLE other (shard LowCardinality(String), seq UInt64, tenant LowCardinality(String), session String, session_index Nullable(UInt64), kind LowCardinality(String), subject String, broker_time DateTime64(9, 'UTC'), body_digest String, stored String, record String ALIAS if(kind = 'finding' AND rand(seq) % 4 = 0, replaceAll(stored, 'executed', 'excused'), stored), record_hash FixedString(32), redacted Bool, expiry UInt64, concerns LowCardinality(String)) ENGINE = MergeTree ORDER BY (shard, seq)",
			"INSERT INTO other (shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, stored, record_hash, redacted, expiry, concerns) SELECT shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash, redacted, expiry, concerns FROM evidence")
		for range 6 {
			same(t, true, proved[0])
		}
		put()
	})

	s.verified(t, 0)
	release := s.holdDown(t, "auditor")
	defer release()
	signed(t, s)
	size := number(t, db, "SELECT max(size) FROM checkpoints")

	t.Run("a record behind the newest checkpoint", func(t *testing.T) {
		invented := inventFinding(t, db, sess)
		for _, args := range proved {
			r := s.run(t, args...).want(t, 0)
			if r.out != want[strings.Join(args, " ")] {
				t.Errorf("%v proves an unsigned record:\n%s\n%s", args, r.out, want[strings.Join(args, " ")])
			}
			if !strings.Contains(r.err, "not signed yet and not in this answer") {
				t.Errorf("%v does not say that something is left out: %s", args, r.err)
			}
		}
		if r := s.run(t, "findings", "--proved"); strings.Contains(r.out, "nothing is missing") || !strings.Contains(r.out, "not signed yet and not in this answer") {
			t.Errorf("%s", r.out)
		}
		if r := s.run(t, "replay", "--session", sess, "--from", "clickhouse"); strings.Contains(r.out, "fnd_aaaa") || !strings.Contains(r.out, "not signed yet") {
			t.Errorf("%s", r.out)
		}
		if rep, _ := s.report(t, "--compare-log=0"); rep.OK || !rep.code("log_mismatch") || rep.Problems[0].Seq != invented {
			t.Errorf("verify says %+v", rep.Problems)
		}
		if r := s.withoutNATS(t, "verify"); !strings.Contains(r.out, "NOT proved, and were not compared with the log") {
			t.Errorf("%s", r.out)
		}
		for _, table := range storedTables[3:] {
			change(t, db, fmt.Sprintf("ALTER TABLE %s DELETE WHERE seq = %d", table, invented))
		}
		change(t, db, fmt.Sprintf("ALTER TABLE evidence DELETE WHERE seq = %d", invented))
	})

	t.Run("a store that was cut back", func(t *testing.T) {
		older := number(t, db, "SELECT max(size) FROM checkpoints WHERE size < (SELECT max(seq) FROM findings)")
		if older == 0 || older >= size {
			t.Fatalf("no older checkpoint: %d of %d", older, size)
		}
		for _, table := range storedTables[3:] {
			change(t, db, fmt.Sprintf("ALTER TABLE %s DELETE WHERE seq > %d", table, older))
		}
		change(t, db, fmt.Sprintf("ALTER TABLE evidence DELETE WHERE seq > %d", older))
		change(t, db, fmt.Sprintf("ALTER TABLE checkpoints DELETE WHERE size > %d", older))
		if r := s.withoutNATS(t, "findings", "--proved").want(t, 0); strings.Contains(r.out, "nothing is missing") || !strings.Contains(r.out, "could be missing") {
			t.Errorf("%s", r.out)
		}
		if r := s.withoutNATS(t, "findings", "--proved", "--json").want(t, 0); !strings.Contains(r.err, "could be missing") {
			t.Errorf("%s", r.err)
		}
		s.run(t, "findings", "--proved").want(t, 1)
	})
}

// replaced puts the table or view that the statements make, other, in a table's
// place; put brings the table back.
func replaced(t testing.TB, db driver.Conn, table string, statements ...string) (put func()) {
	t.Helper()
	first := table + "_first"
	view := strings.HasPrefix(statements[0], "CREATE VIEW")
	if view {
		change(t, db, "RENAME TABLE "+table+" TO "+first)
	}
	for _, statement := range statements {
		change(t, db, statement)
	}
	if !view {
		change(t, db, "RENAME TABLE "+table+" TO "+first)
	}
	change(t, db, "RENAME TABLE other TO "+table)
	return func() {
		t.Helper()
		change(t, db, "RENAME TABLE "+table+" TO other, "+first+" TO "+table)
		change(t, db, "DROP TABLE other SYNC")
	}
}

// withoutNATS runs the tool with the DSN and the key alone.
func (s *system) withoutNATS(t testing.TB, args ...string) result {
	t.Helper()
	args = append(args, "--clickhouse", s.info(t).ClickHouseReadonlyDSN, "--key", filepath.Join(s.keyDir(), "checkpoint.pub"))
	return command(t, exec.Command(program("countersign"), args...))
}

// inventFinding stores behind the last record one that takes a finding back, in the
// session's chain as it should be, and gives its sequence. It takes no key.
func inventFinding(t testing.TB, db driver.Conn, sess string) uint64 {
	t.Helper()
	mine := evidence(t, db, "session = '"+sess+"'")
	last := mine[len(mine)-1]
	found := evidence(t, db, "kind = 'finding' AND session = '"+sess+"'")[0]
	seq := number(t, db, "SELECT max(seq) + 1 FROM evidence")
	record := map[string]any{}
	dec := json.NewDecoder(strings.NewReader(found.Record))
	dec.UseNumber()
	ok(t, dec.Decode(&record))
	body := record["body"].(map[string]any)
	subj := strings.Replace(found.Subject, "."+body["severity"].(string)+".", ".info.", 1)
	body["withdraws"], body["finding_id"], body["severity"], record["subject"] = body["finding_id"], "fnd_"+strings.Repeat("a", 32), "info", subj
	digest := sha256.Sum256(sorted(t, body))
	at := time.Now().UTC().Add(24 * time.Hour).Truncate(time.Second).Add(time.Millisecond)
	record["seq"], record["session_index"], record["session_prev"] = seq, len(mine)+1, hex.EncodeToString([]byte(last.RecordHash))
	record["headers"].(map[string]any)["ce-id"] = []string{body["finding_id"].(string)}
	record["broker_time"], record["body_digest"] = at.Format("2006-01-02T15:04:05.000000000Z"), "sha256:"+hex.EncodeToString(digest[:])
	text := string(sorted(t, record))
	hash := sha256.Sum256([]byte("countersign/evidence/v1\x00" + text))
	change(t, db, fmt.Sprintf(`INSERT INTO evidence (shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash)
		SELECT shard, %d, tenant, session, %d, kind, %s, toDateTime64('%s', 9, 'UTC'), %s, %s, unhex('%x') FROM evidence WHERE seq = %d`,
		seq, len(mine)+1, sqlText(subj), at.Format("2006-01-02 15:04:05.000000000"), sqlText(record["body_digest"].(string)), sqlText(text), hash, found.Seq))
	return seq
}

// sorted is a value in RFC 8785 form, as far as records need it.
func sorted(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	ok(t, enc.Encode(v))
	return bytes.TrimSpace(b.Bytes())
}
