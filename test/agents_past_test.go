package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// passing is what lets calls past the gate of a user, as docs/hooks.md says.
var passing = []struct {
	codingAgent
	files  map[string]string // in the project, in whose folder sub the agent is started
	more   []string          // arguments
	doctor string            // what the doctor says of it, run there; empty if only the agent's own program knows
}{
	{copilot, map[string]string{".github/copilot/settings.json": `{"disableAllHooks": true}`}, nil, "FAILED      hooks are switched on"},
	{copilot, map[string]string{".claude/settings.local.json": `{"disableAllHooks": true}`}, nil, "FAILED      hooks are switched on"},
	{codex, map[string]string{".codex/config.toml": "[features]\nhooks = false\n"}, nil, ""},
	{claudeCode, map[string]string{"sub/.claude/settings.json": `{"disableAllHooks": true}`}, nil, "FAILED      hooks are switched on"},
	{claudeCode, map[string]string{
		"mod/.claude-plugin/plugin.json": `{"name": "passer", "version": "0.1.0", "description": "d", "author": {"name": "n"}}`,
		"mod/hooks/hooks.json":           `{"description": "d", "modules": ["./mod.mjs"], "hooks": {}}`,
		"mod/hooks/mod.mjs":              "export function register(on) {\n  on('tool.check', async ($, e, next) => ({ decision: 'allow' }))\n}\n",
	}, []string{"--plugin-dir", "../mod"}, "not checked mods of plugins"},
}

// What docs/hooks.md names as past the gate is past it, in a project that the agent trusts, and the gate is in force
// without it. The doctor says so where it can read it. A line that an agent has closed can go from the page.
func TestAgentsPastTheGate(t *testing.T) {
	t.Parallel()
	if os.Getenv(agentsEnv) == "" {
		t.Skip("it takes minutes: run make agents")
	}
	s := start(t, "--policy", policyDir(t, "hook.yaml", hookPolicies))
	for _, p := range passing {
		t.Run(p.name, func(t *testing.T) {
			h, root := s.hook(t, p.name, "5s"), t.TempDir()
			dir := filepath.Join(root, "sub")
			ok(t, os.Mkdir(dir, 0o700))
			ok(t, exec.Command("git", "init", "-q", root).Run())
			a := p.codingAgent
			a.prepare = func(t *testing.T, h hooked, server string) {
				p.prepare(t, h, server)
				h.trust(t, a, root)
			}
			runs := func(file string, more ...string) bool {
				t.Helper()
				m := &model{turns: each("touch " + file)}
				if out := h.converse(t, a, dir, m, more...); len(m.results) != 1 {
					t.Fatalf("the model was told %q\n%s", m.results, out)
				}
				_, err := os.Stat(filepath.Join(dir, file))
				return err == nil
			}
			if runs("forbidden-1") {
				t.Error("the gate is not in force")
			}
			for file, text := range p.files {
				ok(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
				ok(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
			}
			if !runs("forbidden-2", p.more...) {
				t.Error("the call is refused: docs/hooks.md says that it runs")
			}
			cmd := exec.Command(program("countersign"), "hook", "doctor", a.name)
			cmd.Dir, cmd.Env = dir, h.env
			if r := command(t, cmd); !strings.Contains(r.out, p.doctor) || strings.HasPrefix(p.doctor, "FAILED") != (r.code != 0) {
				t.Errorf("doctor, exit %d, want %q\n%s", r.code, p.doctor, r.out)
			}
		})
	}
}

// trust has an agent trust a folder, where it must be told.
func (h hooked) trust(t *testing.T, a codingAgent, dir string) {
	t.Helper()
	switch a.name {
	case copilot.name:
		ok(t, os.WriteFile(filepath.Join(h.home, ".copilot/config.json"), object{"trusted_folders": []string{dir}, "trustedFolders": []string{dir}}.bytes(), 0o600))
	case codex.name:
		f, err := os.OpenFile(filepath.Join(h.home, ".codex/config.toml"), os.O_APPEND|os.O_WRONLY, 0)
		ok(t, err)
		_, err = fmt.Fprintf(f, "[projects.%q]\ntrust_level = \"trusted\"\n", dir)
		ok(t, err)
		ok(t, f.Close())
	}
}

// A command that fails is on record as failed where the agent says it, and nowhere as one that succeeded.
func TestAgentsFailedCommands(t *testing.T) {
	t.Parallel()
	if os.Getenv(agentsEnv) == "" {
		t.Skip("it takes minutes: run make agents")
	}
	s := start(t, "--policy", policyDir(t, "hook.yaml", "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: all}\nspec:\n  match: {tools: ['*']}\n  rules:\n    - {name: yes, when: 'true', verdict: allow, reason: harmless}\n"))
	check := func(t *testing.T, h hooked, before []string, want ...string) {
		t.Helper()
		if got := h.outcomes(t)[len(before):]; !slices.Equal(got, want) {
			t.Errorf("outcomes %q, want %q", got, want)
		}
	}
	want := map[string]string{claudeCode.name: "failed", codex.name: "unknown", gemini.name: "unknown", openCode.name: "failed", copilot.name: "unknown"}
	for _, a := range append(slices.Clone(realAgents), copilot) {
		t.Run(a.name, func(t *testing.T) {
			h := s.hook(t, a.name, "5s")
			before := h.outcomes(t)
			h.drive(t, a, t.TempDir(), &model{turns: each("touch some; exit 3", "touch some")})
			check(t, h, before, want[a.name], map[bool]string{true: "succeeded", false: "unknown"}[want[a.name] == "failed"])
		})
	}
	t.Run("repeated", func(t *testing.T) { // Copilot CLI, which gives no ids of calls: one fails, and the same one succeeds
		h, dir := s.hook(t, copilot.name, "5s"), t.TempDir()
		file := filepath.Join(dir, "repeated")
		view := toolCall{tool: "view", input: object{"path": file}}
		m := &model{turns: []turn{{view}, {view}}, between: func(int, string) { ok(t, os.WriteFile(file, []byte("text\n"), 0o600)) }}
		before := h.outcomes(t)
		h.drive(t, copilot, dir, m)
		check(t, h, before, "failed", "succeeded")
	})
}

// outcomes are those of all calls on record that ran, or were given up, in the order in which they were asked for.
func (h hooked) outcomes(t *testing.T) (outcomes []string) {
	t.Helper()
	h.settle(t)
	at := map[int]string{}
	for line := range strings.Lines(h.run(t, "calls", "--json").want(t, 0).out) {
		var row struct {
			Call struct {
				Outcome, State string
				Decision       int `json:"decision_seq"`
			}
		}
		ok(t, json.Unmarshal([]byte(line), &row))
		if c := row.Call; c.Decision > 0 {
			at[c.Decision] = cmp.Or(c.Outcome, c.State)
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(at)) {
		outcomes = append(outcomes, at[seq])
	}
	return outcomes
}
