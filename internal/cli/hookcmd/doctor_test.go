package hookcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script makes a program of a shell script.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// A version of Claude Code that runs calls when the gate dies is named; one that cannot be read is not judged.
func TestAskClaude(t *testing.T) {
	for answer, want := range map[string]string{
		"echo '2.1.295 (Claude Code)'": "ok", "echo 2.2.0": "ok", "echo 10.0.0": "ok", "echo '2.1.294 (Claude Code)'": "onFailure", "echo 1.9.999": "onFailure",
		"echo fine": "not asked", "exit 1": "not asked", "echo 2.1.295; exit 1": "not asked", "echo 99999999999999999999.1.1": "not asked",
	} {
		detail, err := askClaude(t.Context(), script(t, answer), "")
		switch {
		case want == "ok" && err != nil, want != "ok" && (err == nil || !strings.Contains(err.Error(), want)), errors.Is(err, errNotAsked) != (want == "not asked"):
			t.Errorf("%s: %q, %v, want %s", answer, detail, err, want)
		}
	}
}

// Only trusted hooks of Codex count, and the gate must be among them. An app server that ends, or says something else,
// is not judged. `make agents` asks the real one.
func TestAskCodex(t *testing.T) {
	const gate = "/opt/bin/countersign-hook codex"
	hook := func(event, command, trust string, enabled bool) string {
		return fmt.Sprintf(`{"eventName":%q,"command":%q,"enabled":%t,"trustStatus":%q}`, event, command, enabled, trust)
	}
	for name, c := range map[string]struct {
		hooks []string
		want  string
	}{
		"trusted":           {[]string{hook("preToolUse", gate, "trusted", true), hook("stop", "/bin/other", "untrusted", true)}, "ok"},
		"managed":           {[]string{hook("preToolUse", gate, "managed", true)}, "ok"},
		"not trusted":       {[]string{hook("preToolUse", gate, "untrusted", true)}, "/hooks"},
		"changed since":     {[]string{hook("preToolUse", gate, "modified", true)}, "/hooks"},
		"a report's is not": {[]string{hook("preToolUse", gate, "trusted", true), hook("postToolUse", gate, "untrusted", true)}, "/hooks"},
		"switched off":      {[]string{hook("preToolUse", gate, "trusted", false)}, "/hooks"},
		"another command":   {[]string{hook("preToolUse", gate+" ", "trusted", true)}, "no hook"},
		"reports alone":     {[]string{hook("postToolUse", gate, "trusted", true)}, "no hook"},
	} {
		answer := `{"id":2,"result":{"data":[{"hooks":[` + strings.Join(c.hooks, ",") + `]}]}}`
		detail, err := askCodex(t.Context(), script(t, terminals("false")+"echo '{\"id\":1,\"result\":{}}'\ncat <<'END'\n"+answer+"\nEND\nexec cat >/dev/null"), gate)
		if c.want == "ok" && err != nil || c.want != "ok" && (err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, errNotAsked)) {
			t.Errorf("%s: %q, %v, want %s", name, detail, err, c.want)
		}
	}
	if _, err := askCodex(t.Context(), script(t, terminals("false")+"echo hello"), gate); !errors.Is(err, errNotAsked) {
		t.Errorf("an app server that ends: %v", err)
	}
	if _, err := askCodex(t.Context(), script(t, terminals("true")+"echo hello"), gate); err == nil || !strings.Contains(err.Error(), "codex features disable unified_exec_tty") {
		t.Errorf("commands in terminals: %v", err)
	}
	if _, err := askCodex(t.Context(), script(t, "echo unified_exec stable true"), gate); !errors.Is(err, errNotAsked) {
		t.Errorf("features that do not say: %v", err)
	}
}

// terminals is the beginning of a script in the place of Codex that answers for its features.
func terminals(value string) string {
	return "[ \"$1\" != features ] || { echo 'unified_exec stable true'; echo 'unified_exec_tty  under development  " + value + "'; exit; }\n"
}

// A plugin that OpenCode does not load is named: its calls run.
func TestAskOpenCode(t *testing.T) {
	for answer, want := range map[string]string{
		"echo \"loading $COUNTERSIGN_PLUGIN_LOADED\" >&2": "ok", "echo plugins:": "does not load", "exit 1": "not asked",
	} {
		detail, err := askOpenCode(t.Context(), script(t, answer), "")
		if want == "ok" && err != nil || want != "ok" && (err == nil || !strings.Contains(err.Error(), want)) || errors.Is(err, errNotAsked) != (want == "not asked") {
			t.Errorf("%s: %q, %v, want %s", answer, detail, err, want)
		}
	}
}

// A program in a directory of one user is no hook for all users.
func TestOthersMayRun(t *testing.T) {
	for program, may := range map[string]bool{"/bin/sh": true, script(t, "true"): false, "/no/such/program": false} {
		if err := othersMayRun(program); (err == nil) != may {
			t.Errorf("%s: %v", program, err)
		}
	}
}

