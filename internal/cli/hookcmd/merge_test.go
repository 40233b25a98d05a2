package hookcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/gateclient"
)

const command = "/opt/bin/countersign-hook claude-code"

// Whatever a configuration holds, its other bytes stay, installing twice changes nothing more, and
// uninstalling leaves no trace of the gate.
func TestMerge(t *testing.T) {
	for name, old := range map[string]string{
		"no file":         "",
		"empty":           "{}",
		"others":          "{\n  \"model\": \"m\",   \"n\": 1e2\n}\n",
		"other hooks":     `{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "/usr/bin/true"}]}], "Stop": []}, "z": [1]}`,
		"an older gate":   `{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "/old/countersign-hook claude-code"}]}]}}`,
		"a log of ours":   `{"hooks": {"Stop": [{"hooks": [{"command": "tee /tmp/countersign-hook.log # /usr/bin/true"}]}]}}`,
		"beside the gate": `{"hooks": {"PreToolUse": [{"hooks": [{"command": "/old/countersign-hook claude-code"}, {"command": "/usr/bin/true"}]}]}}`,
	} {
		for _, i := range installations {
			if i.whole != nil {
				continue
			}
			got, err := i.merge([]byte(old), command)
			if err != nil {
				t.Fatalf("%s, %s: %v", i.agent, name, err)
			}
			var tree map[string]any
			if err := json.Unmarshal(got, &tree); err != nil {
				t.Fatalf("%s, %s: %v\n%s", i.agent, name, err, got)
			}
			for _, event := range i.events {
				gates := 0
				for _, entry := range tree["hooks"].(map[string]any)[event].([]any) {
					if _, is := withoutGate(entry); is {
						gates++
					}
				}
				if gates != 1 {
					t.Errorf("%s, %s: %s runs the gate %d times", i.agent, name, event, gates)
				}
			}
			if again, err := i.merge(got, command); err != nil || !bytes.Equal(again, got) {
				t.Errorf("%s, %s: a second time gives\n%s\nafter\n%s", i.agent, name, again, got)
			}
			for _, part := range []string{`"model": "m",   "n": 1e2`, `"z": [1]`, "/usr/bin/true"} {
				if strings.Contains(old, part) && !strings.Contains(string(got), part) {
					t.Errorf("%s, %s: %s is lost", i.agent, name, part)
				}
			}
			removed, err := i.remove(got)
			if err != nil || strings.Contains(string(removed), gateProgram+" ") {
				t.Errorf("%s, %s: uninstalled %v\n%s", i.agent, name, err, removed)
			}
		}
	}
}

// The gate is found again wherever it lies.
func TestMergeFindsGate(t *testing.T) {
	for _, dir := range []string{"/opt/bin/", "/my dir/", "/home/o'neil/bin/", "/it's '/"} {
		for _, i := range installations {
			if i.whole != nil {
				continue
			}
			quoted := shellWord(dir+gateProgram) + " claude-code --config '/it'\\''s/hook.json'"
			got, err := i.merge([]byte("{}"), quoted)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := i.merge(got, quoted); err != nil || !bytes.Equal(again, got) {
				t.Errorf("%s, %s: a second time gives %v\n%s\nafter\n%s", i.agent, dir, err, again, got)
			}
			if removed, err := i.remove(got); err != nil || strings.Contains(string(removed), gateProgram) {
				t.Errorf("%s, %s: uninstalled %v\n%s", i.agent, dir, err, removed)
			}
		}
	}
}

// The gate keeps its place among other hooks, and a group keeps its other handlers.
func TestMergeKeepsOrder(t *testing.T) {
	old := `{"hooks": {"PreToolUse": [
		{"hooks": [{"command": "/bin/first"}]},
		{"matcher": "Bash", "hooks": [{"command": "/old/countersign-hook claude-code"}, {"command": "/bin/beside"}]},
		{"hooks": [{"command": "/bin/last"}]}]}}`
	merged, err := installations[0].merge([]byte(old), command)
	if err != nil {
		t.Fatal(err)
	}
	got := merged[bytes.Index(merged, []byte(`"PreToolUse"`)):]
	at := -1
	for _, part := range []string{"/bin/first", command, "/bin/beside", "/bin/last"} {
		next := strings.Index(string(got), part)
		if next <= at {
			t.Errorf("%s is missing or out of order:\n%s", part, got)
		}
		at = next
	}
	if removed, err := installations[0].remove(merged); err != nil || strings.Contains(string(removed), gateProgram) || !strings.Contains(string(removed), "/bin/beside") {
		t.Errorf("uninstalled %v\n%s", err, removed)
	}
}

