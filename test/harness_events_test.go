package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/correlation/corpus"
)

// object is a JSON object.
type object map[string]any

func (o object) bytes() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return b
}

// with returns a copy of o with the member at a dotted path set, or removed if v is nil.
func (o object) with(path string, v any) object { return corpus.WithMember(o, path, v) }

// text returns the string at a dotted path.
func (o object) text(path string) string {
	var v any = map[string]any(o)
	for _, k := range strings.Split(path, ".") {
		switch m := v.(type) {
		case map[string]any:
			v = m[k]
		case object:
			v = m[k]
		default:
			return ""
		}
	}
	s, _ := v.(string)
	return s
}

// subject is the subject on which r publishes the event.
func (o object) subject(r runtimeClient) string {
	if typ := o.text("event_type"); typ != "" {
		return r.subject("agenthook", o.text("session_id"), typ)
	}
	return r.subject("aaep", o.text("session_id"), strings.TrimPrefix(o.text("type"), "aaep:"))
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// hook returns an AgentHook event.
func hook(session, typ string) object {
	return object{"schema_version": 1, "event_id": uuid.NewString(), "event_type": typ, "timestamp": now(), "source": "e2e-agent", "session_id": session}
}

// preToolUse returns an event that proposes or announces a call.
func preToolUse(session, call, tool string, input object) object {
	e := hook(session, "PreToolUse")
	for k, v := range (object{
		"evidence_phase": "pre_commit", "tool_name": tool, "tool_input": input, "metadata": object{"tool_call_id": call},
		"action": "write", "resource_kind": "file", "resource": "r", "resource_scope": "workspace", "operation_risk": "write",
	}) {
		e[k] = v
	}
	return e
}

// postToolUse returns the event that reports a call's execution with the announced arguments.
func postToolUse(pre object) object {
	e := pre.with("event_type", "PostToolUse").with("event_id", uuid.NewString()).with("timestamp", now()).
		with("evidence_phase", "post_hoc").with("correlation_id", pre["event_id"])
	return e.with("metadata.tool_input_executed", pre["tool_input"]).with("metadata.execution", object{"outcome": "succeeded"})
}

// Calls that the sample policies allow, ask about, deny and do not cover.
func allowedCall(session, call string) object {
	return preToolUse(session, call, "write_file", object{"path": "/workspace/" + call, "content": "marker-" + call})
}

func askedCall(session, call string) object {
	return preToolUse(session, call, "send_email", object{"to": "press@newspaper.example", "subject": "marker-" + call}).with("action", "send")
}

func deniedCall(session, call string) object {
	return preToolUse(session, call, "delete_database", object{"database": "marker-" + call}).with("action", "delete")
}

func unknownCall(session, call string) object {
	return preToolUse(session, call, "launch_rocket", object{"target": "marker-" + call})
}

// aaepEvent returns an AAEP event.
func aaepEvent(session, typ string, members object) object {
	e := object{
		"@context": "https://aaep-protocol.org/context/v1", "type": "aaep:agent." + typ, "event_id": "evt_" + strings.ReplaceAll(uuid.NewString(), "-", ""),
		"session_id": session, "sequence_number": 0, "timestamp": now(), "producer": object{"agent_id": "e2e-agent"},
		"urgency": "normal", "aaep_version": "1.0.0", "summary_normal": "A step.",
	}
	for k, v := range members {
		e[k] = v
	}
	return e
}

func invoked(session, call, tool string) object {
	return aaepEvent(session, "tool.invoked", object{"tool": tool, "tool_call_id": call, "risk_level": "low", "irreversible": false})
}

func completed(session, call, tool string) object {
	return aaepEvent(session, "tool.completed", object{"tool": tool, "tool_call_id": call, "status": "success", "duration_ms": 12})
}

// aaepSession returns a session name that AAEP accepts.
func aaepSession(n string) string { return fmt.Sprintf("sess_%s", strings.ReplaceAll(n, "-", "")) }
