package correlation

import (
	"encoding/json"

	"github.com/countersign-dev/countersign/correlation/aaepsession"
	"github.com/countersign-dev/countersign/correlation/hooksession"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/subject"
)

// refuseEvent reports the checks that an invalid event breaks by itself. The event
// changes no state: it opens no session, announces, ends and excuses no call, and
// settles no question. Its meaning is not certain, and its publisher must not gain
// by that. Only its number in its session or mandate counts: see arrived.
func (e *engine) refuseEvent(f *fact) {
	e.findings.reportEventFindings(nil, f)
	switch {
	case f.aaep != nil:
		f.aaep.Seq, f.aaep.At = f.seq, f.at
		e.findings.reportSessionFindings(f, f.origin, aaepsession.Alone(f.aaep))
		f.refusedNumber = f.aaep.Number
	case f.hook != nil:
		f.hook.Seq, f.hook.At = f.seq, f.at
		e.findings.reportSessionFindings(f, f.origin, hooksession.Alone(f.hook))
	}
	e.noteRefusedNumber(f)
}

// noteRefusedNumber notes the number of an event that is refused, so that the events after it
// do not seem to leave it out: the finding about the event itself says what is wrong.
// A session of which nothing is known does not begin with it.
func (e *engine) noteRefusedNumber(f *fact) {
	if f.evidence != nil {
		e.mandates.noteNumber(f.evidence, f)
		return
	}
	if f.refusedNumber == nil || f.protocol != protoAAEP {
		return
	}
	key := f.key
	if e.opts.fromRecording { // else the subject names its session
		key.session = firstNonEmpty(f.refusedSession, key.session)
	}
	if w := e.trackers.find(key, f.protocol); w != nil {
		e.findings.reportSessionFindings(f, *w.origin, w.aaep.Refused(*f.refusedNumber, f.eventID, f.seq))
	}
}

// numberFields is what an event that cannot be read says of its place. It is read with
// less care than events that count, since nothing else is taken from it.
type numberFields struct {
	Session  string `json:"session_id"`
	Number   *int64 `json:"sequence_number"`
	ID       string `json:"id"`
	Sequence int64  `json:"sequence"`
	Mandate  struct {
		ID string `json:"id"`
	} `json:"mandate_ref"`
	Hashes struct {
		Event string `json:"event_hash"`
	} `json:"hashes"`
}

// readRefusedNumber reads the number of an event that cannot be read as a whole.
func (f *fact) readRefusedNumber(raw []byte) {
	var n numberFields
	if err := json.Unmarshal(raw, &n); err != nil {
		return
	}
	switch f.protocol {
	case protoAAEP:
		f.refusedNumber, f.refusedSession = n.Number, subject.Escape(n.Session)
	case protoAUMP:
		f.evidence = &aump.Evidence{ID: n.ID, Sequence: n.Sequence, Ref: aump.Ref{ID: n.Mandate.ID}, Hashes: aump.Hashes{Event: n.Hashes.Event}}
	}
}
