package correlation

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"

	aaepsession "github.com/countersign-dev/countersign/correlation/aaep"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// What only AAEP has: how its events are read.

const protoAAEP = subject.ProtoAAEP

var aaepProtocol = &protocolRow{
	wordCode: 1, missingCheck: "AAEP-C-081",
	Protocol: fact.Protocol{
		Token: protoAAEP,
		Decode: func(d *fact.Decoder, in fact.EventMessage, r *fact.DecodedEvent) {
			decodeAAEP(d, in.Message, in.Subject, r, in.Data, in.Request)
		},
		DecodesRequests: true, ReadRecorded: readAAEP,
		ReadNumber: func(f *fact.Fact, n *fact.NumberFields) {
			f.RefusedNumber, f.RefusedSession = n.Number, subject.Escape(n.Session)
		},
	},
	track: trackAAEPEvent, refuse: refuseAAEPEvent, noteNumber: noteRefusedAAEP, sessions: aaepSessions,
	unreadable:   func(c strictjson.Code) string { return cmp.Or(unreadableChecks[c], "AAEP-C-001") },
	severalCheck: "AAEP-C-181",
	equivalents: map[findingCase][]string{
		{InputDrift, caseOtherTool}:         {"AAEP-C-082"},
		{OrphanCompletion, caseOrphan}:      {"AAEP-C-080"},
		{OrphanCompletion, caseOrphanAgain}: {"AAEP-C-083"},
		{ReusedToolCallID, caseReusedOnce}:  {"AAEP-C-052"},
		{DuplicateEventConflict, ""}:        {"AAEP-C-050"},
	},
	callTraits: callTraits{onceUnderID: true, announcesStart: true, endsByCorrelation: true, endIsMust: true, onePublisher: true},
}

var aaepSessions = &trackedSessions{
	restore: func(ts *trackers, w *protocolSession, f *fact.Fact, d trackerTombstone) {
		w.aaep = aaepsession.Restore(d.aaep)
		ts.countRunningSessions(w, false, w.aaep.IsRunning())
		ts.retractSilence(w, f, d)
	},
	storedItems: func(w *protocolSession) int { return w.aaep.StoredItems() },
	expire: func(ts *trackers, w *protocolSession) *catalogue.Finding {
		silence := w.aaep.SilenceFinding()
		if silence != nil {
			ts.findings.ReportSessionFinding(&fact.Fact{Protocol: protoAAEP}, *w.origin, silence)
		}
		return silence
	},
	tombstone: func(ts *trackers, w *protocolSession, d *trackerTombstone) {
		d.aaep = w.aaep.Tombstone()
		ts.countRunningSessions(w, w.aaep.IsRunning(), false)
	},
}

// trackAAEPEvent hands an event to its session, a reply to its question and a handshake to
// its publisher's negotiations. Requests and decisions have none of them.
func trackAAEPEvent(e *engine, f *fact.Fact, n novelty) {
	switch {
	case aaepEvent(f) == nil:
		e.findings.reportEventFindings(nil, f)
	case f.Kind == fact.KindQuestionReply:
		e.replies.routeQuestionReply(f)
	case aaepEvent(f).IsHandshake():
		e.negotiations.handleHandshake(f, e)
	case f.Key.Session != noSession:
		e.trackAAEP(e.ensureProtocolSession(f), f, n)
	default:
		e.findings.reportEventFindings(nil, f)
		e.findings.ReportSessionFindings(f, f.Origin, aaepsession.EventHints(aaepEvent(f)))
	}
}

func refuseAAEPEvent(e *engine, f *fact.Fact) {
	if aaepEvent(f) != nil {
		aaepEvent(f).Seq, aaepEvent(f).At = f.Seq, f.At
		e.findings.ReportSessionFindings(f, f.Origin, aaepsession.EventFindings(aaepEvent(f)))
		f.RefusedNumber = aaepEvent(f).Number
	}
}

// noteRefusedAAEP notes the number of a refused event in its session, if that is followed.
func noteRefusedAAEP(e *engine, f *fact.Fact) {
	if f.RefusedNumber == nil {
		return
	}
	key := f.Key
	if e.opts.fromRecording { // else the subject names its session
		key.Session = cmp.Or(f.RefusedSession, key.Session)
	}
	if w := e.trackers.find(key, f.Protocol); w != nil {
		e.findings.ReportSessionFindings(f, *w.origin, w.aaep.NoteRefusedNumber(*f.RefusedNumber, f.EventID, f.Seq))
	}
}

