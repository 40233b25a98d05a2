package correlation

import (
	"cmp"
	"errors"
	"slices"

	"github.com/countersign-dev/countersign/correlation/aaep"
	"github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/correlation/aioc"
	"github.com/countersign-dev/countersign/correlation/aump"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/protocol"
	"github.com/countersign-dev/countersign/correlation/internal/snapshot"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// protocols are the protocols of calls. A row's place is its bit in a protocolSet, and
// names are listed in this order.
var protocols protocolTable

type protocolTable []*protocolRow

// The rows refer to functions that read the table, which an initialiser must not.
func init() {
	setProtocols(aaepProtocol, aanaProtocol, agentHookProtocol, aumpProtocol, handoffProtocol, toolProtocol)
	protocol.Add = addProtocol
}

// setProtocols makes rows the table, and derives what depends on all of them.
func setProtocols(rows ...*protocolRow) {
	protocols, orphanRules = rows, []string{OrphanCompletion}
	for _, p := range rows {
		for of, checks := range p.equivalents {
			if of.rule == OrphanCompletion {
				orphanRules = append(orphanRules, checks...)
			}
		}
	}
	slices.Sort(orphanRules)
}

// addProtocol adds a row, for tests.
func addProtocol(reading fact.Protocol) (remove func()) {
	before := protocols
	setProtocols(append(slices.Clone(before), &protocolRow{Protocol: reading})...)
	return func() { setProtocols(before...) }
}

// aanaProtocol has no events: its calls are requests and decisions.
var aanaProtocol = &protocolRow{Protocol: fact.Protocol{Token: subject.ProtoAANA}}

// protocolRow is all that the engine knows of a protocol. The zero value of a field means
// "no": a row with a token alone is a protocol in which decisions are made and no event
// is published.
type protocolRow struct {
	fact.Protocol

	// What its events mean beyond calls. track gets each valid event that is no duplicate;
	// refuse gets each invalid one.
	track        func(e *engine, f *fact.Fact, n novelty)
	refuse       func(e *engine, f *fact.Fact)
	noteNumber   func(e *engine, f *fact.Fact) // the number of an event that was refused
	noteDecided  func(ts *trackers, c *call, f *fact.Fact)
	noteDecision func(e *engine, d *events.Decision) // a recorded decision of the protocol
	applyTrace   func(c *Correlator, in *fact.Input) // the admitter's trace event (fact.Protocol.TraceType)
	sessions     *trackedSessions                    // nil: its sessions are not tracked
	checkOrphan  func(j *judge, group *callGroup, c *call, f *fact.Fact)
	unreadable   func(strictjson.Code) string // the check that an unreadable event breaks
	severalCheck string                       // the check that several events in one message break
	missingCheck string                       // the check behind missing_completion, which only events of its own announce
	effectFirst  string                       // the check that an effect before an announcement in another protocol breaks
	equivalents  map[findingCase][]string
	isHandoffTo  func(tool, agent string) bool // an allowed call hands the session over: to the agent that its tool names

	// What messages of every protocol, or time alone, mean to it.
	checkUngated func(ts *trackers, c *call, f *fact.Fact)       // a call ran that was in no admission
	noteMandate  func(e *engine, f *fact.Fact)                   // a message names a mandate
	applyControl map[string]func(e *engine, m events.LogMessage) // records of what is in force, by kind
	nextDeadline func(e *engine, next *eventtime.Earliest)       // the next time at which expire finds something
	expire       func(e *engine)                                 // what waits for an answer and has waited too long

	callTraits
}

// unreadableCheck is the check that breaks when strict decoding refuses an event; "" if the
// protocol has none.
func (p *protocolRow) unreadableCheck(code strictjson.Code) string {
	if p.unreadable == nil {
		return ""
	}
	return p.unreadable(code)
}

// callTraits are how a protocol's calls differ.
type callTraits struct {
	requestAnnounces  bool // a request is an event of the session, which announces the call
	mustBeAnswered    bool // an execution breaks a check if its request has no verdict
	resumesByRule     bool // it says how an approved call comes back, and what its execution names
	endNamesBeginning bool // the end of a call must carry the id of its beginning
	onceUnderID       bool // an id belongs to one invocation of a session; else it may come again when its call is over
	announcesStart    bool // an announcement says that the execution begins
	endsByCorrelation bool // a completion under an unknown id may end the call that its correlation id names
	endIsMust         bool // each announced call must be completed, before its session ends
	onePublisher      bool // all events of a recording are one publisher's
}

// unknownProtocol is the row of a token that is not in the table.
var unknownProtocol = &protocolRow{}

// readingOf is how the messages of a protocol are read.
func readingOf(token string) *fact.Protocol { return &rowOf(token).Protocol }

// rowOf finds the row of a protocol.
func rowOf(token string) *protocolRow {
	for _, p := range protocols {
		if p.Token == token {
			return p
		}
	}
	return unknownProtocol
}

// applyControl gives a control record to each protocol that has its kind.
func (t protocolTable) applyControl(c *Correlator, m events.LogMessage, p subject.Parsed) {
	if c.shard != "" && fact.TokenOf(p.Shard) != subject.Escape(c.shard) {
		return
	}
	for _, row := range t {
		if apply := row.applyControl[p.Kind]; apply != nil {
			apply(c.engine, m)
		}
	}
}

// checkUngated tells each protocol that a call ran which was in no admission.
func (t protocolTable) checkUngated(ts *trackers, c *call, f *fact.Fact) {
	for _, row := range t {
		if row.checkUngated != nil {
			row.checkUngated(ts, c, f)
		}
	}
}

// noteMandate notes that a message names a mandate.
func (t protocolTable) noteMandate(e *engine, f *fact.Fact) {
	for _, row := range t {
		if row.noteMandate != nil {
			row.noteMandate(e, f)
		}
	}
}

// nextDeadline adds the next time at which expire finds something, in any protocol.
func (t protocolTable) nextDeadline(e *engine, next *eventtime.Earliest) {
	for _, row := range t {
		if row.nextDeadline != nil {
			row.nextDeadline(e, next)
		}
	}
}

// expire reports what has waited too long for an answer.
func (t protocolTable) expire(e *engine) {
	for _, row := range t {
		if row.expire != nil {
			row.expire(e)
		}
	}
}

// The members that sessions have in one protocol only. One at most is set.
type (
	protocolState struct {
		aaep *aaep.Session
		hook *agenthook.Session
	}
	// protocolTombstone is kept of a session that is no longer tracked.
	protocolTombstone struct {
		aaep    aaep.Tombstone
		hook    agenthook.Tombstone
		silence *catalogue.Finding // it was said to have fallen silent
	}
)

// protocolParts are the parts of the engine that belong to one protocol each.
type protocolParts struct {
	replies      *aaep.Replies
	negotiations *aaep.NegotiationTable
	attestations *agenthook.Attestations
	declarations *agenthook.Declarations
	mandates     *aump.Mandates
	traces       *aioc.Traces
}

func newProtocolParts() protocolParts {
	ng := aaep.NewNegotiationTable()
	return protocolParts{negotiations: ng, replies: aaep.NewReplies(ng), attestations: agenthook.NewAttestations(), declarations: new(agenthook.Declarations), mandates: aump.NewMandates(), traces: aioc.NewTraces()}
}

// protocolSections are the sections of the parts: see engine.sections.
func (p *protocolParts) protocolSections() []snapshot.Section {
	return []snapshot.Section{
		{Name: "replies", Root: p.replies},
		{Name: "negotiations", Root: p.negotiations},
		{Name: "attestations", Root: p.attestations},
		{Name: "declarations", Root: p.declarations},
		{Name: "mandates", Root: p.mandates},
		{Name: "traces", Root: p.traces},
	}
}

// configureProtocols gives the parts what is no state.
func (p *protocolParts) configureProtocols(e *engine, o *engineOptions) {
	p.negotiations.Configure(e.findings, e.timers.clock(), o.fromRecording)
	p.replies.Configure(e.findings, trackedAAEP{e.trackers}, o.fromRecording)
	p.attestations.Configure(e.findings)
	p.declarations.Configure(e.findings)
	p.mandates.Configure(e.findings, o.ClockSkew)
}

// The row of AAEP: its checks and how its events are read are in package correlation/aaep.

var aaepProtocol = &protocolRow{
	Protocol: aaep.Protocol, missingCheck: "AAEP-C-081",
	track: trackAAEPEvent, refuse: refuseAAEPEvent, noteNumber: noteRefusedAAEP, sessions: aaepSessions,
	nextDeadline: func(e *engine, next *eventtime.Earliest) { e.negotiations.NextTimeout(next) },
	expire:       func(e *engine) { e.negotiations.Expire() },
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
	restore: func(ts *trackers, w *protocolSession, f *fact.Fact, d protocolTombstone) {
		w.aaep = aaep.Restore(d.aaep, f.EventID, f.Seq)
		ts.countRunningSessions(w, false, w.aaep.IsRunning())
		ts.retractSilence(w, f, d)
	},
	storedItems: func(w *protocolSession) int { return w.aaep.StoredItems() },
	expire: func(ts *trackers, w *protocolSession) *catalogue.Finding {
		silence := w.aaep.SilenceFinding()
		if silence != nil {
			ts.findings.ReportSessionFinding(passedTime, *w.origin, silence)
		}
		return silence
	},
	tombstone: func(ts *trackers, w *protocolSession, d *protocolTombstone) {
		d.aaep = w.aaep.Tombstone()
		ts.countRunningSessions(w, w.aaep.IsRunning(), false)
	},
}

// trackAAEPEvent hands an event to its session, a reply to its question and a handshake to
// its publisher's negotiations. Requests have none of them; a decision may make the completion of a call unnecessary.
func trackAAEPEvent(e *engine, f *fact.Fact, n novelty) {
	switch {
	case aaep.EventOf(f) == nil:
		e.findings.reportEventFindings(nil, f)
		if w := e.trackers.find(f.Key, f.Protocol); w != nil && f.Decision != nil && n == novel {
			w.aaep.NoteDecided(f.CallID, f.Tool, f.Decision.Verdict == events.Allow)
		}
	case f.Kind == fact.KindQuestionReply:
		e.replies.RouteQuestionReply(f)
	case aaep.EventOf(f).IsHandshake():
		e.negotiations.Apply(f, e)
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

// noteRefusedAAEP notes the number of a refused event in its session, if that is tracked.
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
			f.Confirmation = &fact.Confirmation{Asked: fact.ConfirmingMessage{ID: asked.ID, Seq: asked.Seq, At: asked.At}, Accepted: fact.ConfirmingMessage{ID: accepted.ID, Seq: accepted.Seq, At: accepted.At}, Explicit: explicit}
		}
	}
	if !stray && w.aaep.NeverStarted() && ts.runningSessions[f.Key.Publisher()] > 0 {
		ts.findings.ReportSessionFindings(f, *w.origin, w.aaep.ReportStray(aaep.EventOf(f)))
	}
}

