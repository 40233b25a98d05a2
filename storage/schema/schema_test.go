package schema_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/schema"
	"github.com/countersign-dev/countersign/storage/write"
)

// UPDATE=1 writes schema.txt anew.
func TestSchemaIsWhatMigrationsMake(t *testing.T) {
	db, e := enginetest.Fresh(t)
	have, err := schema.ReadText(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile("schema.txt", []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != schema.SchemaText {
		t.Errorf("schema.txt is not what the migrations make; UPDATE=1 renews it:\n%s", schema.DiffText(schema.SchemaText, have))
	}
	for _, reader := range []*conn.Pool{db, enginetest.Open(t, e.ReadonlyDSN())} {
		if list, policies, err := schema.Differences(t.Context(), reader); err != nil || len(list) > 0 || !policies {
			t.Errorf("%v %v %v", list, policies, err)
		}
	}
}

// The embedded engine merges more parts at once than ClickHouse does by default: every row is then
// merged less often.
func TestEngineMergesManyPartsAtOnce(t *testing.T) {
	var base string
	if err := enginetest.Pool(t).QueryRow(t.Context(), "SELECT value FROM system.merge_tree_settings WHERE name = 'merge_selector_base'").Scan(&base); err != nil || base != "16" {
		t.Errorf("merge_selector_base is %q, %v", base, err)
	}
}

// A table that was replaced or altered is named, with its column.
func TestSchemaDifferences(t *testing.T) {
	db, _ := enginetest.Fresh(t)
	exec := func(list ...string) {
		t.Helper()
		for _, statement := range list {
			if err := db.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	exec("ALTER TABLE record_fields MODIFY COLUMN topic Nullable(String)", "ALTER TABLE record_fields ADD COLUMN seen UInt8 DEFAULT 1",
		"ALTER TABLE evidence_chain DROP COLUMN session_index", "ALTER TABLE evidence MODIFY COLUMN body_digest String DEFAULT 'x'",
		"RENAME TABLE calls TO calls_x", "CREATE TABLE calls ENGINE = Memory AS SELECT * FROM calls_x", "RENAME TABLE redactions TO redactions_x", "CREATE TABLE unknown (x UInt8) ENGINE = Memory")
	exec("CREATE OR REPLACE VIEW findings SQL SECURITY INVOKER AS SELECT * REPLACE (CAST('info', 'LowCardinality(String)') AS severity) FROM ("+viewQuery(t, db, "findings")+")",
		"CREATE OR REPLACE VIEW approvals DEFINER = CURRENT_USER SQL SECURITY DEFINER AS "+viewQuery(t, db, "approvals"))
	list, _, err := schema.Differences(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []schema.Difference{{Table: "record_fields", Column: "topic"}, {Table: "record_fields", Column: "seen"}, {Table: "evidence_chain", Column: "session_index"},
		{Table: "evidence", Column: "body_digest"}, {Table: "calls"}, {Table: "redactions"}, {Table: "findings"}, {Table: "approvals"}} {
		if !slices.ContainsFunc(list, func(d schema.Difference) bool { return d.Table == want.Table && d.Column == want.Column }) {
			t.Errorf("%s %s is not named", want.Table, want.Column)
		}
	}
	if slices.ContainsFunc(list, func(d schema.Difference) bool { return d.Table == "unknown" || d.Detail == "" }) || len(list) != 8 {
		t.Errorf("%v", list)
	}
}

// viewQuery is the query of a view.
func viewQuery(t *testing.T, db *conn.Pool, name string) (query string) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "SELECT as_select FROM system.tables WHERE database = currentDatabase() AND name = {name:String}", conn.Param("name", name)).Scan(&query); err != nil {
		t.Fatal(err)
	}
	return query
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
			db, _ := enginetest.Fresh(t)
			shard := storagetest.Shard(t)
			if err := write.New(db).CommitEvidence(t.Context(), storagetest.OneOfEach(t, shard, 1)); err != nil {
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
				if err := db.Exec(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			if found, err := differing(t.Context(), db, shard, tc.table); err == nil && found <= before {
				t.Errorf("the rows in %s are not reported", tc.table)
			}
		})
	}
}

func differing(ctx context.Context, db *conn.Pool, shard, table string) (found int, err error) {
	if err := schema.Compare(ctx, db, shard, 0, storage.AllSequences, []string{table}, func(schema.DerivedRow) error { found++; return nil }); err != nil {
		return 0, err
	}
	stray, err := schema.Stray(ctx, db)
	return found + len(stray), err
}
