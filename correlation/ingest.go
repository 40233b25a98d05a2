package correlation

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/correlation/aaepsession"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
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

// enveloped notes what the broker knows of a message.
func (f *fact) enveloped(m *events.LogMessage, p *subject.Parsed) {
	f.seq, f.at, f.protocol = m.Seq, m.Time, p.Protocol
	f.key = sessionKey{tokenOf(p.Tenant), tokenOf(p.Publisher), tokenOf(p.Session)}
	f.tenant, f.source, f.session = p.Tenant, p.Publisher, p.Session
}

// unread is a message of which nothing counts but what the broker knows.
func unread(m events.LogMessage, p subject.Parsed) *fact {
	f := new(fact)
	f.unread(&m, &p)
	return f
}

func (f *fact) unread(m *events.LogMessage, p *subject.Parsed) {
	f.enveloped(m, p)
	f.content = sumOfBytes(m.Body)
}

// badSubject reports a message whose subject is none of ours.
func (c *Correlator) badSubject(m events.LogMessage) {
	f := unread(m, subject.Parsed{})
	prefix, classes := strings.TrimSuffix(c.space.All(subject.Events), ".>"), ""
	if rest, ok := strings.CutPrefix(m.Subject, prefix+"."); ok {
		classes, _, _ = strings.Cut(rest, ".")
	}
	if classes != "" {
		value, _ := subject.Unescape(classes)
		f.tenant, f.key.tenant = value, tokenOf(value)
	}
	c.m.report(ruleSchema, nil, f, about().distinct(sumOf(m.Subject, string(m.Body))).
		detail(detailSubject).saying("the subject has not the tokens that it must have"))
}

// reading is what an event says, before anything is known of the log.
type reading struct {
	fact         fact
	traced       bool     // the admitter's trace event, which is read when it is applied
	unreadable   error    // why it could not be read at all
	wrong        string   // what is wrong with it although it could be read; "" if nothing
	contradicted []string // what its subject says otherwise
	counts       bool     // the machine takes it
	// sessionKey and session are the body's, where that names the subject's.
	sessionKey, session string
	hasSession          bool
}

// event reads a producer's event or the admitter's copy of a request.
func (d *Decoder) event(m events.LogMessage, p subject.Parsed, r *reading) {
	f := &r.fact
	f.enveloped(&m, &p)
	request := p.Type == subject.TypeRequest
	data, extension := m.Body, ""
	if protocol, ours := traceTypes[p.Type]; ours && protocol == p.Protocol {
		f.content = sumOfBytes(data)
		r.traced = true
		return
	}
	if !request {
		ce, err := cloudevents.Decode(m.Header, m.Body)
		if err == nil && ce.Data == nil {
			err = errNoData
		}
		if err != nil {
			f.content = sumOfBytes(data)
			r.unreadable = err
			return
		}
		data, extension = ce.Data, ce.Extra[events.HeaderTrace]
	}
	f.content = sumOfBytes(data)
	if request {
		f.decisionID = m.HeaderValue(events.HeaderDecisionID)
		if len(f.decisionID) > maxShown {
			f.decisionID = ""
		}
	}
	switch {
	case p.Protocol == protoAgentHook:
		if !d.flatAgentHook(m, p, r, data, request) {
			d.agentHook(m, p, r, data, request)
		}
	case p.Protocol == protoAAEP:
		if !d.flatAAEP(m, p, r, data, request) {
			d.aaep(m, p, r, data, request)
		}
	case p.Protocol == subject.ProtoAUMP && !request:
		d.evidence(r, p, data)
	case !request || !knownProtocol(p.Protocol):
		r.wrong = "nobody publishes events in the protocol that the subject names"
	}
	f.carried(m, extension)
	if request {
		f.named = show(first(m.HeaderValue(events.HeaderWorkflow), f.approval.value().workflow))
	}
	if f.kind == kindPost {
		f.receiptOf = first(agenthook.NormaliseID(m.HeaderValue(events.HeaderDecisionID)), f.receiptOf)
	}
}

// event takes what was read of an event.
func (c *Correlator) event(in *Input) {
	r := in.reading
	f := &r.fact
	if r.traced {
		c.trace(in.m, in.p, f)
		return
	}
	if r.unreadable != nil {
		c.m.unreadable(f, r.unreadable)
		return
	}
	if r.wrong != "" {
		c.m.invalid(f, r.wrong)
	}
	for _, what := range r.contradicted {
		c.m.contradicts(f, what)
	}
	if !r.counts {
		return
	}
	if r.hasSession {
		f.key.session, f.session = r.sessionKey, r.session
	}
	c.m.step(f)
}

func knownProtocol(p string) bool {
	for _, known := range subject.Protocols {
		if p == known {
			return true
		}
	}
	return false
}

