package hookcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/gateclient"
)

// Scopes of an installation.
const (
	scopeUser    = "user"    // every project of this user
	scopeProject = "project" // the project around the current directory: see projectDir
	scopeManaged = "managed" // every user of this machine
)

// handlerTimeout is the agent's limit for one run of the gate, in seconds: above the gate's own
// budget, so that the gate refuses before the agent gives up.
const handlerTimeout = 60

// installation says where and how an agent's configuration names its hooks.
type installation struct {
	agent string
	// files is that of a scope; ~ is the user's home. With EVENT in its name there is one for each of events.
	files map[string]string
	// moved are directories and files of files, by the agent's variable that names another one in its place.
	moved map[string]string
	// events are the agent's names of the events that the gate takes.
	events []string
	// entry is the element of the list of an event.
	entry func(command, event string) map[string]any
	top   map[string]any // members that the file must have beside hooks
	// whole writes the file of an agent that has files for the gate alone; begin is how each of them begins.
	whole      func(command string) (string, error)
	begin      string
	executable bool // the files are
	// off is the member of the agent's settings that can switch the gate off, empty if there is none, and isOff says
	// whether its value does; offFiles are files beside files in which the agent looks for it.
	off      string
	isOff    func(value any) bool
	offFiles []string
	// onInManaged says that off switches the gate of the managed configuration off in that file alone.
	onInManaged bool
	inRoot      bool     // a project's files are those in the root of its Git repository
	claudeFiles []string // files of Claude Code whose hooks the agent runs as well
	claudeOff   string   // the agent's setting without which it does not, which the doctor cannot read; empty if there is none
	plugins     string   // the list of Claude Code's installed plugins, whose mods can pass hooks of the user
	// closes says what keeps the gate closed when the gate itself dies.
	closes string
	after  string // what the user must still do
	// program is the agent's, for the doctor, which asks it whether the gate is in force; empty if it cannot be asked.
	program string
	ask     func(ctx context.Context, program, command string) (detail string, err error)
	open    string // what the doctor cannot check
}

func shellHandler(command string) map[string]any {
	return map[string]any{"type": "command", "command": command, "timeout": handlerTimeout}
}

// refusedByShell is what the shell around the gate says.
const refusedByShell = "Countersign refused this call: the gate failed or hung"

// refuseForGate is run by a shell around the gate: where the gate dies, cannot start or takes LIMIT seconds, the shell
// refuses, with exit code 2 and a text. The shells outlive the signals that the gate itself answers. A gate that hangs
// is killed by its parent, a second shell, which kills the sleep when it ends. The refusal is a trap: a shell that cannot
// fork ends with no other text. What the shells say of processes that are killed is dropped.
const refuseForGate = `trap "" HUP INT TERM; exec 3<&0 4>&2 </dev/null 2>/dev/null; refuse() { echo "` + refusedByShell + `" >&4; exit 2; }; trap refuse EXIT; ` +
	`sleep LIMIT >/dev/null 3<&- 4>&- & s=$!; trap "kill -KILL $s; refuse" EXIT; ` +
	`{ trap "kill -KILL $s" EXIT; "$0" "$@" <&3 2>&4 3<&- 4>&- & g=$!; trap "kill -KILL $g; trap - EXIT; exit 1" USR1; wait $g; exit; } & h=$!; ` +
	`trap refuse EXIT; wait $s && kill -USR1 $h; wait $h && trap - EXIT`

// hangLimit is how many seconds the shell gives the gate: above gateclient.MaxBudget, below handlerTimeout.
const hangLimit = 55

// closed is the gate's command line for agents that run a call whose hook ends with any other exit code, or
// with no text, or is late. The agent's own shell is replaced: it would die of a signal that this one outlives.
func closed(command string, limit int) string {
	return "exec /bin/sh -c " + shellWord(strings.Replace(refuseForGate, "LIMIT", strconv.Itoa(limit), 1)) + " " + command
}

