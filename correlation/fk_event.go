package correlation

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
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
	row := d.protocols(p.Protocol)
	if row.writesTrace(p.Type) {
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
	switch {
	case row.decode != nil && (row.decodesRequests || !request):
		row.decode(d, eventMessage{m, p, data, request}, r)
	case !request || row.token == "":
		r.defect = "nobody publishes events in the protocol that the subject names"
	}
	f.adoptTraceHeader(m, extension)
	if request {
		f.namedWorkflow = boundID(cmp.Or(m.HeaderValue(events.HeaderWorkflow), f.approval.valueOrZero().workflow))
	}
	if f.kind == kindPost {
		f.receiptDecisionID = cmp.Or(normaliseEventID(m.HeaderValue(events.HeaderDecisionID)), f.receiptDecisionID)
	}
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

// precompute computes what the engine will need of a fact, as far as it needs no state.
func (r *decodedEvent) precompute() {
	f := &r.fact
	key := f.key
	if r.hasSession {
		key.session = r.sessionKey
	}
	f.cachedHashes = hashesOf(key)
	if f.lineageRefs.correlation != "" {
		f.lineageRefs.correlationToken()
	}
	if f.eventID != "" && f.kind != kindRequest {
		f.idSum()
	}
	if f.kind == kindRequest || f.kind == kindPre {
		f.firstCallSum = callSum(key, f.callKey, 1)
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
func (f *fact) readRefusedNumber(raw []byte, protocol *reading) {
	var n numberFields
	if err := json.Unmarshal(raw, &n); err != nil {
		return
	}
	if protocol.readNumber != nil {
		protocol.readNumber(f, &n)
	}
}

// eventMessage is an event as it came: its message, its subject, and the event's bytes.
type eventMessage struct {
	message events.LogMessage
	subject subject.Parsed
	data    []byte
	request bool // it is the admitter's copy of a request
}

// writesTrace reports whether an event is one that the admitter itself writes in the name
// of a publisher. Those are signed like decisions; only the admitter may write them.
func (p *reading) writesTrace(eventType string) bool {
	return p.traceType != "" && p.traceType == eventType
}

// schemaFindings turns what the schemas say of an event into breaches: errors once
// each check, warnings as hints.
func schemaFindings(f *fact, vs []schemas.Violation) []*catalogue.Finding {
	var notes []*catalogue.Finding
	said := map[string]bool{}
	for _, v := range vs {
		warning := v.Level == schemas.LevelWarning
		if v.Check == "" || said[v.Check] || !implementedChecks[v.Check] {
			continue
		}
		b := singleEventFinding(v.Check, violationText(v), f)
		if warning {
			b.Severity, b.Case = events.SeverityInfo, v.Keyword
		} else {
			said[v.Check] = true
		}
		notes = append(notes, b)
	}
	return notes
}

// recordedLine is one line: a fact, a decision that becomes one, and what is
// wrong with it.
type recordedLine struct {
	fact       *fact
	time       time.Time // the line's own; zero if it has none
	decision   *events.Decision
	defect     string // decision that cannot be read
	unreadable bool   // nothing could be read of the event
	err        error  // event that cannot be read, or a field of it
	violations []schemas.Violation
}

// implementedChecks are the ids of the checks that are implemented.
var implementedChecks = func() map[string]bool {
	m := map[string]bool{}
	for _, c := range catalogue.All() {
		if c.Status == catalogue.Implemented {
			m[c.ID] = true
		}
	}
	return m
}()
