package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/auditor"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/schema"
	"github.com/countersign-dev/countersign/storage/write"
	"github.com/countersign-dev/countersign/streams"
)

// auditBench measures the auditor on a pipeline that runs no services.
type auditBench struct {
	t        *target.Target
	log      *auditLog
	dsn      string
	conn     clickhouse.Conn // as the database's owner
	db       *read.Reader
	profile  string
	keptIn   string                // a directory, "" if nothing is kept
	messages int                   // of the log, equal to the number of records
	rows     []storage.EvidenceRow // the finished rows, once loaded
}

func openAuditBench(ctx context.Context, p *pipeline.Pipeline, keptIn, profile string) (*auditBench, error) {
	t := target.FromReady(p.Ready())
	b := &auditBench{t: t, dsn: t.ReadyInfo().ClickHouseDSN, profile: profile, keptIn: keptIn}
	var err error
	if b.db, err = read.Open(ctx, b.dsn); err != nil {
		return nil, err
	}
	if b.conn, err = measure.OpenOwner(b.dsn); err != nil {
		return nil, err
	}
	if err := schema.Migrate(ctx, b.db.Pool()); err != nil {
		return nil, err
	}
	b.log, err = openAuditLog(ctx, t, p)
	return b, err
}

func (b *auditBench) close() error {
	b.log.close()
	return errors.Join(b.conn.Close(), b.db.Close())
}

// best runs a measurement several times and returns the fastest.
func (b *auditBench) best(runs int, step func(context.Context) (measure.Result, error)) func(context.Context) (measure.Result, error) {
	return func(ctx context.Context) (best measure.Result, err error) {
		for range max(1, runs) {
			r, err := step(ctx)
			if err != nil {
				return r, err
			}
			if r.PerSecond > best.PerSecond {
				best = r
			}
		}
		return best, nil
	}
}

// usage is what this process and the two servers have used so far. On a shared machine processor
// time is more reliable than rates.
type usage struct {
	at           time.Time
	cpu, servers time.Duration
	allocs       uint64
}

func (b *auditBench) used() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{at: time.Now(), cpu: spending.ProcessorTime(os.Getpid()), allocs: m.Mallocs}
	for _, name := range []string{"clickhouse", "nats"} {
		u.servers += spending.ProcessorTime(b.t.ReadyInfo().PIDs[name])
	}
	return u
}

// since returns what was used since begun, as a result for n records.
func (b *auditBench) since(begun usage, what string, n int) measure.Result {
	now := b.used()
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
	return measure.Result{What: what, Count: n, PerSecond: float64(n) / now.at.Sub(begun.at).Seconds(),
		Allocs: float64(now.allocs-begun.allocs) / float64(n), CPU: per(now.cpu - begun.cpu), ServersCPU: per(now.servers - begun.servers)}
}

// consume reads the log in order and drops the messages.
func (b *auditBench) consume(ctx context.Context) (measure.Result, error) {
	f := b.log.services("auditor")
	nc, release, err := f.Connect(ctx, "bench", daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth()}, nil)
	if err != nil {
		return measure.Result{}, err
	}
	defer release()
	js, err := jetstream.New(nc)
	if err != nil {
		return measure.Result{}, err
	}
	done, n := errors.New("all is read"), 0
	begun := b.used()
	err = streams.ReadLog(ctx, js, streams.ReadOptions{Stream: b.t.Stream, Idle: func() error { return done }}, func(batch []events.LogMessage) error {
		n += len(batch)
		return nil
	})
	if !errors.Is(err, done) {
		return measure.Result{}, err
	}
	return b.since(begun, "floor: plain ordered consume", n), nil
}

// audit runs the auditor from an empty database to the signed end of the log.
func (b *auditBench) audit(ctx context.Context) (measure.Result, error) {
	if err := b.empty(ctx); err != nil {
		return measure.Result{}, err
	}
	if b.profile != "" {
		f, err := os.Create(b.profile)
		if err != nil {
			return measure.Result{}, err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return measure.Result{}, err
		}
		defer pprof.StopCPUProfile()
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	var r measure.Result
	begun := b.used()
	env := daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth(), Ready: func() error {
		r = b.since(begun, "the auditor's whole path", b.messages)
		stop()
		return nil
	}}
	f := auditor.Flags{Flags: b.log.services("auditor"), ClickHouse: b.dsn, Batch: auditor.DefaultBatch, CheckpointEvery: 2 * time.Second}
	f.Instance = "bench"
	if err := auditor.Run(run, f, env); r.Count == 0 || !errors.Is(err, context.Canceled) {
		return r, fmt.Errorf("the auditor: %w", err)
	}
	shards, err := b.db.Shards(ctx)
	if err != nil || len(shards) == 0 {
		return r, fmt.Errorf("the auditor stored nothing: %w", err)
	}
	count, err := b.db.CountEvidence(ctx, shards[0])
	if err == nil && count.Distinct != uint64(b.messages) {
		err = fmt.Errorf("the evidence has %d records, the log %d messages", count.Distinct, b.messages)
	}
	return r, err
}

// empty deletes all evidence.
func (b *auditBench) empty(ctx context.Context) error {
	var tables []string
	err := b.conn.QueryRow(ctx, `SELECT groupArray(name) FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name != 'schema_versions'`).Scan(&tables)
	for _, table := range tables {
		err = errors.Join(err, b.conn.Exec(ctx, "TRUNCATE TABLE "+table))
	}
	return err
}

// insertFloor inserts the finished rows with measure.InsertRows.
func (b *auditBench) insertFloor(ctx context.Context) (measure.Result, error) {
	if err := b.load(ctx); err != nil {
		return measure.Result{}, err
	}
	if err := measure.CreateRowTable(ctx, b.conn); err != nil {
		return measure.Result{}, err
	}
	begun := b.used()
	if err := measure.InsertRows(ctx, b.conn, b.rows); err != nil {
		return measure.Result{}, err
	}
	return b.since(begun, "floor: the finished rows, inserted natively and fsynced", len(b.rows)), nil
}

// insertDerived inserts the finished rows into the table evidence, with everything derived from
// it.
func (b *auditBench) insertDerived(ctx context.Context) (measure.Result, error) {
	shard := fmt.Sprintf("bench@%d", time.Now().UnixNano())
	begun := b.used()
	for part := range slices.Chunk(b.rows, measure.RowBatch) {
		rows := slices.Clone(part)
		for i := range rows {
			rows[i].Shard = shard
		}
		if err := write.New(b.db.Pool()).InsertEvidence(ctx, write.EvidenceToken(shard, rows[0].Seq), rows); err != nil {
			return measure.Result{}, err
		}
	}
	r := b.since(begun, "the same with all derived tables", len(b.rows))
	for _, table := range append([]string{"evidence"}, schema.TableNames()...) {
		if err := b.conn.Exec(clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 2})),
			"ALTER TABLE "+table+" DELETE WHERE startsWith(shard, 'bench@')"); err != nil {
			return r, err
		}
	}
	return r, nil
}

// load reads the finished rows.
func (b *auditBench) load(ctx context.Context) error {
	if b.rows != nil {
		return nil
	}
	shards, err := b.db.Shards(ctx)
	if err != nil {
		return err
	}
	return b.db.Scan(ctx, shards[len(shards)-1], 1, storage.AllSequences, func(r storage.EvidenceRow) error {
		b.rows = append(b.rows, r)
		return nil
	})
}
