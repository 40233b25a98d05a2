// Package auditor is the shell around the evidence core (package evidence): it reads the log in
// order, makes one record of every message, stores the records in ClickHouse, maintains the
// Merkle tree and signs checkpoints. The active auditor also carries out erasures and retention
// policies (custodian) and stores the signatures of witnesses (cosignatures).
//
// Its position is what ClickHouse holds. One insert is in flight; the records of the next batch
// are made meanwhile. When the result of an insert is unknown, the rows are read back before
// anything else is written. Rows that differ mean another writer, and this auditor stops. Begin
// with Run and auditShard, then batch.go, records.go and store.go.
package auditor

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/schema"
	"github.com/countersign-dev/countersign/storage/write"
	"github.com/countersign-dev/countersign/streams"
)

// DefaultBatch is the default of Flags.Batch.
const DefaultBatch = 25_000

// About says what the service is for.
const About = "Writes redacted, tamper-evident evidence to ClickHouse."

// Flags configure the service.
type Flags struct {
	daemon.Flags
	ClickHouse      string        `name:"clickhouse" help:"ClickHouse DSN of the database's owner (better in COUNTERSIGN_CLICKHOUSE than on the command line)." env:"COUNTERSIGN_CLICKHOUSE" placeholder:"DSN" required:""`
	Batch           int           `help:"Records of one insert at most." env:"COUNTERSIGN_AUDIT_BATCH" default:"25000"`
	CheckpointEvery time.Duration `help:"Sign a checkpoint this often while records come in." env:"COUNTERSIGN_CHECKPOINT_EVERY" default:"2s"`

	CustodianUser     string `help:"NATS user that carries out erasures (none: nothing is erased here)." env:"COUNTERSIGN_CUSTODIAN_USER"`
	CustodianPassword string `help:"Its password (set it in the environment)." env:"COUNTERSIGN_CUSTODIAN_PASSWORD"`
	CustodianCreds    string `help:"Its NATS credentials file, instead of user and password." env:"COUNTERSIGN_CUSTODIAN_CREDS" placeholder:"FILE"`

	RetentionAhead time.Duration `help:"Apply retention policies as if it were so much later: to see on a test deployment what a policy does. What it erases is gone." env:"COUNTERSIGN_RETENTION_AHEAD" default:"0s"`
	ClocksChecked  time.Time     `help:"When a person found the clocks right, e.g. 2026-11-27T03:15:00Z. For a day from then policies do not wait because the clocks leapt." env:"COUNTERSIGN_CLOCKS_CHECKED" placeholder:"TIME"`
}

