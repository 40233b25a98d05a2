// Package admitter is the shell around the admission core (package admission): a NATS micro
// service that answers admission requests and reviewers' requests. A verdict goes out only after
// the server has durably acknowledged the request and the decision, in that order.
//
// The package owns connections, goroutines, keys, views of the buckets (policies, mandates,
// spend, approvals, confirmations, publishers) and limits on memory and rates. It does not
// decide: admission does. Begin with Run, then acceptRequest (serve.go) and decide (decide.go); a
// stateStore is one kind of state that decisions depend on.
package admitter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/quota"
	"github.com/countersign-dev/countersign/internal/service/rollout"
	"github.com/countersign-dev/countersign/internal/service/tokenview"
	"github.com/countersign-dev/countersign/streams"
)

// ServiceName is the name that `nats micro ls` shows.
const ServiceName = "admitter"

// About says what the service is for.
const About = "Answers admission requests with verdicts that have durable evidence."

// Flags configure the service.
type Flags struct {
	daemon.Flags
	MaxInflight int           `help:"Admissions worked on at the same time; more are answered deny." env:"COUNTERSIGN_MAX_INFLIGHT" default:"2048"`
	Timeout     time.Duration `help:"How long a decision and its durable record may take together before the answer is deny; the policies may take half of it." env:"COUNTERSIGN_RECORD_TIMEOUT" default:"4s"`
	Replicated  bool          `name:"accept-replicated" help:"Assert that the servers of the cluster have separate power, so that replicas which are not synced are durable." env:"COUNTERSIGN_ACCEPT_REPLICATED"`
	MemoryLimit int64         `help:"How much memory this admitter may use, in MiB. What could need more is answered deny." env:"COUNTERSIGN_MEMORY_LIMIT" default:"2048"`
	IngestFlags
	// Observe has no environment variable: a variable that a process inherits must not take
	// enforcement away.
	Observe []string `name:"observe" help:"Tenants in mode observe: verdicts of their policies are recorded, and nothing is refused for them. Each tenant is named; there is no pattern for all." placeholder:"TENANT"`
}

// Main is the service's main function; it returns the exit code.
func Main(args []string) int {
	var f Flags
	return daemon.Main(ServiceName, About, args, &f, &f.Flags,
		func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// service answers requests until its context ends.
type service struct {
	flags          Flags
	env            daemon.Env
	space          subject.Space
	keys           *receiptKeys
	master         digest.Master
	secrets        *sessionSecrets
	js             jetstream.JetStream
	committer      *streams.Committer
	config         atomic.Pointer[admission.Config]
	observed       map[string]bool // tenants in mode observe
	durability     atomic.Value    // string
	calls          *occurrenceTracker
	metrics        *metrics.Admitter
	stores         []stateStore
	rates          *rateStore      // also in stores
	publishers     *publisherStore // also in stores
	approvals      *approvalStore  // also in stores
	mandates       *mandateStore   // also in stores
	admissionQuota *quota.Meter
	reviewQuota    *quota.Meter // with the same limits, so that admissions leave reviewers their share
	memory         *memoryBudget
	progress       *changeProgress
	workers        *workerPool
	unrecorded     zerolog.Logger            // for decisions that cannot be recorded; at most one line a second
	dropped        zerolog.Logger            // for requests that have no reply subject; likewise
	rechecking     atomic.Bool               // handleReconnect checks the server
	requests       atomic.Pointer[nats.Conn] // of the present or last membership in the queue group
}

// newService makes a service that is not connected yet.
func newService(f Flags, env daemon.Env) (s *service, err error) {
	if f.MaxInflight < 1 || f.Timeout <= 0 {
		return nil, errors.New("--max-inflight must be at least 1 and --timeout above zero")
	}
	if err := f.IngestFlags.checkLimits(); err != nil {
		return nil, err
	}
	s = &service{flags: f, env: env, space: f.Space(), calls: newOccurrenceTracker(maxTrackedCalls), progress: newProgress(), workers: newWorkerPool(f.MaxInflight),
		unrecorded: env.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Second}),
		dropped:    env.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Second})}
	if s.observed, err = observedTenants(f.Observe); err != nil {
		return nil, err
	}
	s.keys = newReceiptKeys(f, env, s.progress)
	if s.memory, err = newMemoryBudget(f.MemoryLimit); err != nil {
		return nil, err
	}
	if _, err = keys.Receipt(f.Keys); err != nil {
		return nil, err
	}
	s.metrics = env.Metrics.Admitter(f.Stream, f.MaxInflight, s.workers.held)
	s.metrics.Observed(len(s.observed))
	env.Health.SetObserved(len(s.observed))
	s.rates = newRateStore(s)
	s.publishers = newPublisherStore(s)
	s.admissionQuota, s.reviewQuota = quota.NewMeter(f.admissionQuotas()), quota.NewMeter(f.admissionQuotas())
	s.master, err = keys.Master(f.Keys)
	s.secrets = &sessionSecrets{master: s.master, space: s.space, stream: f.Stream}
	return s, err
}

