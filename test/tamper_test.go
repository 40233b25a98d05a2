package e2e_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/nats-io/nats.go"
)

// report is what `verify --json` prints for one shard.
type report struct {
	OK       bool   `json:"ok"`
	Shard    string `json:"shard"`
	Records  int    `json:"records"`
	Signed   int    `json:"signed"`
	Problems []struct {
		Code   string `json:"code"`
		Seq    uint64 `json:"seq"`
		Detail string `json:"detail"`
	} `json:"problems"`
}

func (s *system) report(t testing.TB, args ...string) (report, result) {
	t.Helper()
	r := s.run(t, append([]string{"verify", "--json"}, args...)...)
	var rep report
	if err := json.Unmarshal([]byte(r.out), &rep); err != nil {
		t.Fatalf("exit %d: %v\n%s%s", r.code, err, r.out, r.err)
	}
	return rep, r
}

// smallSystem is a system of the test's own with a few sessions in it, all of
// it signed.
func smallSystem(t testing.TB) *system {
	t.Helper()
	s := start(t)
	s.fillSmall(t)
	return s
}

// fillSmall makes the sessions of a smallSystem.
func (s *system) fillSmall(t testing.TB) {
	t.Helper()
	r := s.runtime(t)
	for i := range 3 {
		sess := fmt.Sprintf("small-%d", i)
		for _, call := range []object{allowedCall(sess, "c1"), deniedCall(sess, "c2")} {
			r.admit(t, "agenthook", call.bytes())
			r.publish(t, call)
			r.publish(t, postToolUse(call))
		}
	}
	s.exact(t)
	signed(t, s)
}

// signed waits until the newest checkpoint covers everything.
func signed(t testing.TB, s *system) {
	t.Helper()
	db := s.auditors(t)
	want := number(t, db, "SELECT max(seq) FROM evidence") // others may go on publishing
	eventually(t, "everything is signed", func() error {
		if have := number(t, db, "SELECT max(size) FROM checkpoints"); have < want {
			return errorf("signed up to %d of %d", have, want)
		}
		return nil
	})
}

// storedTables are those that a row of the evidence leads to.
var storedTables = []string{"evidence", "checkpoints", "tree_hashes", "evidence_chain", "record_fields"}

// keepTables copies the tables; restore puts the copies in the place of those that differ from them.
func keepTables(t testing.TB, db driver.Conn) (restore func()) {
	t.Helper()
	for _, table := range storedTables {
		change(t, db, "CREATE TABLE kept_"+table+" AS "+table)
		change(t, db, "ALTER TABLE kept_"+table+" ATTACH PARTITION tuple() FROM "+table)
	}
	return func() {
		t.Helper()
		parts := partHashes(t, db)
		for _, table := range storedTables {
			if parts[table] == parts["kept_"+table] {
				continue
			}
			// Of a small tree no hash is stored, so what was kept may be empty.
			change(t, db, "ALTER TABLE "+table+" REPLACE PARTITION tuple() FROM kept_"+table+" SETTINGS allow_replace_partition_from_empty_source = 1")
		}
	}
}

// partHashes are the hashes of all files of each table's parts.
func partHashes(t testing.TB, db driver.Conn) map[string]string {
	t.Helper()
	var list []struct {
		Table  string `ch:"table"`
		Hashes string `ch:"hashes"`
	}
	ok(t, db.Select(t.Context(), &list, "SELECT table, toString(arraySort(groupArray(hash_of_all_files))) AS hashes FROM system.parts WHERE database = currentDatabase() AND active GROUP BY table"))
	hashes := map[string]string{}
	for _, p := range list {
		hashes[p.Table] = p.Hashes
	}
	return hashes
}

