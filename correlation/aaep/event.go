package aaep

import (
	"cmp"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/aaep"
)

// Event is what the session's parts need of an event or a reply. Of the document it keeps only
// the payload.
type Event struct {
	ID      string
	Type    string
	Time    time.Time // the publisher's; zero if missing or invalid
	Number  *int64
	Payload any // as in events/aaep.Event

	agent       string // producer.agent_id
	correlation string // as in events/aaep.Event

	questionCallID string // the call that a question names
	questionTool   string // the tool that a question names
	hints          hintSet
	handshake      *handshake // set for a message about a subscription

	// Seq and At are the message's sequence and the broker's time. The caller sets them before
	// it applies the event.
	Seq uint64
	At  time.Time
	// FromRecording says that the event is from a recording, which has no broker's times. At is
	// then the latest time of the events so far; replies do not count for it.
	FromRecording bool
	// RecordedUntil is when all events of a recording had been received; zero if unknown.
	RecordedUntil time.Time
}

// ExtensionPrefix is the prefix of the extension that names the call of a question:
// extensions.countersign.tool_call_id.
const ExtensionPrefix = "countersign"

// maxText bounds the ids that are kept. A longer id is kept as "~h" and its SHA-256.
const maxText = 1024

// NewEvent makes the Event of a parsed event.
func NewEvent(e *aaep.Event) *Event {
	out := &Event{ID: fact.BoundID(e.EventID), Type: e.Type, Time: e.Time.UTC(), Number: e.SequenceNumber, Payload: e.Payload, agent: fact.BoundID(e.Producer.AgentID), correlation: fact.BoundID(e.CorrelationID)}
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
	if out.handshake = newHandshake(e); out.handshake == nil && !e.IsReply() {
		out.hints = readHints(e)
	}
	return out
}

// Token is the reply token of a question or a reply; "" for other events.
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

// timeToAnswer is the time that a question leaves for its answer; 0 if it says none.
func (e *Event) timeToAnswer() time.Duration {
	var seconds *int64
	switch p := e.Payload.(type) {
	case *aaep.AwaitingConfirmation:
		seconds = p.TimeoutSeconds
	case *aaep.AwaitingClarification:
		seconds = p.TimeoutSeconds
	}
	if seconds == nil {
		return 0
	}
	return time.Duration(max(0, min(*seconds, maxTimeToAnswer))) * time.Second
}

// Subscription is the subscription of a reply; "" for other events.
func (e *Event) Subscription() string {
	switch p := e.Payload.(type) {
	case *aaep.ConfirmationReply:
		return p.SubscriptionID
	case *aaep.ClarificationReply:
		return p.SubscriptionID
	}
	return ""
}

// producerTime is the event's own time, or the broker's if it has none.
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
