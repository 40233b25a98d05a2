// Package correlate measures the correlator: its service and its lag, beside a consumer that decodes
// nothing.
package correlate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/streams"
)

type Cmd struct {
	Messages     int           `help:"How many messages the log has." default:"300000"`
	Duration     time.Duration `help:"How long messages are published each time to measure the lag; 0 leaves it out." default:"10s"`
	Rate         float64       `help:"Messages a second to publish meanwhile; 0 is as many as can be, and then half of that."`
	SyncInterval string        `help:"Sync setting of the log: always, or a duration such as 2m." default:"always"`
	JSON         bool          `name:"json" help:"Print JSON, one measurement a line."`
}

func (c *Cmd) Run(ctx context.Context, io ui.Stdio) (err error) {
	if c.Messages < trafficGroup*trafficMessages {
		return fmt.Errorf("--messages must be at least %d", trafficGroup*trafficMessages)
	}
	dir, logFile, remove, err := measure.WorkDir()
	if err != nil {
		return err
	}
	defer remove()
	measure.Title(io, c.JSON, measure.ResultHeads, "log synced: %s; AgentHook calls (request, decision, pre, post) and AAEP calls mixed", c.SyncInterval)
	b := &correlateBench{dir: dir, childLog: logFile, log: daemon.Logger(logFile, "warn"), messages: c.Messages, print: func(r measure.Result) error { return measure.Print(io, c.JSON, r) }}
	if err := b.start(ctx, c.SyncInterval); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop(ctx)) }()
	return b.service(ctx, c.Duration, c.Rate)
}

// start starts the server and connects.
func (b *correlateBench) start(ctx context.Context, syncInterval string) error {
	b.keys, b.password = filepath.Join(b.dir, "keys"), rand.Text()
	if err := keys.Ensure(b.keys, keys.ReceiptFile, keys.CheckpointFile, keys.MasterFile); err != nil {
		return err
	}
	if _, err := keys.Vouch(b.keys, time.Now()); err != nil {
		return err
	}
	user := func(name string, role streams.Role) streams.User {
		return streams.User{Name: name, Password: b.password, Role: role}
	}
	cfg := pipeline.NATSConfig{StoreDir: filepath.Join(b.dir, "nats"), SyncInterval: syncInterval, Host: streams.DefaultHost, LogLevel: "warn",
		Tenants: []streams.Tenant{{Name: "acme", Users: []streams.User{user(runtimeUser, streams.RoleRuntime)}}}}
	for _, r := range []streams.Role{streams.RoleProvisioner, streams.RoleAdmitter, streams.RoleCorrelator, streams.RoleAuditor} {
		cfg.Services = append(cfg.Services, user(string(r), r))
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	path := filepath.Join(b.dir, "nats.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	var info pipeline.NATSInfo
	if err := b.child(ctx, &info, nil, "nats", path); err != nil {
		return err
	}
	b.url = info.URL
	return b.prepare(ctx)
}

// child starts this program again as one of the processes of `up`.
func (b *correlateBench) child(ctx context.Context, info any, env []string, args ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := supervise.Run(ctx, supervise.Command{
		Path: exe, Args: append([]string{pipeline.ServiceArg}, args...), Env: env, Log: b.childLog, Nice: pipeline.Niceness(args[0]),
	}, info)
	if err == nil {
		b.procs = append(b.procs, p)
	}
	return err
}

func (b *correlateBench) connect(ctx context.Context, name string) (*nats.Conn, error) {
	return streams.Connect(ctx, streams.ConnectOptions{URL: b.url, User: name, Password: b.password, Name: "countersign-bench", Log: b.log})
}

// prepare creates the log and publishes the receipt key.
func (b *correlateBench) prepare(ctx context.Context) error {
	provisioner, err := b.connect(ctx, string(streams.RoleProvisioner))
	if err != nil {
		return err
	}
	defer provisioner.Close()
	js, err := jetstream.New(provisioner)
	if err != nil {
		return err
	}
	if _, err := streams.Provision(ctx, js, streams.Shard{}); err != nil {
		return err
	}
	auditor, err := b.connect(ctx, string(streams.RoleAuditor))
	if err != nil {
		return err
	}
	if b.reader, err = jetstream.New(auditor); err != nil {
		return err
	}
	if b.admitter, err = b.connect(ctx, string(streams.RoleAdmitter)); err != nil {
		return err
	}
	return b.publishKey(ctx)
}

func (b *correlateBench) publishKey(ctx context.Context) error {
	key, err := keys.Receipt(b.keys)
	if err != nil {
		return err
	}
	master, err := keys.Master(b.keys)
	if err != nil {
		return err
	}
	b.traffic = traffic{Tenant: "acme", Source: runtimeUser, Key: key, TenantKey: master.Tenant("acme")}
	k, err := keys.RecordOf(b.keys, key.ID)
	if err != nil {
		return err
	}
	body, err := events.Encode(k)
	if err != nil {
		return err
	}
	return streams.StoreAll(ctx, b.admitter, []streams.Msg{{Subject: subject.Space{}.Control(streams.DefaultShard, events.ControlKey), Body: body}})
}
