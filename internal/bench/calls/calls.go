// Package calls measures what a governed call costs end to end, beside the same bytes appended and the same
// rows inserted. Packages callplan and spending have its schedule and its readings.
package calls

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/bench/callplan"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
)

type Cmd struct {
	Rate     []float64     `help:"Calls a second; several are measured one after the other." default:"100"`
	Search   bool          `help:"Look for the highest rate that is sustained for --seconds, and measure that one instead."`
	Seconds  int           `help:"How long calls are made at a measured rate." default:"60"`
	WarmUp   time.Duration `help:"How long calls are made before that." default:"5s"`
	Variant  string        `help:"What a runtime says of a call: plain (0.5 KB), governed (1.8 KB), or both, one after the other." enum:"plain,governed,both" default:"both"`
	Log      string        `help:"When the log is synced: always, or every 2m." enum:"always,2m" default:"always"`
	Apart    bool          `name:"clickhouse-apart" help:"Leave ClickHouse out of the sum of processor times, as if it had a machine of its own. It shares this one all the same."`
	Floors   bool          `help:"Measure the floors, too." default:"true" negatable:""`
	CacheDir string        `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	JSON     bool          `name:"json" help:"Print JSON, one measurement a line."`
}

// Help explains the figures.
func (Cmd) Help() string {
	return `Everything runs: nats-server, ClickHouse, the three services and the gateway, each in a process of its own. A call asks for
admission, and reports PreToolUse and PostToolUse; 20 calls make a session. Of 100 calls 5 are denied, 1 waits for
a reviewer that approves it, and in 1 other arguments run than were admitted, which is a finding.

Calls are made when they are due, whether or not earlier ones are answered, and latencies count from then.
The evidence lag counts from a report's acknowledgement to the publication of the first signed checkpoint that covers it;
the times of publication are read from the log afterwards, which costs nothing while calls are made. A reader looks
twice a second whether the newest checkpoint is signed and its last row can be read; sampling_cpu_ms_per_call is
what these looks cost. The lag of findings ends when the finding is on the log.

Processor times, bytes and counters span the measured calls and the time until their evidence is complete. They include
all child processes, and are divided by the calls that did not fail. The generator is this process; it is not in the sum. No counter shows the syncs of nats-server:
syncs_per_call has one for every single message and every atomic batch of the log and for every checkpoint. The server
makes more for a batch. Those of ClickHouse are its own counters of fsync, for files and directories.

A rate is sustained if no call fails and neither verdicts nor evidence lag behind by 5 s (99th percentile), nor by more
and more. Floors, on servers without services: the log's bytes appended in groups by a client that decides nothing, and
the finished rows of the table evidence inserted once, 10,000 at a time.`
}

// callsResult is one measurement.
type callsResult struct {
	Variant   string  `json:"variant"`
	Log       string  `json:"log"`
	Rate      float64 `json:"rate"` // due
	Seconds   int     `json:"seconds"`
	Calls     int     `json:"calls"`
	Failed    int     `json:"failed"`
	Sustained bool    `json:"sustained"`
	Why       string  `json:"not_sustained_because,omitempty"`

	PerSecond   float64        `json:"calls_per_second"` // ended without error
	VerdictP50  float64        `json:"verdict_p50_us"`
	VerdictP99  float64        `json:"verdict_p99_us"`
	EvidenceP50 float64        `json:"evidence_lag_p50_ms"`
	EvidenceP99 float64        `json:"evidence_lag_p99_ms"`
	FindingsP99 float64        `json:"findings_lag_p99_ms"`
	Findings    map[string]int `json:"findings"` // by rule

	CPU           float64            `json:"cpu_ms_per_call"`
	CPUBy         map[string]float64 `json:"cpu_ms_per_call_by_process"`
	CPUWithout    []string           `json:"cpu_ms_per_call_leaves_out,omitempty"`
	SamplingCPU   float64            `json:"sampling_cpu_ms_per_call"` // included in the sum
	Messages      float64            `json:"log_messages_per_call"`
	Batches       float64            `json:"log_batches_per_call"` // atomic ones
	LogBytes      float64            `json:"log_bytes_per_call"`
	EvidenceBytes float64            `json:"evidence_bytes_per_call"`
	Inserts       float64            `json:"inserts_per_second"` // of all tables
	Merged        float64            `json:"merged_rows_per_row"`
	Syncs         float64            `json:"syncs_per_call"`
	SyncsBy       map[string]float64 `json:"syncs_per_call_by_process"`
	MemoryBegin   map[string]float64 `json:"resident_mib_begin"` // after the warm-up
	Memory        map[string]float64 `json:"resident_mib"`       // at the end
	LateP99       float64            `json:"generator_late_p99_us"`

	Floors []callsFloor `json:"floors,omitempty"`
}

// callsFloor is what a floor costs for the messages or rows of a call.
type callsFloor struct {
	What      string  `json:"what"`
	PerSecond float64 `json:"calls_per_second"`
	CPU       float64 `json:"cpu_ms_per_call"`
	Server    float64 `json:"server_cpu_ms_per_call"` // included
}

func (c *Cmd) Run(ctx context.Context, io ui.Stdio) error {
	if slices.Min(c.Rate) <= 0 || c.Seconds < 1 || c.WarmUp < 0 {
		return ui.UsageError{Err: errors.New("--rate must be above 0, --seconds at least 1, and --warm-up not negative")}
	}
	variants := []callplan.Variant{callplan.Variant(c.Variant)}
	if c.Variant == "both" {
		variants = []callplan.Variant{callplan.Plain, callplan.Governed}
	}
	for _, v := range variants {
		if err := c.measureVariant(ctx, io, v); err != nil {
			return err
		}
	}
	return nil
}

// measureVariant measures one variant on a pipeline of its own, and its floors on another one
// without services.
func (c *Cmd) measureVariant(ctx context.Context, io ui.Stdio, v callplan.Variant) error {
	setup := measure.Setup{SyncInterval: c.Log, Policies: 100, CacheDir: c.CacheDir}
	var results []callsResult
	var sample callSample
	err := setup.Run(ctx, io, func(p *pipeline.Pipeline) (err error) {
		b, err := openCallsBench(ctx, io, c, v, p)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		results, err = b.measureRates(ctx)
		sample = b.sample
		return err
	})
	if err != nil {
		return err
	}
	if c.Floors {
		setup.Services = []string{}
		if err := setup.Run(ctx, io, func(p *pipeline.Pipeline) error {
			ui.NewProgress(io).Tell(fmt.Sprintf("%s: measuring the floors", v))
			floors, err := sample.measureFloors(ctx, p)
			results[len(results)-1].Floors = floors
			return err
		}); err != nil {
			return err
		}
	}
	for _, r := range results {
		if err := measure.Print(io, c.JSON, r); err != nil {
			return err
		}
	}
	return nil
}

func (r callsResult) String() string {
	sum := "processor time"
	if len(r.CPUWithout) > 0 {
		sum += " without " + strings.Join(r.CPUWithout, ", ")
	}
	lines := []string{
		fmt.Sprintf("%s calls, %g a second for %d s, log synced: %s; %d CPUs, %s, load %s", r.Variant, r.Rate, r.Seconds, r.Log, runtime.NumCPU(), runtime.Version(), measure.LoadAverage()),
		fmt.Sprintf("  %-22s %10.1f /s of %d, %d failed; %s", "calls", r.PerSecond, r.Calls, r.Failed, sustainedText(r)),
		fmt.Sprintf("  %-22s %10.0f us p50, %.0f us p99 (the generator was late by %.0f us, p99)", "verdict", r.VerdictP50, r.VerdictP99, r.LateP99),
		fmt.Sprintf("  %-22s %10.0f ms p50, %.0f ms p99", "evidence lag", r.EvidenceP50, r.EvidenceP99),
		fmt.Sprintf("  %-22s %10.0f ms p99: %s", "findings lag", r.FindingsP99, countsText(r.Findings)),
		fmt.Sprintf("  %-22s %10.3f ms a call: %s", sum, r.CPU, byProcess(r.CPUBy, "%.3f")),
		fmt.Sprintf("  %-22s %10.3f ms a call, for looking at checkpoints", "of that", r.SamplingCPU),
		fmt.Sprintf("  %-22s %10.0f B a call in %.2f messages; %.3f atomic batches a call", "log", r.LogBytes, r.Messages, r.Batches),
		fmt.Sprintf("  %-22s %10.0f B a call on disk; %.1f inserts a second, %.2f rows merged for each inserted", "evidence", r.EvidenceBytes, r.Inserts, r.Merged),
		fmt.Sprintf("  %-22s %10.2f a call: %s", "syncs", r.Syncs, byProcess(r.SyncsBy, "%.2f")),
		fmt.Sprintf("  %-22s %s MiB, at first %s", "resident memory", byProcess(r.Memory, "%.0f"), byProcess(r.MemoryBegin, "%.0f")),
	}
	for _, f := range r.Floors {
		lines = append(lines, fmt.Sprintf("  floor: %-48s %8.0f calls/s, %.3f ms of processor time a call, %.3f of it the server's", f.What, f.PerSecond, f.CPU, f.Server))
	}
	return strings.Join(lines, "\n") + "\n"
}

func sustainedText(r callsResult) string {
	if r.Sustained {
		return "sustained"
	}
	return "NOT sustained: " + r.Why
}

func countsText(counts map[string]int) string {
	parts := []string{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(parts, ", ")
}

func byProcess(values map[string]float64, format string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, fmt.Sprintf("%s "+format, name, values[name]))
	}
	return strings.Join(parts, ", ")
}
