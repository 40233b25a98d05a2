package write

import (
	"context"
	"errors"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/schema"
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

// Expire deletes the texts of records and the rows that were derived from them. Hashes and
// columns of evidence stay. Each call makes one step and reports whether it was the last one;
// the caller repeats it until then. Every step can be repeated, so an interrupted expiry can
// be resumed. A text stays on disk until the engine deletes the replaced parts: after a minute
// (old_parts_lifetime), at its next cleanup, which an idle engine makes some minutes apart.
func (w *Writer) Expire(ctx context.Context, x ExpiryBatch) (done bool, err error) {
	if len(x.Seqs) == 0 || len(x.Seqs) > MaxExpiryBatch || len(x.Records) == 0 || x.Tenant == "" || x.Shard == "" {
		return false, fmt.Errorf("%w: it must name 1 to %d records of a tenant, and what says so", ErrExpiry, MaxExpiryBatch)
	}
	w.derivedMu.Lock() // no repair of the derived tables may run meanwhile
	defer w.derivedMu.Unlock()
	if busy, err := w.isMutating(ctx); busy || err != nil {
		return false, err
	}
	left, err := w.countWhere(ctx, "evidence", x.remainingCondition())
	if err != nil {
		return false, err
	}
	if left > 0 {
		return false, w.startMutation(ctx, fmt.Sprintf("ALTER TABLE evidence UPDATE record = '', expiry = %d WHERE %s, UPDATE concerns = %s WHERE shard = %s AND seq IN (%s) AND kind = 'control'",
			x.Records[0], x.remainingCondition(), conn.QuoteString(x.Tenant), conn.QuoteString(x.Shard), conn.NumberList(x.Records)))
	}
	table := schema.RecordFields.Name
	left, err = w.countWhere(ctx, table, x.namedCondition())
	if left == 0 || err != nil {
		return err == nil, err
	}
	return false, w.startMutation(ctx, "ALTER TABLE "+table+" DELETE WHERE "+x.namedCondition())
}

// namedCondition selects the rows of the records; remainingCondition selects those that still
// have their text. Control records have no tenant, so no batch can delete one.
func (x ExpiryBatch) namedCondition() string {
	return fmt.Sprintf("shard = %s AND seq IN (%s) AND tenant = %s AND session != ''", conn.QuoteString(x.Shard), conn.NumberList(x.Seqs), conn.QuoteString(x.Tenant))
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

func (w *Writer) countWhere(ctx context.Context, table, where string) (n uint64, err error) {
	if err := w.pool.QueryRow(longQuery(ctx, nil), "SELECT count() FROM "+table+" WHERE "+where).Scan(&n); err != nil {
		return 0, w.pool.QueryError(err)
	}
	return n, nil
}

// startMutation starts a mutation. It may run longer than a connection lives; isMutating
// reports when it is done.
func (w *Writer) startMutation(ctx context.Context, statement string) error {
	if err := w.pool.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 0}), statement); err != nil {
		return fmt.Errorf("%w in %s: %w", ErrExpiry, w.pool.ServerName(), err)
	}
	return nil
}

// isMutating reports whether a mutation of the two tables is running. It returns an error if one
// cannot make progress.
func (w *Writer) isMutating(ctx context.Context) (busy bool, err error) {
	var n uint64
	var why string
	if err := w.pool.QueryRow(ctx, "SELECT count(), max(latest_fail_reason) FROM system.mutations WHERE database = currentDatabase() AND NOT is_done AND NOT is_killed AND table IN ('evidence', '"+schema.RecordFields.Name+"')").Scan(&n, &why); err != nil {
		return false, w.pool.QueryError(err)
	}
	if why != "" {
		return true, fmt.Errorf("%w in %s: a mutation does not get on (system.mutations): %.300s", ErrExpiry, w.pool.ServerName(), why)
	}
	return n > 0, nil
}

// hideExpired hides expired rows from every query on evidence, also through views. Derived
// rows of expired records are deleted, so a repair must not expect them.
func (w *Writer) hideExpired() clickhouse.Settings {
	return clickhouse.Settings{"additional_table_filters": "{'" + w.pool.Database() + ".evidence': 'expiry = 0'}"}
}
