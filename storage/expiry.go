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

// ExpiryBatch is what Expire takes away.
type ExpiryBatch struct {
	Shard, Tenant string
	Seqs          []uint64 // whose texts go, in order; at most MaxExpiring
	Records       []uint64 // the control records that say so; rows name the first
}

// MaxExpiryBatch is how many texts one Expiring names at most.
const MaxExpiryBatch = 200_000

// expiryTables are the derived tables whose rows go with the texts that they
// are made from. Control records never expire, so changes are not among them; the
// chain has no names but those that evidence keeps.
var expiryTables = []string{"decisions", "calls", "findings", "approvals", "redactions"}

// Expire deletes the texts of records and the rows that were derived from them.
// Their hashes and what else evidence says of them stay. It takes a step and says
// whether that was the last one; call it again until it was. Each step is one that
// can be done again, so it does not matter where an earlier caller died. A text is
// on disk until the engine has deleted the parts that were replaced: a minute
// (old_parts_lifetime).
func (db *DB) Expire(ctx context.Context, x ExpiryBatch) (done bool, err error) {
	if len(x.Seqs) == 0 || len(x.Seqs) > MaxExpiryBatch || len(x.Records) == 0 || x.Tenant == "" || x.Shard == "" {
		return false, fmt.Errorf("%w: it must name 1 to %d records of a tenant, and what says so", ErrExpiry, MaxExpiryBatch)
	}
	db.derivedMu.Lock() // a repair of these tables must not run meanwhile
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

// namedCondition are the rows of the records; left are those that have their text. Control
// records have no tenant, so that whatever a caller says none of them goes.
func (x ExpiryBatch) namedCondition() string {
	return fmt.Sprintf("shard = %s AND seq IN (%s) AND tenant = %s AND session != ''", sqlString(x.Shard), numberList(x.Seqs), sqlString(x.Tenant))
}

func (x ExpiryBatch) remainingCondition() string {
	return x.namedCondition() + " AND kind != 'control' AND expiry = 0"
}

// longQuery lets a statement be as long as the longest list of sequences.
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

// startMutation begins a mutation. It may take longer than any connection lives: mutating
// says when it is done.
func (db *DB) startMutation(ctx context.Context, statement string) error {
	if err := db.conn.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 0}), statement); err != nil {
		return fmt.Errorf("%w in %s: %w", ErrExpiry, db.serverName(), err)
	}
	return nil
}

// isMutating reports whether a mutation of the tables is under way; one that cannot
// go on is an error.
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

// SessionsWithText gives fn the sessions of a tenant in one shard whose newest record was
// stored before a time and of which some have their text, the longest silent
// first, with that record's sequence and time.
func (db *DB) SessionsWithText(ctx context.Context, shard, tenant string, before time.Time, fn func(session string, newest uint64, at time.Time) error) error {
	return db.queryIdleSessions(ctx, shard, tenant, before, "AND countIf(expiry = 0) > 0 ORDER BY newest, session", fn)
}

// RecordPlace is a record's place in the log and in its session.
type RecordPlace struct{ Seq, Index uint64 }

// RecordsWithText lists the records of a session in one shard that have their text, in
// order, and the time of the session's newest record.
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

// hideExpired leaves expired rows out of the evidence that a query reads, whatever
// views are between: what was derived from their texts goes with them.
func (db *DB) hideExpired() clickhouse.Settings {
	return clickhouse.Settings{"additional_table_filters": "{'" + db.database + ".evidence': 'expiry = 0'}"}
}

// ExpiredTotals is how much of a tenant's evidence has no text any more.
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