// Whatever an attacker with the database owner's password does to the evidence, verify fails and
// says where. After the rows are restored it succeeds again.
func TestTampering(t *testing.T) {
	t.Parallel()
	s := smallSystem(t)
	db := s.owner(t)
	restore := keepTables(t, db)
	last := number(t, db, "SELECT max(seq) FROM evidence")
	shard, text := evidence(t, db, "seq = 1")[0].Shard, func(seq uint64) string { return evidence(t, db, "seq = ?", seq)[0].Record }
	fork := s.signCheckpoint(t, shard, last-3, [32]byte{1})
	victim := evidence(t, db, "kind = 'decision'")[3].Seq // a deny
	where := fmt.Sprintf(" WHERE seq = %d", victim)
	set := func(what string) []string { return []string{"ALTER TABLE evidence UPDATE " + what + where} }
	if !strings.Contains(text(victim), `"durability":"fsync"`) {
		t.Fatalf("the decision is another than the cases below change: %s", text(victim))
	}
	t.Run("five rows with one change each, and a sixth deleted", func(t *testing.T) {
		rows := evidence(t, db, "kind = 'decision'")
		want := map[uint64]string{
			rows[0].Seq: "hash_mismatch", rows[1].Seq: "hash_mismatch", rows[2].Seq: "column_mismatch",
			rows[3].Seq: "column_mismatch", rows[4].Seq: "column_mismatch", rows[5].Seq: "gap",
		}
		change(t, db, fmt.Sprintf(`ALTER TABLE evidence
			UPDATE record = replaceOne(record, '"verdict":"allow"', '"verdict":"deny"') WHERE seq = %d,
			UPDATE record_hash = unhex(repeat('00', 32)) WHERE seq = %d,
			UPDATE session = 'another' WHERE seq = %d,
			UPDATE kind = 'event' WHERE seq = %d,
			UPDATE broker_time = broker_time + 1 WHERE seq = %d,
			DELETE WHERE seq = %d`, rows[0].Seq, rows[1].Seq, rows[2].Seq, rows[3].Seq, rows[4].Seq, rows[5].Seq))
		rep, r := s.report(t)
		for _, p := range rep.Problems {
			if want[p.Seq] == p.Code {
				delete(want, p.Seq)
			}
		}
		if len(want) > 0 || r.code != 1 {
			t.Errorf("exit %d; verify does not say %v: %+v", r.code, want, rep.Problems)
		}
		restore()
		s.verified(t, 0)
	})
	for _, tc := range []struct {
		name  string
		do    []string
		codes []string // one of them must be among the problems
		seq   uint64   // in one of the problems, if not 0
	}{
		{"a record and its hash", set(`record = replaceOne(record, '"verdict":"deny"', '"verdict":"allow"'), record_hash = unhex(hex(SHA256(concat('countersign/evidence/v1', char(0), replaceOne(record, '"verdict":"deny"', '"verdict":"allow"')))))`),
			[]string{"root_mismatch", "decision_signature", "session_chain"}, 0},
		{"a row deleted lightly", []string{"DELETE FROM evidence" + where}, []string{"gap"}, victim},
		{"the first row deleted", []string{"ALTER TABLE evidence DELETE WHERE seq = 1"}, []string{"gap"}, 1},
		{"two rows in each other's places", []string{
			fmt.Sprintf("ALTER TABLE evidence DELETE WHERE seq IN (%d, %d)", victim, victim+1),
			fmt.Sprintf("INSERT INTO evidence SETTINGS insert_deduplicate = 0 SELECT * REPLACE (toUInt64(%d - seq) AS seq) FROM (SELECT * FROM kept_evidence WHERE seq IN (%d, %d))", 2*victim+1, victim, victim+1)},
			[]string{"column_mismatch"}, victim},
		{"a row put in between", []string{
			fmt.Sprintf("INSERT INTO evidence SETTINGS insert_deduplicate = 0 SELECT * REPLACE (toUInt64(%d) AS seq) FROM (SELECT * FROM kept_evidence WHERE seq = %d)", victim, victim+2)},
			[]string{"conflicting_seq"}, victim},
		{"a row put behind the last", []string{
			fmt.Sprintf("INSERT INTO evidence SETTINGS insert_deduplicate = 0 SELECT * REPLACE (toUInt64(%d) AS seq) FROM (SELECT * FROM kept_evidence WHERE seq = %d)", last+1, victim)},
			[]string{"column_mismatch"}, last + 1},
		{"another text under the first one's hash", []string{
			"INSERT INTO evidence SETTINGS insert_deduplicate = 0 SELECT * REPLACE (replaceOne(record, 'deny', 'allow') AS record) FROM kept_evidence" + where},
			[]string{"conflicting_seq"}, victim},
		{"a decision that the log has otherwise", set(`record = replaceOne(record, '"durability":"fsync"', '"durability":"memory"')`), []string{"log_mismatch"}, victim},
		{"a checkpoint of another history", []string{fmt.Sprintf("INSERT INTO checkpoints SELECT shard, toUInt64(%d), root, %s, created FROM checkpoints LIMIT 1", last-3, sqlText(fork))},
			[]string{"checkpoint_fork"}, last - 3},
		{"a row doubled", []string{"INSERT INTO evidence SETTINGS insert_deduplicate = 0 SELECT * FROM kept_evidence" + where}, []string{"duplicate_seq"}, victim},
		{"another row for a sequence", []string{"INSERT INTO evidence SETTINGS insert_deduplicate = 0 SELECT * REPLACE (concat(record, ' ') AS record, unhex(repeat('00', 32)) AS record_hash) FROM kept_evidence" + where},
			[]string{"conflicting_seq"}, victim},
		{"the newest rows deleted", []string{fmt.Sprintf("ALTER TABLE evidence DELETE WHERE seq > %d", last-5)}, []string{"checkpoint_ahead"}, 0},
		{"the newest rows and their checkpoints deleted", []string{
			fmt.Sprintf("ALTER TABLE evidence DELETE WHERE seq > %d", last-5),
			fmt.Sprintf("ALTER TABLE checkpoints DELETE WHERE size > %d", last-5),
			fmt.Sprintf("ALTER TABLE tree_hashes DELETE WHERE n >= bitShiftRight(%d, level)", last-5)}, []string{"checkpoint_ahead"}, 0},
		{"everything deleted", []string{"TRUNCATE TABLE evidence", "TRUNCATE TABLE checkpoints", "TRUNCATE TABLE tree_hashes"}, []string{"checkpoint_ahead"}, 0},
		{"an older checkpoint deleted", []string{"ALTER TABLE checkpoints DELETE WHERE size = (SELECT min(size) FROM checkpoints)"}, []string{"checkpoint_missing"}, 0},
		{"a checkpoint forged", []string{"ALTER TABLE checkpoints UPDATE note = replaceRegexpOne(note, '\\\\n[0-9]+\\\\n', '\\n1\\n') WHERE 1"}, []string{"checkpoint_invalid"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, statement := range tc.do {
				change(t, db, statement)
			}
			rep, r := s.report(t)
			if rep.OK || r.code == 0 {
				t.Fatalf("verify says that it holds: exit %d, %+v", r.code, rep)
			}
			found, at := false, tc.seq == 0
			for _, p := range rep.Problems {
				found = found || slices.Contains(tc.codes, p.Code)
				at = at || p.Seq == tc.seq || strings.Contains(p.Detail, fmt.Sprint(tc.seq))
			}
			if !found || !at {
				t.Errorf("problems %+v, want one of %v at %d", rep.Problems, tc.codes, tc.seq)
			}
			restore()
			if longSweeps {
				s.verified(t, 0)
			}
		})
	}
	s.verified(t, 0)

	// Of an earlier incarnation of the log the database has nothing; its published checkpoints are there.
	const gone = "GOV@20250101T000000.000000000Z"
	_, err := s.service(t, "auditor").RequestMsg(&nats.Msg{Subject: "gov.checkpoints.GOV", Data: []byte(s.signCheckpoint(t, gone, 9, [32]byte{1}))}, patience)
	ok(t, err)
	s.runtime(t).publish(t, allowedCall("small-3", "c1"))
	eventually(t, "a later checkpoint is published", func() error {
		if note := s.newestCheckpoint(t); strings.Contains(note, gone) {
			return errorf("the newest is still %s", note)
		}
		return nil
	})
	if r := s.verified(t, 1); !strings.Contains(r.out, gone) || !strings.Contains(r.out, "checkpoint_ahead") {
		t.Errorf("verify does not miss the earlier incarnation: %s", r.out)
	}
	s.verified(t, 0, "--shard", shard)
}

