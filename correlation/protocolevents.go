package correlation

import (
	"encoding/json"
	"time"

	aaepsession "github.com/countersign-dev/countersign/correlation/aaep"
	hooksession "github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// The checks of what admission itself says and records, which stands on the log
// as everything else does.

// recommendedVerdictWait is how long publishers are recommended to wait for a verdict (SPEC
// 4). Nobody waits longer for the records of an approval either.
const recommendedVerdictWait = 5 * time.Second

// missingRecordField says what the record of a resolved approval lacks (AH-C-108), "" if
// nothing. Records that do not count their steps are not the admitter's.
func missingRecordField(a events.Approval) string {
	if a.Step == 0 || a.Refused != "" || (a.Status != statusApproved && a.Status != "denied") {
		return ""
	}
	switch {
	case a.Approver == "" && len(a.Approvers) == 0:
		return "who"
	case a.DecidedAt.IsZero():
		return "when"
	case a.Reason == "":
		return "why"
	case a.ActionID == "" && a.ActionDigest == "":
		return "what"
	}
	return ""
}

func (c *Correlator) checkApprovalRecord(m events.LogMessage, p subject.Parsed, a events.Approval) {
	f := unreadFact(m, p)
	f.origin = originOf(a.Tenant, a.Source, a.Session)
	c.engine.calls.recordApprovalStep(f, a)
	if what := missingRecordField(a); what != "" {
		c.engine.findings.emitFinding(checkRules["AH-C-108"], nil, f, findingFrom().withContent(f.contentSum).withCase(what).withText("it does not say "+what))
	}
}

// checkEffectFirst: the same call as AgentHook saw it began before AAEP announced it
// (AAEP-C-089).
func (j *judge) checkEffectFirst(c *call, f *fact) {
	if f.protocol != protoAgentHook || f.effect == noEffect || f.startedAt.IsZero() || c.invokedAt.IsZero() {
		return
	}
	if f.startedAt.Add(max(j.opts.ClockSkew, DefaultClockSkew)).Before(c.invokedAt) {
		j.findings.reportCheck("AAEP-C-089", c, f, findingFrom(c.invokedEvent, f.eventID))
	}
}

// isSeveralMessages: a message of the transport is one message of AAEP (AAEP-C-181).
func isSeveralMessages(protocol string, code strictjson.Code) bool {
	return protocol == protoAAEP && (code == strictjson.TrailingData || code == strictjson.NotObject)
}

// refuseEvent reports the checks that an invalid event breaks by itself. The event
// changes no state: it opens no session, announces, ends and excuses no call, and
// settles no question. Its meaning is not certain, and its publisher must not gain
// by that. Only its number in its session or mandate counts: see arrived.
func (e *engine) refuseEvent(f *fact) {
	e.findings.reportEventFindings(nil, f)
	switch {
	case f.aaep != nil:
		f.aaep.Seq, f.aaep.At = f.seq, f.at
		e.findings.reportSessionFindings(f, f.origin, aaepsession.EventFindings(f.aaep))
		f.refusedNumber = f.aaep.Number
	case f.hook != nil:
		f.hook.Seq, f.hook.At = f.seq, f.at
		e.findings.reportSessionFindings(f, f.origin, hooksession.EventFindings(f.hook))
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
		e.findings.reportSessionFindings(f, *w.origin, w.aaep.NoteRefusedNumber(*f.refusedNumber, f.eventID, f.seq))
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
