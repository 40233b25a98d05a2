package call

import (
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// Ruling explains a verdict in more detail than the record.
type Ruling struct {
	NativeOpinion Opinion       // the protocol's own, merged with those of the other evaluators
	Policies      policy.Result // without reasons if they were not evaluated
	Failed        string        // the code of a failure of the service's own, which overrides everything; else ""
}

// RulingReplier is a Protocol with a reply that needs more about the policies' verdict than the
// record and one text. ReplyWithRuling is called instead of Reply. If the request could not be
// read at all, the call is zero.
type RulingReplier interface {
	Protocol
	ReplyWithRuling(c Call, d events.Decision, r Ruling) ([]byte, error)
}

// AccompanyingEvent is a message that the service appends to the log after a decision, as an event
// Type of the request's publisher, protocol and session.
type AccompanyingEvent struct {
	ID        string // of the CloudEvent; unique and the same in every replay
	Type      string // the last token of the subject
	EventType string // of the CloudEvent
	Body      []byte // RFC 8785
}

// EventWriter is a Protocol that demands events on the log beside the decision. The record is final
// when AccompanyingEvents is called.
type EventWriter interface {
	Protocol
	AccompanyingEvents(c Call, d events.Decision, r Ruling) ([]AccompanyingEvent, error)
}
