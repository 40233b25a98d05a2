package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/agenthook"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// The row of AgentHook: its checks and how its events are read are in package correlation/agenthook.

var agentHookProtocol = &protocolRow{
	Protocol: agenthook.Protocol, wordCode: 2, missingCheck: "AH-C-079",
	track: trackAgentHookEvent, refuse: refuseAgentHookEvent, noteDecided: (*trackers).noteDecidedCall, sessions: agentHookSessions,
	checkOrphan: (*judge).checkOrphan,
	unreadable:  func(strictjson.Code) string { return "AH-C-001" },
	effectFirst: "AAEP-C-089",
	equivalents: agentHookEquivalents,
	callTraits: callTraits{
		requestAnnounces: true, mustBeAnswered: true, rulesApprovals: true, rulesEnds: true,
	},
}

// agentHookEquivalents are the checks of AgentHook that a violation of one of our rules
// breaks.
var agentHookEquivalents = map[findingCase][]string{
	{ExecutedDespiteDeny, ""}:                         {"AH-C-075"},
	{ExecutedWhileAskPending, ""}:                     {"AH-C-076"},
	{ExecutedWhileAskPending, caseApprovalMismatch}:   {"AH-C-076", "AH-C-104"},
	{ExecutedWhileAskPending, caseApprovalLate}:       {"AH-C-076", "AH-C-103"},
	{ExecutedWhileAskPending, caseApprovalRefused}:    {"AH-C-076", "AH-C-103"},
	{ExecutedWhileAskPending, caseApprovalUnrecorded}: {"AH-C-076", "AH-C-105"},
	{ExecutedAfterExpiry, caseApprovalExpired}:        {"AH-C-103"},
	{ExecutedWithoutVerdict, caseOnlyClaimed}:         {"AH-C-082"},
	{ExecutedBeforeVerdict, ""}:                       {"AH-C-083"},
	{ExecutedBeforeVerdict, caseRecordedLate}:         {"AH-C-083"},
	{ExecutedBeforeVerdict, detailDeniedLate}:         {"AH-C-083"},
	{InputDrift, ""}:                                  {"AH-C-080"},
	{OrphanCompletion, caseOrphan}:                    {"AH-C-078"},
	{ReusedToolCallID, caseReusedOpen}:                {"AH-C-052"},
	{ForgedRecord, caseClaim}:                         {"AH-C-082"},
	{ForgedRecord, caseClaimNotRun}:                   {"AH-C-082"},
	{ForgedRecord, caseClaimAlone}:                    {"AH-C-082"},
	{DuplicateEventConflict, ""}:                      {"AH-C-050"},
}

var agentHookSessions = &trackedSessions{
	restore: func(_ *trackers, w *protocolSession, _ *fact.Fact, d trackerTombstone) {
		w.hook = agenthook.Restore(d.hook)
	},
	storedItems: func(w *protocolSession) int { return w.hook.StoredItems() },
	expire:      func(*trackers, *protocolSession) *catalogue.Finding { return nil },
	tombstone:   func(_ *trackers, w *protocolSession, d *trackerTombstone) { d.hook = w.hook.Tombstone() },
}

// trackAgentHookEvent hands an event to its session. Decisions, and events that name no
// session, have none.
func trackAgentHookEvent(e *engine, f *fact.Fact, n novelty) {
	if agenthook.EventOf(f) != nil && f.Key.Session != noSession {
		e.trackAgentHook(e.ensureProtocolSession(f), f, n)
		return
	}
	e.findings.reportEventFindings(nil, f)
	if agenthook.EventOf(f) == nil {
		return
	}
	if n == novel {
		e.declarations.ApplyRegistration(f)
		e.declarations.CheckDeclared(f.Origin, f, nil)
	}
	e.findings.ReportSessionFindings(f, f.Origin, agenthook.EventFindings(agenthook.EventOf(f)))
}

func refuseAgentHookEvent(e *engine, f *fact.Fact) {
	if agenthook.EventOf(f) != nil {
		agenthook.EventOf(f).Seq, agenthook.EventOf(f).At = f.Seq, f.At
		e.findings.ReportSessionFindings(f, f.Origin, agenthook.EventFindings(agenthook.EventOf(f)))
	}
}

