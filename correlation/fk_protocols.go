package correlation

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// fieldError is a member of a wrong type, in all protocols.
type fieldError = agenthook.FieldError

// normaliseEventID is how ids of events are compared in all protocols.
func normaliseEventID(id string) string { return agenthook.NormaliseID(id) }

// reading is how the messages of a protocol are read. The zero value of a field means "no": a
// token alone is a protocol in which decisions are made and no event is published.
type reading struct {
	token string

	// decode reads an event, or the admitter's copy of a request if decodesRequests says so; a
	// copy that is not decoded counts by its envelope.
	decode          func(d *Decoder, in eventMessage, r *decodedEvent)
	decodesRequests bool
	readRecorded    func(f *fact, raw []byte) recordedLine             // an event of a recording; nil: there are no recordings
	readNumber      func(f *fact, n *numberFields)                     // the number of an event that cannot be read
	readReason      func(r *events.Reason) reasonsSaid                 // a reason of the protocol's own evaluator
	checkDecision   func(*fact, *events.Decision) []*catalogue.Finding // the checks that a decision breaks by itself
	traceType       string                                             // of the event that the admitter writes beside a decision
	sessionKeyed    bool                                               // its arguments are kept under the key of their session
	handsOver       bool                                               // an allowed call hands the session to another agent; what it is decided on is more than its arguments
}

// readings finds how the messages of a protocol are read, by its token. It gives the zero value
// for a protocol that it does not know.
type readings func(token string) *reading
