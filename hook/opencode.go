package hook

import _ "embed"

// OpenCodePlugin is the plugin by which OpenCode runs the gate: OpenCode has no hooks that are
// programs. It has one gap, OpenCodeCommand, for the gate's command line as a JSON text.
//
//go:embed opencode.js
var OpenCodePlugin string

// OpenCodeCommand is the gap in OpenCodePlugin.
const OpenCodeCommand = `"COMMAND"`

var openCodeKinds = kinds{
	"tool.execute.before": Before, "tool.execute.after": After, "chat.message": Prompt, "session.created": SessionStart, "session.deleted": SessionEnd,
	"session.idle": Response, "session.error": Failure,
}

// openCodeTools are OpenCode's own tools.
var openCodeTools = map[string]bool{
	"bash": true, "read": true, "write": true, "edit": true, "multiedit": true, "patch": true, "apply_patch": true, "grep": true, "glob": true, "list": true,
	"webfetch": true, "websearch": true, "codesearch": true, "task": true, "todowrite": true, "todoread": true, "skill": true, "question": true, "lsp": true, "batch": true,
}

// openCodeTool is the name of a tool in events. OpenCode calls an MCP server's tool SERVER_TOOL, which could
// look like a tool of another agent; it gets the prefix by which other agents name such tools.
func openCodeTool(name string) string {
	if name == "" || openCodeTools[name] {
		return name
	}
	return "mcp__" + name
}

// openCode reads what OpenCodePlugin writes, in the names of OpenCode's plugin interface.
var openCode = Agent{
	Name: "opencode", Package: "opencode",
	Read: func(_ string, input []byte) (Event, error) {
		p, err := readPayload(input)
		if err != nil {
			return Event{}, err
		}
		kind, err := openCodeKinds.of(p.text("event"))
		if err != nil {
			return Event{}, err
		}
		e := Event{
			Kind: kind, Session: p.text("sessionID"), Parent: p.text("parentID"), Tool: openCodeTool(p.text("tool")), CallID: p.text("callID"), CWD: p.text("directory"),
			Model: p.text("model"), Prompt: p.text("prompt"),
		}
		if kind == Failure {
			e.Error = errorWord(p.text("error"))
		}
		if kind == After && e.surface() == surfaceShell { // other tools may have a member exit of their own
			code := string(p["exit"])
			e.Unsure = code == "" || code == "null"
			e.Failed = !e.Unsure && code != "0"
		}
		return p.call(e, "args")
	},
	// The plugin refuses unless the gate says so: a gate that dies says nothing.
	Allow: Output{Stdout: `{"decision":"allow"}` + "\n"},
	Refuse: func(reason string) Output {
		return jsonOutput(map[string]string{"decision": "deny", "reason": reason})
	},
	Probe: probe("sessionID", "tool", map[string]any{"event": "tool.execute.before", "callID": "probe", "args": map[string]any{}}),
	Past: []string{
		"a plugin that OpenCode cannot load is skipped without a word, and so are all plugins with --pure",
		"another plugin can change the arguments after the gate; the report of what ran shows it",
		"a tool that fails raises no event after it",
	},
}
