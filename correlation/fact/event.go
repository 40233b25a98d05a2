package fact

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// TokenOf is the subject token of a value that subject.Parse gave: the hash of
// a long value is its own token.
func TokenOf(value string) string {
	if rest, ok := strings.CutPrefix(value, "~h"); ok && len(rest) == 64 {
		if _, err := hex.DecodeString(rest); err == nil {
			return value
		}
	}
	return subject.Escape(value)
}

// setEnvelope notes what the broker knows of a message.
func (f *Fact) setEnvelope(m *events.LogMessage, p *subject.Parsed) {
	f.Seq, f.At, f.Protocol = m.Seq, m.Time, p.Protocol
	f.Key = SessionKey{TokenOf(p.Tenant), TokenOf(p.Publisher), TokenOf(p.Session)}
	f.Tenant, f.Source, f.Session = p.Tenant, p.Publisher, p.Session
}

// Unread is a message of which nothing counts but what the broker knows.
func Unread(m events.LogMessage, p subject.Parsed) *Fact {
	f := new(Fact)
	f.setUnread(&m, &p)
	return f
}

func (f *Fact) setUnread(m *events.LogMessage, p *subject.Parsed) {
	f.setEnvelope(m, p)
	f.ContentSum = SumOfBytes(m.Body)
}

// DecodedEvent is what an event says, before anything is known of the log.
type DecodedEvent struct {
	Fact           Fact
	IsTrace        bool     // the admitter's trace event, which is read when it is applied
	ReadError      error    // why it could not be read at all
	Defect         string   // what is wrong with it although it could be read; "" if nothing
	Contradictions []string // what its subject says otherwise
	Applies        bool     // the engine takes it
	// SessionKey and session are the body's, where that names the subject's.
	SessionKey, Session string
	HasSession          bool
}

// decodeEvent reads a producer's event or the admitter's copy of a request.
func (d *Decoder) decodeEvent(m events.LogMessage, p subject.Parsed, r *DecodedEvent) {
	f := &r.Fact
	f.setEnvelope(&m, &p)
	request := p.Type == subject.TypeRequest
	data, extension := m.Body, ""
	row := d.Protocols(p.Protocol)
	if row.writesTrace(p.Type) {
		f.ContentSum = SumOfBytes(data)
		r.IsTrace = true
		return
	}
	if !request {
		ce, err := cloudevents.Decode(m.Header, m.Body)
		if err == nil && ce.Data == nil {
			err = errNoData
		}
		if err != nil {
			f.ContentSum = SumOfBytes(data)
			r.ReadError = err
			return
		}
		data, extension = ce.Data, ce.Extra[events.HeaderTrace]
	}
	f.ContentSum = SumOfBytes(data)
	if request {
		f.DecisionID = m.HeaderValue(events.HeaderDecisionID)
		if len(f.DecisionID) > MaxIDBytes {
			f.DecisionID = ""
		}
	}
	switch {
	case row.Decode != nil && (row.DecodesRequests || !request):
		row.Decode(d, EventMessage{m, p, data, request}, r)
	case !request || row.Token == "":
		r.Defect = "the protocol that the subject names has no published events"
	}
	f.adoptTraceHeader(m, extension)
	if request {
		f.NamedWorkflow = BoundID(cmp.Or(m.HeaderValue(events.HeaderWorkflow), f.Approval.ValueOrZero().Workflow))
	}
	if f.Kind == KindPost {
		f.ReceiptDecisionID = cmp.Or(NormaliseEventID(m.HeaderValue(events.HeaderDecisionID)), f.ReceiptDecisionID)
	}
}

// SameSubjectType compares the type tokens of a subject with those an event should
// have.
func SameSubjectType(have, want string) bool {
	if have == want {
		return true
	}
	h, w := strings.Split(have, "."), strings.Split(want, ".")
	if len(h) != len(w) {
		return false
	}
	for i := range h {
		if TokenOf(h[i]) != subject.Escape(w[i]) {
			return false
		}
	}
	return true
}

