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

// DB is the evidence database. Its methods are safe for concurrent use.
type DB struct {
	conn       clickhouse.Conn
	options    *clickhouse.Options
	database   string
	repairs    repairStates
	dials      atomic.Uint64 // number of opened connections
	derivedMu  sync.Mutex    // held while derived tables are compared with evidence, or while texts expire
	hasViews   atomic.Bool   // evidence is a view (an auditor's database)
	idle       idleConns
	noSettings atomic.Bool // look-ups are sent without lookupSettings
}

// Connection defaults, used if the DSN does not set them.
const (
	defaultDialTimeout = 10 * time.Second
	defaultOpenConns   = 16
	defaultIdleConns   = 8
)

// codeUnknownDatabase is ClickHouse's UNKNOWN_DATABASE.
const codeUnknownDatabase = 81

// databaseName matches valid names. The name is written into statements, so it must be one word.
var databaseName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// Open connects to the database that dsn names (in clickhouse-go's form; without a name it is
// DatabaseName) and creates the database if it is missing. Migrate makes the tables.
//
// A user with SELECT on the database can run every query, also with readonly=1. A writer on
// a server that is not managed needs SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE,
// CREATE VIEW, DROP TABLE and DROP VIEW there, and SELECT on system.processes,
// system.tables, system.columns and system.mutations.
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

// dial opens a connection as clickhouse-go does, and counts it.
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
		if onlyLocal(options.Addr) { // compression costs more than sending
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

// serverName names the server in messages; it contains no secret.
func (db *DB) serverName() string { return strings.Join(db.options.Addr, ",") + "/" + db.database }

// createDatabase makes the database over a connection to the database system.
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

// Ping returns an error if the database does not answer.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.conn.Ping(ctx); err != nil {
		return fmt.Errorf("ClickHouse at %s does not answer: %w", db.serverName(), err)
	}
	return nil
}

// Close closes the connections.
func (db *DB) Close() error {
	db.idle.close()
	return db.conn.Close()
}

// queryContext is the context for a query. clickhouse-go turns a deadline into the setting
// max_execution_time, which a user with readonly=1 may not set. Cancelling works without a
// deadline.
func queryContext(ctx context.Context) context.Context { return noDeadlineContext{ctx} }

// noDeadlineContext hides its parent's deadline; Done and Err still observe it.
type noDeadlineContext struct{ context.Context }

func (noDeadlineContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// queryParam binds a query parameter, which the statement names as {name:Type}.
func queryParam(name string, value any) any { return clickhouse.Named(name, value) }

// randomToken returns a new de-duplication token.
func randomToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