// A file that is the gate's alone is written, written again and removed; another one is not touched.
func TestMergeWholeFile(t *testing.T) {
	i, err := findInstallation("opencode")
	if err != nil {
		t.Fatal(err)
	}
	const quoted = `/opt/bin/countersign-hook opencode --config '/a "b"/hook.json'`
	got, err := i.merge(nil, quoted)
	if err != nil || !strings.Contains(string(got), `const command = "/opt/bin/countersign-hook opencode --config '/a \"b\"/hook.json'"`) {
		t.Errorf("%v\n%s", err, got)
	}
	if again, err := i.merge(got, quoted); err != nil || !bytes.Equal(again, got) {
		t.Errorf("a second time: %v\n%s", err, again)
	}
	if removed, err := i.remove(got); err != nil || removed != nil {
		t.Errorf("uninstalled: %v\n%s", err, removed)
	}
	other := []byte("export const Mine = async () => ({})\n")
	if got, err := i.merge(other, quoted); err == nil {
		t.Errorf("another plugin becomes %s", got)
	}
	if removed, err := i.remove(other); err != nil || !bytes.Equal(removed, other) {
		t.Errorf("another plugin: %v\n%s", err, removed)
	}
}

// Cline has an executable for each event: each is written, written again, and removed; one of the user's own keeps all
// of them from being written.
func TestInstallCline(t *testing.T) {
	t.Setenv("CLINE_DIR", t.TempDir())
	t.Chdir(t.TempDir())
	i, err := findInstallation("cline")
	if err != nil {
		t.Fatal(err)
	}
	for scope, count := range map[string]int{scopeUser: 7, scopeProject: 7} {
		paths, err := i.paths(scope)
		if err != nil || len(paths) != count || !slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(filepath.Base(p), "PreToolUse") }) {
			t.Errorf("%s: %q, %v", scope, paths, err)
		}
	}
	text, err := i.merge(nil, "/opt/bin/countersign-hook cline --config '/a b/hook.json'")
	if err != nil || !strings.Contains(string(text), " exec /opt/bin/countersign-hook cline --config '/a b/hook.json' ;;") || i.mode() != 0o755 {
		t.Errorf("%s, %v", text, err)
	}
	if removed, err := i.remove(text); err != nil || removed != nil {
		t.Errorf("uninstalled: %v\n%s", err, removed)
	}
	own := []agentFile{{"PostToolUse", nil}, {"PreToolUse", []byte("#!/bin/sh\nexit 0\n")}}
	if changed, err := i.mergeAll(own, command); err == nil || changed != nil || !strings.Contains(err.Error(), "PreToolUse") {
		t.Errorf("a hook of the user's own: %q, %v", changed, err)
	}
}

