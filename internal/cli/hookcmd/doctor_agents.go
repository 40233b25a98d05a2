package hookcmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// agentTimeout bounds what the doctor waits for an agent's program. OpenCode may try to install its types for plugins.
const agentTimeout = 60 * time.Second

// errNotAsked reports that an agent's program could not be asked: nothing is known.
var errNotAsked = errors.New("not asked")

// asked asks the agent's own program whether the gate is in force.
func (i installation) asked(ctx context.Context, scope string) examined {
	f := examined{Check: "what " + i.program + " says"}
	program, err := exec.LookPath(i.program)
	if err != nil {
		f.Open, f.Detail = true, i.program+" is not on the PATH"
		return f
	}
	command, err := installedCommand(i.agent, scope)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	detail, err := i.ask(ctx, program, command)
	switch {
	case errors.Is(err, errNotAsked):
		f.Open, f.Detail = true, program+": "+ui.Clean(err.Error(), 300)
	case err != nil:
		f.Detail = program + ": " + ui.Clean(err.Error(), 300)
	default:
		f.OK, f.Detail = true, program+": "+ui.Clean(detail, 300)
	}
	return f
}

// closesClaude is the first version of Claude Code that knows onFailure: older ones run the call when the gate dies.
var closesClaude = []int{2, 1, 295}

var versionNumbers = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)`)

// askClaude asks for the version.
func askClaude(ctx context.Context, program, _ string) (string, error) {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	m := versionNumbers.FindStringSubmatch(strings.TrimSpace(string(out)))
	if err != nil || m == nil {
		return "", fmt.Errorf("%w: its version cannot be read", errNotAsked)
	}
	var version []int
	for _, digits := range m[1:] {
		n, err := strconv.Atoi(digits)
		if err != nil {
			return "", fmt.Errorf("%w: its version cannot be read", errNotAsked)
		}
		version = append(version, n)
	}
	if slices.Compare(version, closesClaude) < 0 {
		return "", fmt.Errorf("version %s does not know onFailure: if the gate dies, calls run; 2.1.295 and newer do", m[0])
	}
	return "version " + m[0] + ", which knows onFailure", nil
}

// codexHook is a hook as Codex lists it.
type codexHook struct {
	Event   string `json:"eventName"`
	Command string `json:"command"`
	Enabled bool   `json:"enabled"`
	Trust   string `json:"trustStatus"`
}

// codexTerminals is the feature by which Codex runs commands in terminals. What it writes to one later (write_stdin)
// raises no event: a shell that was allowed runs whatever it is given. Other commands have no input.
const codexTerminals = "unified_exec_tty"

// askCodex asks Codex whether it runs commands in terminals, and its app server which hooks it trusts here: it skips the
// others without a word.
func askCodex(ctx context.Context, program, command string) (string, error) {
	if err := terminalsOff(ctx, program); err != nil {
		return "", err
	}
	hooks, err := listCodexHooks(ctx, program)
	if err != nil {
		return "", fmt.Errorf("%w: its app server does not list the hooks: %w", errNotAsked, err)
	}
	gate := false
	for _, h := range hooks {
		if h.Command != command && h.Command != closed(command, hangLimit) && h.Command != stopping(command) {
			continue
		}
		if !h.Enabled || h.Trust != "trusted" && h.Trust != "managed" {
			return "", fmt.Errorf("the hook of %s is %s, and skipped: open /hooks in Codex and trust the hooks", h.Event, ui.Clean(h.Trust, 40))
		}
		gate = gate || h.Event == "preToolUse"
	}
	if !gate {
		return "", errors.New("no hook that it lists for this directory runs the gate before a tool")
	}
	return "the gate's hooks are trusted, and commands have no input", nil
}

func terminalsOff(ctx context.Context, program string) error {
	out, err := exec.CommandContext(ctx, program, "features", "list").Output()
	for line := range strings.Lines(string(out)) {
		switch f := strings.Fields(line); {
		case len(f) < 2 || f[0] != codexTerminals:
		case f[len(f)-1] == "false":
			return nil
		default:
			return errors.New("what it writes to a command that runs (write_stdin) does not reach the gate: run codex features disable " + codexTerminals)
		}
	}
	return fmt.Errorf("%w: its features do not say whether commands have input: %w", errNotAsked, cmp.Or(err, errors.New("no "+codexTerminals)))
}

func listCodexHooks(ctx context.Context, program string) ([]codexHook, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the server
	cmd := exec.CommandContext(ctx, program, "app-server")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	const list = 2
	questions := json.NewEncoder(in)
	for _, q := range []map[string]any{
		{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": map[string]any{"clientInfo": map[string]string{"name": "countersign", "version": "0"}}},
		{"jsonrpc": "2.0", "method": "initialized"},
		{"jsonrpc": "2.0", "id": list, "method": "hooks/list", "params": map[string]any{"cwds": []string{dir}}},
	} {
		if err := questions.Encode(q); err != nil {
			return nil, err
		}
	}
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, errors.New("it ended")
		}
		var answer struct {
			ID     int
			Result struct {
				Data []struct{ Hooks []codexHook }
			}
		}
		if json.Unmarshal(line, &answer) != nil || answer.ID != list {
			continue // notices
		}
		var hooks []codexHook
		for _, d := range answer.Result.Data {
			hooks = append(hooks, d.Hooks...)
		}
		return hooks, nil
	}
}

// pluginLoadedEnv has the plugin for OpenCode say on standard error that it was loaded, with the text of the variable.
const pluginLoadedEnv = "COUNTERSIGN_PLUGIN_LOADED"

// askOpenCode starts OpenCode, which loads its plugins, with nothing to do.
func askOpenCode(ctx context.Context, program, _ string) (string, error) {
	word := "countersign-" + uuid.NewString()
	cmd := exec.CommandContext(ctx, program, "debug", "info")
	cmd.Env = append(os.Environ(), pluginLoadedEnv+"="+word)
	out, err := cmd.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte(word)):
		return "it loads the gate's plugin", nil
	case err != nil:
		return "", fmt.Errorf("%w: it does not start: %w", errNotAsked, err)
	}
	return "", errors.New("it does not load the gate's plugin, and says nothing: calls run")
}
