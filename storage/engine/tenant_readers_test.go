package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/write"
)

// twoTenants is an engine with evidence of the tenants acme and globex, and the
// DSN of an auditor of acme.
func twoTenants(t *testing.T) (e *Engine, dsn string) {
	t.Helper()
	needLibrary(t)
	dir := t.TempDir()
	a, password, err := NewTenantReader("acme_auditor", "acme")
	if err != nil {
		t.Fatal(err)
	}
	if err := SetTenantReader(dir, a); err != nil {
		t.Fatal(err)
	}
	e = startEngine(t, dir, 0)
	storagetest.TwoTenants(t, write.New(openMigrated(t, e)))
	return e, nativeDSN(a.User, password, "127.0.0.1", tcpPort(t, e.DSN()), a.Database())
}

// everything runs a query and gives all that it says, as text.
func everything(t *testing.T, dsn, query string) (text string, rows int, err error) {
	t.Helper()
	var b strings.Builder
	err = withConn(dsn, func(c clickhouse.Conn) error {
		list, err := c.Query(t.Context(), query)
		if err != nil {
			return err
		}
		defer list.Close()
		for ; list.Next(); rows++ {
			var values []any
			for _, c := range list.ColumnTypes() {
				values = append(values, reflect.New(c.ScanType()).Interface())
			}
			if err := list.Scan(values...); err != nil {
				return err
			}
			for _, v := range values {
				for p := reflect.ValueOf(v); ; p = p.Elem() {
					if p.Kind() != reflect.Pointer || p.IsNil() {
						fmt.Fprint(&b, p.Interface(), "\n")
						break
					}
				}
			}
		}
		return list.Err()
	})
	return b.String(), rows, err
}

// What an auditor of one tenant could try. None of it may say a word of another
// tenant, whether it is refused or not.
var auditorTries = []string{
	"SELECT * FROM evidence WHERE tenant != 'acme' OR 1",
	"SELECT count() FROM evidence WHERE throwIf(tenant = 'globex', record) = 0",
	"SELECT throwIf(session = 'hidden-session', session) FROM decisions",
	"SELECT sum(length(toString(1 / (tenant != 'globex')))) FROM calls",
	"SELECT * FROM countersign.evidence", "SELECT * FROM countersign.decisions", "SELECT * FROM countersign.record_fields", "SELECT tenant FROM countersign.record_fields_mv",
	"SELECT * FROM mergeTreeIndex(countersign, record_fields)", "SELECT * FROM mergeTreeIndex(countersign, evidence, with_marks = true)", "SELECT * FROM mergeTreeIndex(countersign, evidence_chain, with_marks = true)",
	"SELECT * FROM mergeTreeIndex(audit_acme_auditor, record_fields)",
	"SELECT * FROM mergeTreeAnalyzeIndexes(countersign, record_fields, tenant = 'globex')",
	"SELECT * FROM merge('countersign', '.*')", "SELECT * FROM merge('.*', 'evidence|decisions|calls')", "SELECT * FROM merge(REGEXP('.*'), '.*')",
	"SELECT * FROM loop(countersign.evidence) LIMIT 9", "SELECT * FROM view(SELECT * FROM countersign.evidence)", "SELECT * FROM view(SELECT * FROM evidence)",
	"SELECT * FROM viewIfPermitted(SELECT tenant FROM countersign.decisions ELSE null('tenant String'))",
	"SELECT * FROM remote('127.0.0.1:9000', countersign, evidence)", "SELECT * FROM cluster('default', countersign, evidence)",
	"SELECT * FROM file('*', 'LineAsString')", "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString', 'l String')",
	"SELECT dictGet('evidence', 'record', 1)", "SELECT joinGet(countersign.evidence, 'record', 1)",
	"SELECT * FROM system.tables WHERE database != 'audit_acme_auditor' AND database != 'system'", "SELECT * FROM system.columns WHERE database = 'countersign'",
	"SELECT * FROM system.parts", "SELECT * FROM system.parts_columns", "SELECT * FROM system.processes", "SELECT * FROM system.query_log", "SELECT * FROM system.users",
	"SELECT * FROM system.row_policies", "SELECT * FROM system.grants", "SELECT * FROM system.mutations", "SELECT * FROM system.merges", "SELECT * FROM system.errors",
	"SELECT * FROM system.data_skipping_indices", "SELECT * FROM system.user_processes", "SELECT * FROM system.sessions", "SELECT * FROM system.databases",
	"SELECT * FROM system.server_settings", "SELECT * FROM information_schema.tables", "SHOW TABLES FROM countersign", "SHOW PROCESSLIST", "SHOW USERS", "SHOW CREATE USER of_acme_auditor",
	"SHOW ROW POLICIES", "SHOW CREATE TABLE countersign.evidence", "SHOW CREATE TABLE evidence",
	"EXPLAIN indexes = 1, actions = 1 SELECT * FROM decisions", "EXPLAIN PIPELINE SELECT * FROM decisions", "EXPLAIN QUERY TREE SELECT * FROM decisions", "EXPLAIN ESTIMATE SELECT * FROM decisions",
	"EXECUTE AS of_acme_auditor SELECT * FROM countersign.evidence",
}

