package hook

import (
	"cmp"
	"encoding/json"

	"github.com/countersign-dev/countersign/events/agenttool"
)

// unknown is AgentHook's word for what the publisher cannot say (AHP-013): policies must treat it as
// the worst.
const unknown = "unknown"

// purpose is what a tool does, in AgentHook's open vocabularies (SPEC section 1).
type purpose struct {
	action, kind, scope string
	operationRisk       string
	riskClass           string
}

var (
	runs     = purpose{"execute", "process", "local", unknown, unknown}
	reads    = purpose{"read", "file", "local", "read_only", "read_only"}
	searches = purpose{"search", "file", "local", "read_only", "read_only"}
	writes   = purpose{"write", "file", "local", "write", "destructive_write"}
	fetches  = purpose{"query", "url", "public_web", "external_transfer", "external_side_effect"}
	spawns   = purpose{"handoff", "agent", "local", unknown, unknown}
	other    = purpose{unknown, unknown, unknown, unknown, unknown}
)

// purposes are the kinds of tools of the catalogue.
var purposes = map[agenttool.Kind]purpose{
	agenttool.Shell: runs, agenttool.PowerShell: runs, agenttool.Read: reads, agenttool.Search: searches, agenttool.Write: writes, agenttool.Network: fetches, agenttool.Agent: spawns,
}

// purpose finds what the tool does. An MCP server's tool may do anything, whatever its name.
func (e Event) purpose() purpose {
	if p, ok := purposes[agenttool.KindOf(e.Tool)]; ok && e.surface() != surfaceMCP {
		return p
	}
	return other
}

// resource is the first argument that names what is acted on.
func (e Event) resource() string {
	args := payload{}
	if e.purpose() == other || json.Unmarshal(e.Input, &args) != nil {
		return unknown
	}
	return cmp.Or(args.text(agenttool.ResourceArguments[agenttool.KindOf(e.Tool)]...), unknown)
}

// AHP-013's words for where a tool comes from.
const (
	surfaceMCP    = "mcp_tools_call"
	surfaceShell  = "shell_command"
	surfaceNative = "native_runtime_tool"
)

// surface is where the tool comes from.
func (e Event) surface() string {
	kind := agenttool.KindOf(e.Tool)
	switch {
	case e.MCP, kind == agenttool.MCP:
		return surfaceMCP
	case kind == agenttool.Shell, kind == agenttool.PowerShell:
		return surfaceShell
	}
	return surfaceNative
}
