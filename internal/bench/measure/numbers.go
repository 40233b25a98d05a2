package measure

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// Latency is one line of a benchmark.
type Latency struct {
	What      string  `json:"what"`
	Clients   int     `json:"clients"`
	Count     int     `json:"count"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Ratio     float64 `json:"p50_to_floor,omitempty"`  // only for one client
	RateRatio float64 `json:"rate_to_floor,omitempty"` // only for many clients
}

// LatencyOf is the line of operations that took so long each, and elapsed together. It sorts took,
// which MUST NOT be empty.
func LatencyOf(what string, clients int, took []time.Duration, elapsed time.Duration) Latency {
	slices.Sort(took)
	n := len(took)
	return Latency{What: what, Clients: clients, Count: n, PerSecond: float64(n) / elapsed.Seconds(), P50: Micros(took[n/2]), P99: Micros(took[n*99/100])}
}

// String is the line of a result.
func (r Latency) String() string {
	if r.Count == 0 {
		return fmt.Sprintf("%-34s %8d %10s %12s %8.0fus", r.What, r.Clients, "", "", r.P50)
	}
	note := ""
	switch {
	case r.Ratio > 0:
		note = fmt.Sprintf("   %.2fx the floor", r.Ratio)
	case r.RateRatio > 0:
		note = fmt.Sprintf("   %.2fx the floor's rate", r.RateRatio)
	}
	return fmt.Sprintf("%-34s %8d %10d %12.0f %8.0fus %8.0fus%s", r.What, r.Clients, r.Count, r.PerSecond, r.P50, r.P99, note)
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
