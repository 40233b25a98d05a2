package audit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/bench/spending"
	"github.com/countersign-dev/countersign/storage"
)

// size measures the evidence tables on disk, derived ones and proofs included.
func (b *auditBench) size(ctx context.Context) (measure.Result, error) {
	var disk, records uint64
	err := b.conn.QueryRow(ctx, `SELECT sum(bytes_on_disk), sumIf(rows, table = 'evidence') FROM system.parts
		WHERE active AND database = currentDatabase() AND table NOT LIKE 'bench%' AND table != 'schema_versions'`).Scan(&disk, &records)
	return measure.Result{What: "on disk, derived tables and proofs included", Count: int(records), Bytes: float64(disk) / float64(max(1, records))}, err
}

// lookups is how many times a look-up is measured.
const lookups = 300

// chains reads the evidence of one session of the log.
func (b *auditBench) chains(ctx context.Context) (measure.Result, error) {
	sessions := b.messages / messagesPerCall / callsPerSession
	return b.chainsOf(ctx, func() string { return sampleSession(rand.IntN(sessions)) })
}

// chainsOf reads the evidence of one session at a time.
func (b *auditBench) chainsOf(ctx context.Context, session func() string) (measure.Result, error) {
	return b.timed(lookups, "evidence of one session", func() error {
		n := 0
		err := b.db.Chain(ctx, b.t.Tenant, session(), func(storage.EvidenceRow) error { n++; return nil })
		if err == nil && n == 0 {
			err = errors.New("a session has no evidence")
		}
		return err
	})
}

// proofs makes inclusion proofs in the log's own tree.
func (b *auditBench) proofs(ctx context.Context) (measure.Result, error) {
	shards, err := b.db.Shards(ctx)
	if err != nil {
		return measure.Result{}, err
	}
	shard := shards[len(shards)-1]
	cp, err := b.db.LatestCheckpoint(ctx, shard)
	if err != nil {
		return measure.Result{}, err
	}
	return b.proofsOf(ctx, shard, int64(cp.Size))
}

// proofsOf makes proofs of random records on a connection that has been used before. No part of the tree is
// cached between them.
func (b *auditBench) proofsOf(ctx context.Context, shard string, size int64) (measure.Result, error) {
	read := b.hashes(ctx, shard)
	return b.timed(lookups, fmt.Sprintf("inclusion proof in a tree of %d", size), func() error {
		_, err := tree.InclusionProof(read, size, 1+rand.Uint64N(uint64(size)))
		return err
	})
}

// hashes returns a reader of a shard's tree.
func (b *auditBench) hashes(ctx context.Context, shard string) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
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
}

// timed runs f n times after a warm-up, and tells what ClickHouse spends on it.
func (b *auditBench) timed(n int, what string, f func() error) (measure.Result, error) {
	l, engine, err := timed(n, what, b.t.ReadyInfo().PIDs["clickhouse"], f)
	return measure.Result{What: what, Count: n, P50: l.P50, P99: l.P99, EngineCPU: engine}, err
}

// timed runs f n times after a warm-up. cpu is the processor time of the engine's process for one run, in
// microseconds.
func timed(n int, what string, engine int, f func() error) (l measure.Latency, cpu float64, err error) {
	var took []time.Duration
	var before, sum time.Duration
	for i := range n + n/measure.WarmUp {
		if i == n/measure.WarmUp {
			before = spending.ProcessorTime(engine)
		}
		start := time.Now()
		if err := f(); err != nil {
			return l, 0, fmt.Errorf("%s: %w", what, err)
		}
		if i >= n/measure.WarmUp {
			took = append(took, time.Since(start))
			sum += took[len(took)-1]
		}
	}
	used := spending.ProcessorTime(engine) - before
	return measure.LatencyOf(what, 1, took, sum), measure.Micros(used) / float64(n), nil
}
