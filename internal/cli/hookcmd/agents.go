package hookcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/gateclient"
)

// Scopes of an installation.
const (
	scopeUser    = "user"    // every project of this user
	scopeProject = "project" // the project in the current directory
	scopeManaged = "managed" // every user of this machine
)

// handlerTimeout is the agent's limit for one run of the gate, in seconds: above the gate's own
// budget, so that the gate refuses before the agent gives up.
const handlerTimeout = 60

// installation says where and how an agent's configuration names its hooks.
type installation struct {
	agent string
	files map[string]string // scope to file; ~ is the user's home
	// events are the agent's names of the events that the gate takes.
	events []string
	// entry is the element of the list of an event.
	entry func(command, event string) map[string]any
	top   map[string]any // members that the file must have beside hooks
	// whole is the file of an agent that has a file for the gate alone, with a gap for the command.
	whole string
	// off is the member of the agent's settings that switches all hooks off, empty if there is none;
	// offFiles are files beside files in which the agent looks for it.
	off      string
	offFiles []string
	// closes says what keeps the gate closed when the gate itself dies.
	closes string
	after  string // what the user must still do
}

func shellHandler(command string) map[string]any {
	return map[string]any{"type": "command", "command": command, "timeout": handlerTimeout}
}

// refuseForGate is run by a shell around the gate: where the gate dies or cannot start, the shell refuses, with
// exit code 2 and a text. It outlives the signals that the gate itself answers.
const refuseForGate = `trap : HUP INT TERM; "$0" "$@" || { echo "Countersign refused this call: the gate failed" >&2; exit 2; }`

// closed is the gate's command line for agents that run a call whose hook ends with any other exit code, or
// with no text. The agent's own shell is replaced: it would die of a signal that this one outlives.
func closed(command string) string {
	return "exec /bin/sh -c " + shellWord(refuseForGate) + " " + command
}

// closesInShell is what closed does.
const closesInShell = "the shell that runs it refuses; a gate that hangs past its time-out lets the call run"

var installations = []installation{
	{
		agent:  "claude-code",
		files:  map[string]string{scopeUser: "~/.claude/settings.json", scopeProject: ".claude/settings.json", scopeManaged: "/etc/claude-code/managed-settings.json"},
		events: []string{"PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart", "SessionEnd"},
		entry: func(command, event string) map[string]any {
			h := shellHandler(command)
			if event == "PreToolUse" {
				h["onFailure"] = "block"
			}
			return map[string]any{"matcher": "*", "hooks": []any{h}}
		},
		off:      "disableAllHooks",
		offFiles: []string{".claude/settings.local.json"},
		closes:   "onFailure: block (Claude Code 2.1.295 and newer)",
	},
	{
		agent:  "codex",
		files:  map[string]string{scopeUser: "~/.codex/hooks.json", scopeProject: ".codex/hooks.json"},
		events: []string{"PreToolUse", "PostToolUse", "UserPromptSubmit", "SessionStart", "SessionEnd"},
		entry: func(command, event string) map[string]any {
			if event == "PreToolUse" {
				command = closed(command)
			}
			return map[string]any{"hooks": []any{shellHandler(command)}}
		},
		closes: closesInShell,
		after:  "open /hooks in Codex and trust the hooks: until then, and after every change, Codex skips them without a word",
	},
	{
		agent:  "gemini",
		files:  map[string]string{scopeUser: "~/.gemini/settings.json", scopeProject: ".gemini/settings.json", scopeManaged: "/etc/gemini-cli/settings.json"},
		events: []string{"BeforeTool", "AfterTool", "BeforeAgent", "SessionStart", "SessionEnd"},
		entry: func(command, event string) map[string]any {
			if event == "BeforeTool" {
				command = closed(command)
			}
			h := shellHandler(command)
			h["timeout"], h["name"] = handlerTimeout*1000, "countersign"
			return map[string]any{"matcher": ".*", "hooks": []any{h}}
		},
		closes: closesInShell,
	},
	{
		agent:  "cursor",
		files:  map[string]string{scopeUser: "~/.cursor/hooks.json", scopeProject: ".cursor/hooks.json", scopeManaged: "/etc/cursor/hooks.json"},
		events: []string{"preToolUse", "postToolUse", "beforeSubmitPrompt", "sessionStart", "sessionEnd"},
		entry: func(command, event string) map[string]any {
			h := map[string]any{"command": command, "timeout": handlerTimeout}
			if event == "preToolUse" {
				h["failClosed"] = true
			}
			return h
		},
		top:    map[string]any{"version": 1},
		closes: "failClosed: true",
	},
	{
		agent:  "copilot",
		files:  map[string]string{scopeUser: "~/.copilot/hooks/countersign.json", scopeProject: ".github/hooks/countersign.json", scopeManaged: "/etc/github-copilot/policy.d/countersign.json"},
		events: []string{"preToolUse", "postToolUse", "userPromptSubmitted", "sessionStart", "sessionEnd"},
		entry: func(command, event string) map[string]any {
			return map[string]any{"type": "command", "bash": command + " " + event, "timeoutSec": handlerTimeout}
		},
		top:    map[string]any{"version": 1},
		closes: "a hook that dies refuses by itself; one that hangs past its time-out does not",
	},
	{
		agent:  "opencode",
		files:  map[string]string{scopeUser: "~/.config/opencode/plugins/countersign.js", scopeProject: ".opencode/plugins/countersign.js"},
		whole:  hook.OpenCodePlugin,
		closes: "the plugin refuses; a plugin that OpenCode cannot load does not",
	},
}

func findInstallation(agent string) (installation, error) {
	for _, i := range installations {
		if i.agent == agent {
			return i, nil
		}
	}
	if _, ok := hook.Find(agent); ok {
		return installation{}, fmt.Errorf("%s has no configuration file for hooks: docs/hooks.md says what to write", agent)
	}
	var names []string
	for _, i := range installations {
		names = append(names, i.agent)
	}
	return installation{}, fmt.Errorf("there is no agent %q: give one of %s", agent, strings.Join(names, ", "))
}

// file is the path of the configuration of a scope.
func (i installation) file(scope string) (string, error) {
	name, ok := i.files[scope]
	if !ok {
		return "", fmt.Errorf("%s has no %s configuration for hooks", i.agent, scope)
	}
	return expand(name)
}

// expand returns the absolute path of a file of the table.
func expand(name string) (string, error) {
	if rest, home := strings.CutPrefix(name, "~/"); home {
		dir, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the user's home: %w", err)
		}
		return filepath.Join(dir, rest), nil
	}
	return filepath.Abs(name)
}

// gateProgram is the program that the agents start: beside this one.
const gateProgram = "countersign-hook"

// installedCommand is the command line that install writes.
func installedCommand(agent string) (string, error) {
	gate, err := findGate()
	if err != nil {
		return "", err
	}
	config, err := gateclient.DefaultConfigPath()
	return gateCommand(agent, gate, config), err
}

// gateCommand is the command line of the gate, for a shell.
// It names the gate's configuration, so that the environment that an agent gives its hooks does not.
func gateCommand(agent, program, config string) string {
	return shellWord(program) + " " + agent + " --config " + shellWord(config)
}

// findGate finds the gate's program.
func findGate() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program's file: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), gateProgram)
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		return "", errors.New("there is no program countersign-hook beside countersign: make build makes both")
	}
	return path, nil
}

// shellWord quotes a word for a shell if it needs it.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
