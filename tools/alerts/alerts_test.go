// Package alerts plays series of samples to Prometheus' own engine and looks when the alerts of
// deploy/prometheus/alerts.yml fire. It is a module of its own, so that nothing else depends on Prometheus.
package alerts

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"go.yaml.in/yaml/v3"
)

// step is both the time between two samples, as prometheus.yml has it, and between two evaluations of a rule
// (Prometheus' default is a minute: it fires later by no more than that).
const step = 15 * time.Second

const never = -1 * time.Minute

type rule struct {
	Alert         string
	Expr          string
	For           duration
	KeepFiringFor duration `yaml:"keep_firing_for"`
}

// duration is one of Prometheus' durations, of which the rules use minutes, hours and days.
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	s := string(text)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		s = days + "h"
		hours, err := time.ParseDuration(s)
		*d = duration(24 * hours)
		return err
	}
	v, err := time.ParseDuration(s)
	*d = duration(v)
	return err
}

func readRules(t *testing.T) map[string]rule {
	t.Helper()
	b, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	rules := map[string]rule{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules[r.Alert] = r
		}
	}
	return rules
}

// fires evaluates the rule every step until end. It returns when the rule fired first and last (never and never if
// it did not), and the labels of what fired, sorted.
func fires(t *testing.T, r rule, series storage.Queryable, end time.Duration) (first, last time.Duration, labels []string) {
	t.Helper()
	engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
	q, err := engine.NewRangeQuery(t.Context(), series, nil, r.Expr, time.Unix(0, 0), time.Unix(0, 0).Add(end), step)
	if err != nil {
		t.Fatalf("%s: %v", r.Alert, err)
	}
	defer q.Close()
	matrix, err := q.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatalf("%s: %v", r.Alert, err)
	}
	first, last = never, never
	for _, s := range matrix {
		at := firing(s, r, end)
		if len(at) == 0 {
			continue
		}
		labels = append(labels, s.Metric.WithoutEmpty().String())
		if first == never || at[0] < first {
			first = at[0]
		}
		last = max(last, at[len(at)-1])
	}
	slices.Sort(labels)
	return first, last, labels
}

// firing returns the evaluations until end at which an alert with the labels of s fires, as Prometheus' rules have it: one
// without a value ends the wait of `for`, and the alert goes on for `keep_firing_for` from there.
func firing(s promql.Series, r rule, end time.Duration) []time.Duration {
	present := map[time.Duration]bool{}
	for _, p := range s.Floats {
		present[time.Duration(p.T)*time.Millisecond] = true
	}
	var at []time.Duration
	fires, since, gone := false, never, never
	for now := time.Duration(0); now <= end; now += step {
		switch {
		case present[now]:
			if since == never {
				since = now
			}
			fires, gone = fires || now-since >= time.Duration(r.For), never
		case fires && gone == never && r.KeepFiringFor > 0:
			gone = now
		case !fires || gone == never || now-gone >= time.Duration(r.KeepFiringFor):
			fires, since, gone = false, never, never
		}
		if fires {
			at = append(at, now)
		}
	}
	return at
}

// TestAlerts: each alert fires when it should, with the labels that its texts name, and does not fire for what is
// close to it. Samples are 15 s apart: `0x7 1x20` is 2 minutes of 0 and 5 minutes of 1.
func TestAlerts(t *testing.T) {
	rules := readRules(t)
	fired, quiet := map[string]bool{}, map[string]bool{}
	for _, tc := range cases {
		t.Run(tc.alert+"/"+tc.name, func(t *testing.T) {
			r, ok := rules[tc.alert]
			if !ok {
				t.Fatal("alerts.yml has no such alert")
			}
			series := promqltest.LoadedStorage(t, "load 15s\n  "+strings.Join(tc.series, "\n  ")+"\n")
			first, last, labels := fires(t, r, series, tc.until)
			if first != tc.first || tc.last != 0 && last != tc.last {
				t.Errorf("fires from %s to %s, want from %s to %s", first, last, tc.first, tc.last)
			}
			if first != never && !slices.Equal(labels, tc.labels) {
				t.Errorf("labels %q, want %q", labels, tc.labels)
			}
			fired[tc.alert] = fired[tc.alert] || tc.first != never
			quiet[tc.alert] = quiet[tc.alert] || tc.first == never
		})
	}
	for name := range rules {
		if !fired[name] || !quiet[name] {
			t.Errorf("%s has no case in which it fires, or none in which it does not", name)
		}
	}
}
