package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runCommands is Cline's tool, which takes several commands.
func runCommands(command string) turn {
	return turn{{tool: "run_commands", input: object{"commands": []string{command}}}}
}

var cline = codingAgent{
	name: "cline", hooks: ".cline/hooks/PreToolUse.sh", program: "@cline/cli-linux-x64/bin/cline", speaks: messagesWith(""),
	args: []string{"--json", "Do as you are told."},
	env: func(string, string) []string {
		return []string{"CLINE_SESSION_BACKEND_MODE=local", "CLINE_NO_AUTO_UPDATE=1"}
	},
	prepare: func(t *testing.T, h hooked, server string) {
		addSettings(t, filepath.Join(h.home, ".cline/data/settings/providers.json"), object{"version": 1, "lastUsedProvider": "anthropic", "modes": object{},
			"providers": object{"anthropic": object{"tokenSource": "manual", "updatedAt": "2026-11-26T00:00:00.000Z",
				"settings": object{"provider": "anthropic", "apiKey": "dummy", "model": "claude-sonnet-4-5", "baseUrl": server + "/v1"}}}})
	},
}

// Cline's command line runs the hooks that install writes: an allowed command leaves its file, and a refused one ends
// the whole run. Both are on record.
func TestAgentsCline(t *testing.T) {
	t.Parallel()
	if os.Getenv(agentsEnv) == "" {
		t.Skip("it takes long: run make agents")
	}
	cline.find(t)
	policy := strings.NewReplacer("[Bash, bash, run_shell_command]", "[run_commands]", "args.command.contains", "args.commands[0].contains", "args.command.matches", "args.commands[0].matches").Replace(hookPolicies)
	h := start(t, "--policy", policyDir(t, "hook.yaml", policy)).hook(t, cline.name, "20s")
	dir := t.TempDir()
	m := &model{turns: []turn{runCommands("touch allowed-1"), runCommands("touch forbidden-1"), runCommands("touch allowed-2")}}
	out := h.converse(t, cline, dir, m)
	if len(m.results) != 1 || strings.Contains(m.results[0], "Countersign") {
		t.Errorf("the model was told %q\n%s", m.results, out)
	}
	for name, made := range map[string]bool{"allowed-1": true, "forbidden-1": false, "allowed-2": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != made {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	gate := filepath.Join(t.TempDir(), "gate")
	h.replace(t, cline, program("countersign-hook"), gate) // it is missing
	for _, script := range []string{"", "kill -KILL $$"} {
		gateFailure{script: script}.write(t, gate)
		m := &model{turns: []turn{runCommands("touch failed-1")}}
		out := h.converse(t, cline, dir, m)
		if _, err := os.Stat(filepath.Join(dir, "failed-1")); err == nil || !strings.Contains(out, "aborted") {
			t.Errorf("with a gate that fails (%q): the file is missing: %t\n%s", script, err != nil, out)
		}
	}
	h.replace(t, cline, gate, program("countersign-hook"))
	h.countersign(t, "hook", "uninstall", "cline").want(t, 0)
	install := exec.Command(program("countersign"), "hook", "install", "cline", "--project")
	install.Env, install.Dir = h.env, dir
	command(t, install).want(t, 0)
	out += h.converse(t, cline, dir, &model{turns: []turn{runCommands("touch allowed-3")}})
	if _, err := os.Stat(filepath.Join(dir, "allowed-3")); err != nil {
		t.Errorf("with the hooks of a project: %v", err)
	}
	h.settle(t)
	if rows := evidence(t, h.auditors(t), "kind = 'decision'"); len(rows) != 3 {
		t.Errorf("the admitter decided %d times, want once for each call", len(rows))
	}
	calls := h.run(t, "calls", "--json").want(t, 0).out
	for id, want := range map[string]string{"toolu_0": `"match":"equal"`, "toolu_1": `"state":"denied"`} {
		if line := lineWith(calls, `"tool_call_id":"`+id+`"`); !strings.Contains(line, want) {
			t.Errorf("%s lacks %s: %s\n%s", id, want, calls, out)
		}
	}
}