// passedTime is the fact behind a finding that no message shows. It is the same when the finding
// is retracted, or the retraction would name another one.
var passedTime = &fact.Fact{Protocol: subject.ProtoAAEP}

// retractSilence retracts the finding that a session fell silent.
func (ts *trackers) retractSilence(w *protocolSession, f *fact.Fact, d protocolTombstone) {
	if d.silence == nil {
		return
	}
	ts.findings.ReportSessionFinding(passedTime, *w.origin, &catalogue.Finding{Check: d.silence.Check, Text: "the session goes on", Events: []string{f.EventID},
		Seqs: []uint64{f.Seq}, Replaces: d.silence, RetractsOnly: true})
	d.silence = nil
	ts.tombstones.Put(w.origin.Key.Tenant, w.ID(), d)
}

// trackedAAEP are the sessions of AAEP that are tracked.
type trackedAAEP struct{ ts *trackers }

// Touch implements the sessions of the replies.
func (a trackedAAEP) Touch(key fact.SourceSession) (*aaep.Session, fact.Origin) {
	w := a.ts.touch(protocolSessionKey{key, subject.ProtoAAEP})
	if w == nil {
		return nil, fact.Origin{}
	}
	return w.aaep, *w.origin
}

// The row of AgentHook: its checks and how its events are read are in package correlation/agenthook.

