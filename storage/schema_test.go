package storage

import (
	"context"
	"os"
	"slices"
	"testing"
)

// freshDB is a migrated database of the test's own on the shared engine.
func freshDB(t *testing.T) *DB {
	t.Helper()
	db, _ := freshEngine(t)
	return db
}

func freshEngine(t *testing.T) (*DB, *Engine) {
	t.Helper()
	e := startEngine(t, t.TempDir(), 0)
	db := openDB(t, e.DSN())
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, e
}

// UPDATE=1 writes schema.txt anew.
func TestSchemaIsWhatMigrationsMake(t *testing.T) {
	db, engine := freshEngine(t)
	have, err := db.readSchema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile("schema.txt", []byte(formatSchema(have)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if formatSchema(have) != schemaText {
		t.Errorf("schema.txt is not what the migrations make; UPDATE=1 renews it:\n%v", diffSchema(parseSchema(schemaText), have))
	}
	for _, reader := range []*DB{db, openDB(t, engine.ReadonlyDSN())} {
		if list, policies, err := reader.SchemaDifferences(t.Context()); err != nil || len(list) > 0 || !policies {
			t.Errorf("%v %v %v", list, policies, err)
		}
	}
}

// A table that was replaced or altered is named, with its column.
func TestSchemaDifferences(t *testing.T) {
	db := freshDB(t)
	exec := func(list ...string) {
		t.Helper()
		for _, statement := range list {
			if err := db.conn.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	exec("ALTER TABLE findings MODIFY COLUMN explanation Nullable(String)", "ALTER TABLE calls ADD COLUMN seen UInt8 DEFAULT 1",
		"ALTER TABLE approvals DROP COLUMN refused", "ALTER TABLE evidence MODIFY COLUMN body_digest String DEFAULT 'x'",
		"RENAME TABLE changes TO changes_x", "CREATE VIEW changes AS SELECT * FROM changes_x", "RENAME TABLE redactions TO redactions_x", "CREATE TABLE unknown (x UInt8) ENGINE = Memory")
	list, _, err := db.SchemaDifferences(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []SchemaDifference{{Table: "findings", Column: "explanation"}, {Table: "calls", Column: "seen"}, {Table: "approvals", Column: "refused"},
		{Table: "evidence", Column: "body_digest"}, {Table: "changes"}, {Table: "redactions"}} {
		if !slices.ContainsFunc(list, func(d SchemaDifference) bool { return d.Table == want.Table && d.Column == want.Column }) {
			t.Errorf("%s %s is not named", want.Table, want.Column)
		}
	}
	if slices.ContainsFunc(list, func(d SchemaDifference) bool { return d.Table == "unknown" || d.Detail == "" }) || len(list) != 6 {
		t.Errorf("%v", list)
	}
}

// Rows that are at no place of a shard are no less invented than others, and a NULL
// is not what a record gives.
func TestDerivedRowsThatAreNull(t *testing.T) {
	for name, tc := range map[string]struct{ table, column, typ string }{
		"shard":   {"findings", "shard", "LowCardinality(Nullable(String))"},
		"seq":     {"calls", "seq", "Nullable(UInt64)"},
		"NaN":     {"calls", "seq", "Float64"},
		"a value": {"findings", "withdraws", "Nullable(String)"},
	} {
		t.Run(name, func(t *testing.T) {
			db := freshDB(t)
			shard := testShard(t)
			if err := db.CommitEvidence(t.Context(), oneOfEach(t, shard, 1)); err != nil {
				t.Fatal(err)
			}
			before, err := differing(t.Context(), db, shard, tc.table)
			if err != nil {
				t.Fatal(err)
			}
			other := "NULL"
			if tc.typ == "Float64" {
				other = "nan"
			}
			for _, statement := range []string{
				"CREATE TABLE other ENGINE = MergeTree ORDER BY tuple() AS SELECT * REPLACE (CAST(" + tc.column + ", '" + tc.typ + "') AS " + tc.column + ") FROM " + tc.table,
				"INSERT INTO other SELECT * REPLACE (CAST(" + other + ", '" + tc.typ + "') AS " + tc.column + ") FROM " + tc.table,
				"RENAME TABLE " + tc.table + " TO first_" + tc.table + ", other TO " + tc.table,
			} {
				if err := db.conn.Exec(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			if found, err := differing(t.Context(), db, shard, tc.table); err == nil && found <= before {
				t.Errorf("the rows in %s are not reported", tc.table)
			}
		})
	}
}

func differing(ctx context.Context, db *DB, shard, table string) (found int, err error) {
	if err := db.CompareDerived(ctx, shard, 0, AllSequences, []string{table}, func(DerivedRow) error { found++; return nil }); err != nil {
		return 0, err
	}
	stray, err := db.StrayDerived(ctx)
	return found + len(stray), err
}
