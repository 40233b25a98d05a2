// Package run has the commands that run the system and use it while it runs: up, demo, engine,
// provision and doctor; admit, publish and tail. Each command is a type with a Run method, which
// the command line's parser (kong) calls; package pipeline starts and supervises the services.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/policycmd"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/streams"
)

// UpCmd is `countersign up`. A field with a yaml key is set by the configuration file, too; the key is the
// flag's name.
type UpCmd struct {
	DataDir        string `help:"Keys, passwords, log and evidence live here (default: $XDG_DATA_HOME/countersign)." env:"COUNTERSIGN_DATA" placeholder:"DIR" yaml:"data-dir"`
	Config         string `help:"YAML file with the same settings; flags win." placeholder:"FILE" yaml:"-"`
	ReadyFile      string `help:"Write a JSON object with addresses and passwords here once everything answers." placeholder:"FILE" yaml:"ready-file"`
	Tenant         string `help:"The tenant to create (default acme)." placeholder:"NAME" yaml:"tenant"`
	Policy         string `help:"Put the policies of this directory in force." placeholder:"DIR" yaml:"policy"`
	Mode           string `help:"observe: verdicts of the tenant's policies are recorded, and nothing is refused for them. It holds until up stops." enum:"enforce,observe" default:"enforce" yaml:"-"`
	Host           string `help:"Address to listen on (default 127.0.0.1)." yaml:"host"`
	NATSPort       int    `help:"NATS port (default: a free one)." yaml:"nats-port"`
	ClickHousePort int    `name:"clickhouse-port" help:"ClickHouse port (default: a free one)." yaml:"clickhouse-port"`
	GatewayPort    int    `help:"Port of the tenant's gateway (default: a free one). Gateways of added tenants have free ones." yaml:"gateway-port"`
	ClickHouse     string `name:"clickhouse" help:"DSN of a ClickHouse of yours instead of the embedded engine (better in COUNTERSIGN_CLICKHOUSE than on the command line)." env:"COUNTERSIGN_CLICKHOUSE" placeholder:"DSN" yaml:"clickhouse"`
	HTTP           string `name:"http" help:"Address of the health endpoint (default: a free port)." placeholder:"ADDR" yaml:"http"`
	SyncInterval   string `help:"When the log is synced to disk: always, or a duration such as 2m (default always)." yaml:"sync-interval"`
	CacheDir       string `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR" yaml:"cache-dir"`
	LogLevel       string `help:"debug, info, warn or error (default info)." yaml:"log-level"`
}

// ConfigKeys are the keys of the configuration file; each is the name of a flag.
func ConfigKeys() (keys []string) {
	t := reflect.TypeFor[UpCmd]()
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("yaml"); key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (c *UpCmd) Run(ctx context.Context, io ui.Stdio) error {
	if err := c.settle(); err != nil {
		return err
	}
	log := daemon.Logger(os.Stderr, c.LogLevel).With().Str("service", "up").Logger()
	docs, err := c.policies(log)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil { // the ready file may lie in it
		return fmt.Errorf("creating the data directory: %w", err)
	}
	ready := &readyFile{path: c.ReadyFile, log: log}
	if err := ready.prepare(); err != nil {
		return err
	}
	p, err := pipeline.Start(ctx, pipeline.Options{
		DataDir: c.DataDir, Tenant: c.Tenant, Host: c.Host, NATSPort: c.NATSPort, SyncInterval: c.SyncInterval,
		ClickHouse: c.ClickHouse, ClickHousePort: c.ClickHousePort, GatewayPort: c.GatewayPort, CacheDir: c.CacheDir, HTTP: c.HTTP, LogLevel: c.LogLevel,
		Observe: c.Mode == events.ModeObserve,
		Log:     log, ChildLog: os.Stderr, Progress: ui.ShowProgress(io), OnChange: ready.changed,
		BeforeServices: func(ctx context.Context, r target.Ready) error {
			if c.Policy == "" {
				return nil
			}
			return policycmd.PushPolicies(ctx, r, docs)
		},
	})
	if errors.Is(err, context.Canceled) {
		log.Info().Msg("stopped before it was up")
		return nil
	}
	if err != nil {
		return err
	}
	err = c.serve(ctx, io, p, ready)
	ready.remove()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), pipeline.StopTimeout)
	defer cancel()
	return errors.Join(err, p.Stop(stop))
}

