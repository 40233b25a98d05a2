package gates

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// What a gate adds is the difference to the admissions of the same run.
func TestGateOverAdmission(t *testing.T) {
	var out bytes.Buffer
	sleepless := func(context.Context) error { return nil }
	const calls = 20
	paths := []*gatePath{{what: "admission", call: sleepless}, {what: "gate", gate: true, call: sleepless}}
	if err := takeTurns(t.Context(), calls, paths); err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if len(p.took) != calls {
			t.Fatalf("%s: %d calls count, of %d", p.what, len(p.took), calls)
		}
	}
	for i := range calls {
		paths[0].took[i], paths[1].took[i] = time.Millisecond, time.Duration(3+i)*time.Millisecond
	}
	if err := printTurns(ui.Stdio{Out: &out}, true, "", paths); err != nil {
		t.Fatal(err)
	}
	var lines []measure.Latency
	for d := json.NewDecoder(&out); d.More(); {
		var r measure.Latency
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, r)
	}
	if len(lines) != 2 || lines[0].P50 != 1000 || lines[0].P50Over != 0 || lines[1].P50Over != 12000 || lines[1].P99Over != 21000-1000+1000 {
		t.Errorf("%+v", lines)
	}
}

// The server of the benchmark answers as the clients of the benchmark expect.
func TestMCPServerOfBenchmark(t *testing.T) {
	client, server := sdk.NewInMemoryTransports()
	if _, err := mcpServer().Connect(t.Context(), server, nil); err != nil {
		t.Fatal(err)
	}
	session, err := connectMCP(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if err := callMCP(t.Context(), session); err != nil {
		t.Fatal(err)
	}
}

// Each call of the benchmark is another call of one session, and what is no allow ends the benchmark.
func TestHookOfBenchmark(t *testing.T) {
	agent, _ := hook.Find("claude-code")
	input := hookInputs()
	first, err := agent.Read("", input())
	second, err2 := agent.Read("", input())
	if err != nil || err2 != nil || first.Kind != hook.Before || first.Session != second.Session || first.CallID == second.CallID {
		t.Errorf("%+v, %v; then %+v, %v", first, err, second, err2)
	}
	for script, want := range map[string]string{"exit 0": "", "echo refused": "refused", "echo why >&2; exit 3": "why"} {
		gate := filepath.Join(t.TempDir(), "gate")
		if err := os.WriteFile(gate, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := throughHook(t.Context(), t.TempDir(), input(), gate, "none"); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("a gate that does %q: %v", script, err)
		}
	}
}
