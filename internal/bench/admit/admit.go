// Package admit measures admission over NATS and over the gateway, beside round trips and durable publishes
// alone. A loadBench makes the load for both.
package admit

import (
	"context"
	"io/fs"
	"time"

	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/streams"
)

type Cmd struct {
	Clients      []int         `help:"Numbers of concurrent clients." default:"1,64,256"`
	Duration     time.Duration `help:"How long each measurement takes." default:"4s"`
	SyncInterval string        `help:"Sync setting of the log: always, or a duration such as 2m." default:"always"`
	Policies     int           `help:"How many policies are loaded." default:"100"`
	Services     string        `help:"Which services run: all, or the admitter alone." enum:"all,admitter" default:"all"`
	CacheDir     string        `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	JSON         bool          `name:"json" help:"Print JSON, one measurement a line."`

	floor map[int]float64 // answers per second, by number of clients
}

func (c *Cmd) Run(ctx context.Context, io ui.Stdio) error {
	setup := measure.Setup{SyncInterval: c.SyncInterval, Policies: c.Policies, CacheDir: c.CacheDir}
	if c.Services != "all" {
		setup.Services = []string{c.Services}
	}
	request, err := fs.ReadFile(examples.FS, "requests/pre-tool-use.json")
	if err != nil {
		return err
	}
	measure.Title(io, c.JSON, measure.LatencyHeads, "request of %d B, %d policies, log synced: %s, services: %s, %s a measurement", len(request), c.Policies, c.SyncInterval, c.Services, c.Duration)
	c.floor = map[int]float64{}
	bare := setup
	bare.Services = []string{}
	if err := bare.Run(ctx, io, func(p *pipeline.Pipeline) error { return c.floors(ctx, io, p, request) }); err != nil {
		return err
	}
	return setup.Run(ctx, io, func(p *pipeline.Pipeline) error { return c.measure(ctx, io, p, request) })
}

// measure measures the floors first and then admission under each load, on the same servers.
func (c *Cmd) measure(ctx context.Context, io ui.Stdio, p *pipeline.Pipeline, request []byte) error {
	b := &loadBench{t: target.FromReady(p.Ready()), admitter: p.Service(streams.RoleAdmitter), duration: c.Duration, request: request}
	floor := 0.0
	for _, step := range append(c.alone(ctx, b, &floor), c.loads(ctx, b, &floor)...) {
		r, err := step()
		if err == nil {
			err = measure.Print(io, c.JSON, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// alone returns the steps without admission: the cost of server and disk for every request, which is floor.
func (c *Cmd) alone(ctx context.Context, b *loadBench, floor *float64) []func() (measure.Latency, error) {
	return []func() (measure.Latency, error){
		func() (measure.Latency, error) {
			r, err := b.measureClients(ctx, "raw NATS round trip", 1, b.ping)
			*floor = r.P50
			return r, err
		},
		func() (measure.Latency, error) {
			r, err := b.measureClients(ctx, "raw durable publish", 1, b.publish)
			*floor += 2 * r.P50
			return r, err
		},
		func() (measure.Latency, error) {
			return measure.Latency{What: "floor: round trip + 2 publishes", Clients: 1, P50: *floor}, nil
		},
	}
}

// loads returns the steps that measure admission.
func (c *Cmd) loads(ctx context.Context, b *loadBench, floor *float64) (steps []func() (measure.Latency, error)) {
	for _, n := range c.Clients {
		steps = append(steps, func() (measure.Latency, error) {
			r, err := b.measureClients(ctx, "admission", n, b.admit)
			if n == 1 && err == nil {
				r.Ratio = r.P50 / *floor
			}
			if many := c.floor[n]; many > 0 {
				r.RateRatio = r.PerSecond / many
			}
			return r, err
		})
	}
	return steps
}
