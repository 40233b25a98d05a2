package correlation

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// tokenOf is the subject token of a value that subject.Parse gave: the hash of
// a long value is its own token.
func tokenOf(value string) string {
	if rest, ok := strings.CutPrefix(value, "~h"); ok && len(rest) == 64 {
		if _, err := hex.DecodeString(rest); err == nil {
			return value
		}
	}
	return subject.Escape(value)
}

// setEnvelope notes what the broker knows of a message.
func (f *fact) setEnvelope(m *events.LogMessage, p *subject.Parsed) {
	f.seq, f.at, f.protocol = m.Seq, m.Time, p.Protocol
	f.key = sessionKey{tokenOf(p.Tenant), tokenOf(p.Publisher), tokenOf(p.Session)}
	f.tenant, f.source, f.session = p.Tenant, p.Publisher, p.Session
}

// unreadFact is a message of which nothing counts but what the broker knows.
func unreadFact(m events.LogMessage, p subject.Parsed) *fact {
	f := new(fact)
	f.setUnread(&m, &p)
	return f
}

func (f *fact) setUnread(m *events.LogMessage, p *subject.Parsed) {
	f.setEnvelope(m, p)
	f.contentSum = sumOfBytes(m.Body)
}

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

// decodedEvent is what an event says, before anything is known of the log.
type decodedEvent struct {
	fact           fact
	isTrace        bool     // the admitter's trace event, which is read when it is applied
	readError      error    // why it could not be read at all
	defect         string   // what is wrong with it although it could be read; "" if nothing
	contradictions []string // what its subject says otherwise
	applies        bool     // the engine takes it
	// sessionKey and session are the body's, where that names the subject's.
	sessionKey, session string
	hasSession          bool
}

// decodeEvent reads a producer's event or the admitter's copy of a request.
func (d *Decoder) decodeEvent(m events.LogMessage, p subject.Parsed, r *decodedEvent) {
	f := &r.fact
	f.setEnvelope(&m, &p)
	request := p.Type == subject.TypeRequest
	data, extension := m.Body, ""
	if isTraceType(p.Protocol, p.Type) {
		f.contentSum = sumOfBytes(data)
		r.isTrace = true
		return
	}
	if !request {
		ce, err := cloudevents.Decode(m.Header, m.Body)
		if err == nil && ce.Data == nil {
			err = errNoData
		}
		if err != nil {
			f.contentSum = sumOfBytes(data)
			r.readError = err
			return
		}
		data, extension = ce.Data, ce.Extra[events.HeaderTrace]
	}
	f.contentSum = sumOfBytes(data)
	if request {
		f.decisionID = m.HeaderValue(events.HeaderDecisionID)
		if len(f.decisionID) > maxIDBytes {
			f.decisionID = ""
		}
	}
	switch row := rowOf(p.Protocol); {
	case row.decode != nil && (row.decodesRequests || !request):
		row.decode(d, eventMessage{m, p, data, request}, r)
	case !request || row == unknownProtocol:
		r.defect = "nobody publishes events in the protocol that the subject names"
	}
	f.adoptTraceHeader(m, extension)
	if request {
		f.namedWorkflow = boundID(firstNonEmpty(m.HeaderValue(events.HeaderWorkflow), f.approval.valueOrZero().workflow))
	}
	if f.kind == kindPost {
		f.receiptDecisionID = firstNonEmpty(normaliseEventID(m.HeaderValue(events.HeaderDecisionID)), f.receiptDecisionID)
	}
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

// sameSubjectType compares the type tokens of a subject with those an event should
// have.
func sameSubjectType(have, want string) bool {
	if have == want {
		return true
	}
	h, w := strings.Split(have, "."), strings.Split(want, ".")
	if len(h) != len(w) {
		return false
	}
	for i := range h {
		if tokenOf(h[i]) != subject.Escape(w[i]) {
			return false
		}
	}
	return true
}

// setSession gives the fact its session: the subject's. That is what the publisher was allowed
// to publish under, and what evidence, export and erasure follow. A body that names
// another one is a finding, and says nothing of that session's calls.
func (r *decodedEvent) setSession(p subject.Parsed, session string) {
	r.applies = true
	if subject.Escape(session) != tokenOf(p.Session) {
		r.contradictions = append(r.contradictions, "its session is not the session of the event")
		return
	}
	r.hasSession = true
	r.sessionKey, r.session = subject.Escape(session), boundID(session)
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

// eventDefect says what is wrong with an event that could be read nonetheless, ""
// if nothing is. The checks that it breaks are noted with the fact for later,
// when its session is known. An event that does not follow its protocol is marked
// invalid: see engine.refuseEvent. The copy of a request is not, as its decision
// answers it, valid or not.
func eventDefect(f *fact, err error, vs []schemas.Violation) string {
	f.eventFindings = schemaFindings(f, vs)
	f.invalid = (err != nil || schemas.HasErrors(vs)) && f.kind != kindRequest && f.kind != kindOtherRequest
	what, more := "", 0
	if err != nil {
		what = decodeErrorText(err)
	}
	for _, v := range vs {
		switch {
		case v.Level == schemas.LevelWarning:
		case what == "":
			what = violationText(v)
		default:
			more++
		}
	}
	if what == "" && f.lacksCallID {
		what = codeAtPath("missing_tool_call_id", "/metadata/tool_call_id")
	}
	if more > 0 && err == nil {
		what += " and " + strconv.Itoa(more) + " more"
	}
	return what
}

func (fs *findings) reportInvalid(f *fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.eventID).withContent(f.contentSum).withText(what))
}

func (fs *findings) reportContradiction(f *fact, what string) {
	fs.reportRule(ruleSchema, nil, f, findingFrom(f.eventID).withContent(f.contentSum).withCase(caseSubject).withText(what))
}