// observedTenants are the tenants in mode observe. A name that is no tenant's, such as a pattern
// or an empty one, is an error.
func observedTenants(names []string) (map[string]bool, error) {
	observed := make(map[string]bool, len(names))
	for _, name := range names {
		if name == "" || subject.Escape(name) != name {
			return nil, fmt.Errorf("--observe %.60q is not the name of a tenant (letters, digits, _ and -); name each tenant that is to be observed", name)
		}
		observed[name] = true
	}
	return observed, nil
}

// gcPercent trades memory, of which an admitter needs little, for time: a decision produces much
// garbage and keeps nothing. GOGC in the environment takes precedence.
const gcPercent = 400

// Run serves until ctx ends, then answers the requests that it has begun and returns. It survives
// the loss of the server connection and serves again once the server is back.
func Run(ctx context.Context, f Flags, env daemon.Env) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	s, err := newService(f, env)
	if err != nil {
		return err
	}
	s.memory.setGCLimit()
	for _, tenant := range f.Observe {
		env.Log.Warn().Str("tenant", tenant).Msg("mode observe: verdicts of this tenant's policies are recorded and NOT enforced")
	}
	nc, release, err := f.Connect(ctx, ServiceName, env, func(nc *nats.Conn) { s.handleReconnect(ctx, nc) })
	if err != nil {
		return err
	}
	defer release()
	reconnects := nc.Stats().Reconnects
	stop, err := s.startDependencies(ctx, nc)
	if err != nil {
		return err
	}
	defer stop()
	if err := s.beginRechecks(ctx, nc, reconnects); err != nil {
		return err
	}
	defer s.followDurability(ctx, nc)()
	stopIngest, err := s.startIngest(ctx)
	if err != nil {
		return err
	}
	defer stopIngest()
	down := make(chan bool, 1)
	defer f.WatchJetStream(ctx, nc, env, func(watching context.Context, now bool) {
		select {
		case down <- now:
		case <-watching.Done():
		}
	})()
	return s.serveRequests(ctx, down)
}

// serveRequests serves requests until ctx ends or a fatal error arrives, then answers what it has
// begun. While JetStream cannot be reached it leaves the queue group, because it could record
// nothing: another admitter, or the server's no-responders reply, then answers at once.
func (s *service) serveRequests(ctx context.Context, down <-chan bool) error {
	e, err := s.joinQueue(ctx)
	if err != nil {
		return err
	}
	s.metrics.Taking(true)
	defer func() {
		s.metrics.Taking(false)
		s.drainRequests(e.conn)
		e.release()
	}()
	if err := s.env.Ready(); err != nil {
		return errors.Join(err, e.stop())
	}
	again := time.NewTicker(recordRetry)
	defer again.Stop()
	var logged daemon.LoggedProblem
	for away := false; ; {
		select {
		case <-ctx.Done():
			return e.stop()
		case err := <-s.keys.fatalError():
			return errors.Join(err, e.stop())
		case away = <-down:
		case <-again.C:
		}
		switch {
		case away && e.service != nil:
			s.env.Log.Warn().Msg("requests are left to other admitters until JetStream can be reached")
			s.metrics.Taking(false)
			if err := e.stop(); err != nil {
				return err
			}
		case !away && e.service == nil:
			next, err := s.joinQueue(ctx)
			if err != nil {
				s.env.Health.Set("requests", err.Error())
				if logged.IsDue(err.Error(), time.Now()) {
					s.env.Log.Warn().Err(err).Msg("requests cannot be taken yet")
				}
				continue
			}
			_ = e.conn.FlushTimeout(flushTimeout)
			e.release()
			e = next
			s.env.Health.Set("requests", "")
			s.metrics.Taking(true)
			s.env.Health.Set("log", "") // of the time when the log could not be reached
			s.env.Log.Info().Msg("taking requests again")
		}
	}
}

