// Package pipeline runs all of Countersign on one machine as one supervised process tree on
// loopback: NATS, the ClickHouse engine, the three services and the gateway, each in a process of its own.
// `countersign up`, the demo, the tests and the benchmarks use it. The children run the same
// binary (package child). Begin with Start.
package pipeline

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/streams"
)

// ServiceArg is the first argument with which the pipeline starts its own binary as one of its
// services (package child).
const ServiceArg = "__service"

// StopTimeout bounds a clean stop of everything: the gateways together, and then one child after the other, may
// each take what the supervisor gives it.
const StopTimeout = 6 * supervise.StopGrace

// Options define what to run and where. A zero port means a free one.
type Options struct {
	DataDir        string // keys, passwords, log and evidence; created if missing
	Exe            string // program to start for the children; default this one
	Tenant         string
	Host           string // default 127.0.0.1
	NATSPort       int
	SyncInterval   string // default always: acknowledgements come after fsync
	ClickHouse     string // DSN of an existing server; default: an engine of our own
	ClickHousePort int
	GatewayPort    int    // of the gateway of Tenant
	CacheDir       string // directory of the engine's library; default the user's cache
	HTTP           string // address of the health endpoint; default a free port on Host
	LogLevel       string
	Log            zerolog.Logger
	ChildLog       io.Writer                             // output of the children; default standard error
	Progress       func(stage string, done, total int64) // of the engine's download
	OnChange       func(now func() target.Ready)         // called whenever a process id changes, also by several goroutines
	Services       []string                              // services to run; default all
	Observe        bool                                  // the admitter only observes the policies of Tenant; those of added tenants are enforced
	// BeforeServices, if not nil, runs once NATS is provisioned and before any service decides.
	BeforeServices func(context.Context, target.Ready) error
}

// Pipeline is a running process tree. Its owner must call Stop.
type Pipeline struct {
	opt  Options
	sup  *supervise.Supervisor
	keys string

	writing   sync.Mutex // held while the configuration of the server is written
	mu        sync.Mutex
	state     upState
	ready     target.Ready
	health    map[string]string // health URL by service
	gateways  tenantGateways
	failed    []string          // gateways that did not start, by process
	halted    string            // the service for which nothing writes to the log any more (haltWriters)
	ending    map[string]string // tenant by token: of removed users, and perhaps not refused yet
	endHealth func()            // stops serveHealth
	unfollow  func()            // ends followState
	checked   time.Time         // when tokens were checked last; used at the start, then by followState alone
	lock      *os.File          // locks the data directory
}

// catchUp is how long the admitter may take to read its buckets, and how long Start waits for the readers of a
// long log.
const catchUp = 15 * time.Minute

// Names of the processes in a ready file's pids.
const (
	procUp         = "up"
	procNATS       = "nats"
	procClickHouse = "clickhouse"
)

// Names of the services, in the order of their starts.
const (
	procAuditor    = "auditor"
	procCorrelator = "correlator"
	procAdmitter   = "admitter"
	procGateway    = "gateway"
)

var serviceNames = []string{procAuditor, procCorrelator, procAdmitter, procGateway}

// Niceness is the nice value of a service on a shared machine, 0 to 19. Callers wait for a
// verdict and for its log; what follows from the log may be later without loss. For the
// correlator it is also faster: the server handles a stream in one thread, which then does not
// wait for the correlator's decoders.
func Niceness(service string) int { return niceness[service] }

var niceness = map[string]int{procCorrelator: 5, procAuditor: 5}

// Start starts everything and returns once all processes answer. NATS, an engine, the admitter and the gateway
// must. A correlator, an auditor or a ClickHouse of Options.ClickHouse that does not is tried again and again
// (Problems), and a service that reads a long log is not waited for longer than catchUp. The health endpoint
// answers meanwhile. On an error no process is left running.
func Start(ctx context.Context, opt Options) (p *Pipeline, err error) {
	if opt.Host == "" {
		opt.Host = streams.DefaultHost
	}
	if opt.HTTP == "" {
		opt.HTTP = opt.Host + ":0"
	}
	if opt.Services == nil {
		opt.Services = serviceNames
	}
	if opt.ChildLog == nil {
		opt.ChildLog = os.Stderr
	}
	if opt.Exe == "" {
		if opt.Exe, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	p = &Pipeline{opt: opt, keys: filepath.Join(opt.DataDir, "keys"), health: map[string]string{}, ending: map[string]string{}, endHealth: func() {}, unfollow: func() {}}
	p.gateways = tenantGateways{first: opt.Tenant, port: opt.GatewayPort, keys: p.keys, urls: map[string]string{}}
	p.sup = supervise.New(opt.Log, p.processChanged)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
			p = nil
		}
	}()
	if err := p.prepareDataDir(ctx); err != nil {
		return p, err
	}
	if err := p.serveHealth(); err != nil {
		return p, err
	}
	if err := p.beginClickHouse(ctx); err != nil {
		return p, err
	}
	if err := p.sup.Start(ctx, supervise.Spec{Name: procNATS, Start: p.startNATS}); err != nil {
		return p, err
	}
	if err := p.provisionStreams(ctx); err != nil {
		return p, err
	}
	if err := p.endRemoved(ctx, p.notedGeneration()); err != nil {
		return p, err
	}
	if slices.Contains(opt.Services, procGateway) {
		if err := p.prepareGateway(ctx); err != nil {
			return p, err
		}
	}
	if opt.BeforeServices != nil {
		if err := opt.BeforeServices(ctx, p.Ready()); err != nil {
			return p, err
		}
	}
	readers, err := p.startServices(ctx)
	if err != nil {
		return p, err
	}
	missing := p.startGateways(ctx)
	if err := ctx.Err(); err != nil {
		return p, err
	}
	if missing != nil {
		p.opt.Log.Error().Err(missing).Msg("gateways of added tenants do not run; it is tried again")
	}
	if err := p.beginFollowingState(missing); err != nil {
		return p, err
	}
	_, err = awaitReaders(ctx, readers, catchUp)
	return p, err
}

