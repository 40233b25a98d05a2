package hook

import (
	"fmt"
	"strings"
)

// kinds maps an agent's names of events to kinds. A name that is absent is refused: it may be a new
// name of a call.
type kinds map[string]Kind

// of returns the kind of an event.
func (k kinds) of(name string) (Kind, error) {
	kind, known := k[name]
	if !known {
		return "", fmt.Errorf("%w: it names no event that is known here", ErrInput)
	}
	return kind, nil
}

// ignoring adds names of events for which AgentHook has none.
func (k kinds) ignoring(names ...string) kinds {
	for _, n := range names {
		k[n] = Ignored
	}
	return k
}

var claudeKinds = kinds{
	"PreToolUse": Before, "PostToolUse": After, "PostToolUseFailure": After,
	"UserPromptSubmit": Prompt, "SessionStart": SessionStart, "SessionEnd": SessionEnd,
	"Stop": Response, "SubagentStop": Response, "StopFailure": Failure, "SubagentStart": Handoff,
}.ignoring("PostToolBatch", "PermissionRequest", "PermissionDenied", "PreCompact", "PostCompact", "Elicitation",
	"ElicitationResult", "ConfigChange", "Notification", "Interrupt")

// readClaude reads the input of Claude Code, which Codex has taken over.
func readClaude(_ string, input []byte) (Event, error) {
	p, err := readPayload(input)
	if err != nil {
		return Event{}, err
	}
	name := p.text("hook_event_name")
	kind, err := claudeKinds.of(name)
	if err != nil {
		return Event{}, err
	}
	e := Event{
		Kind: kind, Session: p.text("session_id"), Tool: p.text("tool_name"), CallID: p.text("tool_use_id"),
		Worker: p.text("agent_id"), MCP: p.object("mcp_server").text("name") != "", CWD: p.text("cwd"), Model: p.text("model"),
		Prompt: p.text("prompt"), Answer: p.text("last_assistant_message"), Failed: name == "PostToolUseFailure", Took: p.milliseconds("duration_ms"),
	}
	switch {
	case kind == Failure:
		e.Error = errorWord(p.text("error"))
	case kind == SessionStart && p.text("source") == "compact":
		e.Kind = Ignored // its context was compacted; the session goes on
	}
	return p.call(e, "tool_input")
}

// errorWord is an agent's name of an error. What is no single word may be a message, with private texts.
func errorWord(name string) string {
	const longest = 64
	word := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
	}
	if len(name) > longest || strings.IndexFunc(name, func(r rune) bool { return !word(r) }) >= 0 {
		return ""
	}
	return name
}

// refuseClaude refuses in the words of Claude Code and Codex. Exit code 2 would refuse as well, but
// shows the hook's command line to the model.
func refuseClaude(reason string) Output {
	return decideClaude("deny", reason)
}

func decideClaude(decision, reason string) Output {
	return jsonOutput(map[string]any{"hookSpecificOutput": map[string]string{
		"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason,
	}})
}

// deferClaude ends a headless run. In an attended session Claude Code takes the same answer for silence and
// runs the call; of a subagent it loses the call. It sets these variables itself for its hooks: neither the
// environment in which it was started nor its settings change them (seen in 2.1.330).
var deferClaude = Deferral{
	Answer: func(reason string) Output { return decideClaude("defer", reason) },
	Applies: func(e Event, getenv func(string) string) bool {
		return getenv("CLAUDE_CODE_SESSION_ATTENDED") == "0" && getenv("CLAUDE_CODE_SESSION_ID") == e.Session && e.Worker == ""
	},
}

// versionClaude reads AI_AGENT, which Claude Code sets for its hooks to claude-code_2-1-330_harness (seen in
// 2.1.330). Where another program has set it, the version is not known.
func versionClaude(getenv func(string) string) string {
	parts := strings.Split(getenv("AI_AGENT"), "_")
	if len(parts) != 3 || parts[0] != "claude-code" || strings.Trim(parts[1], "0123456789-") != "" {
		return ""
	}
	return strings.ReplaceAll(parts[1], "-", ".")
}

// otherHooks is a hole of agents that run the hooks of an event beside each other.
const otherHooks = "another hook can change the arguments that the gate judged; the report of what ran shows it (input_drift)"

