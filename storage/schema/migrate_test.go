package schema_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/schema"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func TestMigrateTogether(t *testing.T) {
	e := enginetest.Start(t, t.TempDir(), 0)
	var all sync.WaitGroup
	for range 4 {
		db := enginetest.Open(t, e.DSN())
		all.Go(func() {
			if err := schema.Migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	db := enginetest.Open(t, e.DSN())
	if err := schema.Migrate(t.Context(), db); err != nil {
		t.Error(err)
	}
	files, err := schema.Migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	if n := storagetest.Count(t, db, "SELECT toUInt64(max(version_id)) FROM schema_versions"); n != uint64(len(files)) {
		t.Errorf("version %d, want %d", n, len(files))
	}
}

// A process that was killed between making the version table and writing its first row leaves an empty one.
func TestMigrateGoesOnWithAnEmptyVersionTable(t *testing.T) {
	db := enginetest.Open(t, enginetest.Start(t, t.TempDir(), 0).DSN())
	if err := db.Exec(t.Context(), "CREATE TABLE schema_versions (version_id Int64, is_applied UInt8, date Date DEFAULT now(), tstamp DateTime DEFAULT now()) ENGINE = MergeTree ORDER BY date"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := schema.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	if n := storagetest.Count(t, db, "SELECT count() FROM schema_versions WHERE version_id = 0"); n != 1 {
		t.Errorf("%d first rows", n)
	}
}

// Views that were replaced or dropped are made anew by the next start.
func TestViewsAreRestored(t *testing.T) {
	db, _ := enginetest.Fresh(t)
	for _, statement := range []string{"DROP VIEW calls", "CREATE OR REPLACE VIEW findings DEFINER = CURRENT_USER SQL SECURITY DEFINER AS " + viewQuery(t, db, "findings"), "CREATE OR REPLACE VIEW changes AS SELECT 1 AS x"} {
		if err := db.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := schema.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if list, _, err := schema.Differences(t.Context(), db); err != nil || len(list) > 0 {
		t.Errorf("%v %v", list, err)
	}
}

// Tables without the version table of this build are those of an earlier one: nothing
// is made among them.
func TestEarlierBuildIsRefused(t *testing.T) {
	db := enginetest.Open(t, enginetest.Start(t, t.TempDir(), 0).DSN())
	if err := db.Exec(t.Context(), "CREATE TABLE evidence (shard String, seq UInt64) ENGINE = MergeTree ORDER BY (shard, seq)"); err != nil {
		t.Fatal(err)
	}
	err := schema.Migrate(t.Context(), db)
	if !errors.Is(err, schema.ErrEarlierBuild) || !strings.Contains(err.Error(), "DROP DATABASE countersign") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want ErrEarlierBuild and what to do, in a line", err)
	}
	if n := storagetest.Count(t, db, "SELECT count() FROM system.tables WHERE database = currentDatabase()"); n != 1 {
		t.Errorf("%d tables are there, want the one that was", n)
	}
}
