package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Nobody has to believe an index. Whatever is done to the tables that records are
// looked up in, and to the columns beside a record's text, a command that proves
// its answer fails or gives the answer that it gave before, and one that does not
// says so.
func TestIndexesAreNotBelieved(t *testing.T) {
	t.Parallel()
	s := smallSystem(t)
	db := s.owner(t)
	const sess = "small-1"
	bundle := filepath.Join(t.TempDir(), "bundle.zip")
	proved := [][]string{
		{"verify", "--session", sess, "--json"},
		{"export", "--session", sess, "--out", bundle, "--force"},
		{"chain", "--session", sess, "--json", "--proved"},
		{"session", sess, "--json", "--proved"},
		{"findings", "--json", "--proved"},
		{"calls", "--json", "--proved"},
		{"audit", "ask", "despite-no", "--json", "--proved"},
		{"replay", "--session", sess, "--from", "clickhouse", "--json"},
	}
	// What a command gives of the system as it is. The tree grows meanwhile: ticks.
	truth := func(args []string, r result) string {
		if args[0] == "verify" || args[0] == "export" || args[0] == "replay" {
			return fmt.Sprint(r.code, strings.Contains(r.out, `"proved":true`), numberBefore(r.out, " records"), fieldOf(r.out, "records"), fieldOf(r.out, "recorded"), fieldOf(r.out, "same"))
		}
		return r.out
	}
	want := map[string]string{}
	for _, args := range proved {
		r := s.run(t, args...).want(t, 0)
		want[args[0]] = truth(args, r)
		if strings.Contains(r.out, `"proved":false`) || args[0] != "export" && !strings.Contains(r.out, `"proved":true`) || args[0] == "export" && !strings.Contains(r.out, "rests on: a verification") {
			t.Errorf("%v does not say that it is proved:\n%s", args, r.out)
		}
	}
	for _, args := range [][]string{{"chain", "--session", sess}, {"session", sess}, {"findings"}, {"calls"}, {"audit", "ask", "despite-no"}} {
		if r := s.run(t, args...).want(t, 0); !strings.Contains(r.out, "not proved") {
			t.Errorf("%v does not say that it is not proved:\n%s", args, r.out)
		}
		if r := s.run(t, append(args, "--json")...); !strings.Contains(r.out, `"proved":false`) {
			t.Errorf("%v does not say that it is not proved:\n%s", args, r.out)
		}
	}
	if r := s.verified(t, 0, "--session", sess, "--skip-scan"); !strings.Contains(r.out, "NOT proved") {
		t.Errorf("%s", r.out)
	}
	restore := keepTables(t, db)
	mine := " WHERE session = '" + sess + "'"
	finding := number(t, db, "SELECT max(seq) FROM findings"+mine)
	last := fmt.Sprintf(" WHERE session = '%s' AND seq = %d", sess, number(t, db, "SELECT max(seq) FROM evidence"+mine))
	move := func(table, other, which string) []string {
		return []string{
			"CREATE OR REPLACE TABLE moved AS " + table,
			"INSERT INTO moved SELECT * REPLACE ('" + other + "' AS session) FROM " + table + mine + which,
			"ALTER TABLE " + table + " DELETE" + mine + which,
			"INSERT INTO " + table + " SETTINGS insert_deduplicate = 0 SELECT * FROM moved",
		}
	}
	// fields is record_fields' column fields with changed texts of members.
	fields := func(change string) string { return "JSONExtract(" + change + ", toTypeName(fields)) AS fields" }
	setAll := func(kind, member, value string) string {
		changed, _, _ := strings.Cut(fields(fmt.Sprintf(`replaceRegexpOne(toJSONString(fields), '"%s":"[^"]*"', '"%[1]s":"%s"')`, member, value)), " AS ")
		return "ALTER TABLE record_fields UPDATE fields = " + changed + " WHERE kind = '" + kind + "'"
	}
	for _, tc := range []struct {
		name string
		do   []string
		// by are the commands that look records up in what is changed. Without longSweeps only
		// they are tried: most start an engine of their own.
		by []string
	}{
		{"the end of the chain deleted", []string{fmt.Sprintf("ALTER TABLE evidence_chain DELETE%s AND seq >= %d", mine, finding)}, []string{"chain", "session", "export"}},
		{"the whole chain deleted", []string{"ALTER TABLE evidence_chain DELETE" + mine}, []string{"replay", "verify"}},
		{"the chain of another session", append(move("evidence_chain", "small-x", ""), "INSERT INTO evidence_chain SETTINGS insert_deduplicate = 0 SELECT * REPLACE ('"+sess+"' AS session) FROM (SELECT * FROM evidence_chain WHERE session = 'small-2')"), []string{"session", "verify", "export"}},
		{"findings deleted", []string{"ALTER TABLE record_fields DELETE" + mine + " AND kind = 'finding'"}, []string{"findings"}},
		{"findings taken back", []string{"INSERT INTO record_fields SETTINGS insert_deduplicate = 0 SELECT * REPLACE ('info' AS topic, " + fields(`replaceRegexpOne(replaceOne(toJSONString(fields), '"withdraws":""', concat('"withdraws":"', fields.finding_id, '"')), '"finding_id":"([^"]*)"', '"finding_id":"\\\\1x"')`) + ") FROM record_fields" + mine + " AND kind = 'finding'"}, []string{"findings", "session"}},
		{"findings of less weight", []string{"ALTER TABLE record_fields UPDATE topic = 'low' WHERE kind = 'finding'", setAll("finding", "rule", "another")}, []string{"findings"}},
		{"calls deleted", []string{"ALTER TABLE record_fields DELETE" + mine + " AND kind = 'call'"}, []string{"calls", "audit"}},
		{"calls with another verdict", []string{setAll("call", "verdict", "allow")}, []string{"calls", "audit"}},
		{"calls of another session", move("record_fields", "small-2", " AND kind = 'call'"), []string{"audit"}},
		{"decisions changed", []string{setAll("decision", "verdict", "allow")}, []string{"audit"}},
		{"changes deleted", []string{"ALTER TABLE record_fields DELETE WHERE kind = 'control'"}, []string{"calls", "verify"}},
		{"a session's column in the evidence", []string{"ALTER TABLE evidence UPDATE session = 'small-x'" + last, "ALTER TABLE evidence_chain DELETE" + last}, []string{"chain", "export"}},
		{"a tenant's column in the evidence", []string{"ALTER TABLE evidence UPDATE tenant = 'x'" + last, "ALTER TABLE evidence_chain DELETE" + last}, []string{"chain", "replay"}},
		{"a kind in the evidence", []string{"ALTER TABLE evidence UPDATE kind = 'event'" + last}, []string{"findings", "export"}},
		{"the last record deleted", []string{"ALTER TABLE evidence DELETE" + last, "ALTER TABLE evidence_chain DELETE" + last}, []string{"replay", "verify"}},
		{"the last text deleted", []string{"ALTER TABLE evidence UPDATE record = '', expiry = 3, session = 'small-x'" + last, "ALTER TABLE evidence_chain DELETE" + last}, []string{"chain", "verify", "export"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, statement := range tc.do {
				change(t, db, statement)
			}
			if rep, r := s.report(t); rep.OK || r.code == 0 {
				t.Errorf("verify says that it holds: %s", r.out)
			}
			var all sync.WaitGroup
			for _, args := range proved {
				if !longSweeps && !slices.Contains(tc.by, args[0]) {
					continue
				}
				all.Go(func() {
					r := s.run(t, args...)
					if got := truth(args, r); r.code == 0 && got != want[args[0]] {
						t.Errorf("%v proves an answer that is another than before:\n%s\n%s", args, got, want[args[0]])
					}
				})
			}
			all.Wait()
			restore()
		})
	}
	s.verified(t, 0)
}

// fieldOf is what follows the name of a member in JSON, up to the next comma.
func fieldOf(text, name string) string {
	_, rest, _ := strings.Cut(text, `"`+name+`":`)
	value, _, _ := strings.Cut(rest, ",")
	return value
}

// numberBefore is the word before a text.
func numberBefore(text, what string) string {
	before, _, found := strings.Cut(text, what)
	if !found {
		return ""
	}
	return before[strings.LastIndexAny(before, " \n")+1:]
}
