package storage

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// DB is the evidence database. Its methods may be called from any goroutine.
type DB struct {
	conn       clickhouse.Conn
	options    *clickhouse.Options
	database   string
	repairs    repairStates
	dials      atomic.Uint64 // connections that were opened
	derivedMu  sync.Mutex    // held while derived tables are compared with evidence, or rows expire
	hasViews   atomic.Bool   // there are views instead of the tables
	idle       idleConns
	noSettings atomic.Bool // look-ups go without settings
}

// Connection defaults, where the DSN does not say otherwise.
const (
	defaultDialTimeout = 10 * time.Second
	defaultOpenConns   = 16
	defaultIdleConns   = 8
)

// codeUnknownDatabase is ClickHouse's UNKNOWN_DATABASE.
const codeUnknownDatabase = 81

// A database's name is written into statements, so it is held to be one word.
var databaseName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// Open connects to the database that dsn names (clickhouse-go's form; without a
// name DatabaseName) and creates it when it is missing. The tables are Migrate's.
//
// A user who may SELECT in the database is enough for every query, with readonly=1
// too. A writer on a server of one's own needs SELECT, INSERT, ALTER, CREATE
// DATABASE, CREATE TABLE, CREATE VIEW, DROP TABLE and DROP VIEW there, and SELECT
// on system.processes, system.tables, system.columns and system.mutations.
func Open(ctx context.Context, dsn string) (*DB, error) {
	options, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	db := &DB{options: options, database: options.Auth.Database}
	counted := *options
	counted.DialContext = db.dial
	if db.conn, err = clickhouse.Open(&counted); err != nil {
		return nil, fmt.Errorf("opening ClickHouse at %s: %w", db.serverName(), err)
	}
	err = db.Ping(ctx)
	if ex := (*clickhouse.Exception)(nil); errors.As(err, &ex) && ex.Code == codeUnknownDatabase {
		if err = db.createDatabase(ctx); err == nil {
			err = db.Ping(ctx)
		}
	}
	if err != nil {
		db.conn.Close()
		return nil, err
	}
	return db, nil
}

// dial opens a connection as clickhouse-go would.
func (db *DB) dial(ctx context.Context, address string) (net.Conn, error) {
	db.dials.Add(1)
	plain := &net.Dialer{Timeout: db.options.DialTimeout}
	if db.options.TLS != nil {
		return (&tls.Dialer{NetDialer: plain, Config: db.options.TLS}).DialContext(ctx, "tcp", address)
	}
	return plain.DialContext(ctx, "tcp", address)
}

func parseDSN(dsn string) (*clickhouse.Options, error) {
	options, err := clickhouse.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("the ClickHouse DSN (want clickhouse://user:password@host:9000/%s): %w", DatabaseName, err)
	}
	if options.Protocol != clickhouse.Native {
		return nil, errors.New("the ClickHouse DSN must name the native protocol (clickhouse://host:9000): over HTTP a cancelled query goes on")
	}
	if options.Auth.Database == "" {
		options.Auth.Database = DatabaseName
	}
	if !databaseName.MatchString(options.Auth.Database) {
		return nil, fmt.Errorf("the ClickHouse DSN names the database %q: use letters, digits and underscores", options.Auth.Database)
	}
	if options.Compression == nil {
		options.Compression = &clickhouse.Compression{Method: clickhouse.CompressionLZ4}
		if onlyLocal(options.Addr) { // compressing costs more than sending
			options.Compression.Method = clickhouse.CompressionNone
		}
	}
	if options.DialTimeout == 0 {
		options.DialTimeout = defaultDialTimeout
	}
	if options.MaxOpenConns == 0 {
		options.MaxOpenConns = defaultOpenConns
	}
	if options.MaxIdleConns == 0 {
		options.MaxIdleConns = min(defaultIdleConns, options.MaxOpenConns)
	}
	return options, nil
}

// serverName names the server in messages; it holds no secret.
func (db *DB) serverName() string { return strings.Join(db.options.Addr, ",") + "/" + db.database }

// createDatabase makes the database, from a connection to one that always exists.
func (db *DB) createDatabase(ctx context.Context) error {
	options := *db.options
	options.Auth.Database = "system"
	options.MaxOpenConns, options.MaxIdleConns = 1, 1
	c, err := clickhouse.Open(&options)
	if err != nil {
		return fmt.Errorf("opening ClickHouse at %s: %w", db.serverName(), err)
	}
	defer c.Close()
	if err := c.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+db.database); err != nil {
		return fmt.Errorf("creating the database %s: %w", db.serverName(), err)
	}
	return nil
}

// Ping reports whether the database answers.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.conn.Ping(ctx); err != nil {
		return fmt.Errorf("ClickHouse at %s does not answer: %w", db.serverName(), err)
	}
	return nil
}

// Close gives up the connections.
func (db *DB) Close() error {
	db.idle.close()
	return db.conn.Close()
}

// queryContext is the context of a query. clickhouse-go turns a deadline into the
// setting max_execution_time, which a user with readonly=1 may not set; cancelling
// works without.
func queryContext(ctx context.Context) context.Context { return noDeadlineContext{ctx} }

// noDeadlineContext hides its parent's deadline; Done and Err still obey it.
type noDeadlineContext struct{ context.Context }

func (noDeadlineContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// queryParam binds a query parameter: {name:Type} in the text.
func queryParam(name string, value any) any { return clickhouse.Named(name, value) }

// randomToken is a de-duplication token that nobody uses twice.
func randomToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
