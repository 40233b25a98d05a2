package measure

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// Latency is a line of a benchmark whose operations are timed one by one.
type Latency struct {
	What      string  `json:"what"`
	Clients   int     `json:"clients"`
	Count     int     `json:"count"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`

	Ratio     float64 `json:"p50_to_floor,omitempty"`          // only for one client
	RateRatio float64 `json:"rate_to_floor,omitempty"`         // only for many clients
	ToNATS    float64 `json:"p50_to_nats,omitempty"`           // only for one client
	RateNATS  float64 `json:"rate_to_nats,omitempty"`          // only for many clients
	P50Over   float64 `json:"p50_over_admission_us,omitempty"` // only for calls through a gate
	P99Over   float64 `json:"p99_over_admission_us,omitempty"`
	Resident  int64   `json:"resident_mb,omitempty"`          // of the gateway with its streams open
	PerItem   float64 `json:"resident_kb_a_stream,omitempty"` // more than without them
}

// LatencyHeads are the heads of the columns of a Latency.
var LatencyHeads = fmt.Sprintf("%-34s %8s %10s %12s %10s %10s", "", "clients", "count", "per second", "p50", "p99")

func (r Latency) String() string {
	return line(fmt.Sprintf("%-34s", r.What),
		[]figure{{float64(r.Clients), " %8.0f"}, {float64(r.Count), " %10.0f"}, {r.PerSecond, " %12.0f"}, {r.P50, " %8.0fus"}, {r.P99, " %8.0fus"}},
		[]figure{{r.Ratio, "%.2fx the floor"}, {r.RateRatio, "%.2fx the floor's rate"}, {r.ToNATS, "%.2fx NATS"}, {r.RateNATS, "%.2fx the rate of NATS"},
			{r.P50Over, "p50 %+.0fus over admission"}, {r.P99Over, "p99 %+.0fus"}, {float64(r.Resident), "%.0f MB resident"}, {r.PerItem, "%.1f KB a stream"}})
}

// Result is a line of a benchmark of records or messages.
type Result struct {
	What      string  `json:"what"`
	Count     int     `json:"count,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`

	Asked         float64 `json:"asked_per_second,omitempty"` // the requested PerSecond, if any; PerSecond is less if publishers had to wait
	ToFloor       float64 `json:"rate_to_floor,omitempty"`    // of the floor on one connection
	ToInsertFloor float64 `json:"to_insert_floor,omitempty"`
	ToConsumer    float64 `json:"ratio,omitempty"` // to the consumer that decodes nothing
	Records       int     `json:"records,omitempty"`
	BundleBytes   int64   `json:"bundle_bytes,omitempty"`
	Seconds       float64 `json:"seconds,omitempty"`
	P50           float64 `json:"p50_us,omitempty"`
	P99           float64 `json:"p99_us,omitempty"`
	LagP50        float64 `json:"p50_ms,omitempty"`
	LagP99        float64 `json:"p99_ms,omitempty"`
	Writes        int     `json:"writes,omitempty"` // atomic batches in which the outputs were written

	CPU              float64 `json:"cpu_us_per_record,omitempty"`         // of the measured process
	ServersCPU       float64 `json:"servers_cpu_us_per_record,omitempty"` // of NATS and ClickHouse
	EachMessage      float64 `json:"us_per_message,omitempty"`
	MessageCPU       float64 `json:"cpu_us_per_message,omitempty"`        // of the measured process
	MessageServerCPU float64 `json:"server_cpu_us_per_message,omitempty"` // of the NATS server during the measurement
	EngineCPU        float64 `json:"engine_cpu_us,omitempty"`             // of ClickHouse, for one look-up
	Allocs           float64 `json:"allocs_per_record,omitempty"`
	AllocBytes       float64 `json:"alloc_bytes_per_record,omitempty"`
	Bytes            float64 `json:"bytes_per_record,omitempty"` // on disk
	Peak             float64 `json:"peak_mb,omitempty"`          // resident
	PeakRSS          int64   `json:"peak_rss_bytes,omitempty"`   // VmHWM
}

