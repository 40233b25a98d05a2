// Package auditor is the shell around the evidence core: it reads the log in
// order, makes one record of every message and stores it in ClickHouse, keeps
// the Merkle tree and signs checkpoints.
//
// Its position is what ClickHouse holds. One insert is in flight, and while it is
// the records of the next batch are made; when nobody knows whether it landed, the
// rows are read back before anything else is written; rows that differ mean
// another writer, and this one steps down.
package auditor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/keys"
	"github.com/countersign-dev/countersign/cmd/internal/metrics"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// DefaultBatch is the default of Flags.Batch.
const DefaultBatch = 25_000

// maxBatchBytes bounds the bodies of one batch; about as many as the server sends
// ahead.
const maxBatchBytes = 24 << 20

// Flags configure the service.
type Flags struct {
	daemon.Flags
	ClickHouse      string        `name:"clickhouse" help:"ClickHouse DSN of the database's owner." env:"COUNTERSIGN_CLICKHOUSE" placeholder:"DSN" required:""`
	Batch           int           `help:"Records of one insert at most." env:"COUNTERSIGN_AUDIT_BATCH" default:"25000"`
	CheckpointEvery time.Duration `help:"Sign a checkpoint this often while records come in." env:"COUNTERSIGN_CHECKPOINT_EVERY" default:"1s"`

	CustodianUser     string `help:"NATS user that carries out erasures (none: nothing is erased here)." env:"COUNTERSIGN_CUSTODIAN_USER"`
	CustodianPassword string `help:"Its password (set it in the environment)." env:"COUNTERSIGN_CUSTODIAN_PASSWORD"`
	CustodianCreds    string `help:"Its NATS credentials file, instead of user and password." env:"COUNTERSIGN_CUSTODIAN_CREDS" placeholder:"FILE"`
}

// Main is the service's main function; it returns the exit code.
func Main(args []string) int {
	var f Flags
	return daemon.Main("auditor", "Writes redacted, tamper-evident evidence to ClickHouse.", args, &f, &f.Flags,
		func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// auditor owns the chain, the tree and the position. One goroutine makes records
// (audit, idle); what is below "stored" belongs to the batch in flight until it
// has landed.
type auditor struct {
	flags   Flags
	env     daemon.Env
	nc      *nats.Conn
	js      jetstream.JetStream
	release func() // the connection
	metrics *metrics.Auditor
	db      *storage.DB
	signer  note.Signer
	public  string // of signer
	master  digest.Master

	shard   string
	builder *evidence.Builder
	chain   *evidence.Chain
	tree    *evidence.Tree // of the records that were made
	keys    *sessionKeys
	quarant *quarantine

	redaction *redactionPolicies
	classes   *retentionClasses
	flying    *flight   // nil when nothing is in flight
	launched  time.Time // the last one
	troubles  troubles
	ready     bool

	stored   *evidence.Tree // of the records that are stored
	signed   int64          // tree size of the last checkpoint
	signedAt time.Time
}

// gcPercent trades memory for time: a record makes much garbage, and what is kept
// is two batches. GOGC in the environment wins.
const gcPercent = 200

// Run audits the shard until ctx ends or another auditor takes over. It outlives
// a NATS server and a ClickHouse that go away and come back.
func Run(ctx context.Context, f Flags, env daemon.Env) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
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
	ctx, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { a.keep(ctx) })
	defer func() {
		stop()
		_ = a.land() // nothing may use the connections any more
		beside.Wait()
	}()
	return streams.ReadLog(ctx, a.js, streams.ReadOptions{
		Stream: a.flags.Stream, From: uint64(a.tree.Size()) + 1, MaxBatch: a.flags.Batch, MaxBytes: maxBatchBytes, Log: a.env.Log,
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
	if a.signer, a.public, err = keys.Checkpoint(f.Keys); err != nil {
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
	if err := a.land(); err != nil {
		return err
	}
	if err := a.checkpoint(ctx, true); err != nil {
		return err
	}
	if a.ready {
		return a.pause(ctx)
	}
	a.ready = true
	return a.env.Ready()
}

// maxPace is how long a record waits at most for others to be stored with. An
// insert costs ClickHouse tens of milliseconds of processor time whatever its
// size, and a log that moves all the time would have one follow the other.
const maxPace = 200 * time.Millisecond

// pause lets the next batch gather, once this one is stored. It is counted from
// when that began, so a record that comes after a silence does not wait.
func (a *auditor) pause(ctx context.Context) error {
	wait := min(maxPace, a.flags.CheckpointEvery) - time.Since(a.launched)
	if wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return nil
}

// audit makes the records of one batch and has them stored while the next batch
// is made. What comes of storing them the next call of audit, idle or land says.
func (a *auditor) audit(ctx context.Context, msgs []events.LogMessage) error {
	if err := a.retry(ctx, "redaction policies", func() error { return a.loadRedaction(ctx) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "retention policies", func() error { return a.loadClasses(ctx) }); err != nil {
		return err
	}
	b, err := a.prepare(ctx, msgs)
	if err != nil {
		return err
	}
	if err := a.retry(ctx, "quarantine", func() error { return a.quarant.put(ctx, msgs, b.built) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "findings", func() error { return a.raise(ctx, msgs, b.built) }); err != nil {
		return err
	}
	if err := a.land(); err != nil {
		return err
	}
	a.chain.Commit()
	a.tree = b.tree
	a.launched = time.Now()
	a.launch(ctx, b)
	return nil
}

// prepare makes the records of a batch and the tree with them.
func (a *auditor) prepare(ctx context.Context, msgs []events.LogMessage) (*batch, error) {
	if err := a.retry(ctx, "heads", func() error { return a.loadHeads(ctx, msgs) }); err != nil {
		return nil, err
	}
	built, err := a.build(ctx, msgs)
	if err != nil {
		return nil, err
	}
	b := &batch{
		built: built, before: uint64(a.tree.Size()), tree: a.tree.Clone(),
		rows: make([]storage.EvidenceRow, len(built)), nodes: make([]storage.TreeNode, 0, 2*len(built)+64),
	}
	for i := range built {
		b.rows[i] = row(built[i])
		for _, n := range b.tree.Append(built[i].Hash) {
			b.nodes = append(b.nodes, storage.TreeNode{Index: uint64(n.Index), Hash: n.Hash})
		}
	}
	return b, nil
}

// build makes the records. It waits for session keys that cannot be had now;
// any other error is final.
func (a *auditor) build(ctx context.Context, msgs []events.LogMessage) (built []evidence.Built, err error) {
	a.keys.begin(ctx)
	var final error
	err = a.retry(ctx, "session keys", func() error {
		built, final = a.builder.BuildParts(a.chain, msgs, a.keys, parts(len(msgs)), together)
		if errors.Is(final, errNoBucket) {
			return final
		}
		return nil
	})
	return built, errors.Join(err, final)
}

// partSize is how many records are worth a goroutine.
const partSize = 64

// parts is in how many parts a batch of n messages is built. There are more than
// processors because some wait for keys.
func parts(n int) int { return min(n/partSize, 2*runtime.GOMAXPROCS(0)) + 1 }

// together runs the parts of a batch at the same time.
func together(parts []func()) {
	var all sync.WaitGroup
	for _, p := range parts[1:] {
		all.Go(p)
	}
	parts[0]()
	all.Wait()
}

// loadHeads fetches the heads of the sessions in a batch with one query. Those of
// the batch in flight, of which the store may not know yet, the chain still holds:
// it forgets heads only when the next batch is committed to it.
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
