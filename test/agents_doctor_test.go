package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The doctor asks the real agents whether the gate is in force, and believes them.
func TestAgentsDoctor(t *testing.T) {
	t.Parallel()
	if os.Getenv(agentsEnv) == "" {
		t.Skip("it takes half a minute: run make agents")
	}
	agents := map[string]codingAgent{"claude": claudeCode, "codex": codex, "opencode": openCode}
	programs := t.TempDir()
	for name, a := range agents {
		ok(t, os.Symlink(a.find(t), filepath.Join(programs, name)))
	}
	s := start(t, "--policy", policyDir(t, "hook.yaml", hookPolicies))
	homes := map[string]hooked{}
	for name, a := range agents {
		h := s.hook(t, a.name, "20s")
		h.env = append(append(h.env, a.env(h.home, "http://127.0.0.1:1")...), "PATH="+programs+":"+os.Getenv("PATH"))
		a.prepare(t, h, "http://127.0.0.1:1")
		homes[name] = h
	}
	says := func(name string, exit int, want string) {
		t.Helper()
		out := homes[name].countersign(t, "hook", "doctor", agents[name].name).want(t, exit).out
		if line := lineWith(out, "what "+name+" says"); !strings.Contains(line, want) || strings.HasPrefix(line, "ok") != (exit == 0) {
			t.Errorf("doctor, exit %d, want %q\n%s", exit, want, out)
		}
	}
	says("claude", 0, "which knows onFailure")
	says("codex", 1, "write_stdin")
	off := exec.Command(filepath.Join(programs, "codex"), "features", "disable", "unified_exec_tty")
	off.Env = homes["codex"].env
	command(t, off).want(t, 0)
	says("codex", 1, "untrusted, and skipped")
	trustHooks(t, homes["codex"])
	says("codex", 0, "are trusted")
	says("opencode", 0, "it loads the gate's plugin")
	plugin := filepath.Join(homes["opencode"].home, ".config/opencode/plugins/countersign.js")
	text, err := os.ReadFile(plugin)
	ok(t, err)
	ok(t, os.WriteFile(plugin, append(text, "\nthrow new Error()\n"...), 0o600))
	says("opencode", 1, "does not load the gate's plugin")
}

// With the agent's own variable for its home the gate is put where the agent reads: a call that must be denied does not
// run, also in a project that lists the gate's name as disabled.
func TestAgentsHome(t *testing.T) {
	t.Parallel()
	if os.Getenv(agentsEnv) == "" {
		t.Skip("it takes half a minute: run make agents")
	}
	s := start(t, "--policy", policyDir(t, "hook.yaml", hookPolicies))
	for variable, in := range map[string]struct {
		agent codingAgent
		below string
	}{
		"CLAUDE_CONFIG_DIR": {claudeCode, ".claude"}, "CODEX_HOME": {codex, ".codex"}, "GEMINI_CLI_HOME": {gemini, ""},
		"COPILOT_HOME": {copilot, ".copilot"}, "XDG_CONFIG_HOME": {openCode, ".config"},
	} {
		moved, dir := t.TempDir(), t.TempDir()
		h := hooked{s, moved, cleanEnv("HOME="+t.TempDir(), "XDG_CONFIG_HOME="+filepath.Join(moved, ".config"), variable+"="+filepath.Join(moved, in.below))}
		h.countersign(t, "hook", "install", in.agent.name, "--ready-file", s.ready).want(t, 0)
		addSettings(t, filepath.Join(dir, ".gemini/settings.json"), object{"hooksConfig": object{"disabled": []string{"countersign"}}})
		out := h.converse(t, in.agent, dir, &model{turns: each("touch free", "touch forbidden")})
		if left, err := filepath.Glob(filepath.Join(dir, "f*")); err != nil || len(left) != 1 || filepath.Base(left[0]) != "free" {
			t.Errorf("%s: %q are made, %v\n%s", variable, left, err, out)
		}
	}
}

// trustHooks does what a person does with /hooks: it writes down what Codex' app server says of each hook.
func trustHooks(t *testing.T, h hooked) {
	t.Helper()
	cmd := exec.Command(codex.find(t), "app-server")
	cmd.Env = h.env
	in, err := cmd.StdinPipe()
	ok(t, err)
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	defer func() { ok(t, cmd.Process.Kill()); ok(t, ignoreExit(cmd.Wait())) }()
	fmt.Fprintf(in, `{"id":1,"method":"initialize","params":{"clientInfo":{"name":"test","version":"0"}}}`+"\n"+`{"method":"initialized"}`+"\n"+
		`{"id":2,"method":"hooks/list","params":{"cwds":[%q]}}`+"\n", h.home)
	var list struct {
		ID     int
		Result struct {
			Data []struct {
				Hooks []struct{ Key, CurrentHash string }
			}
		}
	}
	for lines := bufio.NewReader(out); list.ID != 2; {
		line, err := lines.ReadBytes('\n')
		ok(t, err)
		ok(t, json.Unmarshal(line, &list))
	}
	path := filepath.Join(h.home, ".codex/config.toml")
	config, err := os.ReadFile(path)
	ok(t, err)
	for _, hook := range list.Result.Data[0].Hooks {
		config = fmt.Appendf(config, "[hooks.state.%q]\ntrusted_hash = %q\n", hook.Key, hook.CurrentHash)
	}
	ok(t, os.WriteFile(path, config, 0o600))
}