// What must be refused, with or without words.
var auditorRefusals = []string{
	"INSERT INTO evidence (shard, seq) VALUES ('x', 1)", "INSERT INTO countersign.evidence (shard, seq) VALUES ('x', 1)", "ALTER TABLE countersign.evidence DELETE WHERE 1",
	"DROP VIEW evidence", "DROP TABLE countersign.evidence", "TRUNCATE TABLE countersign.evidence", "CREATE TABLE x (a UInt8) ENGINE = Memory",
	"CREATE VIEW mine DEFINER = of_acme_auditor SQL SECURITY DEFINER AS SELECT * FROM countersign.evidence", "CREATE VIEW mine AS SELECT 1", "CREATE TEMPORARY TABLE x (a UInt8)",
	"CREATE USER mallory", "CREATE ROW POLICY p ON countersign.evidence USING 1 TO of_acme_auditor", "GRANT SELECT ON countersign.* TO acme_auditor", "KILL QUERY WHERE 1",
	"SET readonly = 0", "SELECT 1 SETTINGS readonly = 0", "SET max_execution_time = 0", "SET max_execution_time = 100000", "SELECT 1 SETTINGS max_execution_time = 100000",
	"SET max_memory_usage = 0", "SELECT 1 SETTINGS max_memory_usage = 100000000000", "SET max_concurrent_queries_for_user = 0", "SYSTEM SHUTDOWN", "SYSTEM FLUSH LOGS", "BACKUP TABLE countersign.evidence TO Disk('x', 'y')",
}

