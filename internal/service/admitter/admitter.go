// Package admitter is the shell around the admission core: a NATS micro service
// that answers admission requests. A verdict goes out only after the server has
// durably acknowledged the request and the decision, in that order.
package admitter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/ingest"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/rollout"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// ServiceName is what `nats micro ls` shows.
const ServiceName = "admitter"

// About says what the service is for.
const About = "Answers admission requests with verdicts that have durable evidence."

// Flags configure the service.
type Flags struct {
	daemon.Flags
	MaxInflight int           `help:"Admissions worked on at the same time; more are answered deny." env:"COUNTERSIGN_MAX_INFLIGHT" default:"2048"`
	Timeout     time.Duration `help:"How long the durable record of a decision may take before the answer is deny." env:"COUNTERSIGN_RECORD_TIMEOUT" default:"4s"`
	Replicated  bool          `name:"accept-replicated" help:"Assert that the servers of the cluster have separate power, so that replicas which are not synced are durable. Without it such a cluster is unhealthy." env:"COUNTERSIGN_ACCEPT_REPLICATED"`
	MemoryLimit int64         `help:"How much memory this admitter may use, in MiB. What could need more is answered deny." env:"COUNTERSIGN_MEMORY_LIMIT" default:"2048"`
	IngestFlags
	Repliers []string `name:"confirmation-repliers" help:"Publishers whose replies to AAEP confirmations count, for every publisher of their tenant. Without any, a publisher's own replies count." env:"COUNTERSIGN_CONFIRMATION_REPLIERS"`
}

