// Package agenthook is the typed model of AgentHook 0.2 events and admission replies. It reads
// and does not judge: package schemas validates events, and the admission packages decide on
// them. Begin reading with Decode.
//
// An event is kept completely: Doc is the whole document and Raw its bytes. The model is a typed
// view of both.
package agenthook

import (
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// FieldError reports a known field of another JSON type than AgentHook's. Path is its JSON
// pointer. It never holds the field's value.
type FieldError = field.Error

// Event is one AgentHook event: the envelope of SPEC section 1, case-sensitive. Fields that the
// document lacks are zero. An Event and everything it points to must not be changed.
type Event struct {
	EventID       string
	EventType     string
	Timestamp     string
	Time          time.Time // Timestamp as an instant; zero if it is not RFC 3339
	Source        string
	AgentID       string
	SessionID     string
	CorrelationID string
	EvidencePhase string
	ToolName      string
	ToolInput     strictjson.Value // an object, if it exists
	Action        string
	ResourceKind  string
	ResourceScope string
	OperationRisk string
	Resource      string           // the text, or the RFC 8785 form of the object
	Metadata      strictjson.Value // an object, if it exists
	Annotations   strictjson.Value // an object, if it exists

	Doc strictjson.Value // the whole document
	Raw []byte           // the bytes that Decode was given, not a copy

	Blocks
	meta metadata
}

// metadata holds the plain members of metadata in the model.
type metadata struct {
	toolCallID, traceparent string
	executed                strictjson.Value // an object, if it exists
	durationMS              *int64
}

// Decode reads one event. The error is a *strictjson.Error (the bytes are not acceptable JSON;
// the event is nil) or a *FieldError (a known field has the wrong JSON type, null included; the
// event is returned all the same, with that field empty, so that evidence can name it). Missing
// fields, unknown event types, unknown members and values outside a vocabulary are no errors
// here.
//
// EventID is in lower case if it is a UUID, so that it can be a key (AH-C-004); Doc has it as
// sent.
func Decode(raw []byte, lim strictjson.Limits) (*Event, error) {
	v, err := strictjson.ReadObject(raw, lim)
	if err != nil {
		return nil, err
	}
	return FromValue(v, raw)
}

// FromValue is Decode for an object that strictjson has parsed.
func FromValue(v strictjson.Value, raw []byte) (*Event, error) {
	e := &Event{Doc: v, Raw: raw}
	var first *FieldError
	if e.readFields(field.Root(v, &first)); first != nil {
		return e, first
	}
	return e, nil
}

// Tree is the whole document, as strictjson.Parse gives it. Each call makes it anew.
func (e *Event) Tree() map[string]any { return e.Doc.ObjectTree() }

// ShareWords replaces the texts of small vocabularies that outlive the event: share returns one copy of
// equal texts.
func (e *Event) ShareWords(share func(string) string) {
	for _, text := range []*string{&e.EventType, &e.Source, &e.AgentID, &e.EvidencePhase, &e.ToolName} {
		*text = share(*text)
	}
	if v := e.AdmissionVerdict; v != nil {
		v.Verdict = share(v.Verdict)
	}
	if v := e.Validation; v != nil {
		v.Status = share(v.Status)
	}
	if x := e.Execution; x != nil {
		x.Outcome = share(x.Outcome)
	}
	if a := e.Approval; a != nil {
		a.Status, a.ResumePolicy, a.Department = share(a.Status), share(a.ResumePolicy), share(a.Department)
	}
	if t := e.ToolIdentity; t != nil {
		t.CanonicalName = share(t.CanonicalName)
	}
}

func (e *Event) readFields(o field.Object) {
	e.EventID = events.NormaliseID(o.Text("event_id"))
	e.EventType = o.Text("event_type")
	e.Timestamp = o.Text("timestamp")
	e.Time = field.Instant(e.Timestamp)
	e.Source = o.Text("source")
	e.AgentID = o.Text("agent_id")
	e.SessionID = o.Text("session_id")
	e.CorrelationID = o.Text("correlation_id")
	e.EvidencePhase = o.Text("evidence_phase")
	e.ToolName = o.Text("tool_name")
	e.ToolInput = o.Object("tool_input")
	e.Action = o.Text("action")
	e.ResourceKind = o.Text("resource_kind")
	e.ResourceScope = o.Text("resource_scope")
	e.OperationRisk = o.Text("operation_risk")
	e.Resource = readResource(o)
	e.Annotations = o.Object("annotations")
	meta, ok := o.Child("metadata")
	if !ok {
		return
	}
	e.Metadata = meta.Value()
	e.meta = metadata{
		toolCallID:  meta.Text("tool_call_id"),
		traceparent: meta.Text("traceparent"),
		durationMS:  meta.Int("duration_ms"),
		executed:    meta.Object("tool_input_executed"),
	}
	meta.Int("exit_code") // for its type alone, see Blocks
	e.Blocks = readBlocks(meta)
}

// HasMetadata reports whether the event has metadata that are not empty.
func (e *Event) HasMetadata() bool { return e.Metadata.Len() > 0 }

// HasExecuted reports whether metadata state what ran.
func (e *Event) HasExecuted() bool { return e.meta.executed.Exists() }

func readResource(o field.Object) string {
	switch o.Kind("resource") {
	case field.KindString:
		return o.Text("resource")
	case field.KindObject:
		return string(o.Get("resource").AppendCanonical(nil))
	case "":
	default:
		o.Fail("resource", "a string or an object")
	}
	return ""
}

// ToolCallID is metadata.tool_call_id, "" if there is none.
func (e *Event) ToolCallID() string { return e.meta.toolCallID }

// Trace is metadata.traceparent (W3C trace context), as sent.
func (e *Event) Trace() string { return e.meta.traceparent }

// DurationMS is the execution time in milliseconds: that of the execution block, else
// metadata.duration_ms; nil without either.
func (e *Event) DurationMS() *int64 {
	if x := e.Execution; x != nil && x.DurationMS != nil {
		return x.DurationMS
	}
	return e.meta.durationMS
}

// InputCanonical returns the RFC 8785 form of tool_input, for argument digests; nil if the event
// has no tool_input.
func (e *Event) InputCanonical() []byte { return e.ToolInput.AppendCanonical(nil) }
