// Package aaep is the subscription side of AAEP 1.0 (chapters 5 and 6): the messages that a
// subscriber sends, the terms that are agreed on, and which event goes to which subscriber. It is pure:
// no clock, no connection. internal/service/gateway has the transports of appendix B. Begin reading
// with Decode, Negotiate and Subscription.
package aaep

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	wire "github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	aaepschema "github.com/countersign-dev/countersign/schemas/aaep"
)

// Types of the messages of a subscription.
const (
	TypeRequest     = "subscription.request"
	TypeRenegotiate = "subscription.renegotiate"
	TypeClose       = "subscription.close"
	TypeAccepted    = "subscription.accepted"
	TypeRejected    = "subscription.rejected"
)

// MaxMessage is the largest message of a subscriber, in bytes.
const MaxMessage = 64 << 10

// ErrMessage reports a text that is no message of a subscriber. It quotes nothing of it.
var ErrMessage = errors.New("not a message of a subscriber that follows AAEP's schema")

// Message is a message of a subscriber. A reply or a request need not follow its schema: the one is ignored, the
// other rejected, in AAEP's words (6.3.4, 5.5).
type Message struct {
	Type         string
	Subscription string // "" in a request
	Version      string // of a request
	Raw          []byte // the bytes that Decode was given, not a copy

	flaw         *schemas.Violation // how a reply or a request breaks its schema
	capabilities map[string]json.RawMessage
	extensions   map[string]json.RawMessage
}

// IsReply reports whether the message answers a question of the agent.
func (m Message) IsReply() bool {
	return m.Type == wire.TypeConfirmationReply || m.Type == wire.TypeClarificationReply
}

var messageTypes = []string{TypeRequest, TypeRenegotiate, TypeClose, wire.TypeConfirmationReply, wire.TypeClarificationReply}

// Decode reads one message. It accepts what strict JSON and the schema of the message's type accept, and replies and
// requests that break their schema.
func Decode(raw []byte) (Message, error) {
	if len(raw) > MaxMessage {
		return Message{}, ErrMessage
	}
	v, err := strictjson.ReadObject(raw, strictjson.DefaultLimits)
	if err != nil {
		return Message{}, ErrMessage
	}
	m := Message{Type: v.MemberText("type"), Subscription: v.MemberText("subscription_id"), Version: v.MemberText("aaep_version"), Raw: raw}
	if !slices.Contains(messageTypes, m.Type) {
		return Message{}, ErrMessage
	}
	if m.flaw = flawOf(v, m); m.flaw != nil {
		if !m.IsReply() && m.Type != TypeRequest {
			return Message{}, ErrMessage
		}
		return m, nil
	}
	var doc struct {
		Capabilities map[string]json.RawMessage `json:"capabilities"`
		Extensions   map[string]json.RawMessage `json:"extensions"`
	}
	if json.Unmarshal(raw, &doc) != nil {
		return Message{}, ErrMessage
	}
	m.capabilities, m.extensions = doc.Capabilities, doc.Extensions
	return m, nil
}

// flawOf is the first way in which a message breaks its schema, nil if there is none. A request of a newer minor version may
// have members and capabilities that 1.0 does not know (12.6.1).
func flawOf(v strictjson.Value, m Message) *schemas.Violation {
	newer := m.Type == TypeRequest && strings.HasPrefix(m.Version, "1.") && !strings.HasPrefix(m.Version, "1.0.")
	for _, found := range aaepschema.Strict(v) {
		if found.Level != schemas.LevelWarning && !(newer && isAddition(found)) {
			return &found
		}
	}
	return nil
}

func isAddition(v schemas.Violation) bool {
	if name := capabilityOf(v); name != "" {
		return !slices.Contains(core, name)
	}
	return v.Keyword == "additionalProperties" && strings.Count(v.Path, "/") == 1
}

// capabilityOf is the capability that a violation is about, "" if it is about another member.
func capabilityOf(v schemas.Violation) string {
	rest, _ := strings.CutPrefix(v.Path, "/capabilities/")
	if rest == v.Path {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}
