package evidencereader

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
)

// attacker has the owner's rights on the database and nothing else.
type attacker struct {
	*shard
	db *sql.DB
}

func attack(t *testing.T, s *shard) attacker {
	t.Helper()
	db, err := sql.Open("clickhouse", enginetest.Engine(t).DSN())
	ok(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return attacker{s, db}
}

func (a attacker) do(statement string) {
	a.t.Helper()
	if strings.HasPrefix(statement, "ALTER") {
		statement += " SETTINGS mutations_sync = 2"
	}
	if _, err := a.db.ExecContext(a.t.Context(), statement); err != nil {
		a.t.Fatalf("%s: %v", statement, err)
	}
}

func (a attacker) text(query string) (text string) {
	a.t.Helper()
	ok(a.t, a.db.QueryRowContext(a.t.Context(), query).Scan(&text))
	return text
}

func (a attacker) number(query string) (n uint64) {
	a.t.Helper()
	ok(a.t, a.db.QueryRowContext(a.t.Context(), query).Scan(&n))
	return n
}

// tampered lists the columns of a table, each with an expression for another value.
func (a attacker) tampered(table string) (columns []string, other map[string]string) {
	a.t.Helper()
	rows, err := a.db.QueryContext(a.t.Context(), "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = ? AND default_kind != 'MATERIALIZED' ORDER BY position", table)
	ok(a.t, err)
	defer func() { _ = rows.Close() }()
	other = map[string]string{}
	for rows.Next() {
		var name, typ string
		ok(a.t, rows.Scan(&name, &typ))
		columns = append(columns, name)
		plain := strings.NewReplacer("LowCardinality(", "", ")", "").Replace(typ)
		switch q := "`" + name + "`"; {
		case strings.Contains(name, ".") && strings.Contains(typ, "String"): // the arrays of one list have one length
			other[name] = "arrayMap(x -> concat(x, 'x'), " + q + ")"
		case strings.Contains(name, ".") && strings.Contains(typ, "Int"):
			other[name] = "arrayMap(x -> x + 1, " + q + ")"
		case strings.Contains(name, "."):
			other[name] = "arrayMap(x -> ifNull(x, toDateTime64('2020-01-01 00:00:00', 9, 'UTC')) + 1, " + q + ")"
		case strings.HasPrefix(typ, "Array(Nullable"):
			other[name] = "arrayPushBack(" + q + ", NULL)"
		case strings.HasPrefix(typ, "Array") && strings.Contains(typ, "Int"):
			other[name] = "arrayPushBack(" + q + ", 7)"
		case strings.HasPrefix(typ, "Array"):
			other[name] = "arrayPushBack(" + q + ", 'x')"
		case strings.HasPrefix(typ, "Nullable(DateTime64"):
			other[name] = "ifNull(" + q + ", toDateTime64('2020-01-01 00:00:00', 9, 'UTC')) + 1"
		case strings.HasPrefix(typ, "Nullable"):
			other[name] = "ifNull(" + q + ", 0) + 1"
		case strings.HasPrefix(typ, "DateTime64"):
			other[name] = q + " + 1"
		case typ == "Bool":
			other[name] = "NOT " + q
		case strings.Contains(plain, "Int"):
			other[name] = q + " + 1"
		case strings.HasPrefix(typ, "FixedString"):
			other[name] = "reverse(" + q + ")"
		default:
			other[name] = "concat(" + q + ", 'x')"
		}
	}
	ok(a.t, rows.Err())
	return columns, other
}

// derivedVictims are the rows of derived tables and views that are changed, by their place
// among the messages of shard.add.
var derivedVictims = []struct {
	table string
	place uint64
}{{"evidence_chain", 0}, {"redactions", 0}, {"calls", 1}, {"findings", 2}, {"approvals", 3}, {"changes", 4}}

// Whatever is done to a row that auditors read, verification names the row.
func TestDerivedRowsAreProved(t *testing.T) {
	const messages, rows = 5, 60
	s := newShard(t, 41)
	var sessions []string
	for n := range rows {
		sessions = append(sessions, fmt.Sprint("x-", n))
	}
	s.add(sessions...)
	again := VerifyOptions{Derived: true, pause: time.Millisecond}
	if rep := s.verify(again); !rep.OK || !rep.Proved || rep.Derived != uint64(len(s.log)) {
		t.Fatalf("%+v", rep)
	}
	a := attack(t, s)
	want := map[string]string{} // what was done, by table and sequence
	for _, v := range derivedVictims {
		if v.table != "evidence_chain" { // a view: a table takes its place, with the same rows
			a.do(fmt.Sprintf("CREATE TABLE other ENGINE = MergeTree ORDER BY tuple() AS SELECT * FROM %s", v.table))
			a.do(fmt.Sprintf("RENAME TABLE %s TO first_%[1]s, other TO %[1]s", v.table))
			defer a.do("DROP TABLE other")
			defer a.do(fmt.Sprintf("RENAME TABLE %s TO other, first_%[1]s TO %[1]s", v.table))
		}
		next := uint64(0)
		victim := func(what string) (seq uint64, where string) {
			seq = 42 + messages*next + v.place
			next++
			want[fmt.Sprint("table ", v.table, " ", seq)] = what
			return seq, fmt.Sprintf(" WHERE shard = '%s' AND seq = %d", s.name, seq)
		}
		insert := func(replace, where string) {
			a.do(fmt.Sprintf("INSERT INTO %s SETTINGS insert_deduplicate = 0 SELECT * %s FROM (SELECT * FROM %[1]s%[3]s)", v.table, replace, where))
		}
		_, where := victim("deleted")
		a.do("ALTER TABLE " + v.table + " DELETE" + where)
		_, where = victim("doubled")
		insert("", where)
		want[fmt.Sprint("table ", v.table, " 1")] = "invented"
		insert("REPLACE (toUInt64(1) AS seq)", where)
		want[fmt.Sprint("table ", v.table, " 999999")] = "invented behind the last"
		insert("REPLACE (toUInt64(999999) AS seq)", where)
		seq, where := victim("moved to another shard")
		insert("REPLACE (concat(shard, 'x') AS shard)", where)
		want[fmt.Sprint("stray table ", v.table, " ", seq)] = "invented in another shard"
		a.do("ALTER TABLE " + v.table + " DELETE" + where)
		columns, other := a.tampered(v.table)
		var updates []string
		for _, column := range columns {
			value := other[column]
			if where := fmt.Sprintf(" WHERE shard = '%s' AND seq = %d", s.name, 42+messages*next+v.place); a.number("SELECT count() FROM "+v.table+where+" AND "+value+" IS NOT DISTINCT FROM `"+column+"`") > 0 {
				continue // an empty list of several columns
			}
			if column == "shard" || column == "seq" {
				continue // done above
			}
			_, where := victim("column " + column)
			if slices.Contains([]string{"tenant", "session", "kind"}, column) { // some tables are ordered by them
				insert("REPLACE ("+value+" AS "+column+")", where)
				updates = append(updates, "DELETE"+where+" AND "+column+" NOT LIKE '%x'")
				continue
			}
			updates = append(updates, "UPDATE `"+column+"` = "+value+where)
		}
		a.do("ALTER TABLE " + v.table + " " + strings.Join(updates, ", "))
	}
	again.Keys = s.keys
	rep, err := s.Verify(t.Context(), s.name, again)
	ok(t, err)
	stray, err := s.StrayDerived(t.Context())
	ok(t, err)
	found, err := s.compareDerived(t.Context(), s.name, 0, storage.AllSequences, again)
	ok(t, err)
	if rep.OK || rep.ByCode[verify.CodeDerived] != len(found) || rep.Total != len(found) {
		t.Errorf("it holds: %v, %d problems, %d differences", rep.OK, rep.Total, len(found))
	}
	for _, p := range found {
		at := fmt.Sprint(p.Field, " ", p.Seq)
		if want[at] == "" {
			t.Errorf("nothing was done at %s: %s", at, p)
		}
		delete(want, at)
	}
	for _, p := range stray {
		delete(want, fmt.Sprint("stray ", p.Field, " ", p.Seq))
	}
	for at, what := range want {
		t.Errorf("%s: %s, and nothing is found", at, what)
	}
}

// A row of the table under the views is not believed either, nor is a view.
func TestChangedFieldsAndViewsAreFound(t *testing.T) {
	s := newShard(t, 41)
	s.add("x")
	a := attack(t, s)
	a.do("ALTER TABLE record_fields UPDATE topic = 'info' WHERE kind = 'finding' AND shard = '" + s.name + "'")
	query := a.text("SELECT as_select FROM system.tables WHERE database = currentDatabase() AND name = 'approvals'")
	a.do("CREATE OR REPLACE VIEW approvals SQL SECURITY INVOKER AS SELECT * REPLACE (concat(approver, 'x') AS approver) FROM (" + query + ")")
	defer a.do("CREATE OR REPLACE VIEW approvals SQL SECURITY INVOKER AS " + query)
	found, err := s.compareDerived(t.Context(), s.name, 0, storage.AllSequences, VerifyOptions{Derived: true, pause: time.Millisecond})
	ok(t, err)
	if len(found) != 2 || found[0].Field != "table findings" || found[1].Field != "table approvals" {
		t.Errorf("%v", found)
	}
}

// What evidence itself has beside the texts is proved, too.
func TestCopiesInEvidenceAreProved(t *testing.T) {
	s := newShard(t, 41)
	attack(t, s).do(fmt.Sprintf("ALTER TABLE evidence UPDATE session_index = session_index + 1 WHERE shard = '%s' AND seq = 3, UPDATE expiry = 7 WHERE shard = '%[1]s' AND seq = 4", s.name))
	rep := s.verify(VerifyOptions{Derived: true, pause: time.Millisecond})
	if rep.OK || len(rep.Findings) != 2 || rep.ByCode[verify.CodeDerived] != 2 || rep.Findings[0].Seq != 3 || rep.Findings[1].Seq != 4 {
		t.Errorf("%+v", rep.Findings)
	}
}
