// Package agenthook is the typed model of AgentHook 0.2 events and admission
// replies. It reads; it does not judge: whether an event satisfies the
// protocol's schemas is package schemas' business, what may happen is the
// admission packages'.
//
// Nothing of an event is lost on the way: Tree holds the whole document and Raw
// the bytes it came in. The model is only a typed view of both.
package agenthook

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// FieldError says that a known field has another JSON type than AgentHook gives
// it. Path is its JSON pointer. It never holds the field's value.
type FieldError = field.Error

// Event is one AgentHook event: the envelope of SPEC section 1, case exact.
// Fields that the document does not have are zero. An Event and everything it
// points to must not be changed.
type Event struct {
	SchemaVersion *int // nil if absent, which means 1
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
	ToolInput     map[string]any // nil if absent; an empty object is not nil
	Action        string
	ResourceKind  string
	ResourceScope string
	OperationRisk string
	Resource      string         // the text, or the RFC 8785 form of the object
	Metadata      map[string]any // nil if absent
	Annotations   map[string]any // nil if absent

	Tree map[string]any // the whole document, as strictjson.Parse gives it
	Raw  []byte         // the bytes that Decode was given, not a copy

	blocks      blocks
	meta        metadata
	hasMetadata bool // that are not empty
}

// metadata holds the plain members of metadata that the model knows.
type metadata struct {
	toolCallID, traceparent string
	executed                map[string]any
	hasExecuted             bool
	durationMS, exitCode    *int64
}

// Decode reads one event. The error is a *strictjson.Error (the bytes are not
// acceptable JSON; the event is nil) or a *FieldError (a known field has the
// wrong JSON type, null included; the event is there nonetheless, with that
// field empty, so that evidence can name what it is about). Missing fields,
// unknown event types, unknown members and values outside a vocabulary are no
// errors here.
//
// EventID is in lower case if it is a UUID, so that it can be a key (AH-C-004);
// the tree has it as it was sent.
func Decode(raw []byte, lim strictjson.Limits) (*Event, error) {
	tree, err := strictjson.ParseObject(raw, lim)
	if err != nil {
		return nil, err
	}
	e := &Event{Tree: tree, Raw: raw}
	var first *FieldError
	if e.readFields(field.Root(e.Tree, &first)); first != nil {
		return e, first
	}
	return e, nil
}

// ReadFlat reads what Decode reads without an error, of a document that was read
// flat. The event has neither Tree nor ToolInput, and of Metadata what the model
// has not; its canonical forms must be taken from the document. Its texts are
// parts of the document's (see Keep), those of the maps are not.
func ReadFlat(v strictjson.Value, raw []byte) (*Event, bool) {
	e := &Event{Raw: raw}
	var first *FieldError
	e.readFields(field.Flat(v, &first))
	if first != nil {
		return nil, false
	}
	if meta := v.Get("metadata"); meta.Exists() {
		for m := range meta.All() {
			if !modelledMembers[m.Key()] {
				if e.Metadata == nil {
					e.Metadata = map[string]any{}
				}
				e.Metadata[strings.Clone(m.Key())] = m.Tree()
			}
		}
	}
	return e, true
}

// modelledMembers are the members of metadata of which nobody needs more than the model
// has.
var modelledMembers = map[string]bool{"tool_call_id": true, "traceparent": true, "tool_input_executed": true,
	"execution": true, "exit_code": true, "retry": true, "redaction": true, "admission_verdict": true,
	"tool_identity": true, "provider_translation": true, "risk": true, "validation": true}

// CloneTexts makes the texts of blocks that are remembered longer than their document
// independent of it: word is for those of small vocabularies, id for all others.
func (e *Event) CloneTexts(word, id func(string) string) {
	if v := e.blocks.verdict; v != nil {
		v.Verdict, v.DecidedAt = word(v.Verdict), id(v.DecidedAt)
	}
	if a := e.blocks.approval; a != nil {
		a.Status, a.ResumePolicy, a.Department = word(a.Status), word(a.ResumePolicy), word(a.Department)
		for _, text := range []*string{&a.WorkflowID, &a.ActionID, &a.ReviewerRef, &a.RequestedAt, &a.DecidedAt, &a.ExpiresAt, &a.DecisionRef, &a.ApprovalURL} {
			*text = id(*text)
		}
	}
	if t := e.blocks.identity; t != nil {
		t.CanonicalName = word(t.CanonicalName)
	}
}

