// Package aaep is the subscription side of AAEP 1.0 (chapters 5 and 6): the messages that a
// subscriber sends, the terms that are agreed on, and which event goes to which subscriber. It is pure:
// no clock, no connection. internal/service/gateway has the transports of appendix B. Begin reading
// with Decode, Negotiate and Subscription.
package aaep

import (
	"encoding/json"
	"errors"
	"slices"

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

// Message is a message of a subscriber that follows its schema.
type Message struct {
	Type         string
	Subscription string // "" in a request
	Version      string // of a request
	Raw          []byte // the bytes that Decode was given, not a copy

	capabilities map[string]json.RawMessage
	extensions   map[string]json.RawMessage
}

// IsReply reports whether the message answers a question of the agent.
func (m Message) IsReply() bool {
	return m.Type == wire.TypeConfirmationReply || m.Type == wire.TypeClarificationReply
}

var messageTypes = []string{TypeRequest, TypeRenegotiate, TypeClose, wire.TypeConfirmationReply, wire.TypeClarificationReply}

// Decode reads one message. It accepts what strict JSON and the schema of the message's type accept.
func Decode(raw []byte) (Message, error) {
	if len(raw) > MaxMessage {
		return Message{}, ErrMessage
	}
	v, err := strictjson.ReadObject(raw, strictjson.DefaultLimits)
	if err != nil {
		return Message{}, ErrMessage
	}
	typ := v.MemberText("type")
	if !slices.Contains(messageTypes, typ) {
		return Message{}, ErrMessage
	}
	for _, found := range aaepschema.Strict(v) {
		if found.Level != schemas.LevelWarning {
			return Message{}, ErrMessage
		}
	}
	var doc struct {
		Subscription string                     `json:"subscription_id"`
		Version      string                     `json:"aaep_version"`
		Capabilities map[string]json.RawMessage `json:"capabilities"`
		Extensions   map[string]json.RawMessage `json:"extensions"`
	}
	if json.Unmarshal(raw, &doc) != nil {
		return Message{}, ErrMessage
	}
	return Message{typ, doc.Subscription, doc.Version, raw, doc.Capabilities, doc.Extensions}, nil
}
