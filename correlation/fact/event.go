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

// TokenOf is the subject token of a value that subject.Parse returned. The hash of a long
// value is its own token.
func TokenOf(value string) string {
	if rest, ok := strings.CutPrefix(value, "~h"); ok && len(rest) == 64 {
		if _, err := hex.DecodeString(rest); err == nil {
			return value
		}
	}
	return subject.Escape(value)
}

// setEnvelope sets the fields that the broker vouches for.
func (f *Fact) setEnvelope(m *events.LogMessage, p *subject.Parsed) {
	f.Seq, f.At, f.Protocol = m.Seq, m.Time, p.Protocol
	f.Key = SourceSession{TokenOf(p.Tenant), TokenOf(p.Publisher), TokenOf(p.Session)}
	f.Tenant, f.Source, f.Session = p.Tenant, p.Publisher, p.Session
}

// EnvelopeFact is the fact of a message of which only the envelope counts.
func EnvelopeFact(m events.LogMessage, p subject.Parsed) *Fact {
	f := new(Fact)
	f.setUnread(&m, &p)
	return f
}

func (f *Fact) setUnread(m *events.LogMessage, p *subject.Parsed) {
	f.setEnvelope(m, p)
	f.ContentSum = SumOfBytes(m.Body)
}

// DecodedEvent is a decoded event.
type DecodedEvent struct {
	Fact           Fact
	IsTrace        bool     // the admitter's trace event, which is decoded when it is applied
	ReadError      error    // decoding failed
	Defect         string   // what is wrong with it although it could be read; "" if nothing
	Contradictions []string // fields that contradict the subject
	Applies        bool     // the engine applies it
	// SessionToken and Session are the body's form of the session. HasSession is true if the
	// body names the session that the subject names.
	SessionToken, Session string
	HasSession            bool
}

// decodeEvent decodes a producer's event, or the admitter's copy of a request.
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
		f.ReceiptDecisionID = cmp.Or(events.NormaliseID(m.HeaderValue(events.HeaderDecisionID)), f.ReceiptDecisionID)
	}
}

// SameSubjectType compares a subject's type token with the type that an event should have.
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

// SetSession sets the session of the event, which is always the subject's: the publisher was
// permitted to publish under it, and evidence, export and erasure follow it. A body with
// another session is a finding, and does not apply to that session's calls.
func (r *DecodedEvent) SetSession(p subject.Parsed, session string) {
	r.Applies = true
	if subject.Escape(session) != TokenOf(p.Session) {
		r.Contradictions = append(r.Contradictions, "its session is not the session of the event")
		return
	}
	r.HasSession = true
	r.SessionToken, r.Session = subject.Escape(session), BoundID(session)
}

// EventDefect describes what is wrong with a decoded event; "" if nothing is. The checks that
// it breaks are kept in the fact until its session is known. An event that breaks its protocol
// is marked as invalid (see engine.refuseEvent). A request copy is never marked, because its
// decision answers it in any case.
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

// precompute computes sums that need no state, in the decoder's goroutine.
func (r *DecodedEvent) precompute() {
	f := &r.Fact
	key := f.Key
	if r.HasSession {
		key.Session = r.SessionToken
	}
	if f.LineageRefs.Correlation != "" {
		f.LineageRefs.CorrelationToken()
	}
	if f.EventID != "" && f.Kind != KindRequest {
		f.IDSum()
	}
	if f.Kind == KindRequest || f.Kind == KindPre {
		f.FirstCallSum = CallSum(key, f.CallKey, 1)
	}
}

// NumberFields are the members that give an invalid event its number. They are decoded
// leniently, because no other use is made of them.
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

// ReadRefusedNumber reads the number of an event that could not be decoded.
func (f *Fact) ReadRefusedNumber(raw []byte, protocol *Protocol) {
	var n NumberFields
	if err := json.Unmarshal(raw, &n); err != nil {
		return
	}
	if protocol.ReadNumber != nil {
		protocol.ReadNumber(f, &n)
	}
}

// EventMessage is an event as it was received.
type EventMessage struct {
	Message events.LogMessage
	Subject subject.Parsed
	Data    []byte
	Request bool // the admitter's copy of a request
}

// writesTrace reports whether the admitter itself writes this type of event, in the name of a
// publisher. Such events are signed like decisions.
func (p *Protocol) writesTrace(eventType string) bool {
	return p.TraceType != "" && p.TraceType == eventType
}

// schemaFindings converts the schema violations of an event to findings. An error is reported
// once for each check; a warning is a hint.
func schemaFindings(f *Fact, vs []schemas.Violation) []*catalogue.Finding {
	var notes []*catalogue.Finding
	said := map[string]bool{}
	for _, v := range vs {
		warning := v.Level == schemas.LevelWarning
		if v.Check == "" || said[v.Check] || !implementedChecks[v.Check] {
			continue
		}
		found := SingleEventFinding(v.Check, violationText(v), f)
		if warning {
			found.Severity, found.Case = events.SeverityInfo, v.Keyword
		} else {
			said[v.Check] = true
		}
		notes = append(notes, found)
	}
	return notes
}

// RecordedLine is a line of a recording: a fact or a decision, and what is wrong with it.
type RecordedLine struct {
	Fact       *Fact
	Time       time.Time // zero if the line has none
	Decision   *events.Decision
	Defect     string // why the decision could not be decoded
	Unreadable bool   // the event could not be decoded at all
	Err        error  // why the event, or a field of it, could not be decoded
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
