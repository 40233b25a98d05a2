package mcptools

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump"
)

// The evaluation tool is one that AUMP's binding to MCP accepts.
func TestEvaluationTool(t *testing.T) {
	found := 0
	for _, tool := range tools {
		if tool.name != "aump.evaluate_action" {
			continue
		}
		found++
		text, err := json.Marshal(tool.definition())
		if err != nil {
			t.Fatal(err)
		}
		if r, err := aump.Validate(aump.KindMCPTool, text, nil, time.Now()); err != nil || !r.Valid {
			t.Errorf("%v %v\n%s", err, r.Errors, text)
		}
	}
	if found != 1 {
		t.Errorf("there are %d such tools", found)
	}
}

// What changes something says so, and only a revocation destroys.
func TestHints(t *testing.T) {
	for _, tool := range tools {
		h := tool.definition().Annotations
		changes := tool.name == "aump.append_evidence" || tool.name == "aump.revoke_mandate"
		if h.ReadOnlyHint == changes || *h.DestructiveHint != (tool.name == "aump.revoke_mandate") || *h.OpenWorldHint {
			t.Errorf("%s: %+v", tool.name, h)
		}
	}
}