// Main is the service's main function; it returns the exit code.
func Main(args []string) int {
	var f Flags
	return daemon.Main(ServiceName, About, args, &f, &f.Flags,
		func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// service answers requests until its context ends.
type service struct {
	flags        Flags
	env          daemon.Env
	space        subject.Space
	signer       atomic.Pointer[signer]
	master       digest.Master
	sessions     *sessionsecrets.Store
	cachedSecret sessionSecretFunc // of sessions
	committer    *streams.Committer
	snapshot     atomic.Pointer[admission.Snapshot]
	durability   atomic.Value // string
	calls        *occurrenceTracker
	metrics      *metrics.Admitter
	stores       []stateStore
	rates        *rateStore // one of parts
	admissions   *ingest.Meter
	memory       *memoryBudget
	progress     *changeProgress
	slots        *shares // of admissions worked on at the same time
	jobs         chan job
	serving      atomic.Bool

	keyMu   sync.Mutex           // one change of keys at a time
	retired map[string]time.Time // retirements that are in the log, and in which incarnation of it
	fatal   chan error           // why this admitter must not go on

	mu       sync.Mutex // guards stopping, and inflight against being waited for too early
	stopping bool
	inflight sync.WaitGroup
}

// newService makes a service that is not connected yet.
func newService(f Flags, env daemon.Env) (s *service, err error) {
	if f.MaxInflight < 1 || f.Timeout <= 0 {
		return nil, errors.New("--max-inflight must be at least 1 and --timeout above zero")
	}
	if err := f.IngestFlags.checkLimits(); err != nil {
		return nil, err
	}
	s = &service{flags: f, env: env, space: f.Space(), calls: newOccurrenceTracker(maxTrackedCalls), progress: newProgress(), slots: newShares(int64(f.MaxInflight)), jobs: make(chan job),
		retired: map[string]time.Time{}, fatal: make(chan error, 1)}
	if s.memory, err = newMemoryBudget(f.MemoryLimit); err != nil {
		return nil, err
	}
	if _, err = keys.Receipt(f.Keys); err != nil {
		return nil, err
	}
	s.metrics = env.Metrics.Admitter(f.MaxInflight, func() int { return int(s.slots.held()) })
	s.rates = newRateStore(s)
	s.admissions = ingest.NewMeter(f.admissionQuotas())
	s.master, err = keys.Master(f.Keys)
	return s, err
}

// gcPercent trades memory, of which an admitter needs little, for time: a
// decision makes much garbage and keeps nothing. GOGC in the environment wins.
const gcPercent = 400

// Run serves until ctx ends; then it answers what it has begun and returns.
// While the server is away nobody can ask; when it is back, so is the admitter.
func Run(ctx context.Context, f Flags, env daemon.Env) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	s, err := newService(f, env)
	if err != nil {
		return err
	}
	s.memory.setGCLimit()
	nc, release, err := f.Connect(ctx, ServiceName, env, func(nc *nats.Conn) { s.handleReconnect(ctx, nc) })
	if err != nil {
		return err
	}
	defer release()
	stop, err := s.startDependencies(ctx, nc)
	if err != nil {
		return err
	}
	defer stop()
	stopIngest, err := s.takeEvents(ctx, nc)
	if err != nil {
		return err
	}
	defer stopIngest()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	down := make(chan bool, 1)
	go f.WatchJetStream(watching, nc, env, func(now bool) {
		select {
		case down <- now:
		case <-watching.Done():
		}
	})
	return s.serveRequests(ctx, down)
}

// serveRequests takes requests until ctx ends or this admitter must not go on; then it
// answers what it has begun. While JetStream cannot be reached it leaves the queue
// group: it could record nothing, and other admitters, or the server's word that
// there is none, answer at once.
func (s *service) serveRequests(ctx context.Context, down <-chan bool) error {
	e, err := s.joinQueue(ctx)
	if err != nil {
		return err
	}
	defer func() {
		s.drainRequests(e.conn)
		e.release()
	}()
	s.serving.Store(true)
	if err := s.env.Ready(); err != nil {
		return errors.Join(err, e.stop())
	}
	again := time.NewTicker(recordRetry)
	defer again.Stop()
	for away := false; ; {
		select {
		case <-ctx.Done():
			return e.stop()
		case err := <-s.fatal:
			return errors.Join(err, e.stop())
		case away = <-down:
		case <-again.C:
		}
		switch {
		case away && e.service != nil:
			s.env.Log.Warn().Msg("requests are left to other admitters until JetStream can be reached")
			if err := e.stop(); err != nil {
				return err
			}
		case !away && e.service == nil:
			next, err := s.joinQueue(ctx)
			if err != nil {
				s.env.Log.Warn().Err(err).Msg("requests cannot be taken yet")
				continue
			}
			_ = e.conn.FlushTimeout(flushTimeout)
			e.release()
			e = next
			s.env.Log.Info().Msg("taking requests again")
		}
	}
}

// queueMember is one membership in the queue group of admitters. It has a connection
// of its own, for requests and answers: nothing that the log has to say stands in
// their way, and when the connection is closed the server has certainly forgotten
// its subscriptions. That does not hold for a subscription that is drained while the
// connection is lost: nats.go subscribes it again and then forgets it, and half of
// the requests go where no one answers (TestSubscriptionsEndWithTheirConnection).
type queueMember struct {
	conn    *nats.Conn
	release func()        // closes conn
	service micro.Service // nil once it has left the queue group
}

func (s *service) joinQueue(ctx context.Context) (e queueMember, err error) {
	if e.conn, e.release, err = s.flags.Connect(ctx, ServiceName+" requests", s.env, nil); err != nil {
		return queueMember{}, err
	}
	if e.service, err = s.registerService(ctx, e.conn); err != nil {
		e.release()
		return queueMember{}, err
	}
	return e, nil
}

// stop leaves the queue group. What has arrived is answered.
func (e *queueMember) stop() error {
	if e.service == nil {
		return nil
	}
	stopped := e.service
	e.service = nil
	return stopped.Stop()
}

// startDependencies reads what decisions depend on and follows it. stop, which is not nil
// without an error, ends that and the committer.
func (s *service) startDependencies(ctx context.Context, nc *nats.Conn) (stop func(), err error) {
	var stops []func()
	stopAll := func() {
		for _, f := range slices.Backward(stops) {
			f()
		}
	}
	defer func() {
		if err != nil {
			stopAll()
		}
	}()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	if err := s.checkDurability(ctx, nc); err != nil {
		return nil, err
	}
	options := streams.CommitterOptions{Stream: s.flags.Stream, Sign: s.signBatch}
	if s.prefersSingles() {
		options.BatchAbove = streams.NeverBatch
	}
	if s.committer, err = streams.NewCommitter(nc, options); err != nil {
		return nil, err
	}
	stops = append(stops, s.committer.Close)
	s.progress.conn = nc
	// Before anything is read: a command that changes it then waits for this process.
	stopAnswering, err := rollout.Announce(ctx, nc, js, s.progress.rolloutState)
	if err != nil {
		return nil, err
	}
	stops = append(stops, stopAnswering)
	if err := s.publishKey(ctx, js); err != nil {
		return nil, err
	}
	stops = append(stops, s.followKey(ctx, js))
	stopRetired, err := s.followRetired(ctx, nc, js)
	if err != nil {
		return nil, err
	}
	stops = append(stops, stopRetired)
	stopPolicies, err := newPolicyStore(s).start(ctx, nc, js)
	if err != nil {
		return nil, err
	}
	stops = append(stops, stopPolicies)
	if err := s.followCalls(nc); err != nil {
		return nil, err
	}
	if err := s.openSessionSecrets(ctx, nc, js); err != nil {
		return nil, err
	}
	stopParts, err := s.startStores(ctx, nc, js)
	if err != nil {
		return nil, err
	}
	stops = append(stops, stopParts)
	return stopAll, nil
}

// prefersSingles reports whether an acknowledgement does not wait for the disk, so that a
// batch is slower than its messages by themselves. The class at the start decides:
// a batch is right in every class.
func (s *service) prefersSingles() bool {
	class := s.durability.Load()
	return class == string(streams.ClassInterval) || class == string(streams.ClassMemory)
}

// handleReconnect looks again at what a server that came back may have changed. It
// tries until it has: a server that lost everything answers before its buckets are
// there again (TestAReplacedLogGetsTheKeyAgain).
func (s *service) handleReconnect(ctx context.Context, nc *nats.Conn) {
	if !s.serving.Load() {
		return // Run looks itself
	}
	s.sessions.ForgetAll() // nobody told of erasures meanwhile
	for wait := recheckMin; ; wait = min(2*wait, recheckMax) {
		err := s.recheckServer(ctx, nc)
		if err == nil || ctx.Err() != nil || !nc.IsConnected() {
			return
		}
		s.env.Log.Error().Err(err).Dur("retry_in", wait).Msg("after reconnecting")
		s.env.Health.Set("durability", err.Error())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Pauses between two looks at a server that came back.
const (
	recheckMin = 200 * time.Millisecond
	recheckMax = time.Second
)

func (s *service) recheckServer(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	keyErr := s.publishKey(ctx, js)
	s.reportKeyError(keyErr)
	return errors.Join(s.checkDurability(ctx, nc), keyErr)
}

// drainRequests answers what has been begun and what had arrived when the service was
// stopped; what has not begun by then is denied.
func (s *service) drainRequests(asked *nats.Conn) {
	_ = asked.FlushTimeout(flushTimeout) // the server sends nothing new after this
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	// Nothing tells when a subscription that is drained has handed over its last
	// message; it is then one of the connection's no more.
	for begun := time.Now(); asked.NumSubscriptions() > 0 && time.Since(begun) < flushTimeout; {
		time.Sleep(drainPoll)
	}
	s.inflight.Wait()
	_ = asked.FlushTimeout(flushTimeout)
}

const drainPoll = 2 * time.Millisecond

const flushTimeout = 5 * time.Second

// checkDurability reads how durable an acknowledgement of the running server
// is, at the start and whenever a server is connected to again. It goes into
// every decision. What can be lost by a power failure is reported as unhealthy
// (streams.Class.Problem).
func (s *service) checkDurability(ctx context.Context, nc *nats.Conn) error {
	class, detail, err := streams.Durability(ctx, nc, s.flags.Stream)
	if err != nil {
		return fmt.Errorf("reading the durability class: %w", err)
	}
	s.durability.Store(string(class))
	s.env.Log.Info().Str("durability", string(class)).Str("detail", detail).Bool("accept_replicated", s.flags.Replicated).Msg("an acknowledged record is this durable")
	problem := class.LossRisk(detail, s.flags.Replicated)
	if problem != "" {
		problem = "an acknowledged record can be lost: " + problem
	}
	s.env.Health.Set("durability", problem)
	return nil
}