// ResultHeads are the heads of the columns of a Result.
var ResultHeads = fmt.Sprintf("%-58s %9s %12s", "", "count", "per second")

func (r Result) String() string {
	const mb = 1 << 20
	return line(fmt.Sprintf("%-58s", r.What), []figure{{float64(max(r.Count, r.Records)), " %9.0f"}, {r.PerSecond, " %10.0f/s"}},
		[]figure{{r.Asked, "%.0f/s were asked for"}, {r.ToFloor, "%.2fx the floor"}, {r.ToInsertFloor, "%.2fx the insert floor"}, {r.ToConsumer, "%.2fx the floor"},
			{float64(r.BundleBytes) / mb, "%.0f MB of bundle"}, {r.Seconds, "%.1f s"}, {r.P50, "p50 %.0f us"}, {r.P99, "p99 %.0f us"},
			{r.LagP50, "p50 %.1f ms"}, {r.LagP99, "p99 %.1f ms"}, {float64(r.Writes), "%.0f writes"}, {r.EachMessage, "%.2f us each"},
			{r.CPU + r.MessageCPU, "%.2f us of processor time"}, {r.ServersCPU + r.MessageServerCPU, "%.2f us of the servers'"}, {r.EngineCPU, "%.0f us of the engine's"},
			{r.Allocs, "%.1f allocs"}, {r.Bytes, "%.1f B a record"}, {r.Peak, "%.0f MB"}, {float64(r.PeakRSS) / mb, "%.0f MB"}})
}

// figure is a number of a line. 0 was not measured.
type figure struct {
	value  float64
	format string
}

// line writes columns, which keep their places, and the notes that were measured.
func line(what string, columns, notes []figure) string {
	for _, f := range columns {
		text := fmt.Sprintf(f.format, f.value)
		if f.value == 0 {
			text = strings.Repeat(" ", len(text))
		}
		what += text
	}
	for _, f := range notes {
		if f.value != 0 {
			what += "  " + fmt.Sprintf(f.format, f.value)
		}
	}
	return strings.TrimRight(what, " ")
}

// Title prints the machine, what is measured on it, and the heads of the columns. In JSON there is none.
func Title(io ui.Stdio, asJSON bool, heads, format string, a ...any) {
	if !asJSON {
		fmt.Fprintf(io.Out, "%d CPUs, %s, load %s, %s\n\n%s\n", runtime.NumCPU(), runtime.Version(), LoadAverage(), fmt.Sprintf(format, a...), heads)
	}
}

// LatencyOf is the line of operations that took so long each, and elapsed together. It sorts took,
// which MUST NOT be empty.
func LatencyOf(what string, clients int, took []time.Duration, elapsed time.Duration) Latency {
	slices.Sort(took)
	n := len(took)
	return Latency{What: what, Clients: clients, Count: n, PerSecond: float64(n) / elapsed.Seconds(), P50: Micros(took[n/2]), P99: Micros(took[n*99/100])}
}

// Print writes a result, as a line of JSON or as its own text.
func Print(io ui.Stdio, asJSON bool, result fmt.Stringer) error {
	if asJSON {
		return ui.WriteJSON(io, result)
	}
	_, err := fmt.Fprintln(io.Out, result)
	return err
}

// WarmUp is the divisor for the part of a measurement's start that does not count.
const WarmUp = 10 // a tenth

// Micros is a duration in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Millis is a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Errors of measurements.
var (
	ErrNotAllowed = errors.New("the sample request was not allowed")
	ErrNotStored  = errors.New("an event was not stored")
	ErrDone       = errors.New("everything is read")
)

// LoadAverage is the machine's load average of the last minute, which shows how reliable the
// figures are.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
