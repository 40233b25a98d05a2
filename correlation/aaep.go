package correlation

import (
	"slices"
	"time"

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
	token: protoAAEP, wordCode: 1, missingCheck: "AAEP-C-081",
	decode: func(d *Decoder, in eventMessage, r *decodedEvent) {
		d.decodeAAEP(in.message, in.subject, r, in.data, in.request)
	},
	decodesRequests: true, readRecorded: readAAEP,
	readNumber: func(f *fact, n *numberFields) {
		f.refusedNumber, f.refusedSession = n.Number, subject.Escape(n.Session)
	},
	track: trackAAEPEvent, refuse: refuseAAEPEvent, noteNumber: noteRefusedAAEP, sessions: aaepSessions,
	unreadable:   func(c strictjson.Code) string { return firstNonEmpty(unreadableChecks[c], "AAEP-C-001") },
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
	restore: func(ts *trackers, w *protocolSession, f *fact, d trackerTombstone) {
		w.aaep = aaepsession.Restore(d.aaep)
		ts.countRunningSessions(w, false, w.aaep.IsRunning())
		ts.retractSilence(w, f, d)
	},
	storedItems: func(w *protocolSession) int { return w.aaep.StoredItems() },
	expire: func(ts *trackers, w *protocolSession) *catalogue.Finding {
		silence := w.aaep.SilenceFinding()
		if silence != nil {
			ts.findings.reportSessionFinding(&fact{protocol: protoAAEP}, *w.origin, silence)
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
func trackAAEPEvent(e *engine, f *fact, n novelty) {
	switch {
	case f.aaep == nil:
		e.findings.reportEventFindings(nil, f)
	case f.kind == kindQuestionReply:
		e.replies.routeQuestionReply(f)
	case f.aaep.IsHandshake():
		e.negotiations.handleHandshake(f, e)
	case f.key.session != noSession:
		e.trackAAEP(e.ensureProtocolSession(f), f, n)
	default:
		e.findings.reportEventFindings(nil, f)
		e.findings.reportSessionFindings(f, f.origin, aaepsession.EventHints(f.aaep))
	}
}

func refuseAAEPEvent(e *engine, f *fact) {
	if f.aaep != nil {
		f.aaep.Seq, f.aaep.At = f.seq, f.at
		e.findings.reportSessionFindings(f, f.origin, aaepsession.EventFindings(f.aaep))
		f.refusedNumber = f.aaep.Number
	}
}

// noteRefusedAAEP notes the number of a refused event in its session, if that is followed.
func noteRefusedAAEP(e *engine, f *fact) {
	if f.refusedNumber == nil {
		return
	}
	key := f.key
	if e.opts.fromRecording { // else the subject names its session
		key.session = firstNonEmpty(f.refusedSession, key.session)
	}
	if w := e.trackers.find(key, f.protocol); w != nil {
		e.findings.reportSessionFindings(f, *w.origin, w.aaep.NoteRefusedNumber(*f.refusedNumber, f.eventID, f.seq))
	}
}

// aaepFact reads an AAEP event. core is the sum of its document, and inSession
// makes of it what its session wants to know.
func aaepFact(f *fact, e *aaep.Event, core sum, inSession func() *aaepsession.Event, request bool) {
	f.eventID, f.agent = e.EventID, boundID(e.Producer.AgentID)
	f.setCall(e.ToolCallID(), e.Tool())
	if !request {
		f.aaep = inSession()
	}
	aaepLineage(f, e)
	f.coreSum, f.frameSum, f.producerTimes.happenedAt = core, core, e.Time
	switch p := e.Payload.(type) {
	case *aaep.ToolInvoked:
		f.kind = kindPre
		if p.ExpectedDurationMS != nil && *p.ExpectedDurationMS > 0 {
			f.expectedDuration = time.Duration(min(*p.ExpectedDurationMS, maxExpectedDuration.Milliseconds())) * time.Millisecond
		}
	case *aaep.ToolCompleted:
		f.kind, f.outcome, f.effect = kindPost, boundID(p.Status), hadEffect
		f.producerTimes.durationMS = nonNegative(p.DurationMS)
		if p.Status == "error" || p.Status == "timeout" {
			f.effect = maybeEffect
		}
	}
	switch {
	case e.IsTerminal():
		f.kind = kindSessionEnd
	case e.IsReply():
		f.kind = kindQuestionReply
	}
	if request && f.kind == kindPre {
		f.kind = kindRequest
	} else if request {
		f.kind = kindOtherRequest
	}
}

// aaepLineage: a correlation_id that is a traceparent is one (AAEP-C-017).
func aaepLineage(f *fact, e *aaep.Event) {
	if f.lineageRefs.trace = validTraceparent(e.CorrelationID); f.lineageRefs.trace == "" {
		f.lineageRefs.setCorrelation(e.CorrelationID)
	}
}

// checkAAEPSubject holds an event against the message that it came in.
func (d *Decoder) checkAAEPSubject(m events.LogMessage, p subject.Parsed, r *decodedEvent, e *aaep.Event, request bool) {
	session := e.SessionID
	if request {
		session = firstNonEmpty(session, m.HeaderValue(events.HeaderSession))
		r.fact.setCall(firstNonEmpty(e.ToolCallID(), m.HeaderValue(events.HeaderToolCallID)), e.Tool())
	} else if !sameSubjectType(p.Type, e.SubjectType()) {
		r.contradictions = append(r.contradictions, "its type is not the type of the event")
	}
	if e.IsReply() || r.fact.aaep != nil && r.fact.aaep.IsHandshake() {
		r.applies = true // it has no session of its own; the subject's stays
		return
	}
	r.setSession(p, d.intern(session))
}

func readAAEP(f *fact, raw []byte) recordedLine {
	e, err := aaep.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return recordedLine{fact: f, err: err, unreadable: true}
	}
	f.origin = originOf("", "", e.SessionID)
	f.source = boundID(e.Producer.AgentID)
	aaepFact(f, e, treeSum(e.Tree), func() *aaepsession.Event { return aaepsession.NewEvent(e) }, false)
	return recordedLine{fact: f, err: err, time: e.Time, violations: schemas.StrictAAEP(e.Tree)}
}

func (e *engine) trackAAEP(w *protocolSession, f *fact, n novelty) {
	e.findings.reportEventFindings(w, f)
	if n != novel {
		return
	}
	e.trackers.applyAAEP(w, f)
	e.replies.recordReplyToken(w, f)
}

// applyAAEP applies an event to its session.
func (ts *trackers) applyAAEP(w *protocolSession, f *fact) {
	f.aaep.Seq, f.aaep.At, f.aaep.FromRecording, f.aaep.RecordedUntil = f.seq, f.at, ts.opts.fromRecording, ts.opts.recordedUntil
	before, stray := w.aaep.IsRunning(), w.aaep.NeverStarted()
	found := w.aaep.Apply(f.aaep)
	ts.countRunningSessions(w, before, w.aaep.IsRunning())
	ts.accountStoredItems(w)
	ts.findings.reportSessionFindings(f, *w.origin, found)
	if f.kind == kindPre {
		if asked, accepted, explicit := w.aaep.Confirmation(f.aaep); asked.Seq != 0 {
			f.confirmation = &confirmation{asked, accepted, explicit}
		}
	}
	if !stray && w.aaep.NeverStarted() && ts.runningSessions[f.key.publisher()] > 0 {
		ts.findings.reportSessionFinding(f, *w.origin, singleEventFinding("AAEP-C-054", "", f))
	}
}

// retractSilence takes back that a session fell silent.
func (ts *trackers) retractSilence(w *protocolSession, f *fact, d trackerTombstone) {
	if d.silence == nil {
		return
	}
	ts.findings.reportSessionFinding(f, *w.origin, &catalogue.Finding{Check: d.silence.Check, Text: "the session goes on", Events: []string{f.eventID},
		Seqs: []uint64{f.seq}, Replaces: d.silence, RetractsOnly: true})
	d.silence = nil
	ts.tombstones.Put(w.ID(), d)
}

// countRunningSessions keeps how many AAEP sessions of a publisher are running.
func (ts *trackers) countRunningSessions(w *protocolSession, before, after bool) {
	k := sourceKey{w.origin.key.tenant, w.origin.key.source}
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

// confirmation is the user's question that an invocation rests on, and its
// answer.
type confirmation struct {
	asked, accepted aaepsession.Message
	explicit        bool // the question names the call
}

// recordConfirmation notes them where they belong by the log's order: both come before the
// invocation, which shows which call they were about.
func (x *details) recordConfirmation(f *fact) {
	if f.confirmation == nil {
		return
	}
	if x.binding = events.BindingInferred; f.confirmation.explicit {
		x.binding = events.BindingExplicit
	}
	for _, s := range [...]struct {
		step
		aaepsession.Message
	}{{stepAsked, f.confirmation.asked}, {stepApproved, f.confirmation.accepted}} {
		if s.Seq == 0 || len(x.timeline) >= maxTimeline {
			continue
		}
		i := len(x.timeline)
		for i > 0 && x.timeline[i-1].seq > s.Seq {
			i--
		}
		x.timeline = slices.Insert(x.timeline, i, newTimelineEntry(s.step, s.Seq, s.At, s.ID, f.protocol))
	}
}
