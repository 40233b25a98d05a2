package correlation

import (
	"slices"
	"strings"

	hooksession "github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// What only AgentHook has: how its events are read, and its checks over more than one session.

const protoAgentHook = subject.ProtoAgentHook

var agentHookProtocol = &protocolRow{
	token: protoAgentHook, wordCode: 2, missingCheck: "AH-C-079",
	decode: func(d *Decoder, in eventMessage, r *decodedEvent) {
		d.decodeAgentHook(in.message, in.subject, r, in.data, in.request)
	},
	decodesRequests: true, readRecorded: readAgentHook, readReason: readAgentHookReason, checkDecision: decisionFindings,
	track: trackAgentHookEvent, refuse: refuseAgentHookEvent, noteDecided: (*trackers).noteDecidedCall, sessions: agentHookSessions,
	checkOrphan: (*judge).checkOrphan,
	unreadable:  func(strictjson.Code) string { return "AH-C-001" },
	effectFirst: "AAEP-C-089",
	equivalents: agentHookEquivalents,
	callTraits: callTraits{
		sessionKeyed: true, requestAnnounces: true, mustBeAnswered: true, rulesApprovals: true, rulesEnds: true,
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
	restore: func(_ *trackers, w *protocolSession, _ *fact, d trackerTombstone) {
		w.hook = hooksession.Restore(d.hook)
	},
	storedItems: func(w *protocolSession) int { return w.hook.StoredItems() },
	expire:      func(*trackers, *protocolSession) *catalogue.Finding { return nil },
	tombstone:   func(_ *trackers, w *protocolSession, d *trackerTombstone) { d.hook = w.hook.Tombstone() },
}

// trackAgentHookEvent hands an event to its session. Decisions, and events that name no
// session, have none.
func trackAgentHookEvent(e *engine, f *fact, n novelty) {
	if f.hook != nil && f.key.session != noSession {
		e.trackAgentHook(e.ensureProtocolSession(f), f, n)
		return
	}
	e.findings.reportEventFindings(nil, f)
	if f.hook == nil {
		return
	}
	if n == novel {
		e.declarations.applyRegistration(f)
		e.declarations.checkDeclared(f.origin, f, nil)
	}
	e.findings.reportSessionFindings(f, f.origin, hooksession.EventFindings(f.hook))
}

func refuseAgentHookEvent(e *engine, f *fact) {
	if f.hook != nil {
		f.hook.Seq, f.hook.At = f.seq, f.at
		e.findings.reportSessionFindings(f, f.origin, hooksession.EventFindings(f.hook))
	}
}

// fieldError is a member of a wrong type, in all protocols.
type fieldError = agenthook.FieldError

// normaliseEventID is how ids of events are compared in all protocols.
func normaliseEventID(id string) string { return agenthook.NormaliseID(id) }

// agentHookKinds are the types that mean something for a call; see also
// agentHookKind.
var agentHookKinds = map[string]factKind{
	agenthook.PreToolUse:      kindPre,
	agenthook.PostToolUse:     kindPost,
	agenthook.ToolUseBlocked:  kindStopped,
	agenthook.ErrorOccurred:   kindError,
	agenthook.ToolUseResumed:  kindApproval,
	agenthook.ApprovalGranted: kindApproval,
	agenthook.ApprovalDenied:  kindApproval,
	agenthook.SessionEnd:      kindSessionEnd,
}

// impliedStatus is what an approval event means where it has no approval block.
var impliedStatus = map[string]string{
	agenthook.ToolUseResumed: statusApproved, agenthook.ApprovalGranted: statusApproved, agenthook.ApprovalDenied: "denied",
}

// agentHookFact reads an AgentHook event; request tells that it is the admitter's
// copy of a request.
func agentHookFact(f *fact, x hookEvent, request bool) {
	e := x.Event
	f.kind, f.eventID, f.agent = agentHookKinds[e.EventType], e.EventID, boundID(e.AgentID)
	f.setCall(e.ToolCallID(), e.ToolName)
	f.preCommit = e.EvidencePhase == agenthook.PhasePreCommit
	if request {
		f.requestFlags = requestFlagsOf(e)
	} else {
		f.hook = hooksession.NewEvent(e)
	}
	agentHookLineage(f, e)
	if e.CorrelationID != "" {
		f.relatedEventIDs = []string{agenthook.NormaliseID(e.CorrelationID)}
	}
	agentHookClaims(f, e)
	if retry, ok := e.Retry(); ok && retry.PreviousToolCallID != "" {
		f.retriedKey = callKeyOf(retry.PreviousToolCallID, "")
	}
	agentHookTimes(f, e)
	switch f.kind {
	case kindPre:
		if request {
			f.kind = kindRequest
		}
		f.frameSum = x.trimmedSum(frameOmits, frameMetadataOmits)
		f.args = inputArguments(x)
		f.coreSum = coreOf(f, x)
		f.targetSum = targetOf(e)
		if r, ok := e.Risk(); ok && r.RequiresHumanApproval != nil {
			f.needsHuman = *r.RequiresHumanApproval
		}
		if t, ok := e.ToolIdentity(); ok {
			f.canonicalTool = boundID(t.CanonicalName)
		}
	case kindPost:
		agentHookPost(f, x)
	case kindError:
		agentHookError(f, e)
	case kindStopped:
		f.outcome, f.verdictClaim = "blocked", verdictClaim{verdict: events.Deny, seq: f.seq}
	case kindApproval:
		if f.hook != nil && f.hook.VoidApproval {
			f.kind = kindOther
			break
		}
		a := f.approval.valueOrZero()
		a.status = firstNonEmpty(a.status, impliedStatus[e.EventType])
		f.approval = a.pointerOrNil()
	}
	if f.eventID != "" && f.coreSum == (sum{}) {
		f.coreSum = x.trimmedSum(coreOmits, coreMetadataOmits)
	}
	if request && f.kind != kindRequest {
		f.kind = kindOtherRequest
	}
}

func agentHookClaims(f *fact, e *agenthook.Event) {
	if v, ok := e.AdmissionVerdict(); ok {
		f.verdictClaim = verdictClaim{verdict: parseClaimedVerdict(v.Verdict), seq: f.seq, decidedAt: parseInstant(v.DecidedAt)}
	}
	if f.hook != nil && f.hook.VoidApproval {
		return
	}
	if a, ok := e.Approval(); ok {
		f.approval = approval{
			status: a.Status, workflow: boundID(a.WorkflowID), action: boundID(a.ActionID),
			decidedAt: parseInstant(a.DecidedAt), expiresAt: parseInstant(a.ExpiresAt), resumePolicy: boundID(a.ResumePolicy),
		}.pointerOrNil()
		f.receiptDecisionID = agenthook.NormaliseID(a.DecisionRef)
		f.decisionRef = f.receiptDecisionID
	}
}

func inputArguments(x hookEvent) arguments {
	canonical := x.canonicalInput()
	if canonical == nil {
		canonical = []byte("{}") // no arguments are no arguments, however it is said
	}
	return newArguments(canonical, x.keys, redactedArguments(x.Event))
}

func redactedArguments(e *agenthook.Event) []string {
	var paths []string
	for _, p := range e.RedactedFields() {
		if concernsArguments(p) {
			paths = append(paths, p)
		}
	}
	return paths
}

func agentHookError(f *fact, e *agenthook.Event) {
	mode, is := e.FailMode()
	switch {
	case is && mode.Triggered && mode.Outcome == string(events.Allow):
		f.kind = kindFailOpen
	case is && mode.Triggered:
		f.kind, f.outcome, f.verdictClaim = kindStopped, "denied", verdictClaim{verdict: events.Deny, seq: f.seq}
	case is || !e.ClosesCall():
		f.kind = kindOther
	default:
		f.outcome = "failed"
	}
}

func agentHookTimes(f *fact, e *agenthook.Event) {
	f.producerTimes.happenedAt = e.Time
	if retry, ok := e.Retry(); ok {
		f.producerTimes.attempt = nonNegative(retry.Attempt)
	}
	if f.kind != kindPost {
		return
	}
	f.producerTimes.durationMS = nonNegative(e.DurationMS())
	if x, ok := e.Execution(); ok {
		f.producerTimes.completedAt = parseInstant(x.CompletedAt)
	}
}

// coreOf is the core of an event whose frame and arguments are known: what the
// frame leaves out, beside it.
func coreOf(f *fact, x hookEvent) sum {
	if !f.args.known {
		return sum{}
	}
	return sumOf(string(f.frameSum[:]), string(f.args.plainSum[:]), string(x.coreRemainder()))
}

// withPlainIDs returns an object with each UUID that names an event as NormaliseID spells it, so
// that the spelling of an id makes no other event.
func withPlainIDs(v strictjson.Value) strictjson.Value {
	if hasPlainIDs(v) {
		return v
	}
	event := v.Tree().(map[string]any)
	for _, name := range []string{"event_id", "correlation_id"} {
		if id, ok := event[name].(string); ok {
			event[name] = agenthook.NormaliseID(id)
		}
	}
	meta, _ := event["metadata"].(map[string]any)
	web, _ := meta["web"].(map[string]any)
	if parent, ok := web["parent_event_id"].(string); ok {
		web["parent_event_id"] = agenthook.NormaliseID(parent)
	}
	return strictjson.FromTree(event)
}

// hasPlainIDs reports whether withPlainIDs changes nothing.
func hasPlainIDs(v strictjson.Value) bool {
	parent := v.Get("metadata").Get("web").Get("parent_event_id")
	for _, id := range []strictjson.Value{v.Get("event_id"), v.Get("correlation_id"), parent} {
		if id.Kind() == strictjson.KindString && agenthook.NormaliseID(id.Text()) != id.Text() {
			return false
		}
	}
	return true
}

func agentHookLineage(f *fact, e *agenthook.Event) {
	l := &f.lineageRefs
	l.trace, l.announcesHandoff = validTraceparent(e.Trace()), e.EventType == agenthook.AgentHandoff
	l.setCorrelation(agenthook.NormaliseID(e.CorrelationID))
	if e.EventType == agenthook.GoalSet || e.EventType == agenthook.GoalStatus {
		l.parentSession = goalParent(e.Metadata)
	}
}

// checkAgentHookSubject holds an event against the message that it came in.
func (d *Decoder) checkAgentHookSubject(m events.LogMessage, p subject.Parsed, r *decodedEvent, e *agenthook.Event, request bool) {
	session := e.SessionID
	if request {
		session = firstNonEmpty(session, m.HeaderValue(events.HeaderSession))
		r.fact.setCall(firstNonEmpty(e.ToolCallID(), m.HeaderValue(events.HeaderToolCallID)), e.ToolName)
	} else if !sameSubjectType(p.Type, e.EventType) {
		r.contradictions = append(r.contradictions, "its type is not the event_type of the event")
	}
	r.setSession(p, d.intern(session))
}

func readAgentHook(f *fact, raw []byte) recordedLine {
	if reply, is := replyOf(raw); is {
		f.kind, f.eventID, f.verdictClaim = kindAdmissionReply, reply.EventID, verdictClaim{verdict: parseClaimedVerdict(reply.Decision), seq: f.seq}
		if a := reply.Metadata.Approval; a != nil {
			f.approval = approval{resumePolicy: boundID(a.ResumePolicy), status: a.Status, workflow: boundID(a.WorkflowID), action: boundID(a.ActionID), expiresAt: parseInstant(a.ExpiresAt)}.pointerOrNil()
		}
		f.eventFindings = replyFindings(f, reply)
		if wrong := approvalDefect(raw); wrong != "" { // as of an event: it approves nothing
			f.approval = nil
			f.eventFindings = append(f.eventFindings, singleEventFinding("AH-C-100", wrong, f))
		}
		return recordedLine{fact: f}
	}
	e, err := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return recordedLine{fact: f, err: err, unreadable: true}
	}
	f.origin = originOf("", e.Source, e.SessionID)
	agentHookFact(f, hookEvent{Event: e, doc: withPlainIDs(strictjson.FromTree(e.Tree)), formBuffer: new(formBuffer)}, false)
	return recordedLine{fact: f, err: err, time: e.Time, violations: schemas.StrictAgentHook(e.Tree)}
}

// approvalDefect says where the approval block of a reply does not follow its schema;
// "" if it does, or is not there.
func approvalDefect(raw []byte) string {
	tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	if err != nil {
		return ""
	}
	meta, _ := tree["metadata"].(map[string]any)
	block, there := meta["approval"]
	if !there {
		return ""
	}
	wrong := schemas.Default().Validate("agenthook/approval", block)
	if len(wrong) == 0 {
		return ""
	}
	return catalogue.CodeAtPath(wrong[0].Keyword, "/metadata/approval"+wrong[0].Path)
}

// replyOf tells an admission reply from an event: it has no event_type.
func replyOf(raw []byte) (agenthook.Reply, bool) {
	var shape struct {
		EventType any `json:"event_type"`
	}
	if err := strictjson.Unmarshal(raw, &shape); err != nil || shape.EventType != nil {
		return agenthook.Reply{}, false
	}
	reply, err := agenthook.ParseReply(raw)
	return reply, err == nil && reply.Decision != "" && reply.EventID != ""
}

func (e *engine) trackAgentHook(w *protocolSession, f *fact, n novelty) {
	e.findings.reportEventFindings(w, f)
	if n != novel {
		w.hook.ApplyAmended(f.hook)
		return
	}
	f.hook.Seq, f.hook.At = f.seq, f.at
	e.declarations.applyRegistration(f)
	e.calls.setWebVerdict(f)
	if s := e.calls.find(f.key); s != nil && f.kind == kindSessionEnd && s.askedAdmission {
		w.hook.NoteRequested(agenthook.PreToolUse)
	}
	e.trackers.applyAgentHook(w, f)
	e.attestations.checkNonce(w, f)
	e.attestations.checkHookFingerprints(w, f)
	e.approvals.checkApprovalEvent(w, f)
	e.declarations.checkDeclared(*w.origin, f, w.hook)
}

// applyAgentHook applies an event to its session.
func (ts *trackers) applyAgentHook(w *protocolSession, f *fact) {
	found := w.hook.Apply(f.hook)
	ts.accountStoredItems(w)
	ts.findings.reportSessionFindings(f, *w.origin, found)
}

// noteDecidedCall tells the session of a call that a verdict on it is on record
// (AH-C-032).
func (ts *trackers) noteDecidedCall(c *call, f *fact) {
	if f.kind != kindPre && f.kind != kindDecision || !c.hasPre || len(c.decisions) == 0 {
		return
	}
	if w, ok := ts.sessions.Peek(protocolSessionKey{f.key, protoAgentHook}); ok && w.hook != nil {
		ts.findings.reportSessionFindings(f, *w.origin, w.hook.NoteDecided(c.id, c.preEvent))
	}
}

// checkOutsideGate: the session's attestation claims a gate that this call did not
// go through (AH-C-084).
func (ts *trackers) checkOutsideGate(c *call, f *fact) {
	w, ok := ts.sessions.Peek(protocolSessionKey{f.key, protoAgentHook})
	said := slices.ContainsFunc(c.retractable, func(made findingRef) bool { return made.rule == "AH-C-084" })
	if ok && !said && f.effect != noEffect && w.hook.ClaimsGate() {
		c.addRetractable("AH-C-084", ts.findings.reportCheck("AH-C-084", c, f, findingFrom(c.firstEvent(), f.eventID)))
	}
}

// checkOrphan: a completion that nothing was before went around the gate, and
// one that came again may contradict the first (AH-C-089).
func (j *judge) checkOrphan(sl *callGroup, c *call, f *fact) {
	before := sl.latestClosed(func(o *call) bool { return o != c && o.hasPost })
	switch {
	case before == nil:
		j.trackers.checkOutsideGate(c, f)
	case before.outcome != f.outcome:
		j.findings.reportCheck("AH-C-089", c, f, findingFrom(before.postEvent, f.eventID).withEventsOf(before))
	}
}

func agentHookPost(f *fact, e hookEvent) {
	f.effect = hadEffect
	if x, ok := e.Execution(); ok {
		f.outcome, f.startedAt, f.hasMutationReason = boundID(x.Outcome), parseInstant(x.StartedAt), strings.TrimSpace(x.MutationReason) != ""
		if x.DidNotRun(e.hasExecutedArguments()) {
			f.effect = noEffect
		}
	}
	if canonical := e.canonicalExecuted(); canonical != nil {
		f.args = newArguments(canonical, e.keys, redactedArguments(e.Event))
	}
	f.lacksCallID = f.callKey.id == "" && f.retriedKey != (callKey{})
}
