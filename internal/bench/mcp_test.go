package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// What a gate adds is the difference to the admissions of the same run.
func TestMCPOverAdmission(t *testing.T) {
	var out bytes.Buffer
	sleepless := func(context.Context) error { return nil }
	c := &mcpCmd{Calls: 20, JSON: true}
	paths := []*mcpPath{{what: "admission", call: sleepless}, {what: "gate", gate: true, call: sleepless}}
	if err := c.measure(t.Context(), paths); err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if len(p.took) != c.Calls {
			t.Fatalf("%s: %d calls count, of %d", p.what, len(p.took), c.Calls)
		}
	}
	for i := range c.Calls {
		paths[0].took[i], paths[1].took[i] = time.Millisecond, time.Duration(3+i)*time.Millisecond
	}
	if err := c.print(ui.Stdio{Out: &out}, paths); err != nil {
		t.Fatal(err)
	}
	var lines []mcpResult
	for d := json.NewDecoder(&out); d.More(); {
		var r mcpResult
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
	conn := func(_ context.Context, line []byte) ([]byte, error) {
		var out bytes.Buffer
		err := (&mcpServerCmd{}).Run(ui.Stdio{In: bytes.NewReader(line), Out: &out})
		return out.Bytes(), err
	}
	if err := greet(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if err := ask(t.Context(), conn, 3, "tools/call", `{"name":"echo"}`); err != nil {
		t.Fatal(err)
	}
	if err := ask(t.Context(), conn, 4, "no/method", `{}`); err == nil || strings.Contains(err.Error(), "panic") {
		t.Errorf("a method that the server does not know: %v", err)
	}
}