func (e *Event) readFields(o field.Object) {
	if v := o.Int("schema_version"); v != nil {
		n := int(*v)
		e.SchemaVersion = &n
	}
	e.EventID = NormaliseID(o.Text("event_id"))
	e.EventType = o.Text("event_type")
	e.Timestamp = o.Text("timestamp")
	e.Time = field.Instant(e.Timestamp)
	e.Source = o.Text("source")
	e.AgentID = o.Text("agent_id")
	e.SessionID = o.Text("session_id")
	e.CorrelationID = o.Text("correlation_id")
	e.EvidencePhase = o.Text("evidence_phase")
	e.ToolName = o.Text("tool_name")
	input, _ := o.Child("tool_input")
	e.ToolInput = input.Members
	e.Action = o.Text("action")
	e.ResourceKind = o.Text("resource_kind")
	e.ResourceScope = o.Text("resource_scope")
	e.OperationRisk = o.Text("operation_risk")
	e.Resource = readResource(o)
	e.Annotations = o.Map("annotations")
	meta, ok := o.Child("metadata")
	if !ok {
		return
	}
	e.Metadata = meta.Members
	e.hasMetadata = meta.Len() > 0
	e.meta = metadata{
		toolCallID:  meta.Text("tool_call_id"),
		traceparent: meta.Text("traceparent"),
		durationMS:  meta.Int("duration_ms"),
		exitCode:    meta.Int("exit_code"),
	}
	var executed field.Object
	executed, e.meta.hasExecuted = meta.Child("tool_input_executed")
	e.meta.executed = executed.Members
	e.blocks = readBlocks(meta)
}

// HasMetadata tells whether the event has metadata that are not empty, also where
// it was read flat.
func (e *Event) HasMetadata() bool { return e.hasMetadata }

// HasExecuted tells whether metadata say what ran, also where the event was read
// flat.
func (e *Event) HasExecuted() bool { return e.meta.hasExecuted }

func readResource(o field.Object) string {
	switch o.Kind("resource") {
	case field.KindString:
		return o.Text("resource")
	case field.KindObject:
		if b, err := strictjson.Canonical(o.Any("resource")); err == nil {
			return string(b)
		}
		o.Fail("resource", "an object with an RFC 8785 form")
	case "":
	default:
		o.Fail("resource", "a string or an object")
	}
	return ""
}

// NormaliseID gives a UUID in its usual 36 characters in lower case, and any
// other text as it is.
func NormaliseID(id string) string {
	if len(id) != 36 || !strings.ContainsFunc(id, func(r rune) bool { return r >= 'A' && r <= 'F' }) {
		return id
	}
	u, err := uuid.Parse(id)
	if err != nil {
		return id
	}
	return u.String()
}

// ToolCallID is metadata.tool_call_id, "" if there is none.
func (e *Event) ToolCallID() string { return e.meta.toolCallID }

// Trace is metadata.traceparent (W3C trace context), as sent.
func (e *Event) Trace() string { return e.meta.traceparent }

// DurationMS is how long the execution took, in milliseconds: that of the
// execution block, else metadata.duration_ms; nil if neither is there.
func (e *Event) DurationMS() *int64 {
	if x := e.blocks.execution; x != nil && x.DurationMS != nil {
		return x.DurationMS
	}
	return e.meta.durationMS
}

// ExitCode is the execution block's exit code, else metadata.exit_code; nil if
// neither is there.
func (e *Event) ExitCode() *int64 {
	if x := e.blocks.execution; x != nil && x.ExitCode != nil {
		return x.ExitCode
	}
	return e.meta.exitCode
}

// InputCanonical gives the RFC 8785 form of tool_input: what argument digests
// are made of. ok is false if the event has no tool_input.
func (e *Event) InputCanonical() (canonical []byte, ok bool, err error) {
	return canonicalObject(e.ToolInput)
}

// ExecutedCanonical gives the RFC 8785 form of the arguments that ran:
// metadata.tool_input_executed. A Post event that does not say what ran falls
// back to its tool_input; ok reports whether the event said it. The form is nil
// if there is neither.
func (e *Event) ExecutedCanonical() (canonical []byte, ok bool, err error) {
	if e.meta.executed != nil {
		return canonicalObject(e.meta.executed)
	}
	if IsPost(e.EventType) {
		canonical, _, err = canonicalObject(e.ToolInput)
	}
	return canonical, false, err
}

func canonicalObject(m map[string]any) ([]byte, bool, error) {
	if m == nil {
		return nil, false, nil
	}
	b, err := strictjson.Canonical(m)
	return b, err == nil, err
}
