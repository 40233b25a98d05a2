// Package correlate measures the correlator: its service and its lag, beside a consumer that decodes
// nothing.
package correlate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

type Cmd struct {
	Messages     int           `help:"How many messages the log has." default:"300000"`
	Duration     time.Duration `help:"How long messages are published each time to measure the lag; 0 leaves it out." default:"10s"`
	Rate         float64       `help:"Messages a second to publish meanwhile; 0 is as many as can be, and then half of that."`
	SyncInterval string        `help:"Sync setting of the log: always, or a duration such as 2m." default:"always"`
	JSON         bool          `name:"json" help:"Print JSON, one measurement a line."`
}

// correlateResult is one line of the benchmark.
type correlateResult struct {
	What      string  `json:"what"`
	Count     int     `json:"count"` // messages
	PerSecond float64 `json:"per_second,omitempty"`
	Asked     float64 `json:"asked_per_second,omitempty"` // the requested PerSecond, if any; PerSecond is less if publishers had to wait
	Each      float64 `json:"us_per_message,omitempty"`
	P50       float64 `json:"p50_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
	Writes    int     `json:"writes,omitempty"`                    // atomic batches in which the outputs were written
	Ratio     float64 `json:"ratio,omitempty"`                     // to the floor
	CPU       float64 `json:"cpu_us_per_message,omitempty"`        // of the correlator's process
	ServerCPU float64 `json:"server_cpu_us_per_message,omitempty"` // of the NATS server during the measurement
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
	c.title(io)
	b := &correlateBench{dir: dir, childLog: logFile, log: daemon.Logger(logFile, "warn"), messages: c.Messages, print: func(r correlateResult) error { return measure.Print(io, c.JSON, r) }}
	if err := b.start(ctx, c.SyncInterval); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop(ctx)) }()
	return b.service(ctx, c.Duration, c.Rate)
}

func (c *Cmd) title(io ui.Stdio) {
	if !c.JSON {
		fmt.Fprintf(io.Out, "%d CPUs, %s, log synced: %s; AgentHook calls (request, decision, pre, post) and AAEP calls mixed\n\n%-44s %10s %11s %9s\n",
			runtime.NumCPU(), runtime.Version(), c.SyncInterval, "", "messages", "per second", "each")
	}
}

func (r correlateResult) String() string {
	if r.P99 > 0 {
		return fmt.Sprintf("%-44s %10d %11.0f   p50 %.1f ms, p99 %.1f ms, %d writes%s", r.What, r.Count, r.PerSecond, r.P50, r.P99, r.Writes, r.asked())
	}
	note := ""
	if r.Ratio > 0 {
		note = fmt.Sprintf("   %.2fx", r.Ratio)
	}
	if r.CPU > 0 {
		note += fmt.Sprintf("   %.1f us of processor time, %.1f us of the server's", r.CPU, r.ServerCPU)
	}
	return fmt.Sprintf("%-44s %10d %11.0f %8.2fus%s", r.What, r.Count, r.PerSecond, r.Each, note)
}

// asked describes the requested rate.
func (r correlateResult) asked() string {
	if r.Asked == 0 {
		return ""
	}
	return fmt.Sprintf(", %.0f/s were asked for", r.Asked)
}