func (e *engine) trackAgentHook(w *protocolSession, f *fact.Fact, n novelty) {
	e.findings.reportEventFindings(w, f)
	if n != novel {
		w.hook.ApplyAmended(agenthook.EventOf(f))
		return
	}
	agenthook.EventOf(f).Seq, agenthook.EventOf(f).At = f.Seq, f.At
	e.declarations.ApplyRegistration(f)
	e.calls.setWebVerdict(f)
	if s := e.calls.find(f.Key); s != nil && f.Kind == fact.KindSessionEnd && s.askedAdmission {
		w.hook.NoteCallRequested()
	}
	e.trackers.applyAgentHook(w, f)
	e.attestations.CheckNonce(*w.origin, f)
	e.attestations.CheckHookFingerprints(*w.origin, f)
	e.approvals.checkApprovalEvent(w, f)
	e.declarations.CheckDeclared(*w.origin, f, w.hook)
}

// applyAgentHook applies an event to its session.
func (ts *trackers) applyAgentHook(w *protocolSession, f *fact.Fact) {
	found := w.hook.Apply(agenthook.EventOf(f))
	ts.accountStoredItems(w)
	ts.findings.ReportSessionFindings(f, *w.origin, found)
}

// noteDecidedCall tells the session of a call that a verdict on it is on record
// (AH-C-032).
func (ts *trackers) noteDecidedCall(c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre && f.Kind != fact.KindDecision || !c.hasPre || len(c.decisions) == 0 {
		return
	}
	if w, ok := ts.sessions.Peek(protocolSessionKey{f.Key, subject.ProtoAgentHook}); ok && w.hook != nil {
		ts.findings.ReportSessionFindings(f, *w.origin, w.hook.NoteDecided(c.id, c.preEvent))
	}
}

// checkOutsideGate: the session's attestation claims a gate that this call did not
// go through (AH-C-084).
func (ts *trackers) checkOutsideGate(c *call, f *fact.Fact) {
	w, ok := ts.sessions.Peek(protocolSessionKey{f.Key, subject.ProtoAgentHook})
	said := slices.ContainsFunc(c.retractable, func(made findingRef) bool { return made.rule == "AH-C-084" })
	if ok && !said && f.Effect != fact.NoEffect && w.hook.ClaimsGate() {
		c.addRetractable("AH-C-084", ts.findings.reportCheck("AH-C-084", c, f, findingFrom(c.firstEvent(), f.EventID)))
	}
}

// checkOrphan: a completion that nothing was before went around the gate, and
// one that came again may contradict the first (AH-C-089).
func (j *judge) checkOrphan(sl *callGroup, c *call, f *fact.Fact) {
	before := sl.latestClosed(func(o *call) bool { return o != c && o.hasPost })
	switch {
	case before == nil:
		j.trackers.checkOutsideGate(c, f)
	case before.outcome != f.Outcome:
		j.findings.reportCheck("AH-C-089", c, f, findingFrom(before.postEvent, f.EventID).withEventsOf(before))
	}
}

// applyPublisherChange takes what is in force now.
func (c *Correlator) applyPublisherChange(m events.LogMessage, p subject.Parsed) {
	if c.shard != "" && fact.TokenOf(p.Shard) != subject.Escape(c.shard) {
		return
	}
	change, err := events.DecodeRecord[events.PublisherChange](m.Body)
	if err != nil {
		return
	}
	c.engine.declarations.Replace(change, m)
}

// setWebVerdict looks for the recorded verdict on a web action, which waits for it
// like a call (AH-C-145).
func (cs *calls) setWebVerdict(f *fact.Fact) {
	if !agenthook.EventOf(f).AnnouncesWebAction() {
		return
	}
	s := cs.find(f.Key)
	if s == nil {
		return
	}
	c := s.findNamed(f.EventID, func(c *call) bool { return c.hasEvent(f.EventID) })
	if c != nil && c.lastDecision() != nil {
		agenthook.EventOf(f).SetRecordedVerdict(string(c.lastDecision().Verdict))
	}
}
