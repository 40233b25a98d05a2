package aioc

import (
	"fmt"
	"strings"
)

// Envelope is what the model gets for a call with this result: the call's data
// when it was allowed and has run, or a soft refusal. told is false for a hard
// refusal, of which the model gets nothing: the runtime raises Err.
//
// A refusal's code is its reason, which is internal. Where models must not learn
// it, publicCode maps it; nil leaves it as it is, as aioc does.
func (r PolicyResult) Envelope(data any, publicCode func(reason string) string) (e ToolResultEnvelope, told bool) {
	if r.Decision == Allow {
		return ToolResultEnvelope{Status: "ok", Data: data}, true
	}
	if r.ResultMode != ModeToolResult {
		return ToolResultEnvelope{}, false
	}
	code, public := r.Reason, strings.TrimFunc(r.PublicReason, isBlank)
	if publicCode != nil {
		code = publicCode(code)
	}
	e.Status, e.Code, e.PublicReason = "denied", &code, &public
	text := PublicDenied
	if r.Decision == RequireApproval {
		e.Status, text = "approval_required", PublicApproval
	}
	if public == "" {
		public = text
	}
	return e, true
}

// Refused is the typed error with which a runtime ends a run after a hard
// refusal.
type Refused struct {
	Kind   string // tool or handoff
	Name   string // the tool, or the agent that the handoff is to
	From   string // of a handoff
	Result PolicyResult
}

func (e *Refused) Error() string {
	what := fmt.Sprintf("Tool %q", e.Name)
	if e.Kind == "handoff" {
		what = fmt.Sprintf("Handoff %q -> %q", e.From, e.Name)
	}
	if e.Result.Decision == RequireApproval {
		return what + " requires approval: " + e.Result.Reason
	}
	return what + " denied by policy: " + e.Result.Reason
}