// newestCheckpoint is the newest one on NATS.
func (s *system) newestCheckpoint(t testing.TB) string {
	t.Helper()
	m, err := message(s.connect(t, "operator"), "GOV_CHECKPOINTS", object{"last_by_subj": "gov.checkpoints.GOV"})
	ok(t, err)
	return string(m.Data)
}

// signCheckpoint signs with the auditor's key, as an attacker who has it could.
func (s *system) signCheckpoint(t testing.TB, shard string, size uint64, root [32]byte) string {
	t.Helper()
	seed, err := os.ReadFile(filepath.Join(s.keyDir(), "checkpoint.key"))
	ok(t, err)
	raw, err := hex.DecodeString(strings.TrimSpace(string(seed)))
	ok(t, err)
	head := fmt.Sprintf("countersign.dev/%s\n%d\n%s\n", shard, size, base64.StdEncoding.EncodeToString(root[:]))
	return string(signNote([]byte(head), ed25519.NewKeyFromSeed(raw)))
}

// sqlText writes a text as ClickHouse reads it.
func sqlText(text string) string {
	return "'" + strings.NewReplacer("\\", "\\\\", "'", "\\'", "\n", "\\n").Replace(text) + "'"
}

// verify --at-least and --session.
func TestVerifyOptions(t *testing.T) {
	t.Parallel()
	s := smallSystem(t)
	rep, _ := s.report(t)
	if !rep.OK || rep.Signed != rep.Records {
		t.Fatalf("%+v", rep)
	}
	if people := s.verified(t, 0); !strings.Contains(people.out, "holds") {
		t.Errorf("%s", people.out)
	}
	s.verified(t, 0, "--at-least", fmt.Sprint(rep.Records))
	if r, res := s.report(t, "--shard", "GOV@nonsense"); r.OK || !r.code("no_checkpoint") || res.code != 1 {
		t.Errorf("a shard that is not there: exit %d, %+v", res.code, r)
	}
	s.run(t, "verify", "--session", "small-1", "--shard", "GOV@nonsense").want(t, 1).oneLine(t, "not proved: shard GOV@nonsense: no_checkpoint")
	s.run(t, "verify", "--session", "small-1", "--shard", "GOV@nonsense", "--skip-scan").want(t, 1).oneLine(t, "no record of this session in shard GOV@nonsense")
	s.verified(t, 0, "--session", "small-1", "--shard", rep.Shard)
	s.verified(t, 0, "--session", "small-1", "--shard", rep.Shard, "--skip-scan")
	if r, _ := s.report(t, "--at-least", fmt.Sprint(rep.Records+1)); r.OK || r.Problems[0].Code != "too_short" {
		t.Errorf("%+v", r)
	}
	s.verified(t, 0, "--session", "small-1")
	s.run(t, "verify", "--session", "nobody").want(t, 1).oneLine(t, "nobody")
	db := s.owner(t)
	seq := evidence(t, db, "session = 'small-1'")[3].Seq
	change(t, db, fmt.Sprintf("ALTER TABLE evidence UPDATE record = replaceOne(record, 'small-1', 'small-9') WHERE seq = %d", seq))
	if r, _ := s.report(t, "--session", "small-1"); r.OK || r.Problems[0].Seq != seq {
		t.Errorf("%+v", r)
	}
	if people := s.verified(t, 1); !strings.Contains(people.out, "DOES NOT HOLD") || !strings.Contains(people.out, fmt.Sprint("sequence ", seq)) {
		t.Errorf("%s", people.out)
	}
	// Of another session every record is proved; that the changed one is not of it
	// cannot be, and is not claimed.
	if r, _ := s.report(t, "--session", "small-0"); r.OK || len(r.Problems) != 1 || !r.code("completeness_unproved") || r.Problems[0].Seq != seq {
		t.Errorf("%+v", r)
	}
	if r := s.verified(t, 0, "--session", "small-0", "--skip-scan"); !strings.Contains(r.out, "NOT proved") {
		t.Errorf("%s", r.out)
	}
}
