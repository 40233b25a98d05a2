package storage

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migration is tried again because two processes that start together can see
// each other's half-made version table, and nothing locks it.
const (
	migrateAttempts = 5
	migratePause    = 100 * time.Millisecond
)

// Migrate brings the tables up to date. It may be called by several processes at
// a time: every statement of every migration can be run again.
func (db *DB) Migrate(ctx context.Context) error {
	var err error
	for range migrateAttempts {
		if err = db.migrate(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("migrating %s: %w", db.serverName(), ctx.Err())
		case <-time.After(migratePause):
		}
	}
	return fmt.Errorf("migrating %s: %w", db.serverName(), err)
}

func (db *DB) migrate(ctx context.Context) error { return db.migrateTo(ctx, goose.MaxVersion) }

func (db *DB) migrateTo(ctx context.Context, version int64) error {
	options := *db.options
	options.Settings = clickhouse.Settings{"async_insert": 0, "materialized_views_ignore_errors": 0}
	conn := clickhouse.OpenDB(&options)
	defer conn.Close()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectClickHouse, conn, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.UpTo(ctx, version)
	return err
}
