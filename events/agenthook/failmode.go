package agenthook

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// FailModeReport is what a publisher says about a request that had no valid verdict (SPEC
// section 4). The identifiers are for what the body of the request does not say.
type FailModeReport struct {
	Reason                         string
	EventID                        string // of the report
	Time                           time.Time
	ToolCallID, AgentID, SessionID string
}

// ErrUnreadableRequest reports a request of which no fail-mode event can be made.
var ErrUnreadableRequest = errors.New("agenthook: the request cannot be read, so no fail-mode event can be made of it")

// Values of fail-mode events.
const (
	failClosed     = "fail_closed"
	outcomeDeny    = "deny"
	failModeSchema = 1
)

// FailModeEvent makes the ErrorOccurred for a request that was denied without a valid verdict.
// wanted is false for events that get no verdict: they have no fail mode.
func FailModeEvent(request []byte, r FailModeReport) (event []byte, wanted bool, err error) {
	e, _ := Decode(request, strictjson.DefaultLimits)
	if e == nil {
		return nil, false, ErrUnreadableRequest
	}
	if !AdmissionCapable(e.EventType) {
		return nil, false, nil
	}
	metadata := map[string]any{
		"error_type": errorFailMode, "fail_mode_triggered": true, "outcome": outcomeDeny, "fail_mode": failClosed, "reason": r.Reason,
	}
	doc := map[string]any{
		"schema_version": failModeSchema, "event_id": r.EventID, "event_type": ErrorOccurred, "timestamp": r.Time.UTC().Format(time.RFC3339Nano),
		"source": e.Source, "evidence_phase": PhasePostHoc, "metadata": metadata,
	}
	setOptional(metadata, "tool_call_id", cmp.Or(e.ToolCallID(), r.ToolCallID))
	setOptional(doc, "agent_id", cmp.Or(e.AgentID, r.AgentID))
	setOptional(doc, "session_id", cmp.Or(e.SessionID, r.SessionID))
	setOptional(doc, "correlation_id", e.EventID)
	setOptional(doc, "tool_name", e.ToolName)
	event, err = json.Marshal(doc)
	return event, err == nil, err
}

func setOptional(m map[string]any, name, value string) {
	if value != "" {
		m[name] = value
	}
}