// Ready is the current content for a ready file.
func (p *Pipeline) Ready() target.Ready {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.ready
	r.PIDs = make(map[string]int, len(p.ready.PIDs))
	for k, v := range p.ready.PIDs {
		r.PIDs[k] = v
	}
	return r
}

// Service is the user of a role in the services' account, or of the gateway.
func (p *Pipeline) Service(r streams.Role) streams.User {
	if r == streams.RoleGateway {
		return p.currentState().usual(p.opt.Tenant, r)
	}
	return p.currentState().serviceUser(string(r))
}

func (p *Pipeline) currentState() upState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// KeysDir is the directory of the key files.
func (p *Pipeline) KeysDir() string { return p.keys }

func (p *Pipeline) processChanged(name string, pid int) {
	p.mu.Lock()
	p.ready.PIDs[name] = pid
	p.mu.Unlock()
	if p.opt.OnChange != nil {
		p.opt.OnChange(p.Ready)
	}
}

// beginClickHouse starts the engine, or waits for a ClickHouse server, but for no longer than headStart: nothing but
// the evidence needs it.
func (p *Pipeline) beginClickHouse(ctx context.Context) error {
	spec := supervise.Spec{Name: procClickHouse, Start: p.startClickHouse}
	if p.opt.ClickHouse == "" {
		return p.sup.Start(ctx, spec)
	}
	p.mu.Lock()
	p.ready.ClickHouseDSN = p.opt.ClickHouse
	p.mu.Unlock()
	first := p.sup.Keep(spec)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-first.Done():
		reader{p: p, name: procClickHouse, first: first}.logFirst()
	case <-time.After(headStart):
	}
	return nil
}