// queueMember is one membership in the queue group of admitters. It has a connection of its own
// for requests and answers, so traffic of the log cannot delay them. Closing the connection makes
// the server drop its subscriptions. Draining a subscription does not ensure that: if the
// connection is lost meanwhile, nats.go subscribes it again and then forgets it, and half of the
// requests stay unanswered (TestSubscriptionsEndWithTheirConnection).
type queueMember struct {
	conn    *nats.Conn
	release func()        // closes conn
	service micro.Service // nil once it has left the queue group
}

func (s *service) joinQueue(ctx context.Context) (e queueMember, err error) {
	if e.conn, e.release, err = s.flags.ConnectAgain(ctx, ServiceName+" requests", s.env); err != nil {
		return queueMember{}, err
	}
	if e.service, err = s.registerService(ctx, e.conn); err != nil {
		e.release()
		return queueMember{}, err
	}
	s.requests.Store(e.conn)
	return e, nil
}

// stop leaves the queue group. Requests that have arrived are still answered, after conn is closed
// over the next membership's connection (laterRequest).
func (e *queueMember) stop() error {
	if e.service == nil {
		return nil
	}
	stopped := e.service
	e.service = nil
	return stopped.Stop()
}

// startDependencies reads the state that decisions depend on and follows it. stop, non-nil if err
// is nil, ends that and the committer.
func (s *service) startDependencies(ctx context.Context, nc *nats.Conn) (stop func(), err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	s.js = js
	if err := s.checkDurability(ctx, nc); err != nil {
		return nil, err
	}
	if err := s.secrets.open(ctx, nc, js); err != nil { // first: nothing may be written for another log
		return nil, err
	}
	options := streams.CommitterOptions{Stream: s.flags.Stream, Sign: s.keys.signBatch}
	if s.prefersSingles() {
		options.BatchAbove = streams.NeverBatch
	}
	if s.committer, err = streams.NewCommitter(nc, options); err != nil {
		return nil, err
	}
	s.progress.conn = nc
	return startAll(
		func() (func(), error) { return s.committer.Close, nil },
		// Register before anything is read: a command that changes policies then waits for this process.
		func() (func(), error) { return rollout.Register(ctx, nc, js, s.progress.rolloutState) },
		func() (func(), error) { return tokenview.Serve(ctx, js, s.space, s.env.Log) },
		func() (func(), error) {
			if err := s.keys.publishKey(ctx, js); err != nil {
				return nil, err
			}
			return s.keys.followKey(ctx, js), nil
		},
		func() (func(), error) {
			return newTrackedFollower(s, streams.BucketKeys, 0, s.keys.applyRetired(js)).start(ctx, nc, js)
		},
		func() (func(), error) { return newPolicyStore(s).start(ctx, nc, js) },
		func() (func(), error) { return func() {}, s.followCalls(nc) },
		func() (func(), error) { return s.startStores(ctx, nc, js) },
	)
}

// prefersSingles reports whether acknowledgements do not wait for the disk. A batch is then
// slower than its messages one by one. The durability class at the start decides; batches are
// correct in every class.
func (s *service) prefersSingles() bool {
	class := s.durability.Load()
	return class == string(streams.ClassInterval) || class == string(streams.ClassMemory)
}

// beginRechecks makes handleReconnect check the server from now on. If the connection was lost since
// it had a number of reconnects, during the start, the server is checked here
// (TestALogReplacedDuringTheStartGetsTheKey).
func (s *service) beginRechecks(ctx context.Context, nc *nats.Conn, reconnects uint64) error {
	s.rechecking.Store(true)
	if nc.Stats().Reconnects == reconnects {
		return nil
	}
	return errors.Join(s.recheckServer(ctx, nc))
}