// The user's file of an agent lies where the agent's own variable says; one that is not absolute is refused. Files of a
// project and of the machine stay.
func TestInstallFollowsHomeVariable(t *testing.T) {
	t.Setenv("HOME", "/home/dana")
	for agent, want := range map[string]struct{ variable, usual, moved string }{
		"claude-code": {"CLAUDE_CONFIG_DIR", "/home/dana/.claude/settings.json", "/moved/settings.json"},
		"codex":       {"CODEX_HOME", "/home/dana/.codex/hooks.json", "/moved/hooks.json"},
		"gemini":      {"GEMINI_CLI_HOME", "/home/dana/.gemini/settings.json", "/moved/.gemini/settings.json"},
		"copilot":     {"COPILOT_HOME", "/home/dana/.copilot/hooks/countersign.json", "/moved/hooks/countersign.json"},
		"opencode":    {"XDG_CONFIG_HOME", "/home/dana/.config/opencode/plugins/countersign.js", "/moved/opencode/plugins/countersign.js"},
		"cline":       {"CLINE_DIR", "/home/dana/.cline/hooks/PreToolUse.sh", "/moved/hooks/PreToolUse.sh"},
	} {
		i, err := findInstallation(agent)
		if err != nil {
			t.Fatal(err)
		}
		others := func() (paths []string) {
			for _, scope := range []string{scopeProject, scopeManaged} {
				if path, err := i.paths(scope); err == nil {
					paths = append(paths, path...)
				}
			}
			return paths
		}
		t.Setenv(want.variable, "") // restored at the end
		if err := os.Unsetenv(want.variable); err != nil {
			t.Fatal(err)
		}
		before := others()
		if paths, err := i.paths(scopeUser); err != nil || paths[0] != want.usual {
			t.Errorf("%s: %q, %v", agent, paths, err)
		}
		t.Setenv(want.variable, "/moved")
		if paths, err := i.paths(scopeUser); err != nil || paths[0] != want.moved || !slices.Equal(others(), before) {
			t.Errorf("%s with %s: %q, %v, others %q", agent, want.variable, paths, err, others())
		}
		for _, dir := range []string{"", "moved"} {
			t.Setenv(want.variable, dir)
			if paths, err := i.paths(scopeUser); err == nil || !strings.Contains(err.Error(), want.variable) {
				t.Errorf("%s with %s=%q: %q, %v", agent, want.variable, dir, paths, err)
			}
		}
	}
}

// A file that is no configuration is not touched, nor is one with comments, which Gemini CLI takes.
func TestMergeRefuses(t *testing.T) {
	const plain, hooks = "take out comments", "its "
	for old, want := range map[string]string{
		"[]": plain, "{": plain, `{"a": 1} {}`: plain, "{a: 1}": plain, "{} // mine": plain, `{"a": 1, "a": 2}`: plain,
		`{"hooks": []}`: hooks, `{"hooks": {"PreToolUse": {}}}`: hooks,
	} {
		if got, err := installations[0].merge([]byte(old), command); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s becomes %s, %v", old, got, err)
		}
	}
}

// What closes the gate when the gate dies, or keeps others from switching it off, is set where the agent has a setting
// for it; no agent gets a name by which others could switch the gate off.
func TestInstallationCloses(t *testing.T) {
	for agent, want := range map[string]string{"claude-code": `"onFailure": "block"`, "cursor": `"failClosed": true`, "gemini": `"enabled": true`} {
		i, err := findInstallation(agent)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := i.merge(nil, command); err != nil || strings.Count(string(got), want) != 1 || strings.Contains(string(got), `"name"`) {
			t.Errorf("%s: %v\n%s", agent, err, got)
		}
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"/opt/bin/x": "/opt/bin/x", "/my dir/x": "'/my dir/x'", "a'b": `'a'\''b'`, "": "''"} {
		if got := shellWord(word); got != want {
			t.Errorf("%q: %s", word, got)
		}
	}
}