// closesInShell is what closed does.
const closesInShell = "the shell that runs it refuses, and ends a gate that hangs"

var installations = []installation{
	{
		agent:  "claude-code",
		files:  map[string]string{scopeUser: "~/.claude/settings.json", scopeProject: ".claude/settings.local.json", scopeManaged: "/etc/claude-code/managed-settings.json"},
		moved:  map[string]string{"CLAUDE_CONFIG_DIR": "~/.claude"},
		events: []string{"PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart", "SessionEnd", "Stop", "StopFailure", "SubagentStart", "SubagentStop"},
		entry: func(command, event string) map[string]any {
			h := shellHandler(command)
			if event == "PreToolUse" {
				h["onFailure"] = "block"
			}
			return map[string]any{"matcher": "*", "hooks": []any{h}}
		},
		off:      "disableAllHooks",
		isOff:    isNotFalse,
		offFiles: []string{".claude/settings.json"},
		plugins:  "~/.claude/plugins/installed_plugins.json",

		onInManaged: true,

		closes:  "onFailure: block (Claude Code 2.1.295 and newer)",
		program: "claude", ask: askClaude,
		open: "whether a workspace is trusted: until then interactive sessions run no hooks in it",
	},
	{
		agent:  "codex",
		files:  map[string]string{scopeUser: "~/.codex/hooks.json", scopeProject: ".codex/hooks.json"},
		moved:  map[string]string{"CODEX_HOME": "~/.codex"},
		events: []string{"PreToolUse", "PostToolUse", "UserPromptSubmit", "SessionStart", "SessionEnd", "Stop", "SubagentStart", "SubagentStop"},
		entry: func(command, event string) map[string]any {
			if event == "PreToolUse" {
				command = closed(command, hangLimit)
			}
			return map[string]any{"hooks": []any{shellHandler(command)}}
		},
		closes: closesInShell,
		after: "run codex features disable " + codexTerminals + ": what Codex writes to a command that runs does not reach the gate\n" +
			"next: open /hooks in Codex and trust the hooks: until then, and after every change, Codex skips them without a word",
		program: "codex", ask: askCodex,
		open: "what another user of this configuration, or another project, trusts",
	},
	{
		agent:  "gemini",
		files:  map[string]string{scopeUser: "~/.gemini/settings.json", scopeProject: ".gemini/settings.json", scopeManaged: "/etc/gemini-cli/settings.json"},
		moved:  map[string]string{"GEMINI_CLI_HOME": "~", "GEMINI_CLI_SYSTEM_SETTINGS_PATH": "/etc/gemini-cli/settings.json"},
		events: []string{"BeforeTool", "AfterTool", "BeforeAgent", "AfterAgent", "SessionStart", "SessionEnd"},
		entry: func(command, event string) map[string]any {
			if event == "BeforeTool" {
				command = closed(command, hangLimit)
			}
			h := shellHandler(command)
			h["timeout"] = handlerTimeout * 1000
			return map[string]any{"matcher": ".*", "hooks": []any{h}} // without a name, which settings of a project could list as disabled
		},
		top:      map[string]any{"hooksConfig": map[string]any{"enabled": true}},
		off:      "hooksConfig",
		isOff:    geminiIsOff,
		offFiles: []string{"/etc/gemini-cli/system-defaults.json"},
		closes:   closesInShell,
		open:     "whether Gemini CLI trusts the folder, and runs the hooks",
	},
	{
		agent:  "cursor",
		files:  map[string]string{scopeUser: "~/.cursor/hooks.json", scopeProject: ".cursor/hooks.json", scopeManaged: "/etc/cursor/hooks.json"},
		events: []string{"preToolUse", "postToolUse", "postToolUseFailure", "beforeSubmitPrompt", "sessionStart", "sessionEnd", "stop"},
		entry: func(command, event string) map[string]any {
			h := map[string]any{"command": command, "timeout": handlerTimeout}
			if event == "preToolUse" {
				h["failClosed"] = true
			}
			return h
		},
		top:         map[string]any{"version": 1},
		claudeFiles: append([]string{"~/.claude/settings.json"}, claudeProject...),
		claudeOff:   "Third-party skills",
		closes:      "failClosed: true",
		open:        "whether Cursor has read its configuration since it was changed",
	},
	{
		agent:  "copilot",
		files:  map[string]string{scopeUser: "~/.copilot/hooks/countersign.json", scopeProject: ".github/hooks/countersign.json", scopeManaged: "/etc/github-copilot/policy.d/countersign.json"},
		moved:  map[string]string{"COPILOT_HOME": "~/.copilot"},
		events: []string{"preToolUse", "postToolUse", "postToolUseFailure", "userPromptSubmitted", "sessionStart", "sessionEnd", "agentStop", "errorOccurred"},
		entry: func(command, event string) map[string]any {
			command += " " + event
			if event == "preToolUse" {
				command = closed(command, hangLimit)
			}
			return map[string]any{"type": "command", "bash": command, "timeoutSec": handlerTimeout}
		},
		top:         map[string]any{"version": 1},
		off:         "disableAllHooks",
		isOff:       isNotFalse,
		offFiles:    slices.Concat(claudeProject, []string{".github/copilot/settings.json", ".github/copilot/settings.local.json"}),
		onInManaged: true,
		inRoot:      true,
		claudeFiles: claudeProject,

		closes: closesInShell,
		open:   "whether Copilot CLI runs the hooks",
	},
	{
		agent:  "opencode",
		files:  map[string]string{scopeUser: "~/.config/opencode/plugins/countersign.js", scopeProject: ".opencode/plugins/countersign.js"},
		moved:  map[string]string{"XDG_CONFIG_HOME": "~/.config"},
		whole:  openCodePlugin,
		begin:  strings.SplitAfterN(hook.OpenCodePlugin, "\n", 2)[0],
		closes: "the plugin refuses; a plugin that OpenCode cannot load does not",

		program: "opencode", ask: askOpenCode,
		open: "whether a session is started with --pure, which loads no plugins",
	},
	{
		agent: "cline", // its command line reads .clinerules, as its extension does, and .cline of a project, too
		files: map[string]string{scopeUser: "~/.cline/hooks/EVENT.sh", scopeProject: ".clinerules/hooks/EVENT"},
		moved: map[string]string{"CLINE_DIR": "~/.cline"},

		events:     []string{"PreToolUse", "PostToolUse", "UserPromptSubmit", "TaskStart", "TaskComplete", "TaskCancel", "SessionShutdown"},
		whole:      clineScript,
		begin:      clineBegin,
		executable: true,
		closes:     closesInShell + " (after 28 s)",
		after:      "switch hooks on in the settings of Cline's extension, if they are off",
		open:       "whether Cline runs the hooks",
	},
}

