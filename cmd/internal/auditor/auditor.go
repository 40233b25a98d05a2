// Package auditor is the shell around the evidence core: it reads the log in
// order, makes one record of every message and stores it in ClickHouse, keeps
// the Merkle tree and signs checkpoints.
//
// Its position is what ClickHouse holds. One insert is in flight; when nobody
// knows whether it landed, the rows are read back before anything else is
// written; rows that differ mean another writer, and this one steps down.
package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/keys"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// Flags configure the service.
type Flags struct {
	daemon.Flags
	ClickHouse      string        `name:"clickhouse" help:"ClickHouse DSN of the database's owner." env:"COUNTERSIGN_CLICKHOUSE" placeholder:"DSN" required:""`
	Batch           int           `help:"Records of one insert at most." env:"COUNTERSIGN_AUDIT_BATCH" default:"4000"`
	CheckpointEvery time.Duration `help:"Sign a checkpoint this often while records come in." env:"COUNTERSIGN_CHECKPOINT_EVERY" default:"1s"`
}

// Main is the service's main function; it returns the exit code.
func Main(args []string) int {
	var f Flags
	return daemon.Main("auditor", "Writes redacted, tamper-evident evidence to ClickHouse.", args, &f, &f.Flags,
		func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// auditor owns the chain, the tree and the position; one goroutine uses it.
type auditor struct {
	flags   Flags
	env     daemon.Env
	nc      *nats.Conn
	js      jetstream.JetStream
	release func() // the connection
	db      *storage.DB
	signer  note.Signer
	master  digest.Master

	shard   string
	builder *evidence.Builder
	chain   *evidence.Chain
	tree    *evidence.Tree
	keys    *sessionKeys
	quarant *quarantine

	redaction *redactionPolicies

	signed   int64 // tree size of the last checkpoint
	signedAt time.Time
	ready    bool
}

// Run audits the shard until ctx ends or another auditor takes over. It outlives
// a NATS server and a ClickHouse that go away and come back.
func Run(ctx context.Context, f Flags, env daemon.Env) error {
	if f.Batch < 1 || f.Batch > storage.MaxBatchRows || f.CheckpointEvery <= 0 {
		return fmt.Errorf("--batch must be 1 to %d and --checkpoint-every above zero", storage.MaxBatchRows)
	}
	a, err := open(ctx, f, env)
	if err != nil {
		return err
	}
	defer a.close()
	l, err := f.Lead(ctx, a.js, "auditor", env, a.standby)
	if err != nil {
		return err
	}
	defer l.Release()
	return daemon.Lost(l, a.work(l.Context()))
}

// standby says that this auditor is ready to take over.
func (a *auditor) standby() error {
	a.ready = true
	return a.env.Ready()
}

// work audits the shard for as long as this auditor is the active one.
func (a *auditor) work(ctx context.Context) error {
	if err := a.restore(ctx); err != nil {
		return err
	}
	return streams.ReadLog(ctx, a.js, streams.ReadOptions{
		Stream: a.flags.Stream, From: uint64(a.tree.Size()) + 1, MaxBatch: a.flags.Batch, Log: a.env.Log,
		Idle: func() error { return a.idle(ctx) }, IdleEvery: a.flags.CheckpointEvery,
	}, func(batch []events.LogMessage) error { return a.audit(ctx, batch) })
}

// open reads the keys and connects. The caller closes what it returns.
func open(ctx context.Context, f Flags, env daemon.Env) (a *auditor, err error) {
	a = &auditor{flags: f, env: env, release: func() {}}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if a.master, err = keys.Master(f.Keys); err != nil {
		return a, err
	}
	if a.signer, _, err = keys.Checkpoint(f.Keys); err != nil {
		return a, err
	}
	if a.db, err = storage.Open(ctx, f.ClickHouse); err != nil {
		return a, err
	}
	if err = a.db.Migrate(ctx); err != nil {
		return a, err
	}
	nc, release, err := f.Connect(ctx, "auditor", env, nil)
	if err != nil {
		return a, err
	}
	a.nc, a.release = nc, release
	a.js, err = jetstream.New(a.nc)
	return a, err
}

func (a *auditor) close() {
	a.release()
	if a.db != nil {
		_ = a.db.Close()
	}
}

// idle is called when everything in the log is audited, and every now and then
// while nothing comes: the last records get their checkpoint.
func (a *auditor) idle(ctx context.Context) error {
	if err := a.checkpoint(ctx, true); err != nil {
		return err
	}
	if a.ready {
		return nil
	}
	a.ready = true
	return a.env.Ready()
}

// audit makes the records of one batch and stores them: tree first, evidence
// second, so that every stored record has its place in the stored tree.
func (a *auditor) audit(ctx context.Context, msgs []events.LogMessage) error {
	if err := a.retry(ctx, "redaction policies", func() error { return a.loadRedaction(ctx) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "heads", func() error { return a.loadHeads(ctx, msgs) }); err != nil {
		return err
	}
	built, err := a.build(ctx, msgs)
	if err != nil {
		return err
	}
	tree := a.tree.Clone()
	rows := make([]storage.EvidenceRow, len(built))
	var nodes []storage.TreeNode
	for i, b := range built {
		rows[i] = row(b)
		for _, n := range tree.Append(b.Hash) {
			nodes = append(nodes, storage.TreeNode{Index: uint64(n.Index), Hash: n.Hash})
		}
	}
	if err := a.retry(ctx, "quarantine", func() error { return a.quarant.put(ctx, msgs, built) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "findings", func() error { return a.raise(ctx, msgs, built) }); err != nil {
		return err
	}
	if err := a.store(ctx, rows, nodes); err != nil {
		a.chain.Rollback()
		return err
	}
	a.chain.Commit()
	a.tree = tree
	return a.checkpoint(ctx, false)
}

// build makes the records. It waits for session keys that cannot be had now;
// any other error is final.
func (a *auditor) build(ctx context.Context, msgs []events.LogMessage) (built []evidence.Built, err error) {
	a.keys.begin(ctx)
	var final error
	err = a.retry(ctx, "session keys", func() error {
		built, final = a.builder.BuildBatch(a.chain, msgs, a.keys)
		if errors.Is(final, errNoBucket) {
			return final
		}
		return nil
	})
	return built, errors.Join(err, final)
}

// loadHeads fetches the heads of the sessions in a batch with one query.
func (a *auditor) loadHeads(ctx context.Context, msgs []events.LogMessage) error {
	scopes := make([]evidence.SessionKey, len(msgs))
	for i, m := range msgs {
		scopes[i] = a.builder.Scope(m)
	}
	missing := a.chain.Missing(scopes)
	if len(missing) == 0 {
		return nil
	}
	ask := make([]storage.SessionKey, len(missing))
	for i, k := range missing {
		ask[i] = storage.SessionKey(k)
	}
	heads, err := a.db.SessionHeads(ctx, a.shard, ask)
	if err != nil {
		return fmt.Errorf("reading the heads of %d sessions: %w", len(ask), err)
	}
	for _, k := range missing {
		h := heads[storage.SessionKey(k)]
		a.chain.Put(k, evidence.Head(h))
	}
	return nil
}

func row(b evidence.Built) storage.EvidenceRow {
	r := b.Row()
	return storage.EvidenceRow{
		Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject, BrokerTime: r.BrokerTime,
		BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash, SessionIndex: b.Record.SessionIndex,
	}
}
