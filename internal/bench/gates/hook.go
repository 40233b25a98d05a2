package gates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/gateclient"
)

// HookCmd measures the gate of coding agents as an agent runs it: one process a call, from its start to
// its end. Beside it are an empty Go program and the admission of the same call, over a connection that
// stays and over a new one. They take turns, so that all have the same machine.
type HookCmd struct{ turnsFlags }

// hookPolicy allows the calls of the benchmark.
var hookPolicy = policy.Document{Name: "hook", Data: []byte(`apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: hook}
spec:
  match: {tools: [Bash]}
  rules:
    - {name: list, when: 'args.command == "ls -la"', verdict: allow, reason: list}
`)}

func (c *HookCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Calls < 1 {
		return ui.UsageError{Err: errors.New("--calls must be at least 1")}
	}
	setup := measure.Setup{SyncInterval: c.SyncInterval, Policies: c.Policies, CacheDir: c.CacheDir, More: []policy.Document{hookPolicy}}
	return setup.RunReady(ctx, io, func(dir, readyFile string, _ target.Ready) error {
		paths, err := openHook(ctx, dir, readyFile)
		if err != nil {
			return err
		}
		if err := takeTurns(ctx, c.Calls, paths); err != nil {
			return err
		}
		return printTurns(io, c.JSON, fmt.Sprintf("%d policies, log synced: %s, one call at a time", c.Policies, c.SyncInterval), paths)
	})
}

// openHook returns the kinds of calls. The first is admission.
func openHook(ctx context.Context, dir, readyFile string) ([]*gatePath, error) {
	gate, err := measure.Beside("countersign-hook")
	if err != nil {
		return nil, err
	}
	empty, err := buildEmpty(ctx, dir)
	if err != nil {
		return nil, err
	}
	config := gateclient.Config{ReadyFile: readyFile}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	configFile := filepath.Join(dir, "hook.json")
	if err := os.WriteFile(configFile, text, 0o600); err != nil {
		return nil, err
	}
	peer, err := config.Peer()
	if err != nil {
		return nil, err
	}
	input := hookInputs()
	kept := gateclient.NewAsker(peer)
	return []*gatePath{
		{what: "admission over the gateway", call: func(ctx context.Context) error { return admitHook(ctx, kept, input()) }},
		{what: "admission, new connection", call: func(ctx context.Context) error { return admitHook(ctx, gateclient.NewAsker(peer), input()) }},
		{what: "empty Go program", call: func(ctx context.Context) error { _, err := runHook(ctx, dir, nil, empty); return err }},
		{what: "the gate's program, --version", call: func(ctx context.Context) error {
			_, err := runHook(ctx, dir, nil, gate, "--version")
			return err
		}},
		{what: "call through the hook", gate: true, call: func(ctx context.Context) error { return throughHook(ctx, dir, input(), gate, configFile) }},
	}, nil
}

// buildEmpty compiles the floor.
func buildEmpty(ctx context.Context, dir string) (string, error) {
	source, program := filepath.Join(dir, "empty.go"), filepath.Join(dir, "empty")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building an empty Go program: %w: %s", err, out)
	}
	return program, nil
}

// hookInputs returns inputs of Claude Code, of one session, each of another call.
func hookInputs() func() []byte {
	session, n := uuid.NewString(), 0
	return func() []byte {
		n++
		return fmt.Appendf(nil, `{"session_id":%q,"transcript_path":"/tmp/transcript.jsonl","cwd":"/work","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"toolu_%d","tool_input":{"command":"ls -la","description":"Lists the files."}}`,
			session, n)
	}
}

// admitHook asks the gateway as the gate does, and does nothing else.
func admitHook(ctx context.Context, asker *gateclient.Asker, input []byte) error {
	agent, _ := hook.Find("claude-code")
	e, err := agent.Read("", input)
	if err != nil {
		return err
	}
	event, err := e.AgentHook(agent.Name, hook.Envelope{ID: uuid.NewString(), Time: time.Now(), CallID: e.CallID})
	if err != nil {
		return err
	}
	return propose(ctx, asker, event)
}

// throughHook runs the gate as Claude Code does. Silence is an allow.
func throughHook(ctx context.Context, home string, input []byte, gate, config string) error {
	out, err := runHook(ctx, home, input, gate, "claude-code", "--config", config)
	if err == nil && out != "" {
		err = fmt.Errorf("%w: %.300s", measure.ErrNotAllowed, out)
	}
	return err
}

// runHook runs a program to its end and returns its output.
func runHook(ctx context.Context, home string, input []byte, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+home)
	cmd.Stdin = bytes.NewReader(input)
	var out, notes strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, notes.String())
	}
	return out.String(), nil
}
