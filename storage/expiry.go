package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ErrExpiry says that texts cannot expire now.
var ErrExpiry = errors.New("the texts of expired records cannot be deleted")

// ExpiryBatch says which texts Expire deletes.
type ExpiryBatch struct {
	Shard, Tenant string
	Seqs          []uint64 // the records that lose their text, in order; at most MaxExpiryBatch
	Records       []uint64 // the sequences of the control records that explain it; rows name the first
}

// MaxExpiryBatch is the greatest number of texts in one ExpiryBatch.
const MaxExpiryBatch = 200_000

// expiryTables are the derived tables with rows that are deleted together with the texts that
// they are made from. Control records never expire, so changes is not among them;
// evidence_chain holds no names except those that evidence keeps.
var expiryTables = []string{"decisions", "calls", "findings", "approvals", "redactions"}

// Expire deletes the texts of records and the rows that were derived from them. Hashes and
// columns of evidence stay. Each call makes one step and reports whether it was the last one;
// the caller repeats it until then. Every step can be repeated, so an interrupted expiry can
// be resumed. A text stays on disk until the engine deletes the replaced parts, after about a
// minute (old_parts_lifetime).
func (db *DB) Expire(ctx context.Context, x ExpiryBatch) (done bool, err error) {
	if len(x.Seqs) == 0 || len(x.Seqs) > MaxExpiryBatch || len(x.Records) == 0 || x.Tenant == "" || x.Shard == "" {
		return false, fmt.Errorf("%w: it must name 1 to %d records of a tenant, and what says so", ErrExpiry, MaxExpiryBatch)
	}
	db.derivedMu.Lock() // no repair of these tables may run meanwhile
	defer db.derivedMu.Unlock()
	if busy, err := db.isMutating(ctx); busy || err != nil {
		return false, err
	}
	left, err := db.countWhere(ctx, "evidence", x.remainingCondition())
	if err != nil {
		return false, err
	}
	if left > 0 {
		return false, db.startMutation(ctx, fmt.Sprintf("ALTER TABLE evidence UPDATE record = '', expiry = %d WHERE %s, UPDATE concerns = %s WHERE shard = %s AND seq IN (%s) AND kind = 'control'",
			x.Records[0], x.remainingCondition(), sqlString(x.Tenant), sqlString(x.Shard), numberList(x.Records)))
	}
	done = true
	for _, table := range expiryTables {
		n, err := db.countWhere(ctx, table, x.namedCondition())
		if err != nil {
			return false, err
		}
		if n == 0 {
			continue
		}
		done = false
		if err := db.startMutation(ctx, "ALTER TABLE "+table+" DELETE WHERE "+x.namedCondition()); err != nil {
			return false, err
		}
	}
	return done, nil
}

// namedCondition selects the rows of the records; remainingCondition selects those that still
// have their text. Control records have no tenant, so no batch can delete one.
func (x ExpiryBatch) namedCondition() string {
	return fmt.Sprintf("shard = %s AND seq IN (%s) AND tenant = %s AND session != ''", sqlString(x.Shard), numberList(x.Seqs), sqlString(x.Tenant))
}

func (x ExpiryBatch) remainingCondition() string {
	return x.namedCondition() + " AND kind != 'control' AND expiry = 0"
}

// longQuery allows a statement as long as the longest list of sequences.
func longQuery(ctx context.Context, more clickhouse.Settings) context.Context {
	settings := clickhouse.Settings{"max_query_size": 64 << 20}
	for name, value := range more {
		settings[name] = value
	}
	return clickhouse.Context(ctx, clickhouse.WithSettings(settings))
}

func (db *DB) countWhere(ctx context.Context, table, where string) (n uint64, err error) {
	if err := db.conn.QueryRow(longQuery(ctx, nil), "SELECT count() FROM "+table+" WHERE "+where).Scan(&n); err != nil {
		return 0, db.queryError(err)
	}
	return n, nil
}

