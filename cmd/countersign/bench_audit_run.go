package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/cmd/internal/auditor"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// benchAudit measures the auditor on a pipeline that runs no services.
type benchAudit struct {
	t        *target.Target
	log      *auditLog
	dsn      string
	conn     clickhouse.Conn // the owner's
	db       *storage.DB
	profile  string
	messages int
	rows     []storage.EvidenceRow // the finished rows, once there are any
}

// floorBatch is the size of the batches of the insert floors.
const floorBatch = 10_000

func openBenchAudit(ctx context.Context, t *target.Target, dir, keys, profile string) (*benchAudit, error) {
	b := &benchAudit{t: t, dsn: t.ReadyInfo().ClickHouseDSN, profile: profile}
	var err error
	if b.db, err = storage.Open(ctx, b.dsn); err != nil {
		return nil, err
	}
	options, err := clickhouse.ParseDSN(b.dsn)
	if err != nil {
		return nil, err
	}
	options.Compression = &clickhouse.Compression{Method: clickhouse.CompressionLZ4}
	options.ReadTimeout = 30 * time.Minute
	if b.conn, err = clickhouse.Open(options); err != nil {
		return nil, err
	}
	if err := b.db.Migrate(ctx); err != nil {
		return nil, err
	}
	b.log, err = openAuditLog(ctx, t, dir, keys)
	return b, err
}

func (b *benchAudit) close() error { return errors.Join(b.log.close(), b.conn.Close(), b.db.Close()) }

// best runs a measurement several times and gives the fastest.
func (b *benchAudit) best(runs int, step func(context.Context) (auditResult, error)) func(context.Context) (auditResult, error) {
	return func(ctx context.Context) (best auditResult, err error) {
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

// usage is what this process has used so far.
type usage struct {
	at     time.Time
	cpu    time.Duration
	allocs uint64
}

func used() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // cannot fail for oneself
	return usage{time.Now(), time.Duration(r.Utime.Nano() + r.Stime.Nano()), m.Mallocs}
}

// since turns what was used since begun into a result for n records.
func (u usage) since(what string, n int) auditResult {
	now := used()
	return auditResult{What: what, Count: n, PerSecond: float64(n) / now.at.Sub(u.at).Seconds(),
		Allocs: float64(now.allocs-u.allocs) / float64(n), CPU: float64((now.cpu - u.cpu).Microseconds()) / float64(n)}
}

// consume reads the log in order and does nothing with it.
func (b *benchAudit) consume(ctx context.Context) (auditResult, error) {
	nc, err := b.t.Connect(ctx, target.Operator)
	if err != nil {
		return auditResult{}, err
	}
	nc.Close()
	f := b.log.services("auditor")
	nc, release, err := f.Connect(ctx, "bench", daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth()}, nil)
	if err != nil {
		return auditResult{}, err
	}
	defer release()
	js, err := jetstream.New(nc)
	if err != nil {
		return auditResult{}, err
	}
	done, n := errors.New("all is read"), 0
	begun := used()
	err = streams.ReadLog(ctx, js, streams.ReadOptions{Stream: b.t.Stream, Idle: func() error { return done }}, func(batch []events.LogMessage) error {
		n += len(batch)
		return nil
	})
	if !errors.Is(err, done) {
		return auditResult{}, err
	}
	return begun.since("floor: plain ordered consume", n), nil
}