// noProcess is a hole of agents that the shell around the gate closes.
const noProcess = "with no free process slot (a limit of the user or the container) the agent cannot start the shell around the gate, and no shell refuses"

var probeClaude = probe("session_id", "tool_name", map[string]any{"hook_event_name": "PreToolUse", "tool_use_id": "probe", "tool_input": map[string]any{}})

// withoutExitCode marks the report of a command: the agent does not say whether it failed.
func (e Event) withoutExitCode() Event {
	e.Unsure = e.Kind == After && !e.Failed && e.surface() == surfaceShell
	return e
}

var claudeCode = Agent{
	Name: "claude-code", Read: readClaude, Refuse: refuseClaude, Probe: probeClaude, Version: versionClaude, Defer: &deferClaude,
	Past: []string{
		"files that a prompt mentions with @ raise no event",
		"the setting disableAllHooks, also of a project, such as a cloned repository, starts it without hooks of the user; managed ones run",
		"a mod of a plugin that is installed, or that --plugin-dir names, can allow what hooks of the user refuse, or run programs itself; managed hooks hold",
		"--bare (CLAUDE_CODE_SIMPLE), --safe-mode (CLAUDE_CODE_SAFE_MODE), --restricted, --setting-sources without user, and programs of the Agent SDK that load no settings of the user run no hooks of the user; managed ones run",
		"an untrusted workspace holds all hooks back in interactive mode",
		"a command in the text of a skill raises no event beside that of the skill; the setting disableSkillShellExecution closes that",
		"a hook that ends with exit code 0 and text that is no JSON opens the gate, also with onFailure: block",
		otherHooks,
	},
}

var codex = Agent{
	Name: "codex", Package: "@openai/codex", Refuse: refuseClaude, Probe: probeClaude,
	Read: func(name string, input []byte) (Event, error) {
		e, err := readClaude(name, input)
		return e.withoutExitCode(), err
	},
	Past: []string{
		"a hook whose exact definition is not trusted (/hooks) is skipped without a word, and with --ignore-user-config none is trusted",
		"features.hooks = false in the configuration of the user or of a trusted project, and --disable hooks, switch all hooks off; features.hooks = true in /etc/codex/requirements.toml closes that",
		"a hook that ends with exit code 0 and no answer lets the call run; no setting closes that",
		"what it writes to a command that runs (write_stdin) raises no event; codex features disable unified_exec_tty closes that",
		"hosted tools such as web search raise no event",
		"a tool that fails raises no event after it: its call stays without an end (missing_completion); how a command ended is not said (unknown)",
		otherHooks,
		noProcess,
	},
}

var geminiKinds = kinds{"BeforeTool": Before, "AfterTool": After, "BeforeAgent": Prompt, "SessionStart": SessionStart, "SessionEnd": SessionEnd, "AfterAgent": Response}.
	ignoring("BeforeModel", "AfterModel", "BeforeToolSelection", "PreCompress", "Notification")

var gemini = Agent{
	Name: "gemini", Package: "@google/gemini-cli",
	Read: func(_ string, input []byte) (Event, error) {
		p, err := readPayload(input)
		if err != nil {
			return Event{}, err
		}
		kind, err := geminiKinds.of(p.text("hook_event_name"))
		if err != nil {
			return Event{}, err
		}
		response := p.object("tool_response")
		e := Event{
			Kind: kind, Session: p.text("session_id"), Tool: p.text("tool_name"), CWD: p.text("cwd"),
			MCP: p.object("mcp_context").text("server_name") != "", Answer: p.text("prompt_response"),
			Failed: len(response["error"]) > 0 && string(response["error"]) != "null",
		}
		if kind == Prompt { // AfterAgent repeats it
			e.Prompt = p.text("prompt")
		}
		return p.call(e.withoutExitCode(), "tool_input")
	},
	Allow: Output{Stdout: "{}\n"},
	Probe: probe("session_id", "tool_name", map[string]any{"hook_event_name": "BeforeTool", "tool_input": map[string]any{}}),
	Refuse: func(reason string) Output {
		return jsonOutput(map[string]string{"decision": "deny", "reason": reason})
	},
	Past: []string{
		"a hook that ends with exit code 0 and no answer lets the call run; no setting closes that",
		"in a folder that is not trusted no hooks run, managed ones neither",
		"hooksConfig in settings of the user or of a trusted project switches hooks off: all (enabled: false) unless managed settings have enabled: true, or those that its list disabled names",
		"GEMINI_CLI_SYSTEM_SETTINGS_PATH in a user's environment puts another file in the place of the managed settings",
		"how a command ended is not said (unknown)",
		otherHooks,
		noProcess,
	},
}

