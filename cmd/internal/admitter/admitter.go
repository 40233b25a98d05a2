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
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/keys"
	"github.com/countersign-dev/countersign/cmd/internal/metrics"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// ServiceName and Version are what `nats micro ls` shows.
const (
	ServiceName = "admitter"
	Version     = "0.1.0"
)

// Flags configure the service.
type Flags struct {
	daemon.Flags
	MaxInflight int           `help:"Admissions worked on at the same time; more are answered deny." env:"COUNTERSIGN_MAX_INFLIGHT" default:"2048"`
	Timeout     time.Duration `help:"How long the durable record of a decision may take before the answer is deny." env:"COUNTERSIGN_RECORD_TIMEOUT" default:"4s"`
	Repliers    []string      `name:"confirmation-repliers" help:"Publishers whose replies to AAEP confirmations count, for every publisher of their tenant. Without any, a publisher's own replies count." env:"COUNTERSIGN_CONFIRMATION_REPLIERS"`
}

// Main is the service's main function; it returns the exit code.
func Main(args []string) int {
	var f Flags
	return daemon.Main(ServiceName, "Answers admission requests with verdicts that have durable evidence.", args, &f, &f.Flags,
		func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// service answers requests until its context ends.
type service struct {
	flags      Flags
	env        daemon.Env
	space      subject.Space
	signer     atomic.Pointer[signer]
	master     digest.Master
	committer  *streams.Committer
	snapshot   atomic.Pointer[admission.Snapshot]
	durability atomic.Value // string
	calls      *occurrences
	metrics    *metrics.Admitter
	parts      []part
	rates      *rates // one of parts
	slots      chan struct{}
	jobs       chan job
	serving    atomic.Bool
	reread     chan struct{} // the policies must be read again

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
	s = &service{flags: f, env: env, space: f.Space(), calls: newOccurrences(maxTrackedCalls), slots: make(chan struct{}, f.MaxInflight), jobs: make(chan job), reread: make(chan struct{}, 1),
		retired: map[string]time.Time{}, fatal: make(chan error, 1)}
	if _, err = keys.Receipt(f.Keys); err != nil {
		return nil, err
	}
	s.metrics = env.Metrics.Admitter(f.MaxInflight, func() int { return len(s.slots) })
	s.rates = newRates(s)
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
	nc, release, err := f.Connect(ctx, ServiceName, env, func(nc *nats.Conn) { s.reconnected(ctx, nc) })
	if err != nil {
		return err
	}
	defer release()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := s.checkDurability(ctx, nc); err != nil {
		return err
	}
	options := streams.CommitterOptions{Stream: f.Stream, Seal: s.seal}
	if class := s.durability.Load(); class == string(streams.ClassInterval) || class == string(streams.ClassMemory) {
		options.BatchAbove = streams.NeverBatch
	}
	s.committer, err = streams.NewCommitter(nc, options)
	if err != nil {
		return err
	}
	defer s.committer.Close()
	if err := s.publishKey(ctx, js); err != nil {
		return err
	}
	defer s.followKey(ctx, js)()
	stopPolicies, err := s.watchPolicies(ctx, js)
	if err != nil {
		return err
	}
	defer stopPolicies()
	if err := s.followCalls(nc); err != nil {
		return err
	}
	stopParts, err := s.startParts(ctx, nc, js)
	if err != nil {
		return err
	}
	defer stopParts()
	// Requests and answers have a connection of their own: nothing that the log has
	// to say stands in their way, and it can be told when the last one is answered.
	asked, releaseAsked, err := f.Connect(ctx, ServiceName+" requests", env, nil)
	if err != nil {
		return err
	}
	defer releaseAsked()
	svc, err := s.serve(ctx, asked)
	if err != nil {
		return err
	}
	s.serving.Store(true)
	if err := env.Ready(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-s.fatal:
	}
	err = errors.Join(err, svc.Stop())
	s.finish(asked)
	return err
}

// reconnected looks again at what a server that came back may have changed. It
// tries until it has: a server that lost everything answers before its buckets are
// there again (TestAReplacedLogGetsTheKeyAgain).
func (s *service) reconnected(ctx context.Context, nc *nats.Conn) {
	if !s.serving.Load() {
		return // Run looks itself
	}
	select {
	case s.reread <- struct{}{}:
	default:
	}
	for wait := lookAgainMin; ; wait = min(2*wait, lookAgainMax) {
		err := s.lookAgain(ctx, nc)
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
	lookAgainMin = 200 * time.Millisecond
	lookAgainMax = time.Second
)

func (s *service) lookAgain(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	keyErr := s.publishKey(ctx, js)
	s.keyProblem(keyErr)
	return errors.Join(s.checkDurability(ctx, nc), keyErr)
}

// finish answers what has been begun and what had arrived when the service was
// stopped; what has not begun by then is denied.
func (s *service) finish(asked *nats.Conn) {
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
// every decision; what is less than fsync or replicated is reported as unhealthy,
// not hidden.
func (s *service) checkDurability(ctx context.Context, nc *nats.Conn) error {
	class, detail, err := streams.Durability(ctx, nc, s.flags.Stream)
	if err != nil {
		return fmt.Errorf("reading the durability class: %w", err)
	}
	s.durability.Store(string(class))
	s.env.Log.Info().Str("durability", string(class)).Str("detail", detail).Msg("an acknowledged record is this durable")
	problem := ""
	if class != streams.ClassFsync && class != streams.ClassReplicated {
		problem = fmt.Sprintf("an acknowledged record can be lost (%s): %s", class, detail)
	}
	s.env.Health.Set("durability", problem)
	return nil
}

// serve registers the micro service. Its endpoint takes every tenant and
// protocol, known or not: what nobody knows is denied, not left unanswered.
func (s *service) serve(ctx context.Context, nc *nats.Conn) (micro.Service, error) {
	svc, err := micro.AddService(nc, micro.Config{
		Name:         ServiceName,
		Version:      Version,
		Description:  "Countersign admission: verdicts with durable evidence",
		QueueGroup:   ServiceName,
		StatsHandler: func(*micro.Endpoint) any { return s.env.Health.Report() },
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			s.env.Log.Error().Str("subject", e.Subject).Str("error", e.Description).Msg("micro service")
		},
	})
	if err != nil {
		return nil, fmt.Errorf("registering the micro service: %w", err)
	}
	err = svc.AddEndpoint("admit", micro.HandlerFunc(func(r micro.Request) { s.accept(ctx, r) }),
		micro.WithEndpointSubject(s.space.All(subject.Admit)))
	if err == nil {
		err = s.serveResolve(ctx, svc)
	}
	if err == nil { // the server must know of it before anybody is told that this service answers
		err = nc.FlushTimeout(flushTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, svc.Stop())
	}
	return svc, nil
}

// job is a request on its way to a worker.
type job struct {
	request  micro.Request
	received time.Time
}

// accept hands a request to a worker; the subscription's own goroutine never
// waits for the disk. When every worker is busy the answer is deny at once.
func (s *service) accept(ctx context.Context, r micro.Request) {
	j := job{r, time.Now()}
	if code := s.begin(); code != "" {
		s.refuse(r, code, nil)
		return
	}
	select {
	case s.jobs <- j:
	default: // nobody is free, and begin says that there may be one more
		go s.work(ctx, j)
	}
}

// work does one job after the other until ctx ends. A worker that is kept has the
// stack that a decision needs; a new one would have to grow it each time.
func (s *service) work(ctx context.Context, j job) {
	for {
		s.admit(ctx, j.request, j.received)
		<-s.slots
		s.inflight.Done()
		select {
		case j = <-s.jobs:
		case <-ctx.Done():
			return
		}
	}
}

// begin takes a worker's place, or says why there is none.
func (s *service) begin() (code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return codeStopping
	}
	select {
	case s.slots <- struct{}{}:
		s.inflight.Add(1)
		return ""
	default:
		return codeOverloaded
	}
}

// admit decides one request, records it and answers. A panic is a deny, too; its
// text may quote the request and is not logged.
func (s *service) admit(ctx context.Context, r micro.Request, received time.Time) {
	defer func() {
		if recover() != nil {
			s.env.Log.Error().Str("stack", string(debug.Stack())).Msg("a request made the admitter panic")
			s.refuse(r, admission.CodeInternal, nil)
		}
	}()
	if !answerable(r.Reply()) {
		s.metrics.Dropped()
		s.env.Log.Warn().Str("subject", r.Subject()).Msg("request without a usable reply subject, dropped: nobody can be told a verdict")
		return
	}
	req, known := s.request(r, received)
	out, reply, err := s.decide(ctx, req, known)
	if err != nil {
		s.env.Log.Error().Err(err).Str("decision_id", out.Decision.DecisionID).Msg("the decision could not be recorded; the answer is deny")
		if !errors.Is(err, streams.ErrTooLarge) && !errors.Is(err, errNoInputs) { // the first is the request's fault
			s.env.Health.Set("log", "decisions cannot be recorded")
		}
		s.refuse(r, failureCode(err), denial(&out, failureCode(err)))
		return
	}
	s.env.Health.Set("log", "")
	if err := s.respond(r, out, reply); err != nil {
		s.env.Log.Warn().Err(err).Str("decision_id", out.Decision.DecisionID).Msg("the answer could not be sent")
	}
	s.metrics.Admitted(req.Protocol, out.Decision.Verdict, received)
}

// denial renders the native refusal of a request whose decision could not be
// recorded; nil if even that fails.
func denial(out *admission.Outcome, code string) []byte {
	out.Fail(code)
	body, err := out.Reply()
	if err != nil {
		return nil
	}
	return body
}
