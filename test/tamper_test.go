package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// report is what `verify --json` prints for one shard.
type report struct {
	OK       bool `json:"ok"`
	Records  int  `json:"records"`
	Signed   int  `json:"signed"`
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
	return s
}

// signed waits until the newest checkpoint covers everything.
func signed(t testing.TB, s *system) {
	t.Helper()
	db := s.auditors(t)
	eventually(t, "everything is signed", func() error {
		have, want := number(t, db, "SELECT max(size) FROM checkpoints"), number(t, db, "SELECT max(seq) FROM evidence")
		if have != want {
			return errorf("signed up to %d of %d", have, want)
		}
		return nil
	})
}

// Whatever somebody with the database owner's password does to the evidence,
// verify fails and says where. Restoring the rows makes it hold again.
func TestTampering(t *testing.T) {
	s := smallSystem(t)
	db := s.owner(t)
	for _, table := range []string{"evidence", "checkpoints", "tree_nodes"} {
		change(t, db, "CREATE TABLE kept_"+table+" AS "+table)
		change(t, db, "ALTER TABLE kept_"+table+" ATTACH PARTITION tuple() FROM "+table)
	}
	last := number(t, db, "SELECT max(seq) FROM evidence")
	victim := evidence(t, db, "kind = 'decision'")[3].Seq // a deny
	where := fmt.Sprintf(" WHERE seq = %d", victim)
	set := func(what string) []string { return []string{"ALTER TABLE evidence UPDATE " + what + where} }
	for _, tc := range []struct {
		name  string
		do    []string
		codes []string // one of them must be among the problems
		seq   uint64   // in one of the problems, if not 0
	}{
		{"a record", set(`record = replaceOne(record, '"verdict":"deny"', '"verdict":"allow"')`), []string{"hash_mismatch"}, victim},
		{"a record and its hash", set(`record = replaceOne(record, '"verdict":"deny"', '"verdict":"allow"'), record_hash = unhex(hex(SHA256(concat('countersign/evidence/v1', char(0), replaceOne(record, '"verdict":"deny"', '"verdict":"allow"')))))`),
			[]string{"root_mismatch", "decision_signature", "session_chain"}, 0},
		{"a hash", set("record_hash = unhex(repeat('00', 32))"), []string{"hash_mismatch"}, victim},
		{"a column", set("session = 'another'"), []string{"column_mismatch"}, victim},
		{"the kind", set("kind = 'event'"), []string{"column_mismatch"}, victim},
		{"the time", set("broker_time = broker_time + 1"), []string{"column_mismatch"}, victim},
		{"a row deleted", []string{"ALTER TABLE evidence DELETE" + where}, []string{"gap"}, victim},
		{"a row deleted lightly", []string{"DELETE FROM evidence" + where}, []string{"gap"}, victim},
		{"the first row deleted", []string{"ALTER TABLE evidence DELETE WHERE seq = 1"}, []string{"gap"}, 1},
		{"a row doubled", []string{"INSERT INTO evidence SETTINGS insert_deduplicate = 0 SELECT * FROM kept_evidence" + where}, []string{"duplicate_seq"}, victim},
		{"another row for a sequence", []string{"INSERT INTO evidence SETTINGS insert_deduplicate = 0 SELECT * REPLACE (concat(record, ' ') AS record, unhex(repeat('00', 32)) AS record_hash) FROM kept_evidence" + where},
			[]string{"conflicting_seq"}, victim},
		{"the newest rows deleted", []string{fmt.Sprintf("ALTER TABLE evidence DELETE WHERE seq > %d", last-5)}, []string{"checkpoint_ahead"}, 0},
		{"the newest rows and their checkpoints deleted", []string{
			fmt.Sprintf("ALTER TABLE evidence DELETE WHERE seq > %d", last-5),
			fmt.Sprintf("ALTER TABLE checkpoints DELETE WHERE size > %d", last-5),
			fmt.Sprintf("ALTER TABLE tree_nodes DELETE WHERE idx > %d", 2*(last-5))}, []string{"checkpoint_ahead"}, 0},
		{"everything deleted", []string{"TRUNCATE TABLE evidence", "TRUNCATE TABLE checkpoints", "TRUNCATE TABLE tree_nodes"}, []string{"checkpoint_ahead"}, 0},
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
			for _, table := range []string{"evidence", "checkpoints", "tree_nodes"} {
				change(t, db, "ALTER TABLE "+table+" REPLACE PARTITION tuple() FROM kept_"+table)
			}
			s.verified(t, 0)
		})
	}
}

// verify --at-least and --session.
func TestVerifyOptions(t *testing.T) {
	s := smallSystem(t)
	rep, _ := s.report(t)
	if !rep.OK || rep.Signed != rep.Records {
		t.Fatalf("%+v", rep)
	}
	if people := s.verified(t, 0); !strings.Contains(people.out, "holds") {
		t.Errorf("%s", people.out)
	}
	s.verified(t, 0, "--at-least", fmt.Sprint(rep.Records))
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
	// The other sessions' proofs do not depend on it.
	s.verified(t, 0, "--session", "small-0")
}