// A gate in the managed configuration and another one of the user or the project are named: the agent runs both. Of
// files that cannot be read nothing is said to be good.
func TestOnlyGate(t *testing.T) {
	gate := func(end string) string {
		return `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"/opt/bin/countersign-hook claude-code ` + end + `"}]}]}}`
	}
	managed, own, others := gate("--managed"), gate("--config /home/dana/hook.json"), `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"/bin/lint"}]}]}}`
	for name, c := range map[string]struct{ managed, user, project, want string }{
		"no gate":                {"", others, "", "ok"},
		"of the machine":         {managed, others, "", "ok"},
		"of user and project":    {"", own, own, "ok"}, // one command
		"of machine and user":    {managed, own, others, "--user"},
		"of machine and project": {managed, others, own, "--project"},
		"unreadable":             {managed, "{", "", "plain JSON"},
		"machine's unreadable":   {"{", own, "", "plain JSON"},
	} {
		i, dir := installation{agent: "claude-code", files: map[string]string{}}, t.TempDir()
		for scope, text := range map[string]string{scopeManaged: c.managed, scopeUser: c.user, scopeProject: c.project} {
			i.files[scope] = filepath.Join(dir, scope)
			if text == "" {
				continue
			}
			if err := os.WriteFile(i.files[scope], []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if f := i.onlyGate(); f.OK != (c.want == "ok") || !f.OK && !strings.Contains(f.Detail, c.want) {
			t.Errorf("%s: %+v, want %s", name, f, c.want)
		}
	}
}

// Copilot CLI and Cursor run what Claude Code has in the project, too: the gate is there once. What the doctor says to do
// takes no gate away from Claude Code, and a command is named only where it changes the file.
func TestGateOfClaudeInProject(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("COPILOT_HOME", t.TempDir())
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "sub", ".claude"), 0o700), os.Mkdir(filepath.Join(root, ".git"), 0o700), os.Mkdir(filepath.Join(root, ".claude"), 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(root, "sub"))
	claude, err := findInstallation("claude-code")
	if err != nil {
		t.Fatal(err)
	}
	text, err := claude.merge(nil, "/opt/bin/countersign-hook claude-code --config /c.json")
	if err != nil {
		t.Fatal(err)
	}
	const forUser, uninstall = "countersign hook install claude-code", "countersign hook uninstall claude-code --project"
	for _, c := range []struct {
		agent, dir, file string
		open             bool
		advice           []string
		not              string
	}{
		{"copilot", root, "settings.local.json", false, []string{forUser, uninstall + ", in " + root}, "Third-party"},
		{"copilot", root, "settings.json", false, []string{forUser, filepath.Join(root, ".claude", "settings.json")}, uninstall},
		{"cursor", filepath.Join(root, "sub"), "settings.json", true, []string{"Third-party skills"}, "hook"},
	} {
		i, err := findInstallation(c.agent)
		if err != nil {
			t.Fatal(err)
		}
		if f := i.onlyGate(); !f.OK || f.Open {
			t.Errorf("%s, without it: %+v", c.agent, f)
		}
		path := filepath.Join(c.dir, ".claude", c.file)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		f := i.onlyGate()
		_, advice, _ := strings.Cut(f.Detail, ": ")
		if f.OK || f.Open != c.open || !strings.HasPrefix(f.Detail, path) || strings.Contains(advice, c.not) {
			t.Errorf("%s, %s: %+v", c.agent, c.file, f)
		}
		for _, want := range c.advice {
			if !strings.Contains(advice, want) {
				t.Errorf("%s, %s: %q, want %q", c.agent, c.file, advice, want)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Installed plugins of Claude Code that have a mod are named. The doctor never says that mods are in order.
func TestMods(t *testing.T) {
	dir := t.TempDir()
	plugin := func(name, hooks string) string {
		path := filepath.Join(dir, name, "hooks", "hooks.json")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(hooks), 0o600)); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`"%s@market": [{"scope": "user", "installPath": %q}]`, name, filepath.Join(dir, name))
	}
	mod, hooks := plugin("passer", `{"modules": ["./mod.mjs"], "hooks": {}}`), plugin("linter", `{"modules": [], "hooks": {}}`)
	for list, want := range map[string]string{
		"": "a mod", `{"version": 2, "plugins": {` + hooks + `}}`: "a mod", `{"plugins": {` + hooks + "," + mod + `}}`: "passer@market of", "{": "cannot be read",
	} {
		i := installation{plugins: filepath.Join(dir, "list.json")}
		if list != "" {
			if err := os.WriteFile(i.plugins, []byte(list), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if f := i.mods(); !f.Open || f.OK || !strings.Contains(f.Detail, want) || !strings.Contains(f.Detail, "--managed") || strings.Contains(f.Detail, "linter") {
			t.Errorf("%s: %+v, want %s", list, f, want)
		}
		_ = os.Remove(i.plugins)
	}
}
