package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/internal/bench"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline/child"
)

// TestMain is also the main function of the services that a benchmark starts.
func TestMain(m *testing.M) {
	child.RunIfAsked()
	os.Exit(m.Run())
}

// TestCalls runs the whole pipeline for three seconds. It asserts what was counted, and no time:
// every call has its course, no finding appears but those that the calls make, and the costs that
// must be there are.
func TestCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	var out, progress bytes.Buffer
	code := bench.Program().Run(context.Background(), []string{
		"calls", "--rate", "35", "--seconds", "3", "--warm-up", "0s", "--variant", "governed", "--log", "2m", "--clickhouse-apart", "--json",
	}, ui.Stdio{In: nil, Out: &out, Err: &progress})
	if code != ui.ExitOK {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), progress.String())
	}
	var r struct {
		Variant   string             `json:"variant"`
		Calls     int                `json:"calls"`
		Failed    int                `json:"failed"`
		Why       string             `json:"not_sustained_because"`
		Findings  map[string]int     `json:"findings"`
		CPU       float64            `json:"cpu_ms_per_call"`
		CPUBy     map[string]float64 `json:"cpu_ms_per_call_by_process"`
		Messages  float64            `json:"log_messages_per_call"`
		LogBytes  float64            `json:"log_bytes_per_call"`
		Evidence  float64            `json:"evidence_bytes_per_call"`
		SyncsBy   map[string]float64 `json:"syncs_per_call_by_process"`
		Memory    map[string]float64 `json:"resident_mib"`
		EvidenceP float64            `json:"evidence_lag_p99_ms"`
		Floors    []struct {
			PerSecond float64 `json:"calls_per_second"`
		} `json:"floors"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if r.Variant != "governed" || r.Calls != 105 || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
	if r.Findings["input_drift"] == 0 {
		t.Errorf("no call drifted: %v", r.Findings)
	}
	// Calls of one session overlap only where a verdict takes longer than the pause between them.
	for rule := range r.Findings {
		if !slices.Contains([]string{"input_drift", "AH-C-080", "AH-C-054"}, rule) {
			t.Errorf("the calls break %s: %v", rule, r.Findings)
		}
	}
	for _, name := range []string{"admitter", "correlator", "auditor", "nats", "clickhouse"} {
		if r.CPUBy[name] <= 0 || r.Memory[name] <= 0 {
			t.Errorf("%s: no processor time or no memory: %+v", name, r)
		}
	}
	if sum := r.CPUBy["admitter"] + r.CPUBy["correlator"] + r.CPUBy["auditor"] + r.CPUBy["gateway"] + r.CPUBy["nats"]; r.CPU < sum*0.999 || r.CPU > sum*1.001 {
		t.Errorf("the sum without ClickHouse is %g, not %g", r.CPU, sum)
	}
	if r.Messages < 4 || r.LogBytes < 1800 || r.Evidence <= 0 || r.EvidenceP <= 0 || r.SyncsBy["clickhouse"] <= 0 || r.SyncsBy["nats"] != 0 {
		t.Errorf("%+v", r)
	}
	if len(r.Floors) != 2 || r.Floors[0].PerSecond <= 0 || r.Floors[1].PerSecond <= 0 {
		t.Errorf("floors: %+v", r.Floors)
	}
}