// startMutation starts a mutation. It may run longer than a connection lives; isMutating
// reports when it is done.
func (db *DB) startMutation(ctx context.Context, statement string) error {
	if err := db.conn.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 0}), statement); err != nil {
		return fmt.Errorf("%w in %s: %w", ErrExpiry, db.serverName(), err)
	}
	return nil
}

// isMutating reports whether a mutation of the tables is running. It returns an error if one
// cannot make progress.
func (db *DB) isMutating(ctx context.Context) (busy bool, err error) {
	var n uint64
	var why string
	tables := "'evidence', '" + strings.Join(expiryTables, "', '") + "'"
	if err := db.conn.QueryRow(ctx, "SELECT count(), max(latest_fail_reason) FROM system.mutations WHERE database = currentDatabase() AND NOT is_done AND NOT is_killed AND table IN ("+tables+")").Scan(&n, &why); err != nil {
		return false, db.queryError(err)
	}
	if why != "" {
		return true, fmt.Errorf("%w in %s: a mutation does not get on (system.mutations): %.300s", ErrExpiry, db.serverName(), why)
	}
	return n > 0, nil
}

// SessionsWithText calls fn for the sessions of a tenant in one shard that have records with
// their text and no record since before, the longest idle first. newest and at are sequence
// and time of the session's newest record.
func (db *DB) SessionsWithText(ctx context.Context, shard, tenant string, before time.Time, fn func(session string, newest uint64, at time.Time) error) error {
	return db.queryIdleSessions(ctx, shard, tenant, before, "AND countIf(expiry = 0) > 0 ORDER BY newest, session", fn)
}

// RecordPlace is a record's place in the log and in its session.
type RecordPlace struct{ Seq, Index uint64 }

// RecordsWithText lists the records of a session in one shard that have their text, in order.
// newest is the time of the session's newest record.
func (db *DB) RecordsWithText(ctx context.Context, shard, tenant, session string) (list []RecordPlace, newest time.Time, err error) {
	err = db.eachRow(ctx, `SELECT seq, assumeNotNull(session_index), expiry, broker_time FROM evidence
		WHERE shard = {shard:String} AND seq IN (
			SELECT seq FROM evidence_chain WHERE tenant = {tenant:String} AND session = {session:String} AND shard = {shard:String} AND session_index IS NOT NULL)
		ORDER BY seq`,
		func(r driver.Rows) error {
			var p RecordPlace
			var expiry uint64
			var at time.Time
			if err := r.Scan(&p.Seq, &p.Index, &expiry, &at); err != nil {
				return err
			}
			if at.After(newest) {
				newest = at.UTC()
			}
			if expiry == 0 {
				list = append(list, p)
			}
			return nil
		}, queryParam("shard", shard), queryParam("tenant", tenant), queryParam("session", session))
	return list, newest, err
}

// hideExpired hides expired rows from every query on evidence, also through views. Derived
// rows of expired records are deleted, so a repair must not expect them.
func (db *DB) hideExpired() clickhouse.Settings {
	return clickhouse.Settings{"additional_table_filters": "{'" + db.database + ".evidence': 'expiry = 0'}"}
}

// ExpiredTotals counts the evidence of a tenant that has no text any more.
type ExpiredTotals struct {
	Records, Sessions uint64
	Shard             string // of the newest expiry
	Expiry            uint64 // the sequence of its record
}

// CountExpired counts the expired records of a tenant, or of one session of it.
func (db *DB) CountExpired(ctx context.Context, tenant, session string) (g ExpiredTotals, err error) {
	err = db.eachRow(ctx, `SELECT count(), uniqExact(session), argMax(shard, (shard, expiry)), argMax(expiry, (shard, expiry)) FROM evidence
		WHERE expiry > 0 AND tenant = {tenant:String} AND ({session:String} = '' OR session = {session:String})`,
		func(r driver.Rows) error { return r.Scan(&g.Records, &g.Sessions, &g.Shard, &g.Expiry) }, queryParam("tenant", tenant), queryParam("session", session))
	return g, err
}