func TestAuditorSeesOneTenant(t *testing.T) {
	e, dsn := twoTenants(t)
	for table, want := range map[string]int{
		"evidence": 6, "evidence_chain": 5, "decisions": 1, "calls": 1, "findings": 1, "approvals": 1, "redactions": 0, "changes": 0, "tree_hashes": 1, "checkpoints": 1, "leaf_hashes": 11,
	} { // of the evidence the key's record besides
		text, rows, err := everything(t, dsn, "SELECT * FROM "+table)
		if err != nil || rows != want || strings.Contains(text, "globex") {
			t.Errorf("%s: %d rows (%v), want %d", table, rows, err, want)
		}
	}
	for d, want := range map[string]bool{dsn: true, e.DSN(): false} {
		if one, err := read.New(openPool(t, d)).IsTenantView(t.Context()); err != nil || one != want {
			t.Errorf("one tenant's: %t (%v), want %t", one, err, want)
		}
	}
	for _, query := range auditorTries {
		text, _, err := everything(t, dsn, query)
		if err != nil && (errors.Is(err, clickhouse.ErrAcquireConnTimeout) || !errors.As(err, new(*clickhouse.Exception))) {
			t.Errorf("%s: %v", query, err)
		}
		// The error repeats the query, but names no session that the query does not.
		said := text + strings.ReplaceAll(fmt.Sprint(err), query, "")
		for _, secret := range []string{"hidden-session", "globex-policy", "executed_despite_deny\nglobex", "globex\n"} {
			if strings.Contains(said, secret) && !strings.Contains(query, secret) {
				t.Errorf("%s tells %q:\n%.400s", query, secret, said)
			}
		}
	}
	for _, statement := range auditorRefusals {
		refused(t, dsn, statement, codeReadonly, codeAccessDenied, 392, 452, 62)
	}
	definer := nativeDSN("of_acme_auditor", "", "127.0.0.1", tcpPort(t, e.DSN()), conn.DatabaseName)
	refused(t, definer, "SELECT 1", codeAuthentication)
	db := openPool(t, dsn)
	for name, query := range libraryQueries(t, db, "S") {
		if err := query(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := storagetest.RowsIn(t, openPool(t, e.DSN()), "evidence", "S"); n != 11 {
		t.Errorf("afterwards the evidence has %d rows, want 11", n)
	}
}

// What the readers of one tenant may ask for by id is in granules that hold other tenants' rows
// besides. An index on ids would tell by the rows that a query reads whether another tenant has the id.
func TestReadRowsTellNoIDs(t *testing.T) {
	e, dsn := twoTenants(t)
	const id = "an id of globex"
	row := storagetest.RecordRow(t, "S", 20, storage.KindDecision, events.Decision{DecisionID: id})
	row.Tenant, row.Session = "globex", "hidden-session"
	owner := openPool(t, e.DSN())
	if err := write.New(owner).CommitEvidence(t.Context(), []storage.EvidenceRow{row}); err != nil {
		t.Fatal(err)
	}
	if err := owner.Exec(t.Context(), "OPTIMIZE TABLE record_fields FINAL"); err != nil {
		t.Fatal(err)
	}
	read := map[uint64][]string{}
	for _, try := range []string{id, "no such id", id, "no such id"} { // again, for what ClickHouse keeps of a condition
		var rows uint64
		ctx := clickhouse.Context(t.Context(), clickhouse.WithProgress(func(p *clickhouse.Progress) { rows += p.Rows }))
		err := withConn(dsn, func(c clickhouse.Conn) error {
			var n uint64
			return c.QueryRow(ctx, "SELECT count() FROM decisions WHERE decision_id = "+conn.QuoteString(try)).Scan(&n)
		})
		if err != nil {
			t.Fatal(err)
		}
		read[rows] = append(read[rows], try)
	}
	if len(read) != 1 || read[0] != nil {
		t.Errorf("the rows read for each id: %v", read)
	}
}

func TestAuditorsOfADirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", "ab", "Ann", "countersign", "countersign_ro", "default", "of_ann", "a b", "a<b", "1st", strings.Repeat("a", 33)} {
		if _, _, err := NewTenantReader(name, "acme"); !errors.Is(err, ErrTenantReader) {
			t.Errorf("%q: error %v", name, err)
		}
	}
	for _, tenant := range []string{"", "a\x00b", "a\nb"} {
		if _, _, err := NewTenantReader("ann", tenant); !errors.Is(err, ErrTenantReader) {
			t.Errorf("tenant %q: error %v", tenant, err)
		}
	}
	for _, tenant := range []string{"acme", "other"} {
		a, _, err := NewTenantReader("ann", tenant)
		if err != nil {
			t.Fatal(err)
		}
		if err := SetTenantReader(dir, a); err != nil {
			t.Fatal(err)
		}
	}
	list, err := TenantReaders(dir)
	if err != nil || len(list) != 1 || list[0].Tenant != "other" {
		t.Errorf("auditors %+v (%v)", list, err)
	}
	info, err := os.Stat(filepath.Join(dir, auditorsFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v (%v)", info.Mode(), err)
	}
	if err := RemoveTenantReader(dir, "bob"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("removing nobody: %v", err)
	}
	if err := RemoveTenantReader(dir, "ann"); err != nil {
		t.Error(err)
	}
	if list, err := TenantReaders(dir); err != nil || len(list) != 0 {
		t.Errorf("auditors %+v (%v)", list, err)
	}
	for _, bad := range []string{"{", `[{"user":"x><y","tenant":"t","password_sha256_hex":"` + strings.Repeat("0", 64) + `"}]`, `[{"user":"ann","tenant":"t","password_sha256_hex":"'"}]`} {
		if err := os.WriteFile(filepath.Join(dir, auditorsFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := TenantReaders(dir); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// A tenant's name goes into statements and XML.
func TestAuditorOfAStrangeTenant(t *testing.T) {
	dir, tenant := t.TempDir(), `it's \ <b> "x" & OR 1=1 --`
	a, password, err := NewTenantReader("ann", tenant)
	if err != nil {
		t.Fatal(err)
	}
	if err := SetTenantReader(dir, a); err != nil {
		t.Fatal(err)
	}
	e := startEngine(t, dir, 0)
	db := openPool(t, e.DSN())
	rows := storagetest.Rows("S", 1, 3)
	rows[1].Tenant = tenant
	if err := write.New(db).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	ann := openPool(t, nativeDSN("ann", password, "127.0.0.1", tcpPort(t, e.DSN()), a.Database()))
	if n := storagetest.Count(t, ann, "SELECT count() FROM evidence"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	for _, statement := range a.Statements("countersign") {
		if err := db.Exec(t.Context(), "SELECT formatQuery({q:String})", conn.Param("q", statement)); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// The statements run again while the auditor of the earlier run asks, and may stop anywhere: at no
// point may its login reach a definer that no row policy binds.
func TestStatementsOpenNothingMeanwhile(t *testing.T) {
	a, _, err := NewTenantReader("ann", "acme")
	if err != nil {
		t.Fatal(err)
	}
	list := a.Statements("countersign")
	last := len(list) - 1
	if !strings.HasPrefix(list[0], "CREATE USER OR REPLACE ann ") || list[last] != "GRANT SELECT ON audit_ann.* TO ann" {
		t.Errorf("the login is made by %q first and gets its right by %q last", list[0], list[last])
	}
	for _, login := range list[:2] {
		if !strings.HasPrefix(login, "CREATE USER ") || !strings.Contains(login, "use_skip_indexes = 0") {
			t.Errorf("%q lets skip indexes answer", login)
		}
	}
	isPolicy := func(s string) bool { return strings.HasPrefix(s, "CREATE ROW POLICY ") }
	firstGrant := slices.IndexFunc(list, func(s string) bool { return strings.HasPrefix(s, "GRANT ") })
	if slices.ContainsFunc(list[firstGrant:], isPolicy) || !isPolicy(list[firstGrant-1]) {
		t.Errorf("a row policy comes after a grant:\n%s", strings.Join(list, "\n"))
	}
}
