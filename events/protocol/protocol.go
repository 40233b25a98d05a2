// Package protocol is the table of protocols at the stage of events: what generic code that
// sends, receives or stores their messages must know of each. Such code asks the row of a
// protocol and never its name (docs/adr/0023). Begin reading with Row.
package protocol

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// Row is what generic code knows of a protocol. The zero value of a member means "no".
type Row struct {
	// Route reads the session and the type of a published event, for its subject. With an error
	// it returns what could be read. It is nil if no client publishes events of the protocol.
	Route func(raw []byte) (session, typ string, err error)

	// NamesNoSession says that events have no field for the session: their sender names it.
	NamesNoSession bool

	// SessionlessEvents are types whose subject need not name the session that they concern: replies to
	// questions, and subscription messages, which say which publisher may reply.
	SessionlessEvents []SessionlessEvent

	// Headers are the message headers that readers of the protocol's documents read, beside
	// those of every protocol (package events).
	Headers []string

	// FailModeEvent makes the event with which a publisher reports that a request had no valid
	// verdict; nil if the protocol demands no report.
	FailModeEvent func(FailMode) (event []byte, wanted bool, err error)

	// ReplyMember is the member of a reply that holds the verdict, and ReplyWords are its
	// values; "" if only the message's headers hold it.
	ReplyMember string
	ReplyWords  map[events.Verdict]string

	// ReplyExpiry is the path of the member of a reply that says when the workflow expires that
	// the call waits for; nil if replies do not say it.
	ReplyExpiry []string
}

// SessionlessEvent is a type of event: a reply to a question, or a subscription message.
type SessionlessEvent struct {
	Type    string
	IsReply bool
}

// FailMode is a request without a valid verdict.
type FailMode struct {
	Request                    []byte
	Reason                     string
	EventID                    string // of the report
	Now                        time.Time
	ToolCallID, Agent, Session string // of the request, for what its body does not say
}

// FieldError is the error for a member of another JSON type than the protocol's, in every protocol.
type FieldError = field.Error

// Rows is the table, by subject token. Only tests change it.
var Rows = map[string]Row{
	subject.ProtoAgentHook: {
		Route: routeAgentHook, FailModeEvent: agentHookFailMode, ReplyMember: "decision", ReplyExpiry: []string{"metadata", "approval", "expires_at"},
		ReplyWords: map[events.Verdict]string{events.Allow: "allow", events.Ask: "ask", events.Defer: "ask", events.Deny: "deny"},
	},
	subject.ProtoAAEP: {
		Route: routeAAEP, ReplyMember: "verdict", SessionlessEvents: aaepSessionlessEvents, ReplyExpiry: []string{"approval", "expires_at"},
		ReplyWords: map[events.Verdict]string{events.Allow: "allow", events.Ask: "ask", events.Defer: "defer", events.Deny: "deny"},
	},
	subject.ProtoAUMP:    {Route: routeAUMP, NamesNoSession: true, Headers: aump.Headers, ReplyExpiry: []string{"required_escalation", "expires_at"}},
	subject.ProtoAANA:    {ReplyExpiry: []string{"approval", "expires_at"}},
	subject.ProtoTool:    {ReplyExpiry: []string{"expiresAt"}},
	subject.ProtoHandoff: {ReplyExpiry: []string{"expiresAt"}},
}

var aaepSessionlessEvents = []SessionlessEvent{
	{Type: "subscription.request"}, {Type: "subscription.accepted"}, {Type: "subscription.rejected"}, {Type: "subscription.renegotiate"}, {Type: "subscription.close"},
	{aaep.TypeConfirmationReply, true}, {aaep.TypeClarificationReply, true},
}

// ReplyExpiry reads from a reply of a protocol when the workflow expires that the call waits for.
func ReplyExpiry(token string, reply []byte) (expiry time.Time, stated bool) {
	for _, member := range Rows[token].ReplyExpiry {
		var object map[string]json.RawMessage
		_ = json.Unmarshal(reply, &object) // an unreadable reply states no expiry
		reply = object[member]
	}
	var t events.Time
	if json.Unmarshal(reply, &t) != nil || t.IsZero() {
		return time.Time{}, false
	}
	return t.Time, true
}

// Published lists the protocols in which clients publish events, sorted.
func Published() []string {
	tokens := slices.Sorted(maps.Keys(Rows))
	return slices.DeleteFunc(tokens, func(token string) bool { return Rows[token].Route == nil })
}

// Headers lists the headers of all protocols, sorted.
func Headers() (names []string) {
	for _, row := range Rows {
		names = append(names, row.Headers...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func routeAAEP(raw []byte) (session, typ string, err error) {
	e, err := aaep.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return "", "", err
	}
	return e.SessionID, e.SubjectType(), nil // a defective field must not lose the session
}

func routeAgentHook(raw []byte) (session, typ string, err error) {
	e, err := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return "", "", err
	}
	return e.SessionID, e.EventType, nil // a defective field must not lose the session
}

// routeAUMP reads an evidence event. AUMP knows no sessions.
func routeAUMP(raw []byte) (session, typ string, err error) {
	e, err := aump.DecodeEvidence(raw, strictjson.DefaultLimits)
	if e == nil {
		return "", "", err
	}
	return "", e.EventType, nil
}

func agentHookFailMode(f FailMode) (event []byte, wanted bool, err error) {
	return agenthook.FailModeEvent(f.Request, agenthook.FailModeReport{
		Reason: f.Reason, EventID: f.EventID, Time: f.Now, ToolCallID: f.ToolCallID, AgentID: f.Agent, SessionID: f.Session,
	})
}
