package fact

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// Protocol says how the messages of a protocol are decoded. A nil field means that the
// protocol does not have such messages. A protocol with only a Token has decisions and no
// events.
type Protocol struct {
	Token string

	// Decode decodes an event. If DecodesRequests is set, it decodes request copies too;
	// otherwise only the envelope of a request copy counts.
	Decode          func(d *Decoder, in EventMessage, r *DecodedEvent)
	DecodesRequests bool
	ReadRecorded    func(f *Fact, raw []byte) RecordedLine             // decodes an event of a recording; nil if there are no recordings
	ReadNumber      func(f *Fact, n *NumberFields)                     // the number of an event that could not be decoded
	ReadReason      func(r *events.Reason) ReasonsSaid                 // decodes a reason of the protocol's evaluator
	CheckDecision   func(*Fact, *events.Decision) []*catalogue.Finding // the checks that a decision breaks by itself
	TraceType       string                                             // of the event that the admitter writes with a decision
	SessionKeyed    bool                                               // arguments are digested under the session's key
	HandsOver       bool                                               // an allowed call hands the session over; its decision covers more than its arguments
}

// FindProtocol returns the Protocol of a token; the zero value if it is unknown.
type FindProtocol func(token string) *Protocol

// Reporter emits the findings of protocol checks. The engine passes one to each protocol's
// parts.
type Reporter interface {
	// ReportSessionFinding emits a finding about an origin, caused by f, and returns its id.
	ReportSessionFinding(f *Fact, who Origin, found *catalogue.Finding) (id string)
	ReportSessionFindings(f *Fact, who Origin, found []*catalogue.Finding)
	// ReportEventFindings emits the findings of f by itself, if its session is not tracked.
	ReportEventFindings(f *Fact)
	// ReportCheck emits a finding of a check about a fact without a session.
	ReportCheck(check string, f *Fact, content Sum, text string)
	// RetractCheck retracts a finding about f because of another event.
	RetractCheck(check, id string, f *Fact, because, why string)
}
