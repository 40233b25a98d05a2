package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/pipeline"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/examples"
)

type benchCmd struct {
	Admit benchAdmitCmd `cmd:"" help:"Admission latency and rate, beside a raw NATS round trip and raw durable publishes."`
}

type benchAdmitCmd struct {
	Clients      []int         `help:"Numbers of concurrent clients." default:"1,64,256"`
	Duration     time.Duration `help:"How long each measurement takes." default:"4s"`
	SyncInterval string        `help:"Sync setting of the log: always, or a duration such as 2m." default:"always"`
	CacheDir     string        `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	JSON         bool          `name:"json" help:"Print JSON, one measurement a line."`
}

// benchResult is one line of a benchmark.
type benchResult struct {
	What      string  `json:"what"`
	Clients   int     `json:"clients"`
	Count     int     `json:"count"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Ratio     float64 `json:"p50_to_floor,omitempty"` // only where the floor is of one client
}

func (c *benchAdmitCmd) Run(ctx context.Context, io stdio) (err error) {
	dir, err := os.MkdirTemp("", "countersign-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	logFile, err := os.Create(filepath.Join(dir, "services.log"))
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	policies := filepath.Join(dir, "policies")
	if err := copyPolicies(policies); err != nil {
		return err
	}
	pipe, err := pipeline.Start(ctx, pipeline.Options{
		DataDir: dir, Tenant: "acme", CacheDir: c.CacheDir, SyncInterval: c.SyncInterval, LogLevel: "warn",
		Log: daemon.Logger(logFile, "warn"), ChildLog: logFile, Progress: showProgress(io),
		BeforeServices: func(ctx context.Context, r target.Ready) error { return pushTo(ctx, r, policies) },
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, pipe.Stop(stop))
	}()
	return c.measure(ctx, io, target.FromReady(pipe.Ready()))
}

// measure takes the floors first and then admission under each load, all on the
// same servers.
func (c *benchAdmitCmd) measure(ctx context.Context, io stdio, t *target.Target) error {
	request, err := fs.ReadFile(examples.FS, "requests/pre-tool-use.json")
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(io.out, "%d CPUs, %s, request of %d B, log synced: %s, %s a measurement\n\n%-30s %8s %10s %12s %10s %10s\n",
			runtime.NumCPU(), runtime.Version(), len(request), c.SyncInterval, c.Duration, "", "clients", "count", "per second", "p50", "p99")
	}
	b := &bench{t: t, duration: c.Duration, request: request}
	ping, err := b.run(ctx, "raw NATS round trip", 1, b.ping)
	if err != nil {
		return err
	}
	publish, err := b.run(ctx, "raw durable publish", 1, b.publish)
	if err != nil {
		return err
	}
	floor := ping.P50 + 2*publish.P50
	results := []benchResult{ping, publish, {What: "floor: round trip + 2 publishes", Clients: 1, P50: floor}}
	for _, n := range c.Clients {
		r, err := b.run(ctx, "admission", n, b.admit)
		if err != nil {
			return err
		}
		if n == 1 {
			r.Ratio = r.P50 / floor
		}
		results = append(results, r)
	}
	for _, r := range results {
		if err := c.print(io, r); err != nil {
			return err
		}
	}
	return nil
}

func (c *benchAdmitCmd) print(io stdio, r benchResult) error {
	if c.JSON {
		return compactJSON(io, r)
	}
	if r.Count == 0 {
		_, err := fmt.Fprintf(io.out, "%-30s %8d %10s %12s %8.0fus\n", r.What, r.Clients, "", "", r.P50)
		return err
	}
	ratio := ""
	if r.Ratio > 0 {
		ratio = fmt.Sprintf("   %.2fx the floor", r.Ratio)
	}
	_, err := fmt.Fprintf(io.out, "%-30s %8d %10d %12.0f %8.0fus %8.0fus%s\n", r.What, r.Clients, r.Count, r.PerSecond, r.P50, r.P99, ratio)
	return err
}
