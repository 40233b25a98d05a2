package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// The checks of what admission itself says and records, which stands on the log
// as everything else does.

// missingRecordField says what the record of a resolved approval lacks (AH-C-108), "" if
// nothing. Records that do not count their steps are not the admitter's.
func missingRecordField(a events.Approval) string {
	if a.Step == 0 || a.Refused != "" || (a.Status != fact.StatusApproved && a.Status != "denied") {
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
	f := fact.Unread(m, p)
	f.Origin = fact.OriginOf(a.Tenant, a.Source, a.Session)
	c.engine.calls.recordApprovalStep(f, a)
	if what := missingRecordField(a); what != "" {
		c.engine.findings.emitFinding(checkRules["AH-C-108"], nil, f, findingFrom().withContent(f.ContentSum).withCase(what).withText("it does not say "+what))
	}
}

// checkEffectFirst: a call began, as one protocol tells it, before another protocol
// announced that it begins.
func (j *judge) checkEffectFirst(c *call, f *fact.Fact) {
	check := rowOf(f.Protocol).effectFirst
	if check == "" || f.Effect == fact.NoEffect || f.StartedAt.IsZero() || c.invokedAt.IsZero() {
		return
	}
	if f.StartedAt.Add(max(j.opts.ClockSkew, DefaultClockSkew)).Before(c.invokedAt) {
		j.findings.reportCheck(check, c, f, findingFrom(c.invokedEvent, f.EventID))
	}
}

// refuseEvent reports the checks that an invalid event breaks by itself. The event
// changes no state: it opens no session, announces, ends and excuses no call, and
// settles no question. Its meaning is not certain, and its publisher must not gain
// by that. Only its number in its session or mandate counts: see arrived.
func (e *engine) refuseEvent(f *fact.Fact) {
	e.findings.reportEventFindings(nil, f)
	if refuse := rowOf(f.Protocol).refuse; refuse != nil {
		refuse(e, f)
	}
	e.noteRefusedNumber(f)
}

// noteRefusedNumber notes the number of an event that is refused, so that the events after it
// do not seem to leave it out: the finding about the event itself says what is wrong.
// A session of which nothing is known does not begin with it.
func (e *engine) noteRefusedNumber(f *fact.Fact) {
	if note := rowOf(f.Protocol).noteNumber; note != nil {
		note(e, f)
	}
}