// aaepFact reads an AAEP event. core is the sum of its document, and inSession
// makes of it what its session wants to know.
func aaepFact(f *fact.Fact, e *aaep.Event, core fact.Sum, inSession func() *aaepsession.Event, request bool) {
	f.EventID, f.Agent = e.EventID, fact.BoundID(e.Producer.AgentID)
	f.SetCall(e.ToolCallID(), e.Tool())
	if !request {
		f.Event = inSession()
	}
	aaepLineage(f, e)
	f.CoreSum, f.FrameSum, f.ProducerTimes.HappenedAt = core, core, e.Time
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		f.Kind = fact.KindPre
		if p.ExpectedDurationMS != nil && *p.ExpectedDurationMS > 0 {
			f.ExpectedDuration = time.Duration(min(*p.ExpectedDurationMS, maxExpectedDuration.Milliseconds())) * time.Millisecond
		}
	case *aaep.ToolCompleted:
		f.Kind, f.Outcome, f.Effect = fact.KindPost, fact.BoundID(p.Status), fact.HadEffect
		f.ProducerTimes.DurationMS = fact.NonNegative(p.DurationMS)
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
	if e.IsReply() || aaepEvent(&r.Fact) != nil && aaepEvent(&r.Fact).IsHandshake() {
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
	aaepFact(f, e, fact.TreeSum(e.Tree), func() *aaepsession.Event { return aaepsession.NewEvent(e) }, false)
	return fact.RecordedLine{Fact: f, Err: err, Time: e.Time, Violations: schemas.Default().StrictAAEP(e.Tree)}
}

func (e *engine) trackAAEP(w *protocolSession, f *fact.Fact, n novelty) {
	e.findings.reportEventFindings(w, f)
	if n != novel {
		return
	}
	e.trackers.applyAAEP(w, f)
	e.replies.recordReplyToken(w, f)
}

// applyAAEP applies an event to its session.
func (ts *trackers) applyAAEP(w *protocolSession, f *fact.Fact) {
	aaepEvent(f).Seq, aaepEvent(f).At, aaepEvent(f).FromRecording, aaepEvent(f).RecordedUntil = f.Seq, f.At, ts.opts.fromRecording, ts.opts.recordedUntil
	before, stray := w.aaep.IsRunning(), w.aaep.NeverStarted()
	found := w.aaep.Apply(aaepEvent(f))
	ts.countRunningSessions(w, before, w.aaep.IsRunning())
	ts.accountStoredItems(w)
	ts.findings.ReportSessionFindings(f, *w.origin, found)
	if f.Kind == fact.KindPre {
		if asked, accepted, explicit := w.aaep.Confirmation(aaepEvent(f)); asked.Seq != 0 {
			f.Confirmation = &fact.Confirmation{Asked: fact.ConfirmingMessage{Id: asked.ID, Seq: asked.Seq, At: asked.At}, Accepted: fact.ConfirmingMessage{Id: accepted.ID, Seq: accepted.Seq, At: accepted.At}, Explicit: explicit}
		}
	}
	if !stray && w.aaep.NeverStarted() && ts.runningSessions[f.Key.Publisher()] > 0 {
		ts.findings.ReportSessionFinding(f, *w.origin, fact.SingleEventFinding("AAEP-C-054", "", f))
	}
}

// retractSilence takes back that a session fell silent.
func (ts *trackers) retractSilence(w *protocolSession, f *fact.Fact, d trackerTombstone) {
	if d.silence == nil {
		return
	}
	ts.findings.ReportSessionFinding(f, *w.origin, &catalogue.Finding{Check: d.silence.Check, Text: "the session goes on", Events: []string{f.EventID},
		Seqs: []uint64{f.Seq}, Replaces: d.silence, RetractsOnly: true})
	d.silence = nil
	ts.tombstones.Put(w.ID(), d)
}

// countRunningSessions keeps how many AAEP sessions of a publisher are running.
func (ts *trackers) countRunningSessions(w *protocolSession, before, after bool) {
	k := fact.SourceKey{Tenant: w.origin.Key.Tenant, Source: w.origin.Key.Source}
	switch {
	case after && !before:
		ts.runningSessions[k]++
	case before && !after:
		if ts.runningSessions[k]--; ts.runningSessions[k] <= 0 {
			delete(ts.runningSessions, k)
		}
	}
}

// unreadableChecks are the checks that an event breaks that strict decoding
// refuses.
var unreadableChecks = map[strictjson.Code]string{
	strictjson.DuplicateKey: "AAEP-C-022", strictjson.CaseCollision: "AAEP-C-022",
	strictjson.UnsafeInteger: "AAEP-C-021", strictjson.ImpreciseNumber: "AAEP-C-021",
	strictjson.TooLarge: "AAEP-C-020", strictjson.TooDeep: "AAEP-C-020",
}

// recordConfirmation notes them where they belong by the log's order: both come before the
// invocation, which shows which call they were about.
func (x *details) recordConfirmation(f *fact.Fact) {
	if f.Confirmation == nil {
		return
	}
	if x.binding = events.BindingInferred; f.Confirmation.Explicit {
		x.binding = events.BindingExplicit
	}
	for _, s := range [...]struct {
		step
		fact.ConfirmingMessage
	}{{stepAsked, f.Confirmation.Asked}, {stepApproved, f.Confirmation.Accepted}} {
		if s.Seq == 0 || len(x.timeline) >= maxTimeline {
			continue
		}
		i := len(x.timeline)
		for i > 0 && x.timeline[i-1].seq > s.Seq {
			i--
		}
		x.timeline = slices.Insert(x.timeline, i, newTimelineEntry(s.step, s.Seq, s.At, s.Id, f.Protocol))
	}
}

// aaepEvent is the event of a fact, nil for requests and decisions.
func aaepEvent(f *fact.Fact) *aaepsession.Event {
	e, _ := f.Event.(*aaepsession.Event)
	return e
}