// Main is the service's main function; it returns the exit code.
func Main(args []string) int {
	var f Flags
	return daemon.Main("auditor", About, args, &f, &f.Flags,
		func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// auditor audits one shard. One goroutine makes records (auditBatch, handleIdle). A second one stores the
// batch in flight; store, checkpoints and intents belong to it until the batch is stored.
type auditor struct {
	shardAccess
	flags   Flags
	release func() // closes the connection
	master  digest.Master
	secrets *sessionSecrets
	ready   bool

	maxText int             // most bytes of the records of one batch
	pending pendingMessages // messages without records yet
	tree    *tree.Tree      // with all records made so far
	signed  signedRoots     // that it has to reach
	erased  *erasures.Log

	redaction   *redactionPolicies
	classes     *retentionClasses
	records     *recordMaker
	quarantine  *quarantine
	findings    *ownFindings
	intents     *intents
	store       *batchStore
	checkpoints *checkpointer
}

// gcPercent trades memory for time: records produce much garbage, and only two batches are kept.
// GOGC in the environment takes precedence.
const gcPercent = 200

// Run audits the shard until ctx ends or another auditor takes over. It survives restarts of
// ClickHouse. If NATS is away for longer than the lease lasts, it ends with daemon.ErrFenced,
// because another auditor may have taken over.
func Run(ctx context.Context, f Flags, env daemon.Env) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if f.Batch < 1 || f.Batch > write.MaxBatchRows || f.CheckpointEvery <= 0 {
		return fmt.Errorf("--batch must be 1 to %d and --checkpoint-every above zero", write.MaxBatchRows)
	}
	a, err := openAuditor(ctx, f, env)
	if err != nil {
		return err
	}
	defer a.close()
	defer f.WatchJetStream(ctx, a.nc, env, nil)()
	a.counters() // at 0 while it stands by: a series that begins with its first finding shows no increase
	l, err := f.HoldLease(ctx, a.js, "auditor", env, a.reportStandby)
	if err != nil {
		return err
	}
	defer l.Release()
	return daemon.LeaseError(l, a.auditShard(l.Context()))
}

// reportStandby reports that this auditor is ready to take over.
func (a *auditor) reportStandby() error {
	a.ready = true
	return a.env.Ready()
}

// auditShard audits the shard while this auditor is the active one.
func (a *auditor) auditShard(ctx context.Context) error {
	if err := a.restorePosition(ctx); err != nil {
		return err
	}
	a.env.Begun()
	if err := a.once("reading the newest sessions", func() error { return a.rereadSessions(ctx) }); err != nil {
		return err
	}
	present, err := micro.AddService(a.nc, micro.Config{ // not before: an auditor that refuses to go on makes no evidence
		Name: "auditor", Version: buildinfo.SemVer(), Description: "Countersign evidence: one record of every message",
		Metadata: map[string]string{"shard": a.stream},
	})
	if err != nil {
		return fmt.Errorf("registering the micro service: %w", err)
	}
	defer func() { _ = present.Stop() }()
	ctx, stop := context.WithCancel(ctx)
	stored := uint64(a.tree.Size())
	var beside sync.WaitGroup
	beside.Go(func() { a.custodianRunner().run(ctx) })
	beside.Go(func() { (&cosignatures{shardAccess: a.shardAccess, checkpoints: a.checkpoints}).run(ctx) })
	beside.Go(func() { _ = a.checkpoints.restore(ctx, 0, stored); a.repairContents(ctx, stored) })
	defer func() {
		stop()
		_ = a.store.await() // nothing may use the connections after this
		beside.Wait()
	}()
	return streams.ReadLog(ctx, a.js, streams.ReadOptions{
		Stream: a.stream, From: uint64(a.tree.Size()) + 1, MaxBatch: a.flags.Batch, MaxBytes: maxReadBytes, Log: a.env.Log, Stalled: a.env.Metrics.ReaderStalled,
		Idle: func() error { return a.handleIdle(ctx) }, IdleEvery: a.flags.CheckpointEvery,
		Gap: func(from, to uint64) error { return a.explainGap(ctx, from, to) },
	}, func(msgs []events.LogMessage) error { return a.collectMessages(ctx, msgs) })
}

// explainGap returns why messages are missing that have no evidence. If they were erased, the log is whole, and
// ClickHouse has lost what it had.
func (a *auditor) explainGap(ctx context.Context, from, to uint64) error {
	if err := a.erased.Explain(ctx, from, to); err != nil {
		return err
	}
	return fmt.Errorf("%w (sequences %d to %d): ClickHouse lost its data, or is older than the erasure. Restore the newest backup of it, else begin a new log", ErrErased, from, to)
}

func (a *auditor) custodianRunner() *custodianRunner {
	return &custodianRunner{shardAccess: a.shardAccess, flags: a.flags, builder: a.records.builder, keys: a.records.keys, master: a.master}
}

// openAuditor reads the keys and connects. The caller closes the result.
func openAuditor(ctx context.Context, f Flags, env daemon.Env) (a *auditor, err error) {
	a = &auditor{flags: f, maxText: maxTextBytes, release: func() {}, shardAccess: shardAccess{env: env, retrier: &retrier{env: env}, stream: f.Stream, space: f.Space()}}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if a.master, err = keys.Master(f.Keys); err != nil {
		return a, err
	}
	if a.signer, a.verifierKey, err = keys.Checkpoint(f.Keys); err != nil {
		return a, err
	}
	err = a.once("opening the database", func() (err error) {
		if a.db, err = read.Open(ctx, f.ClickHouse); err == nil {
			err = schema.Migrate(ctx, a.db.Pool())
		}
		return err
	})
	if err != nil {
		return a, err
	}
	a.writer = write.New(a.db.Pool())
	nc, release, err := f.Connect(ctx, "auditor", env, nil)
	if err != nil {
		return a, err
	}
	a.nc, a.release = nc, release
	if a.js, err = jetstream.New(a.nc); err != nil {
		return a, err
	}
	a.secrets, err = newSessionSecrets(ctx, a.js, a.master, env)
	return a, err
}

func (a *auditor) close() {
	a.release()
	if a.db != nil {
		_ = a.db.Close()
	}
}