var agentHookProtocol = &protocolRow{
	Protocol: agenthook.Protocol, missingCheck: "AH-C-079",
	track: trackAgentHookEvent, refuse: refuseAgentHookEvent, noteDecided: (*trackers).noteDecidedCall, sessions: agentHookSessions,
	checkOrphan: (*judge).checkAgentHookOrphan, checkUngated: (*trackers).checkOutsideGate,
	applyControl: map[string]func(*engine, events.LogMessage){events.ControlPublisher: applyPublisherChange},
	unreadable:   func(strictjson.Code) string { return "AH-C-001" },
	effectFirst:  "AAEP-C-089",
	equivalents:  agentHookEquivalents,
	callTraits: callTraits{
		requestAnnounces: true, mustBeAnswered: true, resumesByRule: true, endNamesBeginning: true,
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
	{ExecutedBeforeVerdict, caseDeniedLate}:           {"AH-C-083"},
	{InputDrift, ""}:                                  {"AH-C-080"},
	{OrphanCompletion, caseOrphan}:                    {"AH-C-078"},
	{ReusedToolCallID, caseReusedOpen}:                {"AH-C-052"},
	{ForgedRecord, caseClaim}:                         {"AH-C-082"},
	{ForgedRecord, caseClaimNotRun}:                   {"AH-C-082"},
	{ForgedRecord, caseClaimAlone}:                    {"AH-C-082"},
	{DuplicateEventConflict, ""}:                      {"AH-C-050"},
}

var agentHookSessions = &trackedSessions{
	restore: func(_ *trackers, w *protocolSession, _ *fact.Fact, d protocolTombstone) {
		w.hook = agenthook.Restore(d.hook)
	},
	storedItems: func(w *protocolSession) int { return w.hook.StoredItems() },
	expire:      func(*trackers, *protocolSession) *catalogue.Finding { return nil },
	tombstone:   func(_ *trackers, w *protocolSession, d *protocolTombstone) { d.hook = w.hook.Tombstone() },
}

// trackAgentHookEvent hands an event to its session, and so the decision on one that names no call. Other decisions
// belong to calls, and events that name no session have none.
func trackAgentHookEvent(e *engine, f *fact.Fact, n novelty) {
	if agenthook.EventOf(f) != nil && f.Key.Session != noSession {
		e.trackAgentHook(e.ensureProtocolSession(f), f, n)
		return
	}
	e.findings.reportEventFindings(nil, f)
	if agenthook.EventOf(f) == nil {
		if f.Decision != nil && n == novel && !f.HasTool() && f.EventID != "" && f.Key.Session != noSession {
			w := e.ensureProtocolSession(f)
			w.hook.NoteDecidedEvent(f.EventID, f.Decision.Verdict)
			e.trackers.accountStoredItems(w)
		}
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
// (AH-C-032, AH-C-037).
func (ts *trackers) noteDecidedCall(c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre && f.Kind != fact.KindDecision || !c.hasPre || len(c.decisions) == 0 {
		return
	}
	if w, ok := ts.sessions.Peek(protocolSessionKey{f.Key, subject.ProtoAgentHook}); ok && w.hook != nil {
		ts.findings.ReportSessionFindings(f, *w.origin, w.hook.NoteDecided(c.id, c.preEvent, c.lastDecision().Verdict == events.Allow))
	}
}

// checkOutsideGate reports a call that did not go through the gate which its session's attestation
// claims (AH-C-084).
func (ts *trackers) checkOutsideGate(c *call, f *fact.Fact) {
	w, ok := ts.sessions.Peek(protocolSessionKey{f.Key, subject.ProtoAgentHook})
	said := slices.ContainsFunc(c.retractable, func(made findingRef) bool { return made.rule == "AH-C-084" })
	if ok && !said && f.Effect != fact.NoEffect && w.hook.ClaimsGate() {
		c.addRetractable("AH-C-084", ts.findings.reportCheck("AH-C-084", c, f, findingFrom(c.firstEvent(), f.EventID)))
	}
}

// checkAgentHookOrphan judges a completion that nothing announced: it may have gone around the gate. If
// the call had ended before, its outcome may contradict that one (AH-C-089).
func (j *judge) checkAgentHookOrphan(group *callGroup, c *call, f *fact.Fact) {
	before := group.latestClosed(func(o *call) bool { return o != c && o.hasPost })
	switch {
	case before == nil:
		protocols.checkUngated(j.trackers, c, f)
	case before.outcome != f.Outcome:
		j.findings.reportCheck("AH-C-089", c, f, findingFrom(before.postEvent, f.EventID).withEventsOf(before))
	}
}

// applyPublisherChange takes the manifests and registrations that are in force now.
func applyPublisherChange(e *engine, m events.LogMessage) {
	change, err := events.DecodeRecord[events.PublisherChange](m.Body)
	if err != nil {
		return
	}
	if documents, whole := e.declarations.Replace(change, m); whole {
		e.replies.ReplaceFrontEnds(documents)
	}
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

// The row of AUMP; its checks are in package correlation/aump.

var aumpProtocol = &protocolRow{
	Protocol: aump.Protocol,
	track: func(e *engine, f *fact.Fact, n novelty) {
		e.findings.reportEventFindings(nil, f)
		if n == novel {
			e.mandates.CheckEvidence(f)
		}
	},
	noteNumber:   func(e *engine, f *fact.Fact) { e.mandates.NoteNumber(f) },
	noteMandate:  func(e *engine, f *fact.Fact) { e.mandates.RecordUse(f, f.MandateRef) },
	applyControl: map[string]func(*engine, events.LogMessage){events.ControlMandate: applyMandateChange},
	unreadable:   func(strictjson.Code) string { return "AUMP-E-001" },
	equivalents:  map[findingCase][]string{{DuplicateEventConflict, ""}: {"AUMP-E-012"}},
}

// applyMandateChange takes what changed among the mandates.
func applyMandateChange(e *engine, m events.LogMessage) {
	if change, err := events.DecodeRecord[events.MandateChange](m.Body); err == nil {
		e.mandates.ApplyChange(change, m.Time)
	}
}

// The rows of aioc; how its trace events are read is in package correlation/aioc.
var (
	toolProtocol    = &protocolRow{Protocol: aioc.ToolProtocol, noteDecision: expectTrace, applyTrace: applyTrace}
	handoffProtocol = &protocolRow{Protocol: aioc.HandoffProtocol, noteDecision: expectTrace, applyTrace: applyTrace, isHandoffTo: aioc.IsHandoffTo}
)

func expectTrace(e *engine, d *events.Decision) { e.traces.Expect(d) }

// applyTrace takes a trace event, which must be signed as decisions are.
func applyTrace(c *Correlator, in *fact.Input) {
	m, f := in.Raw, &in.Event.Fact
	if what := c.signatureDefect(&m, fact.VerifiedSignature{}); what != "" {
		c.reportForged(f, caseTrace, what)
		return
	}
	switch id, defect := c.engine.traces.Receive(m, in.ParsedSubject, f); {
	case errors.Is(defect, aioc.ErrSubject):
		c.reportForged(f, caseTraceSubject, defect.Error())
	case errors.Is(defect, aioc.ErrDuplicateTrace):
		c.engine.stats.Duplicates++
	case defect != nil:
		c.reportForged(f, caseTrace, defect.Error())
	default:
		c.engine.calls.attachTrace(f, id)
	}
}

// attachTrace notes the event in its call's timeline. A call that its deny has
// closed was emitted before, and is not emitted again for it.
func (cs *calls) attachTrace(f *fact.Fact, decisionID string) {
	s := cs.find(f.Key)
	if s == nil {
		return
	}
	if c := s.callOfDecision(decisionID); c != nil {
		c.addStep(stepTraced, f)
	}
}
