package admit

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/streams"
)

// GatewayCmd measures admission over HTTP beside admission over NATS on the same servers, and streams
// beside a server that only writes.
type GatewayCmd struct {
	Clients      []int         `help:"Numbers of concurrent clients, each with a connection that stays." default:"1,256"`
	Duration     time.Duration `help:"How long each measurement takes." default:"4s"`
	SyncInterval string        `help:"Sync setting of the log: always, or a duration such as 2m." default:"always"`
	Policies     int           `help:"How many policies are loaded." default:"100"`
	Subscribers  int           `help:"Number of idle streams; 0 leaves them out." default:"10000"`
	Fanout       int           `help:"Number of streams that an event goes to; 0 leaves them out." default:"1000"`
	Events       int           `help:"Number of events that go to all of them." default:"50"`
	CacheDir     string        `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	JSON         bool          `name:"json" help:"Print JSON, one measurement a line."`
}

func (c *GatewayCmd) Run(ctx context.Context, io ui.Stdio) error {
	request, err := fs.ReadFile(examples.FS, "requests/pre-tool-use.json")
	if err != nil {
		return err
	}
	for name, value := range map[string]int{"TOKEN_STREAMS": max(c.Subscribers, c.Fanout) + 64, "MAX_STREAMS": max(c.Subscribers, c.Fanout) + 64, "RATE": 0} {
		if err := os.Setenv("COUNTERSIGN_GATEWAY_"+name, fmt.Sprint(value)); err != nil {
			return err
		}
	}
	measure.Title(io, c.JSON, measure.LatencyHeads, "request of %d B, %d policies, log synced: %s, %s a measurement", len(request), c.Policies, c.SyncInterval, c.Duration)
	setup := measure.Setup{SyncInterval: c.SyncInterval, Policies: c.Policies, CacheDir: c.CacheDir}
	return setup.Run(ctx, io, func(p *pipeline.Pipeline) error {
		ready := p.Ready()
		b := &loadBench{t: target.FromReady(ready), admitter: p.Service(streams.RoleAdmitter), duration: c.Duration, request: request}
		if err := c.admissions(ctx, io, b, ready); err != nil {
			return err
		}
		return c.streams(ctx, io, b, p)
	})
}

// admissions measures the same requests over NATS and over HTTP, for each number of clients.
func (c *GatewayCmd) admissions(ctx context.Context, io ui.Stdio, b *loadBench, ready target.Ready) error {
	for _, n := range c.Clients {
		over, err := b.measureClients(ctx, "admission over NATS", n, b.admit)
		if err != nil {
			return err
		}
		web := newWebAdmission(ready, b.request, n)
		through, err := b.measureClients(ctx, "admission over HTTP", n, func() operation { return operation{target.Runtime, web.admit} })
		web.close()
		if err != nil {
			return err
		}
		if n == 1 {
			through.ToNATS = through.P50 / over.P50
		} else {
			through.RateNATS = through.PerSecond / over.PerSecond
		}
		for _, line := range []measure.Latency{over, through} {
			if err := measure.Print(io, c.JSON, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// streams measures idle streams, and events that go to many.
func (c *GatewayCmd) streams(ctx context.Context, io ui.Stdio, b *loadBench, p *pipeline.Pipeline) error {
	ready := p.Ready()
	for _, step := range []struct {
		wanted  int
		measure func() (measure.Latency, error)
	}{
		{c.Subscribers, func() (measure.Latency, error) { return idleStreams(ctx, ready, c.Subscribers) }},
		{c.Subscribers, func() (measure.Latency, error) { return idleStreamsOverTLS(ctx, p, c.Subscribers) }},
		{c.Fanout, func() (measure.Latency, error) { return fanoutFloor(ctx, c.Fanout, c.Events) }},
		{c.Fanout, func() (measure.Latency, error) { return fanout(ctx, b, ready, c.Fanout, c.Events) }},
	} {
		if step.wanted == 0 {
			continue
		}
		r, err := step.measure()
		if err == nil {
			err = measure.Print(io, c.JSON, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