func (d *Decoder) agentHook(m events.LogMessage, p subject.Parsed, r *reading, data []byte, request bool) {
	e, err := agenthook.Decode(data, strictjson.DefaultLimits)
	if e == nil {
		r.unreadable = err
		return
	}
	agentHookFact(&r.fact, hookEvent{Event: e, keys: d.keyers(p, e.EventType)}, request)
	d.fromAgentHook(m, p, r, e, request)
	r.wrong = wrongWith(&r.fact, err, schemas.Default().StrictAgentHook(e.Tree))
}

// fromAgentHook holds an event against the message that it came in.
func (d *Decoder) fromAgentHook(m events.LogMessage, p subject.Parsed, r *reading, e *agenthook.Event, request bool) {
	session := e.SessionID
	if request {
		session = first(session, m.HeaderValue(events.HeaderSession))
		r.fact.setCall(first(e.ToolCallID(), m.HeaderValue(events.HeaderToolCallID)), e.ToolName)
	} else if !sameType(p.Type, e.EventType) {
		r.contradicted = append(r.contradicted, "its type is not the event_type of the event")
	}
	r.of(p, d.own(session))
}

func (d *Decoder) aaep(m events.LogMessage, p subject.Parsed, r *reading, data []byte, request bool) {
	e, err := aaep.Decode(data, strictjson.DefaultLimits)
	if e == nil {
		r.unreadable = err
		r.fact.readNumber(data)
		return
	}
	aaepFact(&r.fact, e, treeSum(e.Tree), func() *aaepsession.Event { return aaepsession.NewEvent(e) }, request)
	d.fromAAEP(m, p, r, e, request)
	r.wrong = wrongWith(&r.fact, err, schemas.Default().StrictAAEP(e.Tree))
}

// fromAAEP holds an event against the message that it came in.
func (d *Decoder) fromAAEP(m events.LogMessage, p subject.Parsed, r *reading, e *aaep.Event, request bool) {
	session := e.SessionID
	if request {
		session = first(session, m.HeaderValue(events.HeaderSession))
		r.fact.setCall(first(e.ToolCallID(), m.HeaderValue(events.HeaderToolCallID)), e.Tool())
	} else if !sameType(p.Type, e.SubjectType()) {
		r.contradicted = append(r.contradicted, "its type is not the type of the event")
	}
	if e.IsReply() || r.fact.aaep != nil && r.fact.aaep.IsHandshake() {
		r.counts = true // it has no session of its own; the subject's stays
		return
	}
	r.of(p, d.own(session))
}

// sameType compares the type tokens of a subject with those an event should
// have.
func sameType(have, want string) bool {
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

// of gives the fact its session: the subject's. That is what the publisher was allowed
// to publish under, and what evidence, export and erasure follow. A body that names
// another one is a finding, and says nothing of that session's calls.
func (r *reading) of(p subject.Parsed, session string) {
	r.counts = true
	if subject.Escape(session) != tokenOf(p.Session) {
		r.contradicted = append(r.contradicted, "its session is not the session of the event")
		return
	}
	r.hasSession = true
	r.sessionKey, r.session = subject.Escape(session), show(session)
}

// unreadable reports an event that could not be read at all.
func (m *machine) unreadable(f *fact, err error) {
	m.invalid(f, reason(err))
	if check := unreadableCheck(f.protocol, err); check != "" {
		m.finding(checkRules[check], nil, f, about(f.eventID).distinct(f.content).saying(reason(err)))
	}
	var strict *strictjson.Error
	if errors.As(err, &strict) && severalMessages(f.protocol, strict.Code) {
		m.finding(checkRules["AAEP-C-181"], nil, f, about(f.eventID).distinct(f.content))
	}
	m.arrived(f)
}

// wrongWith says what is wrong with an event that could be read nonetheless, ""
// if nothing is. The checks that it breaks are noted with the fact for later,
// when its session is known. An event that does not follow its protocol is marked
// invalid: see machine.refuse. The copy of a request is not, as its decision
// answers it, valid or not.
func wrongWith(f *fact, err error, vs []schemas.Violation) string {
	f.notes = notesOn(f, vs)
	f.invalid = (err != nil || schemas.HasErrors(vs)) && f.kind != kindRequest && f.kind != kindAsked
	what, more := "", 0
	if err != nil {
		what = reason(err)
	}
	for _, v := range vs {
		switch {
		case v.Level == schemas.LevelWarning:
		case what == "":
			what = wordsFor(v)
		default:
			more++
		}
	}
	if what == "" && f.unnamed {
		what = at("missing_tool_call_id", "/metadata/tool_call_id")
	}
	if more > 0 && err == nil {
		what += " and " + strconv.Itoa(more) + " more"
	}
	return what
}

func (m *machine) invalid(f *fact, what string) {
	m.report(ruleSchema, nil, f, about(f.eventID).distinct(f.content).saying(what))
}

func (m *machine) contradicts(f *fact, what string) {
	m.report(ruleSchema, nil, f, about(f.eventID).distinct(f.content).detail(detailSubject).saying(what))
}