// audit runs the auditor from nothing to the signed end of the log.
func (b *benchAudit) audit(ctx context.Context) (auditResult, error) {
	if err := b.empty(ctx); err != nil {
		return auditResult{}, err
	}
	if b.profile != "" {
		f, err := os.Create(b.profile)
		if err != nil {
			return auditResult{}, err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return auditResult{}, err
		}
		defer pprof.StopCPUProfile()
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	var r auditResult
	begun := used()
	env := daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth(), Ready: func() error {
		r = begun.since("the auditor's whole path", b.messages)
		stop()
		return nil
	}}
	f := auditor.Flags{Flags: b.log.services("auditor"), ClickHouse: b.dsn, Batch: auditor.DefaultBatch, CheckpointEvery: time.Second}
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

// empty takes all evidence away.
func (b *benchAudit) empty(ctx context.Context) error {
	var tables []string
	err := b.conn.QueryRow(ctx, `SELECT groupArray(name) FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name NOT LIKE 'goose%'`).Scan(&tables)
	for _, table := range tables {
		err = errors.Join(err, b.conn.Exec(ctx, "TRUNCATE TABLE "+table))
	}
	return err
}

// insertFloor stores the finished rows in a table of their own, as clickhouse-go
// does it and no more: batches of floorBatch, fsync on.
func (b *benchAudit) insertFloor(ctx context.Context) (auditResult, error) {
	if err := b.load(ctx); err != nil {
		return auditResult{}, err
	}
	for _, statement := range []string{
		"DROP TABLE IF EXISTS bench_floor",
		"CREATE TABLE bench_floor AS evidence ENGINE = MergeTree ORDER BY (shard, seq) SETTINGS fsync_after_insert = 1, fsync_part_directory = 1",
		"ALTER TABLE bench_floor DROP COLUMN redacted",
	} {
		if err := b.conn.Exec(ctx, statement); err != nil {
			return auditResult{}, err
		}
	}
	begun := used()
	for part := range slices.Chunk(b.rows, floorBatch) {
		batch, err := b.conn.PrepareBatch(ctx, "INSERT INTO bench_floor (shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash)")
		if err != nil {
			return auditResult{}, err
		}
		for _, r := range part {
			if err := batch.Append(r.Shard, r.Seq, r.Tenant, r.Session, r.SessionIndex, r.Kind, r.Subject, r.BrokerTime, r.BodyDigest, r.Record, string(r.RecordHash[:])); err != nil {
				return auditResult{}, err
			}
		}
		if err := batch.Send(); err != nil {
			return auditResult{}, err
		}
	}
	return begun.since("floor: the finished rows, inserted natively and fsynced", len(b.rows)), nil
}

// insertDerived stores the finished rows in the table evidence, with all that is
// derived from it.
func (b *benchAudit) insertDerived(ctx context.Context) (auditResult, error) {
	shard := fmt.Sprintf("bench@%d", time.Now().UnixNano())
	begun := used()
	for part := range slices.Chunk(b.rows, floorBatch) {
		rows := slices.Clone(part)
		for i := range rows {
			rows[i].Shard = shard
		}
		if err := b.db.InsertEvidence(ctx, storage.EvidenceToken(shard, rows[0].Seq), rows); err != nil {
			return auditResult{}, err
		}
	}
	r := begun.since("the same with all derived tables", len(b.rows))
	for _, table := range append([]string{"evidence", "evidence_chain"}, "decisions", "calls", "findings", "approvals", "changes", "redactions") {
		if err := b.conn.Exec(clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 2})),
			"ALTER TABLE "+table+" DELETE WHERE startsWith(shard, 'bench@')"); err != nil {
			return r, err
		}
	}
	return r, nil
}

// load reads the finished rows.
func (b *benchAudit) load(ctx context.Context) error {
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

// size is what the tables of the evidence take on disk, derived ones and proofs
// included.
func (b *benchAudit) size(ctx context.Context) (auditResult, error) {
	var disk, records uint64
	err := b.conn.QueryRow(ctx, `SELECT sum(bytes_on_disk), sumIf(rows, table = 'evidence') FROM system.parts
		WHERE active AND database = currentDatabase() AND table NOT LIKE 'bench%' AND table NOT LIKE 'goose%'`).Scan(&disk, &records)
	return auditResult{What: "on disk, derived tables and proofs included", Count: int(records), Bytes: float64(disk) / float64(max(1, records))}, err
}

// lookups is how many times a look-up is measured.
const lookups = 300

// chains reads the evidence of one session.
func (b *benchAudit) chains(ctx context.Context) (auditResult, error) {
	sessions := b.messages / messagesPerCall / callsPerSession
	return timed(lookups, "evidence of one session", func() error {
		n := 0
		err := b.db.Chain(ctx, b.t.Tenant, benchSession(rand.IntN(sessions)), func(storage.EvidenceRow) error { n++; return nil })
		if err == nil && n == 0 {
			err = errors.New("a session has no evidence")
		}
		return err
	})
}

// proofs makes inclusion proofs.
func (b *benchAudit) proofs(ctx context.Context) (auditResult, error) {
	shards, err := b.db.Shards(ctx)
	if err != nil {
		return auditResult{}, err
	}
	shard := shards[len(shards)-1]
	cp, err := b.db.LatestCheckpoint(ctx, shard)
	if err != nil {
		return auditResult{}, err
	}
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		ask := make([]uint64, len(indexes))
		for i, n := range indexes {
			ask[i] = uint64(n)
		}
		nodes, err := b.db.TreeNodes(ctx, shard, ask)
		out := make([]tlog.Hash, len(nodes))
		for i, h := range nodes {
			out[i] = h
		}
		return out, err
	})
	return timed(lookups, fmt.Sprintf("inclusion proof in a tree of %d", cp.Size), func() error {
		_, err := evidence.InclusionProof(read, int64(cp.Size), 1+rand.Uint64N(cp.Size))
		return err
	})
}

// timed runs f n times, a few times more to warm up.
func timed(n int, what string, f func() error) (auditResult, error) {
	var took []time.Duration
	for i := range n + n/10 {
		start := time.Now()
		if err := f(); err != nil {
			return auditResult{}, fmt.Errorf("%s: %w", what, err)
		}
		if i >= n/10 {
			took = append(took, time.Since(start))
		}
	}
	slices.Sort(took)
	return auditResult{What: what, Count: n, P50: micros(took[n/2]), P99: micros(took[n*99/100])}, nil
}