// SetSession gives the fact its session: the subject's. That is what the publisher was allowed
// to publish under, and what evidence, export and erasure follow. A body that names
// another one is a finding, and says nothing of that session's calls.
func (r *DecodedEvent) SetSession(p subject.Parsed, session string) {
	r.Applies = true
	if subject.Escape(session) != TokenOf(p.Session) {
		r.Contradictions = append(r.Contradictions, "its session is not the session of the event")
		return
	}
	r.HasSession = true
	r.SessionKey, r.Session = subject.Escape(session), BoundID(session)
}

// EventDefect says what is wrong with an event that could be read nonetheless, ""
// if nothing is. The checks that it breaks are noted with the fact for later,
// when its session is known. An event that does not follow its protocol is marked
// invalid: see engine.refuseEvent. The copy of a request is not, as its decision
// answers it, valid or not.
func EventDefect(f *Fact, err error, vs []schemas.Violation) string {
	f.EventFindings = schemaFindings(f, vs)
	f.Invalid = (err != nil || schemas.HasErrors(vs)) && f.Kind != KindRequest && f.Kind != KindOtherRequest
	what, more := "", 0
	if err != nil {
		what = DecodeErrorText(err)
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
	if what == "" && f.LacksCallID {
		what = CodeAtPath("missing_tool_call_id", "/metadata/tool_call_id")
	}
	if more > 0 && err == nil {
		what += " and " + strconv.Itoa(more) + " more"
	}
	return what
}

// precompute computes what the engine will need of a fact, as far as it needs no state.
func (r *DecodedEvent) precompute() {
	f := &r.Fact
	key := f.Key
	if r.HasSession {
		key.Session = r.SessionKey
	}
	f.CachedHashes = hashesOf(key)
	if f.LineageRefs.Correlation != "" {
		f.LineageRefs.CorrelationToken()
	}
	if f.EventID != "" && f.Kind != KindRequest {
		f.IdSum()
	}
	if f.Kind == KindRequest || f.Kind == KindPre {
		f.FirstCallSum = CallSum(key, f.CallKey, 1)
	}
}

// NumberFields is what an event that cannot be read says of its place. It is read with
// less care than events that count, since nothing else is taken from it.
type NumberFields struct {
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

// ReadRefusedNumber reads the number of an event that cannot be read as a whole.
func (f *Fact) ReadRefusedNumber(raw []byte, protocol *Protocol) {
	var n NumberFields
	if err := json.Unmarshal(raw, &n); err != nil {
		return
	}
	if protocol.ReadNumber != nil {
		protocol.ReadNumber(f, &n)
	}
}

// EventMessage is an event as it came: its message, its subject, and the event's bytes.
type EventMessage struct {
	Message events.LogMessage
	Subject subject.Parsed
	Data    []byte
	Request bool // it is the admitter's copy of a request
}

// writesTrace reports whether an event is one that the admitter itself writes in the name
// of a publisher. Those are signed like decisions; only the admitter may write them.
func (p *Protocol) writesTrace(eventType string) bool {
	return p.TraceType != "" && p.TraceType == eventType
}

// schemaFindings turns what the schemas say of an event into breaches: errors once
// each check, warnings as hints.
func schemaFindings(f *Fact, vs []schemas.Violation) []*catalogue.Finding {
	var notes []*catalogue.Finding
	said := map[string]bool{}
	for _, v := range vs {
		warning := v.Level == schemas.LevelWarning
		if v.Check == "" || said[v.Check] || !implementedChecks[v.Check] {
			continue
		}
		b := SingleEventFinding(v.Check, violationText(v), f)
		if warning {
			b.Severity, b.Case = events.SeverityInfo, v.Keyword
		} else {
			said[v.Check] = true
		}
		notes = append(notes, b)
	}
	return notes
}

// RecordedLine is one line: a fact, a decision that becomes one, and what is
// wrong with it.
type RecordedLine struct {
	Fact       *Fact
	Time       time.Time // the line's own; zero if it has none
	Decision   *events.Decision
	Defect     string // decision that cannot be read
	Unreadable bool   // nothing could be read of the event
	Err        error  // event that cannot be read, or a field of it
	Violations []schemas.Violation
}

// implementedChecks are the ids of the checks that are implemented.
var implementedChecks = func() map[string]bool {
	m := map[string]bool{}
	for _, c := range checks.All() {
		if c.Status == catalogue.Implemented {
			m[c.ID] = true
		}
	}
	return m
}()
