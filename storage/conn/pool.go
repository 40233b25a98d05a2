// Package conn connects to the ClickHouse server that stores the evidence, for the other packages
// of storage: a Pool of connections, the errors of queries with the server's name, and
// answers in the native protocol without copies. The statements are in the packages that own
// them. Begin with Open.
package conn

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// Pool holds the connections to the evidence database. Its methods are safe for concurrent
// use.
type Pool struct {
	conn     clickhouse.Conn
	options  *clickhouse.Options
	database string
	dials    atomic.Uint64 // number of opened connections
}

// DatabaseName is the database that a DSN without a name stands for, and the only one that the
// users of a managed engine may access.
const DatabaseName = "countersign"

// The range of ClickHouse's DateTime64(9).
var (
	MinTime = time.Unix(0, math.MinInt64)
	MaxTime = time.Unix(0, math.MaxInt64)
)

// Connection defaults, used if the DSN does not set them.
const (
	defaultDialTimeout = 10 * time.Second
	defaultOpenConns   = 16
	defaultIdleConns   = 8
)

// ClickHouse's UNKNOWN_DATABASE and UNKNOWN_TABLE.
const (
	codeUnknownDatabase = 81
	codeUnknownTable    = 60
)

// databaseName matches valid names. The name is written into statements, so it must be one word.
var databaseName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// Open connects to the database that dsn names (in clickhouse-go's form; without a name it is
// DatabaseName) and creates the database if it is missing. schema.Migrate makes the tables.
//
// A user with SELECT on the database can run every query, also with readonly=1. A writer on
// a server that is not managed needs SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE,
// CREATE VIEW, DROP TABLE and DROP VIEW there, and SELECT on system.processes,
// system.tables, system.columns and system.mutations.
func Open(ctx context.Context, dsn string) (*Pool, error) {
	options, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	p := &Pool{options: options, database: options.Auth.Database}
	counted := *options
	counted.DialContext = p.dial
	if p.conn, err = clickhouse.Open(&counted); err != nil {
		return nil, fmt.Errorf("opening ClickHouse at %s: %w", p.ServerName(), err)
	}
	err = p.Ping(ctx)
	if ex := (*clickhouse.Exception)(nil); errors.As(err, &ex) && ex.Code == codeUnknownDatabase {
		if err = p.createDatabase(ctx); err == nil {
			err = p.Ping(ctx)
		}
	}
	if err != nil {
		p.conn.Close()
		return nil, err
	}
	return p, nil
}

// OpenSingle opens another pool, of one connection. It sends without compression if the server
// is on this machine: compressing would cost the server as much as reading.
func (p *Pool) OpenSingle() (*Pool, error) {
	options := *p.options
	options.MaxOpenConns, options.MaxIdleConns = 1, 1
	if onlyLocal(options.Addr) {
		options.Compression = &clickhouse.Compression{Method: clickhouse.CompressionNone}
	}
	own := &Pool{options: &options, database: p.database}
	var err error
	if own.conn, err = clickhouse.Open(&options); err != nil {
		return nil, p.QueryError(err)
	}
	return own, nil
}

// OpenStandard opens connections of their own for database/sql, with settings.
func (p *Pool) OpenStandard(settings clickhouse.Settings) *sql.DB {
	options := *p.options
	options.Settings = settings
	return clickhouse.OpenDB(&options)
}

// Database is the name of the database.
func (p *Pool) Database() string { return p.database }

// Dials counts the connections that were opened so far.
func (p *Pool) Dials() uint64 { return p.dials.Load() }

// dial opens a connection as clickhouse-go does, and counts it.
func (p *Pool) dial(ctx context.Context, address string) (net.Conn, error) {
	p.dials.Add(1)
	plain := &net.Dialer{Timeout: p.options.DialTimeout}
	if p.options.TLS != nil {
		return (&tls.Dialer{NetDialer: plain, Config: p.options.TLS}).DialContext(ctx, "tcp", address)
	}
	return plain.DialContext(ctx, "tcp", address)
}

// CheckDSN returns why Open would refuse dsn before it connects. The error contains no secret.
func CheckDSN(dsn string) error {
	_, err := parseDSN(dsn)
	return err
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

// ServerName names the server in messages; it contains no secret.
func (p *Pool) ServerName() string { return strings.Join(p.options.Addr, ",") + "/" + p.database }

// createDatabase makes the database over a connection to the database system.
func (p *Pool) createDatabase(ctx context.Context) error {
	options := *p.options
	options.Auth.Database = "system"
	options.MaxOpenConns, options.MaxIdleConns = 1, 1
	c, err := clickhouse.Open(&options)
	if err != nil {
		return fmt.Errorf("opening ClickHouse at %s: %w", p.ServerName(), err)
	}
	defer c.Close()
	if err := c.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+p.database); err != nil {
		return fmt.Errorf("creating the database %s: %w", p.ServerName(), err)
	}
	return nil
}

// Ping returns an error if the database does not answer.
func (p *Pool) Ping(ctx context.Context) error {
	if err := p.conn.Ping(ctx); err != nil {
		return fmt.Errorf("ClickHouse at %s does not answer: %w", p.ServerName(), err)
	}
	return nil
}

// Close closes the connections.
func (p *Pool) Close() error { return p.conn.Close() }

// QueryContext is the context for a query. clickhouse-go turns a deadline into the setting
// max_execution_time, which a user with readonly=1 may not set. Cancelling works without a
// deadline.
func QueryContext(ctx context.Context) context.Context { return noDeadlineContext{ctx} }

// noDeadlineContext hides its parent's deadline; Done and Err still observe it.
type noDeadlineContext struct{ context.Context }

func (noDeadlineContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Param binds a query parameter, which the statement names as {name:Type}.
func Param(name string, value any) any { return clickhouse.Named(name, value) }

// TimeParam binds a time as a parameter of type DateTime64(9, 'UTC'). A time before 1970, such as
// the zero time, stands for 1970, and one after MaxTime for MaxTime.
func TimeParam(name string, t time.Time) any {
	if first := time.Unix(0, 0); t.Before(first) {
		t = first
	}
	if t.After(MaxTime) {
		t = MaxTime
	}
	return clickhouse.DateNamed(name, t.UTC(), clickhouse.NanoSeconds)
}

// QuoteString quotes s as an SQL string literal.
func QuoteString(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// NumberList formats numbers for IN. It appends MaxUint64, which is no sequence and no index, so
// that the list is never empty.
func NumberList(list []uint64) string {
	var b strings.Builder
	for _, n := range list {
		b.WriteString(strconv.FormatUint(n, 10))
		b.WriteByte(',')
	}
	b.WriteString(strconv.FormatUint(math.MaxUint64, 10))
	return b.String()
}

// LimitClause limits an answer to n rows; 0 means all.
func LimitClause(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" LIMIT %d", n)
}

// onlyLocal reports whether all addresses are loopback addresses.
func onlyLocal(addresses []string) bool {
	for _, a := range addresses {
		host, _, err := net.SplitHostPort(a)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return len(addresses) > 0
}