// A settings file that switches the gate off is named: all hooks, or the gate's own.
func TestSwitchedOff(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, variable := range []string{"CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME", "COPILOT_HOME"} {
		t.Setenv(variable, t.TempDir())
	}
	system := filepath.Join(t.TempDir(), "system.json")
	t.Setenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH", system)
	t.Chdir(t.TempDir())
	const claude, gemini, github = ".claude/settings.local.json", ".gemini/settings.json", ".github/copilot/settings.json"
	for _, c := range []struct {
		agent, path, text string
		on                bool
	}{
		{"claude-code", claude, "", true},
		{"claude-code", claude, `{"disableAllHooks": true}`, false},
		{"claude-code", claude, `{"disableAllHooks": false}`, true},
		{"claude-code", claude, `{"model": "m"}`, true},
		{"claude-code", claude, `{`, false},
		{"claude-code", claude, `{"disableAllHooks": "yes"}`, false},
		{"claude-code", ".claude/settings.json", `{"disableAllHooks": true}`, false},
		{"gemini", gemini, `{"hooksConfig": {"enabled": true, "disabled": ["lint"]}}`, true},
		{"gemini", gemini, `{"hooksConfig": {"enabled": false}}`, false},
		{"gemini", gemini, `{"hooksConfig": {"disabled": ["lint", "/opt/bin/countersign-hook gemini"]}}`, false},
		{"gemini", gemini, `{"hooksConfig": []}`, false},
		{"gemini", system, `{"hooksConfig": {"enabled": false}}`, false},
		{"copilot", github, `{"disableAllHooks": true}`, false},
		{"copilot", ".github/copilot/settings.local.json", `{"disableAllHooks": true}`, false},
		{"copilot", ".claude/settings.json", `{"disableAllHooks": true}`, false},
		{"copilot", claude, `{"disableAllHooks": true}`, false},
		{"copilot", claude, `{"disableAllHooks": false}`, true},
		{"copilot", github, "{\n  // ours\n  \"theme\": \"dark\",\n}\n", true}, // names no such member, however it is read
		{"copilot", github, "{\n  // ours\n  \"disableAllHooks\": false\n}\n", false},
		{"copilot", github, "{\n  // ours\n  \"disable\\u0041llHooks\": true\n}\n", false},
	} {
		i, err := findInstallation(c.agent)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f := i.switchedOn(scopeUser); f.OK != c.on || !c.on && !strings.Contains(f.Detail, c.path) {
			t.Errorf("%s: %+v", c.text, f)
		}
		if err := os.Remove(c.path); err != nil {
			t.Fatal(err)
		}
	}
}