// claudeProject are the files of Claude Code in a project.
var claudeProject = []string{".claude/settings.json", ".claude/settings.local.json"}

// isNotFalse takes a value that is no boolean for one that switches the gate off.
func isNotFalse(value any) bool { return value != false }

// geminiIsOff reports hooksConfig of a settings file that switches all hooks off, or the gate by its command line.
func geminiIsOff(value any) bool {
	config, _ := value.(map[string]any)
	enabled, set := config["enabled"]
	return config == nil || set && enabled != true || strings.Contains(fmt.Sprint(config["disabled"]), gateProgram)
}

// openCodePlugin is the plugin that runs a command line.
func openCodePlugin(command string) (string, error) {
	text, err := json.Marshal(command)
	return strings.Replace(hook.OpenCodePlugin, hook.OpenCodeCommand, string(text), 1), err
}

const clineBegin = "#!/bin/sh\n# The gate of Countersign for Cline."

// clineLimit is hangLimit for Cline: its extension gives a hook 30 s.
const clineLimit = 28

// clineRefuses is run instead of the gate before a tool. Cline runs the call unless it reads a refusal, so a trap says it.
const clineRefuses = `case ${0##*/} in PreToolUse*) ;; *) exec COMMAND ;; esac
trap "" HUP INT TERM
answer='{"cancel":true,"errorMessage":"` + refusedByShell + `"}'
trap 'printf "%s\n" "$answer"; exit 0' EXIT
given=$(CLOSED)
case $?$given in
0'{"cancel":'*'}') answer=$given ;;
esac
`

