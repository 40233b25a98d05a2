package correlation

import (
	"errors"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// reportBadSubject reports a message whose subject is none of ours.
func (c *Correlator) reportBadSubject(m events.LogMessage) {
	f := unreadFact(m, subject.Parsed{})
	prefix, classes := strings.TrimSuffix(c.space.All(subject.Events), ".>"), ""
	if rest, ok := strings.CutPrefix(m.Subject, prefix+"."); ok {
		classes, _, _ = strings.Cut(rest, ".")
	}
	if classes != "" {
		value, _ := subject.Unescape(classes)
		f.tenant, f.key.tenant = value, tokenOf(value)
	}
	c.engine.findings.reportRule(ruleSchema, nil, f, findingFrom().withContent(sumOf(m.Subject, string(m.Body))).
		withCase(caseSubject).withText("the subject has not the tokens that it must have"))
}

// applyEvent takes what was read of an event.
func (c *Correlator) applyEvent(in *Input) {
	r := in.event
	f := &r.fact
	if r.isTrace {
		c.applyTrace(in.message, in.parsedSubject, f)
		return
	}
	if r.readError != nil {
		c.engine.reportUnreadable(f, r.readError)
		return
	}
	if r.defect != "" {
		c.engine.findings.reportInvalid(f, r.defect)
	}
	for _, what := range r.contradictions {
		c.engine.findings.reportContradiction(f, what)
	}
	if !r.applies {
		return
	}
	if r.hasSession {
		f.key.session, f.session = r.sessionKey, r.session
	}
	c.engine.processFact(f)
}

// reportUnreadable reports an event that could not be read at all.
func (e *engine) reportUnreadable(f *fact, err error) {
	e.findings.reportInvalid(f, decodeErrorText(err))
	var strict *strictjson.Error
	if row := rowOf(f.protocol); errors.As(err, &strict) {
		if check := unreadableCheck(row, strict.Code); check != "" {
			e.findings.emitFinding(checkRules[check], nil, f, findingFrom(f.eventID).withContent(f.contentSum).withText(decodeErrorText(err)))
		}
		if row.severalCheck != "" && (strict.Code == strictjson.TrailingData || strict.Code == strictjson.NotObject) {
			e.findings.emitFinding(checkRules[row.severalCheck], nil, f, findingFrom(f.eventID).withContent(f.contentSum))
		}
	}
	e.noteRefusedNumber(f)
}

func (fs *findings) reportInvalid(f *fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.eventID).withContent(f.contentSum).withText(what))
}

func (fs *findings) reportContradiction(f *fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.eventID).withContent(f.contentSum).withCase(caseSubject).withText(what))
}
