package aaep

import (
	"cmp"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Event is what the state machine needs of one event or reply. It keeps nothing
// of the document but its payload.
type Event struct {
	ID      string
	Type    string
	Time    time.Time // the publisher's; zero if it says none that can be read
	Number  *int64
	Payload any // as aaep.Event has it

	correlation string // see aaep.Event

	questionCallID string // the call that a question is about, if it says so
	questionTool   string // the tool that it is about, if it says so
	hints          hintSet
	handshake      *handshake // of a message about a subscription

	// Seq and At are the message's place in the log and the broker's time. They
	// are to be set before the event is applied.
	Seq uint64
	At  time.Time
	// FromRecording says that it is from a recording, where there is no broker's time: At is
	// the latest time that the events up to here say, and a reply's own is not among them.
	FromRecording bool
	// RecordedUntil is the time by which a recording's events had been received; zero if that is
	// not known.
	RecordedUntil time.Time
}

// ExtensionPrefix is the extension prefix under which a producer may say which call a
// question is about: extensions.countersign.tool_call_id.
const ExtensionPrefix = "countersign"

// maxText bounds the text that is kept of an action.
const maxText = 1024

// NewEvent reads an event.
func NewEvent(e *aaep.Event) *Event {
	return newEvent(e, func(key string) string { return stringOf(e.Tree[key]) })
}

// newValueEvent reads an event without a tree, and the object that it is of. Such objects
// are neither large nor wide nor deep.
func newValueEvent(e *aaep.Event, v strictjson.Value) *Event {
	return newEvent(e, func(key string) string {
		if m := v.Get(key); m.Kind() == strictjson.KindString {
			return m.Text()
		}
		return ""
	})
}

func newEvent(e *aaep.Event, member func(key string) string) *Event {
	out := &Event{ID: fact.BoundID(e.EventID), Type: e.Type, Time: e.Time.UTC(), Number: e.SequenceNumber, Payload: e.Payload, correlation: fact.BoundID(e.CorrelationID)}
	switch p := e.Payload.(type) {
	case *aaep.AwaitingConfirmation:
		ours := e.Extensions[ExtensionPrefix]
		out.questionCallID = cmp.Or(stringOf(ours["tool_call_id"]), stringOf(p.ExtraContext["tool_call_id"]))
		out.questionTool = cmp.Or(stringOf(ours["tool"]), stringOf(p.ExtraContext["tool"]))
	case *aaep.ConfirmationReply:
		out.Time = p.Time.UTC()
	case *aaep.ClarificationReply:
		out.Time = p.Time.UTC()
	}
	switch out.handshake = newHandshake(e); {
	case out.handshake == nil && !e.IsReply():
		out.hints = readHints(e, member)
	}
	return out
}

// Token is the reply token of a question or a reply, "" for other events.
func (e *Event) Token() string {
	switch p := e.Payload.(type) {
	case *aaep.AwaitingConfirmation:
		return p.ReplyToken
	case *aaep.AwaitingClarification:
		return p.ReplyToken
	case *aaep.ConfirmationReply:
		return p.ReplyToken
	case *aaep.ClarificationReply:
		return p.ReplyToken
	}
	return ""
}

// Subscription is the subscription that a reply answers for, "" for other events.
func (e *Event) Subscription() string {
	switch p := e.Payload.(type) {
	case *aaep.ConfirmationReply:
		return p.SubscriptionID
	case *aaep.ClarificationReply:
		return p.SubscriptionID
	}
	return ""
}

// isAutomatic tells whether a program answered (AAEP 4.4.1).
func isAutomatic(decidedBy string) bool { return strings.HasPrefix(decidedBy, "auto:") }

// producerTime is the event's own time, else the broker's.
func (e *Event) producerTime() time.Time {
	if e.Time.IsZero() {
		return e.At
	}
	return e.Time
}

func (e *Event) isTerminal() bool {
	switch e.Payload.(type) {
	case *aaep.SessionCompleted, *aaep.SessionErrored, *aaep.SessionCancelled:
		return true
	}
	return false
}

func stringOf(v any) string { s, _ := v.(string); return s }
