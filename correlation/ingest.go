package correlation

import (
	"errors"
	"strings"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// reportBadSubject reports a message whose subject is none of ours.
func (c *Correlator) reportBadSubject(m events.LogMessage) {
	f := fact.Unread(m, subject.Parsed{})
	prefix, classes := strings.TrimSuffix(c.space.All(subject.Events), ".>"), ""
	if rest, ok := strings.CutPrefix(m.Subject, prefix+"."); ok {
		classes, _, _ = strings.Cut(rest, ".")
	}
	if classes != "" {
		value, _ := subject.Unescape(classes)
		f.Tenant, f.Key.Tenant = value, fact.TokenOf(value)
	}
	c.engine.findings.reportRule(ruleSchema, nil, f, findingFrom().withContent(fact.SumOf(m.Subject, string(m.Body))).
		withCase(caseSubject).withText("the subject has not the tokens that it must have"))
}

// applyEvent takes what was read of an event.
func (c *Correlator) applyEvent(in *fact.Input) {
	r := in.Event
	f := &r.Fact
	if r.IsTrace {
		c.applyTrace(in.Raw, in.ParsedSubject, f)
		return
	}
	if r.ReadError != nil {
		c.engine.reportUnreadable(f, r.ReadError)
		return
	}
	if r.Defect != "" {
		c.engine.findings.reportInvalid(f, r.Defect)
	}
	for _, what := range r.Contradictions {
		c.engine.findings.reportContradiction(f, what)
	}
	if !r.Applies {
		return
	}
	if r.HasSession {
		f.Key.Session, f.Session = r.SessionKey, r.Session
	}
	c.engine.processFact(f)
}

// reportUnreadable reports an event that could not be read at all.
func (e *engine) reportUnreadable(f *fact.Fact, err error) {
	e.findings.reportInvalid(f, fact.DecodeErrorText(err))
	var strict *strictjson.Error
	if row := rowOf(f.Protocol); errors.As(err, &strict) {
		if check := unreadableCheck(row, strict.Code); check != "" {
			e.findings.emitFinding(checkRules[check], nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withText(fact.DecodeErrorText(err)))
		}
		if row.severalCheck != "" && (strict.Code == strictjson.TrailingData || strict.Code == strictjson.NotObject) {
			e.findings.emitFinding(checkRules[row.severalCheck], nil, f, findingFrom(f.EventID).withContent(f.ContentSum))
		}
	}
	e.noteRefusedNumber(f)
}

func (fs *findings) reportInvalid(f *fact.Fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withText(what))
}

func (fs *findings) reportContradiction(f *fact.Fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withCase(caseSubject).withText(what))
}
