package hook

import (
	"encoding/json"
	"strings"
)

// unknown is AgentHook's word for what the publisher cannot say (AHP-013): policies must treat it as
// the worst.
const unknown = "unknown"

// purpose is what a tool does, in AgentHook's open vocabularies (SPEC section 1).
type purpose struct {
	action, kind, scope string
	operationRisk       string
	riskClass           string
	resource            []string // arguments that name what is acted on
}

var (
	runs     = purpose{"execute", "process", "local", unknown, unknown, nil}
	reads    = purpose{"read", "file", "local", "read_only", "read_only", []string{"file_path", "absolute_path", "path", "filePath", "target_file"}}
	searches = purpose{"search", "file", "local", "read_only", "read_only", []string{"path", "dir_path", "pattern"}}
	writes   = purpose{"write", "file", "local", "write", "destructive_write", []string{"file_path", "absolute_path", "path", "filePath", "target_file"}}
	fetches  = purpose{"query", "url", "public_web", "external_transfer", "external_side_effect", []string{"url", "query", "prompt"}}
	spawns   = purpose{"handoff", "agent", "local", unknown, unknown, []string{"subagent_type", "agent_type"}}
	other    = purpose{unknown, unknown, unknown, unknown, unknown, nil}
)

// purposes are the tools of the agents, by name in lower case.
var purposes = map[string]purpose{
	"bash": runs, "shell": runs, "run_shell_command": runs, "exec_command": runs, "run_commands": runs, "execute_command": runs, "powershell": runs,
	"read": reads, "read_file": reads, "read_many_files": reads, "view": reads, "notebookread": reads,
	"grep": searches, "glob": searches, "ls": searches, "list_directory": searches, "search_file_content": searches, "list_files": searches, "search_files": searches,
	"write": writes, "edit": writes, "multiedit": writes, "notebookedit": writes, "apply_patch": writes, "write_file": writes, "replace": writes, "editor": writes,
	"create": writes, "delete": writes, "write_to_file": writes, "replace_in_file": writes,
	"webfetch": fetches, "websearch": fetches, "web_fetch": fetches, "google_web_search": fetches,
	"agent": spawns, "task": spawns, "spawn_agent": spawns, "delegate_to_agent": spawns,
}

// purpose finds what the tool does. An MCP server's tool may do anything, whatever its name.
func (e Event) purpose() purpose {
	if p, ok := purposes[strings.ToLower(e.Tool)]; ok && e.surface() != surfaceMCP {
		return p
	}
	return other
}

// resourceIn is the first argument that names what is acted on.
func (p purpose) resourceIn(input json.RawMessage) string {
	args := payload{}
	if json.Unmarshal(input, &args) != nil {
		return unknown
	}
	if text := args.text(p.resource...); text != "" {
		return text
	}
	return unknown
}

// AHP-013's words for where a tool comes from.
const (
	surfaceMCP    = "mcp_tools_call"
	surfaceShell  = "shell_command"
	surfaceNative = "native_runtime_tool"
)

// surface is where the tool comes from.
func (e Event) surface() string {
	name := strings.ToLower(e.Tool)
	switch {
	case e.Server != "", strings.HasPrefix(name, "mcp_"), strings.HasPrefix(name, "mcp:"):
		return surfaceMCP
	case purposes[name].kind == runs.kind:
		return surfaceShell
	}
	return surfaceNative
}
