package correlation

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
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

// envelope is a fact that knows only what the broker knows.
func envelope(m events.LogMessage, p subject.Parsed) *fact {
	return &fact{
		seq: m.Seq, at: m.Time, protocol: p.Protocol,
		origin: origin{
			key:    sessionKey{tokenOf(p.Tenant), tokenOf(p.Publisher), tokenOf(p.Session)},
			tenant: p.Tenant, source: p.Publisher, session: p.Session,
		},
		content: sumOf(string(m.Body)),
	}
}

// badSubject reports a message whose subject is none of ours.
func (c *Correlator) badSubject(m events.LogMessage) {
	f := envelope(m, subject.Parsed{})
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

// event takes a producer's event or the admitter's copy of a request.
func (c *Correlator) event(m events.LogMessage, p subject.Parsed) {
	f := envelope(m, p)
	request := p.Type == subject.TypeRequest
	data := m.Body
	if protocol, ours := traceTypes[p.Type]; ours && protocol == p.Protocol {
		c.trace(m, p, f)
		return
	}
	if !request {
		ce, err := cloudevents.Decode(m.Header, m.Body)
		if err == nil && ce.Data == nil {
			err = errNoData
		}
		if err != nil {
			c.m.unreadable(f, err)
			return
		}
		data = ce.Data
		f.content = sumOf(string(data))
	}
	if request {
		f.decisionID = m.HeaderValue(events.HeaderDecisionID)
		if len(f.decisionID) > maxShown {
			f.decisionID = ""
		}
	}
	switch {
	case p.Protocol == protoAgentHook:
		c.agentHook(m, p, f, data, request)
	case p.Protocol == protoAAEP:
		c.aaep(m, p, f, data, request)
	case p.Protocol == subject.ProtoAUMP && !request:
		if _, err := strictjson.ParseObject(data, strictjson.DefaultLimits); err != nil {
			c.m.invalid(f, reason(err))
		}
	case !request || !knownProtocol(p.Protocol):
		c.m.invalid(f, "nobody publishes events in the protocol that the subject names")
	}
}

func knownProtocol(p string) bool {
	for _, known := range subject.Protocols {
		if p == known {
			return true
		}
	}
	return false
}

func (c *Correlator) agentHook(m events.LogMessage, p subject.Parsed, f *fact, data []byte, request bool) {
	e, err := agenthook.Decode(data, strictjson.DefaultLimits)
	if e == nil {
		c.m.unreadable(f, err)
		return
	}
	agentHookFact(f, e, c.digestKey(p.Tenant), request)
	session := e.SessionID
	if request {
		session = first(session, m.HeaderValue(events.HeaderSession))
		f.setCall(first(e.ToolCallID(), m.HeaderValue(events.HeaderToolCallID)), e.ToolName)
	}
	c.m.valid(f, err, schemas.Default().StrictAgentHook(e.Tree))
	if !request && !sameType(p.Type, e.EventType) {
		c.m.contradicts(f, "its type is not the event_type of the event")
	}
	c.finish(p, f, session)
}

func (c *Correlator) aaep(m events.LogMessage, p subject.Parsed, f *fact, data []byte, request bool) {
	e, err := aaep.Decode(data, strictjson.DefaultLimits)
	if e == nil {
		c.m.unreadable(f, err)
		return
	}
	aaepFact(f, e, request)
	session := e.SessionID
	if request {
		session = first(session, m.HeaderValue(events.HeaderSession))
		f.setCall(first(e.ToolCallID(), m.HeaderValue(events.HeaderToolCallID)), e.Tool())
	}
	c.m.valid(f, err, schemas.Default().StrictAAEP(e.Tree))
	if !request && !sameType(p.Type, e.SubjectType()) {
		c.m.contradicts(f, "its type is not the type of the event")
	}
	if e.IsReply() {
		c.m.step(f) // it has no session of its own; the subject's stays
		return
	}
	c.finish(p, f, session)
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

// finish gives a fact its session and hands it to the machine. The session is
// the body's, as it is the body that decisions are made from; a subject that
// names another one is a finding.
func (c *Correlator) finish(p subject.Parsed, f *fact, session string) {
	token := subject.Escape(session)
	if token != tokenOf(p.Session) {
		c.m.contradicts(f, "its session is not the session of the event")
	}
	f.key.session, f.session = token, show(session)
	c.m.step(f)
}

// unreadable reports an event that could not be read at all.
func (m *machine) unreadable(f *fact, err error) {
	m.invalid(f, reason(err))
	if check := unreadableCheck(f.protocol, err); check != "" {
		m.finding(checkRules[check], nil, f, about(f.eventID).distinct(f.content).saying(reason(err)))
	}
}

// valid reports what is wrong with an event that could be read nonetheless. The
// checks that it breaks are noted for later, when its session is known.
func (m *machine) valid(f *fact, err error, vs []schemas.Violation) {
	f.notes = notesOn(f, vs)
	what, more := "", 0
	if err != nil {
		what = reason(err)
	}
	for _, v := range vs {
		switch {
		case v.Level == schemas.LevelWarning:
		case what == "":
			what = at(v.Keyword, v.Path)
		default:
			more++
		}
	}
	if what == "" && f.unnamed {
		what = at("missing_tool_call_id", "/metadata/tool_call_id")
	}
	if what == "" {
		return
	}
	if more > 0 && err == nil {
		what += " and " + strconv.Itoa(more) + " more"
	}
	m.invalid(f, what)
}

func (m *machine) invalid(f *fact, what string) {
	m.report(ruleSchema, nil, f, about(f.eventID).distinct(f.content).saying(what))
}

func (m *machine) contradicts(f *fact, what string) {
	m.report(ruleSchema, nil, f, about(f.eventID).distinct(f.content).detail(detailSubject).saying(what))
}

// reason says why something could not be read: a code and a place, no values.
func reason(err error) string {
	var strict *strictjson.Error
	var hook *agenthook.FieldError // AAEP's is the same type
	switch {
	case errors.As(err, &strict):
		return at(string(strict.Code), strict.Path)
	case errors.As(err, &hook):
		return at("wrong_type", hook.Path)
	}
	for _, known := range cloudEventErrors {
		if errors.Is(err, known.err) {
			return at(known.code, "")
		}
	}
	return at("not_readable", "")
}

var cloudEventErrors = []struct {
	err  error
	code string
}{
	{errNoData, "cloudevent_without_data"},
	{cloudevents.ErrBatched, "cloudevent_batch"},
	{cloudevents.ErrFormat, "cloudevent_format"},
	{cloudevents.ErrSpecVersion, "cloudevent_specversion"},
	{cloudevents.ErrDuplicate, "cloudevent_duplicate_header"},
	{cloudevents.ErrMissing, "cloudevent_attribute_missing"},
	{cloudevents.ErrName, "cloudevent_attribute_name"},
	{cloudevents.ErrValue, "cloudevent_attribute_value"},
	{cloudevents.ErrAmbiguous, "cloudevent_ambiguous"},
}

// at puts a code and a JSON pointer into words.
func at(code, path string) string { return catalogue.At(code, path) }

// instant reads RFC 3339 text; anything else is the zero time.
func instant(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