var cursorKinds = kinds{
	"preToolUse": Before, "beforeShellExecution": Before, "beforeMCPExecution": Before, "beforeReadFile": Before,
	"postToolUse": After, "postToolUseFailure": After, "afterShellExecution": After, "afterMCPExecution": After,
	"beforeSubmitPrompt": Prompt, "sessionStart": SessionStart, "sessionEnd": SessionEnd, "stop": Response,
}.ignoring("afterFileEdit", "afterAgentResponse", "afterAgentThought", "subagentStart", "subagentStop", "preCompact")

// cursorTools names the tool and the arguments of events that are about one tool.
var cursorTools = map[string]struct{ tool, argument string }{
	"beforeShellExecution": {"Shell", "command"}, "afterShellExecution": {"Shell", "command"}, "beforeReadFile": {"Read", "file_path"},
}

var cursor = Agent{
	Name: "cursor",
	Read: func(name string, input []byte) (Event, error) {
		p, err := readPayload(input)
		if err != nil {
			return Event{}, err
		}
		if n := p.text("hook_event_name"); n != "" {
			name = n
		}
		kind, err := cursorKinds.of(name)
		if err != nil {
			return Event{}, err
		}
		e := Event{
			Kind: kind, Session: p.text("conversation_id", "session_id"), Tool: p.text("tool_name"), CallID: p.text("tool_use_id"),
			CWD: p.text("cwd"), Model: p.text("model"), Version: p.text("cursor_version"), Prompt: p.text("prompt"), Took: p.milliseconds("duration"),
		}
		switch {
		case kind == Response && p.text("status") == "error":
			e.Kind = Failure
		case name == "postToolUseFailure" && p.text("failure_type") == "permission_denied":
			e.Kind = Ignored // it did not run
		}
		if strings.HasSuffix(name, "MCPExecution") && e.Tool != "" && !strings.HasPrefix(e.Tool, "MCP:") {
			e.Tool = "MCP:" + e.Tool // as preToolUse names it: an MCP server's Read is not Cursor's
		}
		arguments := "tool_input"
		if one, ok := cursorTools[name]; ok {
			e.Tool, arguments = one.tool, "arguments"
			p[arguments] = []byte(`{"` + one.argument + `":` + orNull(p[one.argument]) + `}`)
		}
		e = e.withoutExitCode()
		if e.Kind == After && name == "postToolUseFailure" { // what timed out or was interrupted may have had its effect
			e.Failed = p.text("failure_type") == "error" && string(p["is_interrupt"]) != "true"
			e.Unsure = !e.Failed
		}
		return p.call(e, arguments)
	},
	Allow: Output{Stdout: `{"permission":"allow"}` + "\n"},
	Probe: probe("conversation_id", "tool_name", map[string]any{"hook_event_name": "preToolUse", "tool_use_id": "probe", "tool_input": map[string]any{}}),
	Refuse: func(reason string) Output {
		return jsonOutput(map[string]any{"permission": "deny", "user_message": reason, "agent_message": reason, "continue": false})
	},
	Past: []string{
		"without failClosed: true a hook that fails lets the call run",
		"hooks of .claude/settings.json (or settings.local.json beside it, or the user's) are read as well while its setting Third-party skills is on: a call that two gates see is asked for and reported twice",
		"how a command ended is not said, nor whether a call that timed out or was interrupted had its effect (unknown)",
	},
}

func orNull(raw []byte) string {
	if len(raw) == 0 {
		return "null"
	}
	return string(raw)
}

var copilotKinds = kinds{
	"preToolUse": Before, "postToolUse": After, "postToolUseFailure": After, "userPromptSubmitted": Prompt, "sessionStart": SessionStart, "sessionEnd": SessionEnd,
	"agentStop": Response, "errorOccurred": Failure,
}.ignoring("permissionRequest")

