package call

import (
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// Ruling is how a verdict came about, in more detail than the record keeps.
type Ruling struct {
	NativeOpinion Opinion         // the protocol's own, with those of who judged beside it joined to it
	Policies      policy.Verdicts // without reasons if they were not asked
	Failed        string          // the code of a failure of the service's, which overrides everything; else ""
}

// RulingReplier is a Protocol whose reply says more about the policies' verdict than the
// record and one text can. RuledReply is asked instead of Reply. If the request
// could not be read at all, the call is zero.
type RulingReplier interface {
	Protocol
	ReplyWithRuling(c Call, d events.Decision, r Ruling) ([]byte, error)
}

// TraceEvent is a message that the service puts onto the log after a decision,
// as the event Type of the request's publisher, protocol and session.
type TraceEvent struct {
	ID        string // of the CloudEvent; unique and the same whenever it is made
	Type      string // the last token of the subject
	EventType string // of the CloudEvent
	Body      []byte // RFC 8785
}

// Tracer is a Protocol that demands trace events beside the decision. The record
// is final when it is asked.
type Tracer interface {
	Protocol
	Trace(c Call, d events.Decision, r Ruling) ([]TraceEvent, error)
}
