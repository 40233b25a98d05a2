package hook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/agenthook"
)

// Envelope is what an AgentHook event has besides the agent's own Event.
type Envelope struct {
	ID      string // a UUID
	Time    time.Time
	CallID  string // metadata.tool_call_id; of a call that is about to run, or that ran
	Derived bool   // CallID was made here, because the agent gives none
	Prompts bool   // put texts of prompts and answers into events
	Adapter string // version of this program
	Probe   bool   // of a call that no agent makes: its arguments are marked as invalid, so that the admitter denies it (AH-C-037)

	Approval Approval // under which a call ran
}

// Approval is a person's approval of a call: the workflow, and the decision in it.
type Approval struct {
	Workflow string `json:"workflow"`
	Decision string `json:"decision,omitempty"`
}

// Block is the approval as AgentHook has it in metadata (AHP-013).
func (a Approval) Block() map[string]any {
	block := map[string]any{"required": true, "status": "approved", "workflow_id": a.Workflow}
	if a.Decision != "" {
		block["decision_ref"] = a.Decision
	}
	return block
}

// wireEvent is an AgentHook event (SPEC section 1).
type wireEvent struct {
	SchemaVersion int             `json:"schema_version"`
	EventID       string          `json:"event_id"`
	EventType     string          `json:"event_type"`
	Timestamp     string          `json:"timestamp"`
	Source        string          `json:"source"`
	AgentID       string          `json:"agent_id,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"` // the session that this one belongs to
	SessionID     string          `json:"session_id"`
	Phase         string          `json:"evidence_phase,omitempty"`
	ToolName      string          `json:"tool_name,omitempty"`
	ToolInput     json.RawMessage `json:"tool_input,omitempty"`
	Action        string          `json:"action,omitempty"`
	ResourceKind  string          `json:"resource_kind,omitempty"`
	Resource      string          `json:"resource,omitempty"`
	ResourceScope string          `json:"resource_scope,omitempty"`
	OperationRisk string          `json:"operation_risk,omitempty"`
	Metadata      map[string]any  `json:"metadata,omitempty"`
}

var eventTypes = map[Kind]string{
	Before: agenthook.PreToolUse, After: agenthook.PostToolUse, Blocked: agenthook.ToolUseBlocked, Prompt: agenthook.UserPromptSubmit,
	SessionStart: agenthook.SessionStart, SessionEnd: agenthook.SessionEnd,
	Response: agenthook.ModelResponse, Handoff: agenthook.AgentHandoff, Failure: agenthook.ErrorOccurred,
}

// maxAnswer is the longest answer that an event holds, in bytes (AH-C-017).
const maxAnswer = 4 << 10

// AgentHook returns the event as AgentHook has it, with the blocks of AHP-013 that the agent's input
// can fill. The event has no result of a tool: results may be large and secret.
func (e Event) AgentHook(agent string, v Envelope) ([]byte, error) {
	w := wireEvent{
		SchemaVersion: 1, EventID: v.ID, EventType: eventTypes[e.Kind], Timestamp: v.Time.UTC().Format(time.RFC3339Nano),
		Source: agent, AgentID: e.Worker, CorrelationID: e.Parent, SessionID: e.Session, ToolName: e.Tool, Metadata: e.about(agent),
	}
	switch e.Kind {
	case Before:
		w.Phase, w.ToolInput = agenthook.PhasePreCommit, e.Input
		p := e.purpose()
		w.Action, w.ResourceKind, w.ResourceScope, w.OperationRisk, w.Resource = p.action, p.kind, p.scope, p.operationRisk, e.resource()
		w.Metadata["tool_identity"], w.Metadata["provider_translation"] = e.identity(agent), e.translation(agent, v.Adapter)
		w.Metadata["risk"] = map[string]string{"risk_class": p.riskClass}
		if v.Probe {
			w.Metadata["validation"] = map[string]string{"status": "failed", "validator": "countersign hook doctor"}
		}
	case After: // the arguments once: the event is no larger than the one that asked
		w.Metadata["tool_input_executed"], w.Metadata["execution"] = e.Input, e.execution(v.Time)
		if v.Approval != (Approval{}) {
			w.Metadata["approval"] = v.Approval.Block()
		}
	case Prompt:
		w.Metadata["prompt_chars"] = len([]rune(e.Prompt))
		if v.Prompts {
			w.Metadata["prompt"] = e.Prompt
		}
	case Response:
		w.Metadata["response_chars"] = utf8.RuneCountInString(e.Answer)
		if v.Prompts {
			w.Metadata["response_content"] = beginning(e.Answer, maxAnswer)
		}
	case Handoff:
		w.CorrelationID = cmp.Or(e.Parent, e.Worker)
	case Failure:
		w.Metadata["error_type"] = cmp.Or(e.Error, unknown)
	}
	if v.CallID != "" {
		w.Metadata["tool_call_id"] = v.CallID
	}
	if v.Derived {
		w.Metadata["tool_call_id_derived"] = true
	}
	if e.CallID != "" && e.CallID != v.CallID {
		w.Metadata["agent_tool_call_id"] = e.CallID
	}
	return Encode(w)
}

// Encode writes an event as JSON, in as many bytes as its arguments have: without the escapes that HTML needs.
func Encode(event any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(event)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// beginning is as much of a text as fits into limit bytes.
func beginning(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// about is what the agent says of itself. A version that it does not tell is recorded as unknown, so that a search
// by version shows such calls, too.
func (e Event) about(agent string) map[string]any {
	m := map[string]any{"agent": agent, "agent_version": cmp.Or(e.Version, unknown)}
	for name, text := range map[string]string{"agent_cwd": e.CWD, "agent_model": e.Model} {
		if text != "" {
			m[name] = text
		}
	}
	return m
}

// identity is AHP-013's tool_identity.
func (e Event) identity(agent string) map[string]string {
	return map[string]string{"canonical_name": CanonicalPart(agent) + "." + CanonicalPart(e.Tool), "provider_name": e.Tool, "source": e.surface()}
}

// translation is AHP-013's provider_translation.
func (e Event) translation(agent, adapter string) map[string]string {
	return map[string]string{"provider_surface": e.surface(), "model_facing_tool": e.Tool, "provider": agent, "adapter_version": adapter}
}

// CanonicalPart writes a name with the characters of a canonical name: [a-z][a-z0-9_]*.
func CanonicalPart(name string) string {
	part := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(name))
	if part == "" || part[0] < 'a' || part[0] > 'z' {
		part = "t" + part
	}
	return part
}

// execution is AHP-013's execution.
func (e Event) execution(end time.Time) map[string]any {
	m := map[string]any{"outcome": "succeeded", "completed_at": end.UTC().Format(time.RFC3339Nano)}
	switch {
	case e.Failed:
		m["outcome"] = "failed"
	case e.Unsure:
		m["outcome"] = unknown
	}
	if e.Took > 0 {
		m["duration_ms"] = e.Took.Milliseconds()
		m["started_at"] = end.Add(-e.Took).UTC().Format(time.RFC3339Nano)
	}
	return m
}
