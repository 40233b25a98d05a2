// Package aaep is the typed model of AAEP 1.0 events and of the two replies to them. It reads
// and does not judge: package schemas validates events, and the admission packages decide on
// them. Begin reading with Decode.
//
// An event is kept completely: Doc is the whole document and Raw its bytes. The model is a typed
// view of the members that Countersign uses; the schemas state the type of every member.
package aaep

import (
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// FieldError reports a known field of another JSON type than AAEP's. Path is its JSON pointer.
// It never holds the field's value.
type FieldError = field.Error

// Event is one AAEP event: the envelope of chapter 3, case-sensitive, and a payload. Fields
// that the document lacks are zero. In a reply, which has no envelope, every envelope field but
// Type and TypeAsSent is zero. An Event and everything it points to must not be changed.
type Event struct {
	Type           string // core types always as "aaep:<local>", others as sent
	TypeAsSent     string
	EventID        string
	SessionID      string
	Timestamp      string
	Time           time.Time // Timestamp as an instant; zero if it is not RFC 3339
	Producer       Producer
	SequenceNumber *int64
	Urgency        string // "" if absent, which means normal
	Language       string // localization_hints.primary_language
	CorrelationID  string
	Extensions     map[string]map[string]any // by prefix; nil if absent

	// Payload is a pointer to the payload type for Type: *ToolInvoked, *ConfirmationReply and
	// so on; nil for types outside AAEP.
	Payload any

	Doc strictjson.Value // the whole document
	Raw []byte           // the bytes that Decode was given, not a copy
}

// Producer is the claimed producer of an event. The identity is the authenticated publisher.
type Producer struct {
	AgentID      string
	AgentVersion string
}

// Decode reads one event or reply. The error is a *strictjson.Error (the bytes are not
// acceptable JSON; the event is nil) or a *FieldError (a known field has the wrong JSON type,
// null included; the event is returned all the same, with that field empty, so that evidence
// can name it). Missing fields, unknown types, unknown members and values outside a vocabulary
// are no errors here.
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

func (e *Event) readFields(o field.Object) {
	e.TypeAsSent = o.Text("type")
	e.Type = NormaliseType(e.TypeAsSent)
	if !isReplyType(e.Type) {
		e.readEnvelope(o)
	}
	if read, ok := payloadReaders[e.Type]; ok {
		e.Payload = read(o)
	}
}

func (e *Event) readEnvelope(o field.Object) {
	e.EventID = o.Text("event_id")
	e.SessionID = o.Text("session_id")
	e.Timestamp = o.Text("timestamp")
	e.Time = field.Instant(e.Timestamp)
	producer, _ := o.Child("producer")
	e.Producer = Producer{AgentID: producer.Text("agent_id"), AgentVersion: producer.Text("agent_version")}
	e.SequenceNumber = o.Int("sequence_number")
	e.Urgency = o.Text("urgency")
	hints, _ := o.Child("localization_hints")
	e.Language = hints.Text("primary_language")
	e.CorrelationID = o.Text("correlation_id")
	e.Extensions = o.MapOfMaps("extensions")
}

// NormaliseType converts the full URI of an AAEP type to its compact form; both mean the same
// (section 3.2.2). Other types stay unchanged.
func NormaliseType(typ string) string {
	if local, ok := strings.CutPrefix(typ, typeURI); ok && local != "" {
		return typePrefix + local
	}
	return typ
}

// IsReply reports whether this is a confirmation or clarification reply: a
// message without an envelope.
func (e *Event) IsReply() bool { return isReplyType(e.Type) }

// IsTerminal reports whether the event ends its session.
func (e *Event) IsTerminal() bool {
	switch e.Type {
	case TypeSessionCompleted, TypeSessionErrored, TypeSessionCancelled:
		return true
	}
	return false
}

// SubjectType is the event type in the event's subject: the local name of AAEP's agent.* types
// ("agent.tool.invoked"), unknown later ones included; any other type as sent
// ("confirmation.reply", "medai:alert.raised").
func (e *Event) SubjectType() string {
	if strings.HasPrefix(e.Type, typePrefix+"agent.") {
		return strings.TrimPrefix(e.Type, typePrefix)
	}
	return e.TypeAsSent
}

// ToolCallID is the call of a tool event; "" if it is not stated or this is no tool event.
func (e *Event) ToolCallID() string {
	switch p := e.Payload.(type) {
	case *ToolInvoked:
		return p.ToolCallID
	case *ToolCompleted:
		return p.ToolCallID
	}
	return ""
}

// Tool is the name of the tool of a tool event; "" for other events.
func (e *Event) Tool() string {
	switch p := e.Payload.(type) {
	case *ToolInvoked:
		return p.Tool
	case *ToolCompleted:
		return p.Tool
	}
	return ""
}
