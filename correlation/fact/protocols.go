package fact

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// fieldError is a member of a wrong type, in all protocols.
type fieldError = agenthook.FieldError

// NormaliseEventID is how ids of events are compared in all protocols.
func NormaliseEventID(id string) string { return agenthook.NormaliseID(id) }

// Protocol is how the messages of a protocol are read. The zero value of a field means "no": a
// token alone is a protocol in which decisions are made and no event is published.
type Protocol struct {
	Token string

	// Decode reads an event, or the admitter's copy of a request if decodesRequests says so; a
	// copy that is not decoded counts by its envelope.
	Decode          func(d *Decoder, in EventMessage, r *DecodedEvent)
	DecodesRequests bool
	ReadRecorded    func(f *Fact, raw []byte) RecordedLine             // an event of a recording; nil: there are no recordings
	ReadNumber      func(f *Fact, n *NumberFields)                     // the number of an event that cannot be read
	ReadReason      func(r *events.Reason) ReasonsSaid                 // a reason of the protocol's own evaluator
	CheckDecision   func(*Fact, *events.Decision) []*catalogue.Finding // the checks that a decision breaks by itself
	TraceType       string                                             // of the event that the admitter writes beside a decision
	SessionKeyed    bool                                               // its arguments are kept under the key of their session
	HandsOver       bool                                               // an allowed call hands the session to another agent; what it is decided on is more than its arguments
}

// Protocols finds how the messages of a protocol are read, by its token. It gives the zero value
// for a protocol that it does not know.
type Protocols func(token string) *Protocol

// Reporter emits what the checks of a protocol find. The engine gives one to the protocols' parts.
type Reporter interface {
	// ReportSessionFinding emits a finding that f brought about and that concerns an origin, and gives its id.
	ReportSessionFinding(f *Fact, who Origin, found *catalogue.Finding) (id string)
	ReportSessionFindings(f *Fact, who Origin, found []*catalogue.Finding)
	// ReportEventFindings emits what a fact breaks by itself, where no session is known that is followed.
	ReportEventFindings(f *Fact)
	// ReportCheck emits a finding of a check, about a fact of no session.
	ReportCheck(check string, f *Fact, content Sum, text string)
	// RetractCheck takes a finding of a check back, which was about f, because of another event.
	RetractCheck(check, id string, f *Fact, because, why string)
}