// clineScript is a hook of Cline: an executable with the name of its event, which its input has, too.
func clineScript(command string) (string, error) {
	return clineBegin + " `countersign hook install cline` writes this file and\n# `countersign hook uninstall cline` removes it; changes are lost.\n" +
		strings.NewReplacer("COMMAND", command, "CLOSED", closed(command, clineLimit)).Replace(clineRefuses), nil
}

func findInstallation(agent string) (installation, error) {
	if i := slices.IndexFunc(installations, func(i installation) bool { return i.agent == agent }); i >= 0 {
		return installations[i], nil
	}
	var names []string
	for _, i := range installations {
		names = append(names, i.agent)
	}
	return installation{}, fmt.Errorf("there is no agent %q: give one of %s", agent, strings.Join(names, ", "))
}

// paths are the files of a scope.
func (i installation) paths(scope string) (paths []string, err error) {
	name, ok := i.files[scope]
	if !ok {
		return nil, fmt.Errorf("%s has no %s configuration for hooks", i.agent, scope)
	}
	events := i.events
	if !strings.Contains(name, "EVENT") {
		events = []string{""}
	}
	for _, event := range events {
		path, err := i.expand(strings.Replace(name, "EVENT", event, 1))
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// expand returns the absolute path of a file of the table.
func (i installation) expand(name string) (string, error) {
	for variable, from := range i.moved {
		rest, is := strings.CutPrefix(name, from)
		dir, set := os.LookupEnv(variable)
		switch {
		case !is || !set:
		case !filepath.IsAbs(dir):
			return "", fmt.Errorf("%s is set to %q: unset it, or give it the absolute path that %s uses", variable, dir, i.agent)
		default:
			return filepath.Join(dir, rest), nil
		}
	}
	if rest, home := strings.CutPrefix(name, "~/"); home {
		dir, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the user's home: %w", err)
		}
		return filepath.Join(dir, rest), nil
	}
	if filepath.IsAbs(name) {
		return name, nil
	}
	dir, err := i.projectDir()
	return filepath.Join(dir, name), err
}

// projectDir is the directory in which the agent, started in this one, looks for the files of a project. Agents see no
// symbolic link in it.
func (i installation) projectDir() (string, error) {
	here, err := os.Getwd()
	if err == nil {
		here, err = filepath.EvalSymlinks(here)
	}
	if err != nil || !i.inRoot {
		return here, err
	}
	for at := here; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, ".git")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return here, nil
		}
	}
}

// gateProgram is the program that the agents start: beside this one.
const gateProgram = "countersign-hook"

// installedCommand is the command line that install writes. It names the gate's configuration, so that the environment
// that an agent gives its hooks does not; for all users of a machine the gate finds it in the home of each.
func installedCommand(agent, scope string) (string, error) {
	gate, err := findGate()
	if err != nil {
		return "", err
	}
	if scope == scopeManaged {
		return shellWord(gate) + " " + agent + " --managed", othersMayRun(gate)
	}
	config, err := gateclient.DefaultConfigPath()
	return gateCommand(agent, gate, config), err
}

// gateCommand is the command line of the gate, for a shell.
func gateCommand(agent, program, config string) string {
	return shellWord(program) + " " + agent + " --config " + shellWord(config)
}

// othersMayRun reports a program that other users of this machine cannot start.
func othersMayRun(program string) error {
	const execute = 0o001
	for at := program; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&execute == 0 {
			return fmt.Errorf("other users may not start %s, because of the mode of %s: put both programs where all may, such as /usr/local/bin", program, at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
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
