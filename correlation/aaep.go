package correlation

import (
	"cmp"

	"github.com/countersign-dev/countersign/correlation/aaep"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/subject"
)

// The row of AAEP: its checks and how its events are read are in package correlation/aaep.

var aaepProtocol = &protocolRow{
	Protocol: aaep.Protocol, wordCode: 1, missingCheck: "AAEP-C-081",
	track: trackAAEPEvent, refuse: refuseAAEPEvent, noteNumber: noteRefusedAAEP, sessions: aaepSessions,
	unreadable:   aaep.UnreadableCheck,
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
		w.aaep = aaep.Restore(d.aaep)
		ts.countRunningSessions(w, false, w.aaep.IsRunning())
		ts.retractSilence(w, f, d)
	},
	storedItems: func(w *protocolSession) int { return w.aaep.StoredItems() },
	expire: func(ts *trackers, w *protocolSession) *catalogue.Finding {
		silence := w.aaep.SilenceFinding()
		if silence != nil {
			ts.findings.ReportSessionFinding(&fact.Fact{Protocol: subject.ProtoAAEP}, *w.origin, silence)
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
	case aaep.EventOf(f) == nil:
		e.findings.reportEventFindings(nil, f)
	case f.Kind == fact.KindQuestionReply:
		e.replies.RouteQuestionReply(f)
	case aaep.EventOf(f).IsHandshake():
		e.negotiations.HandleHandshake(f, e)
	case f.Key.Session != noSession:
		e.trackAAEP(e.ensureProtocolSession(f), f, n)
	default:
		e.findings.reportEventFindings(nil, f)
		e.findings.ReportSessionFindings(f, f.Origin, aaep.EventHints(aaep.EventOf(f)))
	}
}

func refuseAAEPEvent(e *engine, f *fact.Fact) {
	if aaep.EventOf(f) != nil {
		aaep.EventOf(f).Seq, aaep.EventOf(f).At = f.Seq, f.At
		e.findings.ReportSessionFindings(f, f.Origin, aaep.EventFindings(aaep.EventOf(f)))
		f.RefusedNumber = aaep.EventOf(f).Number
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

func (e *engine) trackAAEP(w *protocolSession, f *fact.Fact, n novelty) {
	e.findings.reportEventFindings(w, f)
	if n != novel {
		return
	}
	e.trackers.applyAAEP(w, f)
	e.replies.RecordReplyToken(w.aaep, *w.origin, f)
}

// applyAAEP applies an event to its session.
func (ts *trackers) applyAAEP(w *protocolSession, f *fact.Fact) {
	aaep.EventOf(f).Seq, aaep.EventOf(f).At, aaep.EventOf(f).FromRecording, aaep.EventOf(f).RecordedUntil = f.Seq, f.At, ts.opts.fromRecording, ts.opts.recordedUntil
	before, stray := w.aaep.IsRunning(), w.aaep.NeverStarted()
	found := w.aaep.Apply(aaep.EventOf(f))
	ts.countRunningSessions(w, before, w.aaep.IsRunning())
	ts.accountStoredItems(w)
	ts.findings.ReportSessionFindings(f, *w.origin, found)
	if f.Kind == fact.KindPre {
		if asked, accepted, explicit := w.aaep.Confirmation(aaep.EventOf(f)); asked.Seq != 0 {
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

// followedAAEP are the sessions of AAEP that are followed.
type followedAAEP struct{ ts *trackers }

// Touch implements the sessions of the replies.
func (a followedAAEP) Touch(key fact.SessionKey) (*aaep.Session, fact.Origin) {
	w := a.ts.touch(protocolSessionKey{key, subject.ProtoAAEP})
	if w == nil {
		return nil, fact.Origin{}
	}
	return w.aaep, *w.origin
}
