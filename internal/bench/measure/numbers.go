package measure

import (
	"errors"
	"os"
	"strings"
	"time"
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
	Allocs    float64 `json:"allocs_per_op,omitempty"` // of this process; only for measurements inside it
	Bytes     float64 `json:"bytes_per_op,omitempty"`
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