func (p *Pipeline) startClickHouse(ctx context.Context) (supervise.Process, error) {
	p.mu.Lock()
	port := p.opt.ClickHousePort
	p.mu.Unlock()
	e, err := engine.Start(ctx, engine.Options{
		DSN: p.opt.ClickHouse, DataDir: filepath.Join(p.opt.DataDir, "clickhouse"), CacheDir: p.opt.CacheDir,
		Host: p.opt.Host, TCPPort: port, Log: p.opt.Log, Progress: p.opt.Progress,
	})
	if err != nil {
		return nil, err
	}
	bound := port
	if e.Kind() != engine.KindDSN {
		if bound, err = portOf(e.DSN()); err != nil {
			return nil, errors.Join(err, e.Stop(ctx))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opt.ClickHousePort = bound // a restarted engine must have the same address
	p.ready.ClickHouseDSN, p.ready.ClickHouseReadonlyDSN = e.DSN(), e.ReadonlyDSN()
	return e, nil
}

// writeNATSConfig writes the configuration of the server, with the users that there are now, and returns
// what it has written, and to which file.
func (p *Pipeline) writeNATSConfig() (file string, text []byte, err error) {
	p.writing.Lock() // an older text must not come after a newer one
	defer p.writing.Unlock()
	p.mu.Lock()
	cfg := NATSConfig{
		Host: p.opt.Host, Port: p.opt.NATSPort, StoreDir: filepath.Join(p.opt.DataDir, "nats"),
		SyncInterval: p.opt.SyncInterval, LogLevel: p.opt.LogLevel,
		Services: p.state.serviceUsers(), Tenants: p.state.tenantConfigs(p.opt.Tenant),
	}
	p.mu.Unlock()
	file = filepath.Join(p.opt.DataDir, "nats.json")
	text, err = cfg.write(file)
	return file, text, err
}

func (p *Pipeline) startNATS(ctx context.Context) (supervise.Process, error) {
	path, _, err := p.writeNATSConfig()
	if err != nil {
		return nil, err
	}
	var info NATSInfo
	proc, err := supervise.Run(ctx, supervise.Command{Path: p.opt.Exe, Args: []string{ServiceArg, "nats", path}, Log: p.opt.ChildLog,
		ReadyTimeout: supervise.NoTimeout}, &info) // after an unclean end it reads the whole log again
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opt.NATSPort = info.Port
	p.ready.NATSURL = info.URL
	return proc, nil
}

// connectAs connects to the server as the user of a service's role; the caller closes the connection.
func (p *Pipeline) connectAs(ctx context.Context, role streams.Role, name string) (*nats.Conn, jetstream.JetStream, error) {
	u := p.Service(role)
	nc, err := streams.Connect(ctx, streams.ConnectOptions{
		URL: p.Ready().NATSURL, User: u.Name, Password: u.Password, InboxPrefix: u.Inbox(), Name: name, Log: p.opt.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

// provisionStreams creates the streams and buckets that are missing.
func (p *Pipeline) provisionStreams(ctx context.Context) error {
	nc, js, err := p.connectAs(ctx, streams.RoleProvisioner, "countersign provision")
	if err != nil {
		return err
	}
	defer nc.Close()
	report, err := streams.Provision(ctx, js, streams.Shard{})
	if err != nil {
		return err
	}
	p.opt.Log.Info().Strs("created", report.Created).Strs("existing", report.Existing).Msg("streams and buckets")
	return nil
}

// startService starts a service with its credentials in the environment. Servers named in this
// process's own environment are overridden: they may be meant for others.
func (p *Pipeline) startService(name, tenant string) func(context.Context) (supervise.Process, error) {
	return func(ctx context.Context) (supervise.Process, error) {
		p.mu.Lock()
		u := p.state.serviceUser(name)
		if name == procGateway {
			u = p.state.usual(tenant, streams.RoleGateway)
		}
		env := []string{
			"COUNTERSIGN_NATS_URL=" + p.ready.NATSURL, "COUNTERSIGN_NATS_USER=" + u.Name, "COUNTERSIGN_NATS_PASSWORD=" + u.Password,
			"COUNTERSIGN_INBOX_PREFIX=" + u.Inbox(), "COUNTERSIGN_KEYS=" + p.keys, "COUNTERSIGN_HTTP=" + p.opt.Host + ":0",
			"COUNTERSIGN_LOG_LEVEL=" + p.opt.LogLevel, "COUNTERSIGN_NATS_CREDS=", "COUNTERSIGN_INSTANCE=up", "COUNTERSIGN_CLICKHOUSE=",
			"COUNTERSIGN_STATE=" + filepath.Join(p.opt.DataDir, "state"), "COUNTERSIGN_PREFIX=" + subject.DefaultPrefix, "COUNTERSIGN_STREAM=" + streams.DefaultShard, "COUNTERSIGN_PUBLIC_KEY=" + p.ready.PublicKey,
		}
		if name == procGateway {
			env = append(env, p.gateways.env(tenant)...)
		}
		if name == procAuditor {
			custodian := p.state.serviceUser(string(streams.RoleCustodian))
			env = append(env, "COUNTERSIGN_CLICKHOUSE="+p.ready.ClickHouseDSN, "COUNTERSIGN_CUSTODIAN_CREDS=",
				"COUNTERSIGN_CUSTODIAN_USER="+custodian.Name, "COUNTERSIGN_CUSTODIAN_PASSWORD="+custodian.Password)
		}
		p.mu.Unlock()
		var info daemon.ReadyInfo
		args := []string{ServiceArg, name}
		if name == procAdmitter && p.opt.Observe { // takes enforcement away, so it is no variable of the environment
			args = append(args, "--observe="+p.opt.Tenant)
		}
		command := supervise.Command{Path: p.opt.Exe, Args: args, Env: env, Log: p.opt.ChildLog, ReadyTimeout: catchUp, Nice: Niceness(name)}
		if readsLog(name) {
			command.ReadyTimeout, command.Begun = supervise.NoTimeout, func(text []byte) { p.noteBegun(name, text) }
		}
		proc, err := supervise.Run(ctx, command, &info)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if name == procGateway {
			p.health[p.gateways.process(tenant)] = info.HTTP
			if p.gateways.urls[tenant] = info.URL; tenant == p.opt.Tenant {
				p.ready.GatewayURL = info.URL
			}
			return proc, nil
		}
		p.health[name] = info.HTTP
		return proc, nil
	}
}

// Stop stops the gateways, all at the same time, and then everything else in order. Children that have not stopped when ctx ends are killed.
func (p *Pipeline) Stop(ctx context.Context) error {
	p.unfollow()
	p.endHealth()
	var gateways []string
	p.mu.Lock()
	for tenant := range p.gateways.urls {
		gateways = append(gateways, p.gateways.process(tenant))
	}
	p.mu.Unlock()
	err := errors.Join(p.sup.StopChildren(ctx, gateways...), p.sup.Stop(ctx))
	if p.lock != nil {
		_ = p.lock.Close()
	}
	return err
}
