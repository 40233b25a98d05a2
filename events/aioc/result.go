package aioc

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Decisions of a policy.
const (
	Allow           = "allow"
	Deny            = "deny"
	RequireApproval = "require_approval"
)

// Result modes of a refusal: an error that ends the run, or the result of the call.
const (
	ModeThrow      = "throw"
	ModeToolResult = "tool_result"
)

// PolicyResult is a policy's result for a proposal, and Countersign's reply. Reason is for the
// runtime, its trace and its errors; PublicReason is the only text for people.
type PolicyResult struct {
	Decision      string         `json:"decision"`
	Reason        string         `json:"reason"`
	PublicReason  string         `json:"publicReason,omitempty"`
	ResultMode    string         `json:"resultMode,omitempty"` // not of allow
	PolicyVersion string         `json:"policyVersion,omitempty"`
	ExpiresAt     string         `json:"expiresAt,omitempty"`
	Metadata      map[string]any `json:"metadata,omitempty"`
}

// Encode returns the RFC 8785 form of a result.
func (r PolicyResult) Encode() ([]byte, error) { return events.Encode(r) }

// Types of the trace events, and the last token of their subject.
const (
	TypeToolEvaluated    = subject.TypeToolEvaluated
	TypeHandoffEvaluated = subject.TypeHandoffEvaluated
)

// CloudEventType is the type of the CloudEvent that carries a PolicyEvaluated.
const CloudEventType = "dev.countersign.policy_evaluated.v1"

// Levels of trace events.
const (
	LevelInfo = "info"
	LevelWarn = "warn"
)

// PolicyEvaluated is the trace event of every proposal (RFC-0002, Trace Requirements). Its
// metadata never holds an argument or a plain hash of one.
type PolicyEvaluated struct {
	Timestamp     string         `json:"timestamp"`
	Level         string         `json:"level"` // info for allow, else warn
	Type          string         `json:"type"`
	Agent         string         `json:"agent"` // the proposing agent
	Turn          int64          `json:"turn"`
	ToolName      string         `json:"toolName,omitempty"`    // of a tool proposal
	HandoffName   string         `json:"handoffName,omitempty"` // of a handoff
	ToAgent       string         `json:"toAgent,omitempty"`     // of a handoff
	CallID        string         `json:"callId"`                // "" if the runtime sent none
	Decision      string         `json:"decision"`
	Reason        string         `json:"reason"`
	PublicReason  string         `json:"publicReason,omitempty"`
	ResultMode    string         `json:"resultMode,omitempty"` // not of allow
	PolicyVersion string         `json:"policyVersion,omitempty"`
	ExpiresAt     string         `json:"expiresAt,omitempty"`
	Metadata      map[string]any `json:"metadata,omitempty"`
}

// Encode returns the RFC 8785 form of a trace event.
func (e PolicyEvaluated) Encode() ([]byte, error) { return events.Encode(e) }

// DecodePolicyEvaluated reads what Encode wrote, strictly.
func DecodePolicyEvaluated(raw []byte) (PolicyEvaluated, error) {
	return events.DecodeRecord[PolicyEvaluated](raw)
}

// ToolResultEnvelope is the model's answer for its call: always all four members.
type ToolResultEnvelope struct {
	Status       string  `json:"status"` // ok denied approval_required
	Code         *string `json:"code"`
	PublicReason *string `json:"publicReason"`
	Data         any     `json:"data"`
}

// Default texts for people.
const (
	PublicDenied   = "Action not allowed."
	PublicApproval = "Action requires approval."
)