// serve prints the addresses and waits.
func (c *UpCmd) serve(ctx context.Context, io ui.Stdio, p *pipeline.Pipeline, ready *readyFile) error {
	if err := ready.publish(p.Ready); err != nil {
		return err
	}
	r := p.Ready()
	fmt.Fprintf(io.Out, "Countersign is up for tenant %s (data in %s).\n  NATS        %s\n  gateway     %s\n  ClickHouse  %s\n  health      %s/healthz\n",
		r.Tenant, c.DataDir, r.NATSURL, r.GatewayURL, hostOf(r.ClickHouseDSN), r.HTTPURL)
	if c.ReadyFile != "" {
		fmt.Fprintf(io.Out, "  addresses and passwords: %s\n", c.ReadyFile)
	}
	if err := p.Running(); err != nil {
		fmt.Fprintf(io.Out, "  NOT all of it (docs/operating.md, \"At night\"):\n    %s\n", strings.ReplaceAll(err.Error(), "\n", "\n    "))
	}
	if c.Mode == events.ModeObserve {
		fmt.Fprintf(io.Out, "  mode observe: what the policies of tenant %s refuse is recorded, and NOT refused\n", r.Tenant)
	}
	if c.Policy == "" {
		fmt.Fprintln(io.Out, "  policies in force are those pushed before; without any, every request is denied (countersign policy push DIR)")
	}
	<-ctx.Done()
	fmt.Fprintln(io.Out, "stopping (again to stop at once) ...")
	return nil
}

// hostOf is the address in a DSN, without its password.
func hostOf(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return "(see the ready file)"
	}
	return u.Host
}

// settle fills in settings that the flags leave open, from the configuration file and then from
// the defaults.
func (c *UpCmd) settle() error {
	var f UpCmd
	if c.Config != "" {
		if err := readConfig(c.Config, &f); err != nil {
			return ui.UsageError{Err: err}
		}
	}
	settings, file := reflect.ValueOf(c).Elem(), reflect.ValueOf(f)
	for i := range file.NumField() {
		if settings.Field(i).IsZero() {
			settings.Field(i).Set(file.Field(i))
		}
	}
	c.DataDir, c.Tenant, c.Host = cmp.Or(c.DataDir, target.DefaultDataDir()), cmp.Or(c.Tenant, "acme"), cmp.Or(c.Host, streams.DefaultHost)
	c.SyncInterval, c.LogLevel = cmp.Or(c.SyncInterval, streams.DefaultSyncInterval), cmp.Or(c.LogLevel, "info")
	if err := c.check(); err != nil {
		return ui.UsageError{Err: err}
	}
	abs, err := filepath.Abs(c.DataDir)
	c.DataDir = abs
	return err
}

// check finds mistakes before anything is started.
func (c *UpCmd) check() error {
	_, syncErr := time.ParseDuration(c.SyncInterval)
	switch {
	case c.DataDir == "":
		return errors.New("no data directory: set --data-dir, or HOME")
	case pipeline.CheckTenant(c.Tenant) != nil:
		return fmt.Errorf("--tenant: %w", pipeline.CheckTenant(c.Tenant))
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel): // those of the services
		return fmt.Errorf("--log-level %.20q must be debug, info, warn or error", c.LogLevel)
	case c.SyncInterval != streams.DefaultSyncInterval && syncErr != nil:
		return fmt.Errorf("--sync-interval %.20q must be always, or a duration such as 2m", c.SyncInterval)
	case c.ClickHouse != "":
		return conn.CheckDSN(c.ClickHouse)
	}
	return nil
}

// readConfig reads a YAML file; an unknown key is an error with its line.
func readConfig(path string, into any) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	defer func() { _ = file.Close() }()
	dec := yaml.NewDecoder(file)
	dec.KnownFields(true)
	err = dec.Decode(into)
	if err == nil { // one document, nothing after it
		if err = dec.Decode(new(yaml.Node)); err == nil {
			err = errors.New("there is a second document")
		}
	}
	if !errors.Is(err, io.EOF) { // an empty file sets nothing
		return fmt.Errorf("%s: %s", path, strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}

// policies reads the policies to put in force at the start. A path that is not a directory is a
// usage error. A directory without a usable set is not: the pipeline starts, denies everything,
// reports why, and is unhealthy until a valid set is pushed. Keeping the set of an earlier run
// would decide by rules that this run did not name.
func (c *UpCmd) policies(log zerolog.Logger) ([]policy.Document, error) {
	if c.Policy == "" {
		return nil, nil
	}
	if st, err := os.Stat(c.Policy); err != nil {
		return nil, ui.UsageError{Err: fmt.Errorf("reading the policies: %w", err)}
	} else if !st.IsDir() {
		return nil, ui.UsageError{Err: fmt.Errorf("--policy %s is not a directory", c.Policy)}
	}
	docs, _, err := policycmd.LoadPolicies(c.Policy)
	if err == nil {
		return docs, nil
	}
	log.Error().Err(err).Msg("every request will be denied until a good set is pushed (countersign policy push DIR)")
	docs, err = policy.LoadDir(os.DirFS(c.Policy))
	if errors.Is(err, policy.ErrNoPolicies) {
		return nil, nil
	}
	return docs, err
}
