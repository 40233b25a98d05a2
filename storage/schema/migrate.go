// Package schema makes and checks the tables of the evidence database. Migrate makes them from the
// files of migrations/, Differences compares them with what it made, and DerivedTables names the
// tables that materialized views fill from evidence. Auditors read record_fields through a view for
// each kind of record. All of these are indexes. No hash covers them: a user with write access can
// delete, change and invent rows there, and replace a view. Compare therefore computes their rows
// again from the texts of evidence, which a verification proves. Package write repairs the tables,
// Migrate the views. Begin reading with Migrate.
package schema

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/storage/conn"
)

//go:embed migrations/*.sql
var migrations embed.FS

// A migration is tried again, because two processes that start together can see each other's
// half-made version table, and nothing locks it.
const (
	migrateAttempts = 5
	migratePause    = 100 * time.Millisecond
)

// ErrEarlierBuild says that the database has the tables of a build from before the first
// release, which this one does not read.
var ErrEarlierBuild = errors.New("the tables were made by an earlier build, from before the first release, and are not read")

// Migrate makes the tables or brings them up to date, and makes views anew that were replaced. Several
// processes may call it at the same time, because every statement of every migration can be repeated. If the tables are of
// a build from before the first release, it returns ErrEarlierBuild and changes nothing.
func Migrate(ctx context.Context, p *conn.Pool) error {
	var err error
	for range migrateAttempts {
		if err = migrate(ctx, p); err == nil {
			return nil
		}
		if errors.Is(err, ErrEarlierBuild) {
			break
		}
		if err := retry.Sleep(ctx, migratePause); err != nil {
			return fmt.Errorf("migrating %s: %w", p.ServerName(), err)
		}
	}
	return fmt.Errorf("migrating %s: %w", p.ServerName(), err)
}

func migrate(ctx context.Context, p *conn.Pool) error {
	if err := refuseEarlierBuild(ctx, p); err != nil {
		return err
	}
	own := p.OpenStandard(clickhouse.Settings{"async_insert": 0, "materialized_views_ignore_errors": 0})
	defer own.Close()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	store, err := database.NewStore(database.DialectClickHouse, versionTable)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider("", own, files, goose.WithStore(versionStore{store}), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	if _, err = provider.Up(ctx); err != nil {
		return err
	}
	return restoreViews(ctx, p)
}

// restoreViews makes the record views anew that were replaced or dropped. It leaves a table that has the name of
// one, which Differences names.
func restoreViews(ctx context.Context, p *conn.Pool) error {
	have, err := readSchema(ctx, p)
	if err != nil {
		return err
	}
	changed, err := changedViews(ctx, p, have)
	if err != nil {
		return err
	}
	queries, err := viewQueries()
	if err != nil {
		return err
	}
	for _, name := range recordViews {
		_, there := have[schemaPlace{table: name}]
		if there && !slices.ContainsFunc(changed, func(d Difference) bool { return d.Table == name }) {
			continue
		}
		if err := p.Exec(ctx, "CREATE OR REPLACE VIEW "+name+" SQL SECURITY INVOKER AS\n"+queries[name]); err != nil {
			return err
		}
	}
	return nil
}

// versionStore asks the server whether the version table exists. Without TableExists goose reads
// the table and takes an error as no, and the server takes 50 ms of processor time to describe the
// error with a stack trace.
type versionStore struct{ database.Store }

// TableExists is called by goose. A table without rows was made by a process that was killed before it wrote the
// first one: goose makes it again, which changes nothing, and writes that row.
func (s versionStore) TableExists(ctx context.Context, db database.DBTxConn) (exists bool, err error) {
	err = db.QueryRowContext(ctx, "EXISTS TABLE "+s.Tablename()).Scan(&exists)
	if err == nil && exists {
		err = db.QueryRowContext(ctx, "SELECT count() > 0 FROM "+s.Tablename()).Scan(&exists)
	}
	return exists, err
}

// refuseEarlierBuild returns ErrEarlierBuild if a database has our tables, but not the current
// version table. The migrations make the version table first, so a database that they have begun
// is never refused.
func refuseEarlierBuild(ctx context.Context, p *conn.Pool) error {
	ours := map[string]bool{}
	for at := range parseSchema(schemaText) {
		ours[at.table] = true
	}
	names, err := conn.Column[string](ctx, p, "SELECT name FROM system.tables WHERE database = currentDatabase()")
	earlier := slices.ContainsFunc(names, func(name string) bool { return ours[name] })
	if err == nil && earlier && !slices.Contains(names, versionTable) {
		err = fmt.Errorf("%w: name another database in the DSN, or drop this one (DROP DATABASE %s) and begin anew", ErrEarlierBuild, p.Database())
	}
	return err
}