// Copilot CLI reads a project's files in the root of the repository alone, wherever it is started; what it runs of the
// managed configuration no project switches off, and the same holds for Claude Code.
func TestSwitchedOffInRoot(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{".git", "sub/.claude", ".claude"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", t.TempDir())
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(root, "sub"), link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(link) // a working directory is physical, whatever $PWD says
	for _, c := range []struct {
		agent, dir, scope string
		on                bool
	}{
		{"copilot", root, scopeUser, false},
		{"copilot", root, scopeManaged, true},
		{"copilot", filepath.Join(root, "sub"), scopeUser, true},
		{"claude-code", filepath.Join(root, "sub"), scopeUser, false},
		{"claude-code", filepath.Join(root, "sub"), scopeManaged, true},
	} {
		i, err := findInstallation(c.agent)
		if err != nil {
			t.Fatal(err)
		}
		if paths, err := i.paths(scopeProject); err != nil || strings.HasPrefix(paths[0], filepath.Join(root, "sub")) == (c.agent == "copilot") {
			t.Errorf("%s: install --project writes %q, %v", c.agent, paths, err)
		}
		path := filepath.Join(c.dir, ".claude", "settings.json")
		if err := os.WriteFile(path, []byte(`{"disableAllHooks": true}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if f := i.switchedOn(c.scope); f.OK != c.on || !c.on && !strings.Contains(f.Detail, path) {
			t.Errorf("%s in %s, %s: %+v", c.agent, c.dir, c.scope, f)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A backup says which configuration it is: that from before the gate, or one with it. The first stays.
func TestBackups(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	none := ui.Stdio{Out: io.Discard, Err: io.Discard}
	contents := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, step := range []struct{ old, changed, backup, before, with string }{
		{"", "gate", beforeGate, "", ""}, // there was no file
		{"gate", "none", withGate, "", "gate"},
		{"none", "gate again", beforeGate, "none", "gate"},
		{"gate again", "none again", withGate, "none", "gate"},
	} {
		if err := replace(none, path, []byte(step.old), []byte(step.changed), 0o644, step.backup, false); err != nil {
			t.Fatal(err)
		}
		if got := [3]string{contents(path), contents(path + beforeGate), contents(path + withGate)}; got != [3]string{step.changed, step.before, step.with} {
			t.Errorf("after %q: %q", step.changed, got)
		}
	}
}

// All agents share the gate's configuration: what no flag says stays, another gateway gets no token of the one
// before, and what changes is shown.
func TestConfigIsKept(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("COUNTERSIGN_READY_FILE", filepath.Join(dir, "ready.json")) // of another system
	t.Chdir(dir)
	for _, name := range []string{"token", "key"} {
		if err := os.WriteFile(name, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("mine.json", []byte(`{"tenant": "t", "gateway_url": "https://c.example", "public_key": "k", "roles": {"runtime": {"publisher": "p", "token": "x"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	yes, no := true, false
	const gateway, other = "https://a.example", "https://b.example"
	path := filepath.Join(dir, "countersign", "hook.json")
	peer := installCmd{place: place{Agent: "claude-code"}, Gateway: gateway, TokenFile: "token", PublicKeyFile: "key", Tenant: "t", Publisher: "p"}
	bare := gateclient.Config{Gateway: gateway, TokenFile: filepath.Join(dir, "token"), PublicKeyFile: filepath.Join(dir, "key"), Tenant: "t", Publisher: "p"}
	full, quick := bare, bare
	full.Budget, full.Prompts, full.Defer = "9s", true, true
	quick.Budget, quick.Prompts, quick.Defer = "3s", true, true
	bare.Budget = "3s"
	ready := gateclient.Config{ReadyFile: filepath.Join(dir, "mine.json"), Budget: "3s"}
	readyFull := gateclient.Config{ReadyFile: ready.ReadyFile, Budget: "9s"}
	first := peer
	first.Budget, first.Prompts, first.Defer = "9s", &yes, &yes
	for _, step := range []struct {
		name  string
		cmd   installCmd
		want  gateclient.Config
		shown string // in the difference
		fails string
	}{
		{"first", first, full, `+  "defer": true`, ""},
		{"another agent", installCmd{place: place{Agent: "codex"}}, full, "", ""},
		{"the same gateway again", peer, full, "", ""},
		{"one flag", installCmd{place: place{Agent: "codex"}, Budget: "3s"}, quick, `-  "budget": "9s"`, ""},
		{"a flag that says no", installCmd{place: place{Agent: "codex"}, Prompts: &no, Defer: &no}, bare, `-  "prompts": true`, ""},
		{"another gateway with the old token", installCmd{place: place{Agent: "codex"}, Gateway: other}, bare, "", "the token"},
		{"a token with a ready file", installCmd{place: place{Agent: "codex"}, ReadyFile: "ready.json", Tenant: "t"}, bare, "", "need --gateway"},
		{"an agent that cannot defer", installCmd{place: place{Agent: "codex"}, Defer: &yes}, bare, "", "leave out --defer"},
		{"a ready file", installCmd{place: place{Agent: "codex"}, ReadyFile: "mine.json"}, ready, `+  "ready_file"`, ""},
		{"one flag beside a ready file", installCmd{place: place{Agent: "codex"}, Budget: "9s"}, readyFull, `-  "budget": "3s"`, ""},
	} {
		var out bytes.Buffer
		std := ui.Stdio{Out: &out, Err: io.Discard}
		at, text, before, err := step.cmd.oldConfig(std)
		if err != nil || at != path {
			t.Fatalf("%s: %s %v", step.name, at, err)
		}
		config, err := step.cmd.config(before)
		if step.fails != "" {
			if err == nil || !strings.Contains(err.Error(), step.fails) {
				t.Errorf("%s: %v", step.name, err)
			}
			continue
		}
		if err != nil || config != step.want {
			t.Errorf("%s: %v\n%+v, want\n%+v", step.name, err, config, step.want)
		}
		if err := (gateFile{at, text, config}).write(std, false); err != nil {
			t.Fatal(err)
		}
		if got, err := gateclient.ReadConfig(path); err != nil || got != step.want {
			t.Errorf("%s: the file has %+v, %v", step.name, got, err)
		}
		if !strings.Contains(out.String(), step.shown) || step.shown == "" && out.Len() > 0 {
			t.Errorf("%s shows %q", step.name, out.String())
		}
	}
}