// handleReconnect checks again what a restarted or replaced server may have changed. It retries
// until that succeeds: a server that lost everything accepts connections before its buckets exist
// again (TestAReplacedLogGetsTheKeyAgain).
func (s *service) handleReconnect(ctx context.Context, nc *nats.Conn) {
	if !s.rechecking.Load() {
		return // beginRechecks notices
	}
	pauses := retry.New(recheckMin, recheckMax)
	for {
		durabilityErr, keyErr := s.recheckServer(ctx, nc)
		err := errors.Join(durabilityErr, keyErr)
		if err == nil || ctx.Err() != nil || !nc.IsConnected() {
			return
		}
		wait := pauses.Next()
		s.env.Log.Error().Err(err).Dur("retry_in", wait).Msg("after reconnecting")
		if durabilityErr != nil {
			s.env.Health.Set("durability", durabilityErr.Error())
		}
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// Pauses between two checks of a server that came back.
const (
	recheckMin = 200 * time.Millisecond
	recheckMax = time.Second
)

// recheckServer reads the durability class and publishes the key. The health report has an error of the key then, and not
// one of the class.
func (s *service) recheckServer(ctx context.Context, nc *nats.Conn) (durabilityErr, keyErr error) {
	s.secrets.forgetAll() // notices of erasures may have been missed while disconnected
	js, err := jetstream.New(nc)
	if err != nil {
		return err, nil
	}
	keyErr = s.keys.publishKey(ctx, js)
	s.keys.reportKeyError(keyErr)
	return s.checkDurability(ctx, nc), keyErr
}

// drainRequests answers the requests that have begun or had arrived when the service was stopped.
// Requests that have not begun by then are denied.
func (s *service) drainRequests(asked *nats.Conn) {
	deadline := time.Now().Add(stopTimeout)
	_ = asked.FlushTimeout(flushTimeout) // the server sends nothing new after this
	s.workers.refuse()
	// nats.go does not report when a draining subscription has delivered its last message; the
	// connection's number of subscriptions drops then.
	for asked.NumSubscriptions() > 0 && time.Now().Before(deadline) {
		time.Sleep(drainPoll)
	}
	s.workers.wait()
	_ = asked.FlushTimeout(time.Until(deadline)) // without time left, none
}

// stopTimeout bounds drainRequests, whatever the server does, unless --timeout is longer than its default.
const stopTimeout = 10 * time.Second

const drainPoll = 2 * time.Millisecond

const flushTimeout = 5 * time.Second

// durabilityEvery is how often the durability class is read again.
const durabilityEvery = 15 * time.Second

// followDurability reads the class again and again until stop is called: a server of a cluster goes
// away, or comes back with another setting, and no connection of this admitter need notice.
func (s *service) followDurability(ctx context.Context, nc *nats.Conn) (stop func()) {
	return daemon.Background(ctx, func(ctx context.Context) {
		for failed := 0; retry.Sleep(ctx, durabilityEvery) == nil; {
			err := s.checkDurability(ctx, nc)
			if failed++; err == nil {
				failed = 0
			}
			if failed > 1 && ctx.Err() == nil && nc.IsConnected() { // one answer may come late
				s.reportDurability(err.Error())
			}
		}
	})
}

// checkDurability reads how durable an acknowledgement of the running servers is. The class goes into
// every decision. A class that a power failure can lose records of makes the service unhealthy
// (streams.DurabilityClass.LossRisk), and so does a server that is away.
func (s *service) checkDurability(ctx context.Context, nc *nats.Conn) error {
	class, detail, err := streams.Durability(ctx, nc, s.flags.Stream)
	var problems []string
	if away := (*streams.AwayError)(nil); errors.As(err, &away) {
		problems = append(problems, away.Error())
	} else if err != nil {
		return fmt.Errorf("reading the durability class: %w", err)
	}
	if risk := class.LossRisk(detail, s.flags.Replicated); risk != "" {
		problems = append(problems, "an acknowledged record can be lost: "+risk)
	}
	if s.durability.Swap(string(class)) != string(class) {
		s.env.Log.Info().Str("durability", string(class)).Str("detail", detail).Bool("accept_replicated", s.flags.Replicated).Msg("an acknowledged record is this durable")
	}
	s.reportDurability(strings.Join(problems, "; "))
	return nil
}

// reportDurability reports the problem in the health report and, when it changes, in the log.
func (s *service) reportDurability(problem string) {
	if problem != "" && problem != s.env.Health.Report().Problems["durability"] {
		s.env.Log.Warn().Str("problem", problem).Msg("durability")
	}
	s.env.Health.Set("durability", problem)
}
