package e2e_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// evaluate and check need no server.
func TestOfflineCommands(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	requests := string(allowedCall("s", "c1").bytes()) + "\n" + string(object{"request": deniedCall("s", "c2"), "now": "2026-11-20T09:00:00Z"}.bytes()) + "\nnot json\n"
	r := tool(t, "evaluate", "--protocol", "agenthook", "--policy", samplePolicies, file(t, []byte(requests))).want(t, 0)
	var verdicts []string
	for _, line := range strings.Split(strings.TrimSpace(r.out), "\n") {
		var v object
		ok(t, json.Unmarshal([]byte(line), &v))
		verdicts = append(verdicts, v.text("verdict"))
	}
	if strings.Join(verdicts, " ") != "allow deny deny" {
		t.Errorf("verdicts %v", verdicts)
	}
	call := deniedCall("s", "c1")
	decision := object{"decision": object{"decision_id": "d1", "tenant": "acme", "protocol": "agenthook", "source": "e2e-agent", "session": "s",
		"tool_call_id": "c1", "tool": "delete_database", "event_id": call.text("event_id"), "request_digest": "sha256:00", "verdict": "deny",
		"reasons": []any{}, "decided_at": now()}}
	recording := string(decision.bytes()) + "\n" + string(call.bytes()) + "\n" + string(postToolUse(call).bytes()) + "\n"
	r = tool(t, "check", "--protocol", "agenthook", file(t, []byte(recording))).want(t, 0)
	if strings.Count(r.out, `"rule":"executed_despite_deny"`) != 1 {
		t.Errorf("%s%s", r.out, r.err)
	}
	tool(t, "check", "--fail", "--protocol", "agenthook", file(t, []byte(recording))).want(t, 1)
	tool(t, "check", "--protocol", "aaep", filepath.Join(root, "examples/sessions/aaep-flight.jsonl")).want(t, 0)
}

// Wrong calls are answered in one line, with exit code 2.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	request := file(t, allowedCall("s", "c1").bytes())
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"unknown command", []string{"frobnicate"}, []string{"frobnicate"}},
		{"unknown flag", []string{"admit", "--frobnicate"}, []string{"--frobnicate"}},
		{"no protocol", []string{"admit", request}, []string{"--protocol"}},
		{"no file", []string{"admit", "--protocol", "agenthook"}, []string{"<file>"}},
		{"absent file", []string{"admit", "--protocol", "agenthook", "/absent", "--server", "nats://127.0.0.1:1"}, []string{"/absent"}},
		{"evaluate in no protocol", []string{"evaluate", "--protocol", "nonsense", request}, []string{"--protocol"}},
		{"evaluate at no time", []string{"evaluate", "--protocol", "agenthook", "--now", "yesterday", request}, []string{"yesterday"}},
		{"check in no protocol", []string{"check", "--protocol", "nonsense", request}, []string{"nonsense"}},
		{"up with a wrong configuration", []string{"up", "--data-dir", t.TempDir(), "--config", file(t, []byte("tenant: acme\ntennant: x\n"))}, []string{"line 2"}},
		{"up with no such policies", []string{"up", "--data-dir", t.TempDir(), "--policy", "/misspelt"}, []string{"/misspelt"}},
		{"verify of an absent bundle", []string{"verify", "--bundle", "/absent.zip", "--key", file(t, nil)}, nil},
		{"verify without a key", []string{"verify", "--clickhouse", "clickhouse://127.0.0.1:1/x"}, []string{"--key"}},
		{"tail of a rule that does not exist", []string{"tail", "--rule", "ah-c-075", "--server", "nats://127.0.0.1:1"}, []string{"did you mean AH-C-075?"}},
		{"tail of a verdict that does not exist", []string{"tail", "--verdict", "perhaps"}, []string{"--verdict"}},
		{"nothing to provision", []string{"provision"}, []string{"--keys"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tool(t, tc.args...).want(t, 2).oneLine(t, tc.says...)
		})
	}
}

// A system that does not answer is said in one line that says what to do; for
// admit it is no verdict.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port without a listener
	ok(t, err)
	nats := "nats://" + l.Addr().String()
	ok(t, l.Close())
	request := file(t, allowedCall("s", "c1").bytes())
	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"admit", []string{"admit", "--protocol", "agenthook", "--server", nats, request}, "countersign up"},
		{"publish", []string{"publish", "--protocol", "agenthook", "--server", nats, "--user", "x", request}, "countersign up"},
		{"tail", []string{"tail", "--server", nats}, "countersign up"},
		{"doctor", []string{"doctor", "--server", nats}, "countersign up"},
		{"policy push", []string{"policy", "push", "--server", nats, samplePolicies}, "countersign up"},
		{"no server named", []string{"admit", "--protocol", "agenthook", request}, "--ready-file"},
		{"no ready file", []string{"admit", "--protocol", "agenthook", "--ready-file", "/absent/ready.json", request}, "countersign up"},
		{"chain without ClickHouse", []string{"chain", "--session", "s"}, "--ready-file"},
		{"chain", []string{"chain", "--session", "s", "--clickhouse", "clickhouse://127.0.0.1:1/x"}, "127.0.0.1:1"},
		{"unknown context", []string{"tail", "--context", "nowhere"}, "nats context"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tool(t, tc.args...).want(t, 1).oneLine(t, tc.says)
		})
	}
	s := start(t)
	t.Run("no admitter", func(t *testing.T) {
		admitter := s.holdDown(t, "admitter")
		defer admitter()
		r := s.run(t, "admit", "--protocol", "agenthook", "--timeout", "2s", request).want(t, 1)
		r.oneLine(t, "deny")
		if r.out != "" {
			t.Errorf("it prints %s", r.out)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		stale := file(t, must(os.ReadFile(s.ready)))
		ok(t, s.stop())
		tool(t, "admit", "--ready-file", stale, "--protocol", "agenthook", request).want(t, 1).oneLine(t, "countersign up")
		tool(t, "verify", "--ready-file", stale).want(t, 1).oneLine(t)
	})
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
