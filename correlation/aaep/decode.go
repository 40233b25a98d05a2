package aaep

import (
	"cmp"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	aaepschema "github.com/countersign-dev/countersign/schemas/aaep"
)

// Protocol is how AAEP's messages are read.
var Protocol = fact.Protocol{
	Token: subject.ProtoAAEP,
	Decode: func(d *fact.Decoder, in fact.EventMessage, r *fact.DecodedEvent) {
		decodeAAEP(d, in.Message, in.Subject, r, in.Data, in.Request)
	},
	DecodesRequests: true, ReadRecorded: readAAEP,
	ReadNumber: func(f *fact.Fact, n *fact.NumberFields) {
		f.RefusedNumber, f.RefusedSession = n.Number, subject.Escape(n.Session)
	},
}

// UnreadableCheck is the check that an event breaks that strict decoding refuses.
func UnreadableCheck(c strictjson.Code) string { return cmp.Or(unreadableChecks[c], "AAEP-C-001") }

func decodeAAEP(d *fact.Decoder, m events.LogMessage, p subject.Parsed, r *fact.DecodedEvent, data []byte, request bool) {
	v, err := strictjson.ReadObject(data, strictjson.DefaultLimits)
	if err != nil {
		r.ReadError = err
		r.Fact.ReadRefusedNumber(data, d.Protocols(p.Protocol))
		return
	}
	violations := aaepschema.Strict(v)
	e, err := readAAEPEvent(d, v, data)
	aaepFact(&r.Fact, e, &d.FormBuffer, request)
	checkAAEPSubject(d, m, p, r, e, request)
	r.Defect = fact.EventDefect(&r.Fact, err, violations)
}

// readAAEPEvent reads the typed event. Frequent texts that sessions remember share one copy.
func readAAEPEvent(d *fact.Decoder, v strictjson.Value, data []byte) (*aaep.Event, error) {
	e, err := aaep.FromValue(v, data)
	e.Producer.AgentID = d.Intern(e.Producer.AgentID)
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		p.Tool = d.Intern(p.Tool)
	case *aaep.ToolCompleted:
		p.Tool, p.Status = d.Intern(p.Tool), d.Intern(p.Status)
	case *aaep.StateChanged:
		p.FromState, p.ToState = d.Intern(p.FromState), d.Intern(p.ToState)
	}
	return e, err
}

// aaepFact reads an AAEP event; request tells that it is the admitter's copy of a request.
func aaepFact(f *fact.Fact, e *aaep.Event, forms *fact.FormBuffer, request bool) {
	f.EventID, f.Agent = e.EventID, fact.BoundID(e.Producer.AgentID)
	f.SetCall(e.ToolCallID(), e.Tool())
	if !request {
		f.Event = NewEvent(e)
	}
	aaepLineage(f, e)
	f.CoreSum = fact.SumOfBytes(forms.WriteForm(e.Doc.AppendCanonical))
	f.FrameSum, f.ProducerTimes.HappenedAt = f.CoreSum, e.Time
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		f.Kind = fact.KindPre
		if p.ExpectedDurationMS != nil && *p.ExpectedDurationMS > 0 {
			f.ExpectedDuration = time.Duration(min(*p.ExpectedDurationMS, fact.MaxExpectedDuration.Milliseconds())) * time.Millisecond
		}
	case *aaep.ToolCompleted:
		f.Kind, f.Outcome, f.Effect = fact.KindPost, fact.BoundID(p.Status), fact.HadEffect
		f.ProducerTimes.SetDuration(p.DurationMS)
		if p.Status == "error" || p.Status == "timeout" {
			f.Effect = fact.MaybeEffect
		}
	}
	switch {
	case e.IsTerminal():
		f.Kind = fact.KindSessionEnd
	case e.IsReply():
		f.Kind = fact.KindQuestionReply
	}
	if request && f.Kind == fact.KindPre {
		f.Kind = fact.KindRequest
	} else if request {
		f.Kind = fact.KindOtherRequest
	}
}

// aaepLineage: a correlation_id that is a traceparent is one (AAEP-C-017).
func aaepLineage(f *fact.Fact, e *aaep.Event) {
	if f.LineageRefs.Trace = fact.ValidTraceparent(e.CorrelationID); f.LineageRefs.Trace == "" {
		f.LineageRefs.SetCorrelation(e.CorrelationID)
	}
}

// checkAAEPSubject holds an event against the message that it came in.
func checkAAEPSubject(d *fact.Decoder, m events.LogMessage, p subject.Parsed, r *fact.DecodedEvent, e *aaep.Event, request bool) {
	session := e.SessionID
	if request {
		session = cmp.Or(session, m.HeaderValue(events.HeaderSession))
		r.Fact.SetCall(cmp.Or(e.ToolCallID(), m.HeaderValue(events.HeaderToolCallID)), e.Tool())
	} else if !fact.SameSubjectType(p.Type, e.SubjectType()) {
		r.Contradictions = append(r.Contradictions, "its type is not the type of the event")
	}
	if e.IsReply() || EventOf(&r.Fact) != nil && EventOf(&r.Fact).IsHandshake() {
		r.Applies = true // it has no session of its own; the subject's stays
		return
	}
	r.SetSession(p, d.Intern(session))
}

func readAAEP(f *fact.Fact, raw []byte) fact.RecordedLine {
	e, err := aaep.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return fact.RecordedLine{Fact: f, Err: err, Unreadable: true}
	}
	f.Origin = fact.OriginOf("", "", e.SessionID)
	f.Source = fact.BoundID(e.Producer.AgentID)
	aaepFact(f, e, new(fact.FormBuffer), false)
	return fact.RecordedLine{Fact: f, Err: err, Time: e.Time, Violations: aaepschema.Strict(e.Doc)}
}

// unreadableChecks are the checks that an event breaks that strict decoding
// refuses.
var unreadableChecks = map[strictjson.Code]string{
	strictjson.DuplicateKey: "AAEP-C-022", strictjson.CaseCollision: "AAEP-C-022",
	strictjson.UnsafeInteger: "AAEP-C-021", strictjson.ImpreciseNumber: "AAEP-C-021",
	strictjson.TooLarge: "AAEP-C-020", strictjson.TooDeep: "AAEP-C-020",
}

// EventOf is the event of a fact, nil for requests and decisions.
func EventOf(f *fact.Fact) *Event {
	e, _ := f.Event.(*Event)
	return e
}
