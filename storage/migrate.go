package storage

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

// A migration is tried again, because two processes that start together can see each other's
// half-made version table, and nothing locks it.
const (
	migrateAttempts = 5
	migratePause    = 100 * time.Millisecond
)

// Migrate makes the tables or brings them up to date. Several processes may call it at the
// same time, because every statement of every migration can be repeated. If the tables are of
// a build from before the first release, it returns ErrEarlierBuild and changes nothing.
func (db *DB) Migrate(ctx context.Context) error {
	var err error
	for range migrateAttempts {
		if err = db.migrate(ctx); err == nil {
			return nil
		}
		if errors.Is(err, ErrEarlierBuild) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("migrating %s: %w", db.serverName(), ctx.Err())
		case <-time.After(migratePause):
		}
	}
	return fmt.Errorf("migrating %s: %w", db.serverName(), err)
}

func (db *DB) migrate(ctx context.Context) error {
	if err := db.refuseEarlierBuild(ctx); err != nil {
		return err
	}
	options := *db.options
	options.Settings = clickhouse.Settings{"async_insert": 0, "materialized_views_ignore_errors": 0}
	conn := clickhouse.OpenDB(&options)
	defer conn.Close()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	store, err := database.NewStore(database.DialectClickHouse, versionTable)
	if err != nil {
		return err
	}
	p, err := goose.NewProvider("", conn, files, goose.WithStore(store), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// refuseEarlierBuild returns ErrEarlierBuild if a database has our tables, or the version
// table of earlier builds, but not the current version table. The migrations make the version
// table first, so a database that they have begun is never refused.
func (db *DB) refuseEarlierBuild(ctx context.Context) error {
	ours := map[string]bool{earlierVersionTable: true}
	for at := range parseSchema(schemaText) {
		ours[at.table] = true
	}
	earlier, versioned := false, false
	err := db.eachRow(ctx, "SELECT name FROM system.tables WHERE database = currentDatabase()", func(r driver.Rows) error {
		var name string
		err := r.Scan(&name)
		earlier, versioned = earlier || ours[name], versioned || name == versionTable
		return err
	})
	if err == nil && earlier && !versioned {
		err = fmt.Errorf("%w: name another database in the DSN, or drop this one (DROP DATABASE %s) and begin anew", ErrEarlierBuild, db.database)
	}
	return err
}
