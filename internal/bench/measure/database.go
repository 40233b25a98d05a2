package measure

import (
	"context"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// ConnectAs connects as a service.
func ConnectAs(ctx context.Context, p *pipeline.Pipeline, role streams.Role) (jetstream.JetStream, error) {
	u := p.Service(role)
	nc, err := streams.Connect(ctx, streams.ConnectOptions{URL: p.Ready().NATSURL, User: u.Name, Password: u.Password, InboxPrefix: u.Inbox(), Name: "countersign-bench"})
	if err != nil {
		return nil, err
	}
	return jetstream.New(nc)
}

// OpenOwner connects as the owner of the database.
func OpenOwner(dsn string) (clickhouse.Conn, error) {
	options, err := clickhouse.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	options.Compression = &clickhouse.Compression{Method: clickhouse.CompressionLZ4}
	options.ReadTimeout = 30 * time.Minute
	return clickhouse.Open(options)
}

// RowBatch is the size of the batches of the insert floors.
const RowBatch = 10_000

// CreateRowTable creates the table of InsertRows, with fsync on.
func CreateRowTable(ctx context.Context, conn clickhouse.Conn) error {
	for _, statement := range []string{
		"DROP TABLE IF EXISTS bench_floor",
		"CREATE TABLE bench_floor AS evidence ENGINE = MergeTree ORDER BY (shard, seq) SETTINGS fsync_after_insert = 1, fsync_part_directory = 1",
		"ALTER TABLE bench_floor DROP COLUMN redacted", "ALTER TABLE bench_floor DROP INDEX by_change",
	} {
		if err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// InsertRows inserts finished rows with clickhouse-go, in batches of RowBatch.
func InsertRows(ctx context.Context, conn clickhouse.Conn, rows []storage.EvidenceRow) error {
	for part := range slices.Chunk(rows, RowBatch) {
		batch, err := conn.PrepareBatch(ctx, "INSERT INTO bench_floor (shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash)")
		if err != nil {
			return err
		}
		for _, r := range part {
			if err := batch.Append(r.Shard, r.Seq, r.Tenant, r.Session, r.SessionIndex, r.Kind, r.Subject, r.BrokerTime, r.BodyDigest, r.Record, string(r.RecordHash[:])); err != nil {
				return err
			}
		}
		if err := batch.Send(); err != nil {
			return err
		}
	}
	return nil
}
