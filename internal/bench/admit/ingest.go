package admit

import (
	"context"
	"fmt"
	"io/fs"
	"runtime"
	"time"

	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/streams"
)

type IngestCmd struct {
	Clients      []int         `help:"Numbers of concurrent clients." default:"1,64"`
	Duration     time.Duration `help:"How long each measurement takes." default:"3s"`
	Rounds       int           `help:"How often everything is measured, in turns." default:"3"`
	SyncInterval []string      `help:"Sync settings of the log: always, or a duration such as 2m." default:"always,2m"`
	CacheDir     string        `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	JSON         bool          `name:"json" help:"Print JSON, one measurement a line."`
}

func (c *IngestCmd) Run(ctx context.Context, io ui.Stdio) error {
	request, err := fs.ReadFile(examples.FS, "requests/pre-tool-use.json")
	if err != nil {
		return err
	}
	for _, sync := range c.SyncInterval {
		if !c.JSON {
			fmt.Fprintf(io.Out, "%d CPUs, %s, event of %d B, log synced: %s, %s a measurement, the admitter alone\n\n%-34s %8s %10s %12s %10s %10s\n",
				runtime.NumCPU(), runtime.Version(), len(request), sync, c.Duration, "", "clients", "count", "per second", "p50", "p99")
		}
		setup := measure.Setup{SyncInterval: sync, CacheDir: c.CacheDir, Services: []string{"admitter"}}
		if err := setup.Run(ctx, io, func(p *pipeline.Pipeline) error { return c.measure(ctx, io, p, request) }); err != nil {
			return err
		}
	}
	return nil
}

// measure measures raw publishes and ingest alternately on the same server, so that other load on
// the machine affects both.
func (c *IngestCmd) measure(ctx context.Context, io ui.Stdio, p *pipeline.Pipeline, request []byte) error {
	b := &loadBench{t: target.FromReady(p.Ready()), admitter: p.Service(streams.RoleAdmitter), duration: c.Duration, request: request}
	for range c.Rounds {
		for _, n := range c.Clients {
			raw, err := b.measureClients(ctx, "raw JetStream publish", n, b.publish)
			if err != nil {
				return err
			}
			r, err := b.measureClients(ctx, "event by ingest", n, b.ingest)
			if err != nil {
				return err
			}
			if n == 1 {
				r.Ratio = r.P50 / raw.P50
			} else {
				r.RateRatio = r.PerSecond / raw.PerSecond
			}
			for _, line := range []measure.Latency{raw, r} {
				if err := measure.Print(io, c.JSON, line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
