package mcptools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// decisionPage is the page with which a client shows an answer of aana_pre_tool_check. Its texts come from
// agents, so the page sets them as text, never as HTML.
//
//go:embed decision.html
var decisionPage string

// decisionURI is the page's address, which AANA's tool names in _meta.
const decisionURI = "ui://aana/decision.html"

// showsDecision is the _meta of aana_pre_tool_check.
var showsDecision = mcp.Meta{"openai/outputTemplate": decisionURI}

// addDecisionPage serves the page.
func addDecisionPage(server *mcp.Server) {
	const mime = "text/html+skybridge"
	server.AddResource(&mcp.Resource{URI: decisionURI, Name: "decision", Description: "Shows an answer of aana_pre_tool_check.", MIMEType: mime},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: decisionURI, MIMEType: mime, Text: decisionPage}}}, nil
		})
}

// aanaMembers are the members of AANA's envelope that an answer has, side by side: those of
// architecture_decision, and the recommended action. Execution_allowed is added.
var aanaMembers = []string{
	"route", "gate_decision", "aix_score", "hard_blockers", "missing_evidence", "evidence_refs", "authorization_state",
	"recovery_suggestion", "correction_recovery_suggestion", "audit_event", "audit_safe_log_event",
}

func (s *service) preToolCheck(ctx context.Context, arguments []byte) (string, json.RawMessage, error) {
	envelope, err := s.ask(ctx, "/pre-tool-check", arguments)
	if err != nil {
		return "", nil, err
	}
	return aanaAnswerOf(envelope)
}

// aanaAnswerOf is the tool's answer for a verdict's envelope. Without a word of permission there is none.
func aanaAnswerOf(envelope []byte) (text string, structured json.RawMessage, err error) {
	var said struct {
		Architecture map[string]json.RawMessage `json:"architecture_decision"`
		Action       string                     `json:"recommended_action"`
		Policy       struct {
			Allowed bool `json:"execution_allowed"`
		} `json:"execution_policy"`
		Approval json.RawMessage `json:"approval"` // Countersign's own, of a call that waits for a person
	}
	if err := json.Unmarshal(envelope, &said); err != nil || said.Action == "" {
		return "", nil, errors.New("the gateway's answer makes no sense")
	}
	allowed := said.Policy.Allowed && said.Action == "accept"
	answer := map[string]any{"execution_allowed": allowed, "recommended_action": said.Action}
	for _, name := range aanaMembers {
		value, there := said.Architecture[name]
		if !there {
			return "", nil, fmt.Errorf("the gateway's answer lacks %s", name)
		}
		answer[name] = value
	}
	if said.Approval != nil {
		answer["approval"] = said.Approval
	}
	structured, err = json.Marshal(answer)
	return fmt.Sprintf("AANA route: %s. Execution allowed: %t.", said.Action, allowed), structured, err
}
