package aaep

import "github.com/countersign-dev/countersign/events/internal/field"

// ToolInvoked announces a tool call before it takes effect (section 4.3.1).
type ToolInvoked struct {
	Tool               string
	ToolCallID         string
	ExpectedDurationMS *int64
	RiskLevel          string // low medium high; "" if absent, which means low
	Irreversible       *bool  // nil if absent, which means false
}

func readToolInvoked(o field.Object) any {
	return &ToolInvoked{
		Tool:               o.Text("tool"),
		ToolCallID:         o.Text("tool_call_id"),
		ExpectedDurationMS: o.Int("expected_duration_ms"),
		RiskLevel:          o.Text("risk_level"),
		Irreversible:       o.Bool("irreversible"),
	}
}

// ToolCompleted reports the end of a tool call (section 4.3.2).
type ToolCompleted struct {
	Summary      string
	Tool         string
	ToolCallID   string
	Status       string // success error timeout
	DurationMS   *int64
	ErrorMessage string
}

func readToolCompleted(o field.Object) any {
	return &ToolCompleted{
		Summary:      readSummary(o),
		Tool:         o.Text("tool"),
		ToolCallID:   o.Text("tool_call_id"),
		Status:       o.Text("status"),
		DurationMS:   o.Int("duration_ms"),
		ErrorMessage: o.Text("error_message"),
	}
}
