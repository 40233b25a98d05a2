package agenthook

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// A finding about schemas names the tools, and nothing that is no plain name.
func TestToolsText(t *testing.T) {
	entry := func(name string) any { return map[string]any{"tool_name": name} }
	for _, c := range []struct {
		name     string
		metadata any
		want     string
	}{
		{"mcp__kit__touch", nil, "mcp__kit__touch"},
		{"a tool\x1b[2J", nil, ""},
		{"t", map[string]any{"changed_tools": []any{entry("a"), entry("b\n"), 5}}, "a and 2 more"},
		{"t", map[string]any{"changed_tools": slices.Repeat([]any{entry("a")}, 7), "changed_tools_total": json.Number("150")}, "a, a, a, a, a and 145 more"},
		{"t", map[string]any{"changed_tools": "x", "changed_tools_total": json.Number("1e99")}, "t"},
		{"t", map[string]any{"changed_tools": []any{}}, "t"},
	} {
		if got := toolsText(&agenthook.Event{ToolName: c.name, Metadata: strictjson.FromTree(c.metadata)}); got != c.want {
			t.Errorf("%q, %v: %q, want %q", c.name, c.metadata, got, c.want)
		}
	}
}
