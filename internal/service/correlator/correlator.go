// Package correlator is the shell around the correlation core (package correlation): it reads the
// log in order, writes the core's outputs together with its position in one atomic batch, and
// writes ticks so that time passes on an idle shard.
//
// Outputs are written exactly once. The core is deterministic, so every reader of the log
// computes the same outputs. The active instance writes those that the last cursor does not
// cover. A standby computes and keeps them until a cursor covers them; when it becomes active it
// writes the rest. The cursor's subject is the fence: of two instances that both consider
// themselves active only one can write. Begin with Run, then worker.runLoop and write.go.
package correlator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	pages "github.com/countersign-dev/countersign/internal/service/follow"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

// About says what the service is for.
const About = "Links what was admitted with what ran, and finds every broken rule."

// Flags configure the service.
type Flags struct {
	daemon.Flags
	CheckpointKey string        `help:"Public checkpoint key, or a file that holds it, which vouches for the admitter's keys (default: read from checkpoint.pub in --keys)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	MissingAfter  time.Duration `help:"An open call counts as abandoned after this. Change it only when no call is open." env:"COUNTERSIGN_MISSING_AFTER" default:"15m"`
	StateDir      string        `help:"Directory of a snapshot of the state, so that a start does not read the whole log (none when empty)." env:"COUNTERSIGN_STATE" placeholder:"DIR"`
	StateEvery    int           `help:"Write a snapshot after so many messages; of a large state not before 30 times as long has passed as the last one took." env:"COUNTERSIGN_STATE_EVERY" default:"200000"`
	MaxCalls      int           `help:"How many calls are in memory at most (some 3 KB each if open, else 1 KB); beyond it the least recently active session of the largest publisher is forgotten. The same for every instance of a shard." env:"COUNTERSIGN_MAX_CALLS" default:"262144"`
	MaxSessions   int           `help:"How many sessions are in memory at most, in the same way." env:"COUNTERSIGN_MAX_SESSIONS" default:"65536"`
	Shards        []string      `name:"shard" help:"A shard that this process correlates, as STREAM or STREAM=URL; may be given several times. Instead of --stream." env:"COUNTERSIGN_SHARDS" placeholder:"STREAM=URL"`
	NoVerdictOK   bool          `help:"Do not report executions without a request for admission." env:"COUNTERSIGN_NO_VERDICT_OK"`
}

// Main is the service's main function; it returns the exit code.
func Main(args []string) int {
	var f Flags
	return daemon.Main("correlator", About, args, &f, &f.Flags,
		func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// Run correlates the shard until ctx ends or another correlator takes over. A server that is away
// for longer than a lease lasts (lease.DefaultTTL) ends it with daemon.ErrFenced, because another
// one may have taken over. With several shards it runs until ctx ends.
func Run(ctx context.Context, f Flags, env daemon.Env) error {
	if f.MissingAfter <= 0 {
		return errors.New("--missing-after must be above zero")
	}
	if f.StateEvery < saveSome {
		return fmt.Errorf("--state-every must be at least %d", saveSome)
	}
	if f.MaxCalls < 0 || f.MaxSessions < 0 {
		return errors.New("--max-calls and --max-sessions must not be below zero (0 is the default)")
	}
	shards, err := f.shardFlags()
	switch {
	case err != nil:
		return err
	case len(shards) == 1:
		return runShard(ctx, shards[0], env)
	}
	return runShards(ctx, shards, env)
}

// idsPerCall is how many tool call ids are permitted for each call in memory.
const idsPerCall = correlation.DefaultMaxIDs / correlation.DefaultMaxCalls

// WithBounds sets the bounds that --max-calls and --max-sessions stand for.
func WithBounds(o correlation.Options, calls, sessions int) correlation.Options {
	o.MaxCalls, o.MaxIDs, o.MaxSessions = calls, idsPerCall*calls, sessions
	return o
}

func runShard(ctx context.Context, f Flags, env daemon.Env) error {
	master, err := keys.Master(f.Keys)
	if err != nil {
		return err
	}
	voucher, err := keys.CheckpointVerifier(f.Keys, f.CheckpointKey)
	if err != nil {
		return err
	}
	nc, release, err := f.Connect(ctx, "correlator", env, nil)
	if err != nil {
		return err
	}
	defer release()
	present, err := micro.AddService(nc, micro.Config{
		Name: "correlator", Version: buildinfo.SemVer(), Description: "Countersign correlation: what ran against what was admitted",
		Metadata: map[string]string{"shard": f.Stream},
	})
	if err != nil {
		return fmt.Errorf("registering the micro service: %w", err)
	}
	defer func() { _ = present.Stop() }()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	defer f.WatchJetStream(ctx, nc, env, nil)()
	stopOutputs, err := pages.Serve(ctx, js, f.Stream, f.Space(), env.Log)
	if err != nil {
		return err
	}
	defer stopOutputs()
	store, err := sessionsecrets.Open(ctx, js, master)
	if err != nil {
		return err
	}
	store.SubstituteUnopened(env.ReportUnopenedKey)
	sessions := newSessionSecrets(store, env.Log, env.Health)
	options := correlation.Options{
		Shard:          f.Stream,
		Space:          f.Space(),
		TenantKey:      master.Tenant,
		SessionSecret:  sessions.cachedSecret,
		KeyVoucher:     func(k events.KeyRecord) bool { return signing.CheckKeyRecord(note.VerifierList(voucher), k) },
		RetireVoucher:  func(k events.KeyRetirement) bool { return signing.CheckRetirement(note.VerifierList(voucher), k) },
		RequireVerdict: !f.NoVerdictOK,
		MissingAfter:   f.MissingAfter,
	}
	options = WithBounds(options, f.MaxCalls, f.MaxSessions)
	w := newWorker(f, env, nc, js, correlation.New(options))
	w.snapshots = snapshots{stream: f.Stream, dir: f.StateDir, every: uint64(f.StateEvery), key: master.Snapshot(), options: options, context: fmt.Sprintf("%s+%08x", voucher.Name(), voucher.KeyHash())}
	w.keys = sessions
	w.erasure.log.Known = note.VerifierList(voucher)
	env.Begun()
	for {
		if err := w.resumeState(ctx); err != nil {
			return err
		}
		err := w.run(ctx)
		if !errors.Is(err, errErased) || ctx.Err() != nil {
			return err
		}
		env.Log.Info().Err(err).Msg("starting over")
		if err := w.snapshots.drop(); err != nil {
			return err
		}
		w = w.newFromScratch(time.Now())
	}
}