var copilot = Agent{
	Name: "copilot", Package: "@github/copilot",
	Read: func(name string, input []byte) (Event, error) {
		p, err := readPayload(input)
		if err != nil {
			return Event{}, err
		}
		if name == "" { // its input does not name the event: only a call that is about to run is sure to be meant
			name = "preToolUse"
		}
		kind, err := copilotKinds.of(name)
		if err != nil {
			return Event{}, err
		}
		e := Event{
			Kind: kind, Session: p.text("sessionId"), Tool: p.text("toolName"), Worker: p.text("agentId"), CWD: p.text("cwd"),
			Prompt: p.text("prompt"), Failed: name == "postToolUseFailure" || p.object("toolResult").text("resultType") == "failure",
		}
		if kind == Failure {
			e.Error = errorWord(p.object("error").text("name"))
		}
		e.MCP = joins(e.Tool, "-") // kit-touch
		return p.call(e.withoutExitCode(), "toolArgs")
	},
	Allow: Output{Stdout: "{}\n"},
	Probe: probe("sessionId", "toolName", map[string]any{"toolArgs": map[string]any{}}),
	Refuse: func(reason string) Output {
		return jsonOutput(map[string]string{"permissionDecision": "deny", "permissionDecisionReason": reason})
	},
	Past: []string{
		"a hook that ends with exit code 0 and no answer lets the call run; no setting closes that",
		"disableAllHooks in .github/copilot/settings.json or .claude/settings.json (or settings.local.json beside them) in the root of a trusted repository switches hooks of the user off; managed ones run",
		"in a folder that is not trusted no hooks of the project run (hook install --project)",
		"hooks of .claude/settings.json and .claude/settings.local.json of a trusted repository are read as well: a call that two gates see is asked for and reported twice",
		"how a command ended is not said (unknown)",
		otherHooks,
		noProcess,
	},
}

var clineKinds = kinds{
	"PreToolUse": Before, "tool_call": Before, "PostToolUse": After, "tool_result": After,
	"UserPromptSubmit": Prompt, "TaskStart": SessionStart, "TaskComplete": SessionEnd, "TaskCancel": SessionEnd, "SessionShutdown": SessionEnd,
}.ignoring("TaskResume", "PreCompact")

var cline = Agent{
	Name: "cline", Package: "@cline/cli",
	Read: func(name string, input []byte) (Event, error) {
		p, err := readPayload(input)
		if err != nil {
			return Event{}, err
		}
		if n := p.text("hookName"); n != "" {
			name = n
		}
		kind, err := clineKinds.of(name)
		if err != nil {
			return Event{}, err
		}
		e := Event{
			Kind: kind, Session: p.text("taskId"), Worker: p.text("agent_id"), Version: p.text("clineVersion"), Model: p.text("model"),
		}
		// The command line has tool_call or tool_result, the extension preToolUse or postToolUse.
		for _, of := range []struct{ member, tool, arguments string }{
			{"tool_call", "name", "input"}, {"tool_result", "name", "input"}, {"preToolUse", "toolName", "parameters"}, {"postToolUse", "toolName", "parameters"},
		} {
			if c := p.object(of.member); c.text(of.tool) != "" {
				e.Tool, e.CallID = c.text(of.tool), c.text("id")
				p["arguments"] = c[of.arguments]
				break
			}
		}
		e.MCP = joins(e.Tool, "__") // kit__touch
		e.Failed = strings.TrimSpace(string(p.object("postToolUse")["success"])) == "false"
		return p.call(e.withoutExitCode(), "arguments")
	},
	Allow: Output{Stdout: `{"cancel":false}` + "\n"},
	Probe: func(session, tool string) []byte {
		return probe("taskId", "-", map[string]any{"hookName": "tool_call", "tool_call": map[string]any{"id": "probe", "name": tool, "input": map[string]any{}}})(session, "")
	},
	Refuse: func(reason string) Output {
		return jsonOutput(map[string]any{"cancel": true, "errorMessage": reason})
	},
	Past: []string{"a refusal ends the whole run", "how a command ended is not said (unknown)", noProcess},
}
