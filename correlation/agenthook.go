package correlation

import (
	"cmp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/fact"

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
	wordCode: 2, missingCheck: "AH-C-079",
	Protocol: fact.Protocol{
		Token: protoAgentHook,
		Decode: func(d *fact.Decoder, in fact.EventMessage, r *fact.DecodedEvent) {
			decodeAgentHook(d, in.Message, in.Subject, r, in.Data, in.Request)
		},
		DecodesRequests: true, ReadRecorded: readAgentHook, ReadReason: readAgentHookReason, CheckDecision: decisionFindings,
		SessionKeyed: true,
	},
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
		w.hook = hooksession.Restore(d.hook)
	},
	storedItems: func(w *protocolSession) int { return w.hook.StoredItems() },
	expire:      func(*trackers, *protocolSession) *catalogue.Finding { return nil },
	tombstone:   func(_ *trackers, w *protocolSession, d *trackerTombstone) { d.hook = w.hook.Tombstone() },
}

// trackAgentHookEvent hands an event to its session. Decisions, and events that name no
// session, have none.
func trackAgentHookEvent(e *engine, f *fact.Fact, n novelty) {
	if hookEventOf(f) != nil && f.Key.Session != noSession {
		e.trackAgentHook(e.ensureProtocolSession(f), f, n)
		return
	}
	e.findings.reportEventFindings(nil, f)
	if hookEventOf(f) == nil {
		return
	}
	if n == novel {
		e.declarations.applyRegistration(f)
		e.declarations.checkDeclared(f.Origin, f, nil)
	}
	e.findings.ReportSessionFindings(f, f.Origin, hooksession.EventFindings(hookEventOf(f)))
}

func refuseAgentHookEvent(e *engine, f *fact.Fact) {
	if hookEventOf(f) != nil {
		hookEventOf(f).Seq, hookEventOf(f).At = f.Seq, f.At
		e.findings.ReportSessionFindings(f, f.Origin, hooksession.EventFindings(hookEventOf(f)))
	}
}

// agentHookKinds are the types that mean something for a call; see also
// agentHookKind.
var agentHookKinds = map[string]fact.Kind{
	agenthook.PreToolUse:      fact.KindPre,
	agenthook.PostToolUse:     fact.KindPost,
	agenthook.ToolUseBlocked:  fact.KindStopped,
	agenthook.ErrorOccurred:   fact.KindError,
	agenthook.ToolUseResumed:  fact.KindApproval,
	agenthook.ApprovalGranted: fact.KindApproval,
	agenthook.ApprovalDenied:  fact.KindApproval,
	agenthook.SessionEnd:      fact.KindSessionEnd,
}

// impliedStatus is what an approval event means where it has no approval block.
var impliedStatus = map[string]string{
	agenthook.ToolUseResumed: statusApproved, agenthook.ApprovalGranted: statusApproved, agenthook.ApprovalDenied: "denied",
}

// agentHookFact reads an AgentHook event; request tells that it is the admitter's
// copy of a request.
func agentHookFact(f *fact.Fact, x hookEvent, request bool) {
	e := x.Event
	f.Kind, f.EventID, f.Agent = agentHookKinds[e.EventType], e.EventID, fact.BoundID(e.AgentID)
	f.SetCall(e.ToolCallID(), e.ToolName)
	f.PreCommit = e.EvidencePhase == agenthook.PhasePreCommit
	if request {
		f.RequestFlags = requestFlagsOf(e)
	} else {
		f.Event = hooksession.NewEvent(e)
	}
	agentHookLineage(f, e)
	if e.CorrelationID != "" {
		f.RelatedEventIDs = []string{agenthook.NormaliseID(e.CorrelationID)}
	}
	agentHookClaims(f, e)
	if retry, ok := e.Retry(); ok && retry.PreviousToolCallID != "" {
		f.RetriedKey = fact.CallKeyOf(retry.PreviousToolCallID, "")
	}
	agentHookTimes(f, e)
	switch f.Kind {
	case fact.KindPre:
		if request {
			f.Kind = fact.KindRequest
		}
		f.FrameSum = x.trimmedSum(fact.FrameOmits, fact.FrameMetadataOmits)
		f.Args = inputArguments(x)
		f.CoreSum = coreOf(f, x)
		f.TargetSum = targetOf(e)
		if r, ok := e.Risk(); ok && r.RequiresHumanApproval != nil {
			f.NeedsHuman = *r.RequiresHumanApproval
		}
		if t, ok := e.ToolIdentity(); ok {
			f.CanonicalTool = fact.BoundID(t.CanonicalName)
		}
	case fact.KindPost:
		agentHookPost(f, x)
	case fact.KindError:
		agentHookError(f, e)
	case fact.KindStopped:
		f.Outcome, f.VerdictClaim = "blocked", fact.VerdictClaim{Verdict: events.Deny, Seq: f.Seq}
	case fact.KindApproval:
		if hookEventOf(f) != nil && hookEventOf(f).VoidApproval {
			f.Kind = fact.KindOther
			break
		}
		a := f.Approval.ValueOrZero()
		a.Status = cmp.Or(a.Status, impliedStatus[e.EventType])
		f.Approval = a.PointerOrNil()
	}
	if f.EventID != "" && f.CoreSum == (fact.Sum{}) {
		f.CoreSum = x.trimmedSum(fact.CoreOmits, fact.CoreMetadataOmits)
	}
	if request && f.Kind != fact.KindRequest {
		f.Kind = fact.KindOtherRequest
	}
}

func agentHookClaims(f *fact.Fact, e *agenthook.Event) {
	if v, ok := e.AdmissionVerdict(); ok {
		f.VerdictClaim = fact.VerdictClaim{Verdict: fact.ParseClaimedVerdict(v.Verdict), Seq: f.Seq, DecidedAt: fact.ParseInstant(v.DecidedAt)}
	}
	if hookEventOf(f) != nil && hookEventOf(f).VoidApproval {
		return
	}
	if a, ok := e.Approval(); ok {
		f.Approval = fact.Approval{
			Status: a.Status, Workflow: fact.BoundID(a.WorkflowID), Action: fact.BoundID(a.ActionID),
			DecidedAt: fact.ParseInstant(a.DecidedAt), ExpiresAt: fact.ParseInstant(a.ExpiresAt), ResumePolicy: fact.BoundID(a.ResumePolicy),
		}.PointerOrNil()
		f.ReceiptDecisionID = agenthook.NormaliseID(a.DecisionRef)
		f.DecisionRef = f.ReceiptDecisionID
	}
}

func inputArguments(x hookEvent) fact.Arguments {
	canonical := x.canonicalInput()
	if canonical == nil {
		canonical = []byte("{}") // no arguments are no arguments, however it is said
	}
	return fact.NewArguments(canonical, x.keys, redactedArguments(x.Event))
}

func redactedArguments(e *agenthook.Event) []string {
	var paths []string
	for _, p := range e.RedactedFields() {
		if fact.ConcernsArguments(p) {
			paths = append(paths, p)
		}
	}
	return paths
}

func agentHookError(f *fact.Fact, e *agenthook.Event) {
	mode, is := e.FailMode()
	switch {
	case is && mode.Triggered && mode.Outcome == string(events.Allow):
		f.Kind = fact.KindFailOpen
	case is && mode.Triggered:
		f.Kind, f.Outcome, f.VerdictClaim = fact.KindStopped, "denied", fact.VerdictClaim{Verdict: events.Deny, Seq: f.Seq}
	case is || !e.ClosesCall():
		f.Kind = fact.KindOther
	default:
		f.Outcome = "failed"
	}
}

func agentHookTimes(f *fact.Fact, e *agenthook.Event) {
	f.ProducerTimes.HappenedAt = e.Time
	if retry, ok := e.Retry(); ok {
		f.ProducerTimes.Attempt = fact.NonNegative(retry.Attempt)
	}
	if f.Kind != fact.KindPost {
		return
	}
	f.ProducerTimes.DurationMS = fact.NonNegative(e.DurationMS())
	if x, ok := e.Execution(); ok {
		f.ProducerTimes.CompletedAt = fact.ParseInstant(x.CompletedAt)
	}
}

// coreOf is the core of an event whose frame and arguments are known: what the
// frame leaves out, beside it.
func coreOf(f *fact.Fact, x hookEvent) fact.Sum {
	if !f.Args.Known {
		return fact.Sum{}
	}
	return fact.SumOf(string(f.FrameSum[:]), string(f.Args.PlainSum[:]), string(x.coreRemainder()))
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

func agentHookLineage(f *fact.Fact, e *agenthook.Event) {
	l := &f.LineageRefs
	l.Trace, l.AnnouncesHandoff = fact.ValidTraceparent(e.Trace()), e.EventType == agenthook.AgentHandoff
	l.SetCorrelation(agenthook.NormaliseID(e.CorrelationID))
	if e.EventType == agenthook.GoalSet || e.EventType == agenthook.GoalStatus {
		l.ParentSession = goalParent(e.Metadata)
	}
}

// checkAgentHookSubject holds an event against the message that it came in.
func checkAgentHookSubject(d *fact.Decoder, m events.LogMessage, p subject.Parsed, r *fact.DecodedEvent, e *agenthook.Event, request bool) {
	session := e.SessionID
	if request {
		session = cmp.Or(session, m.HeaderValue(events.HeaderSession))
		r.Fact.SetCall(cmp.Or(e.ToolCallID(), m.HeaderValue(events.HeaderToolCallID)), e.ToolName)
	} else if !fact.SameSubjectType(p.Type, e.EventType) {
		r.Contradictions = append(r.Contradictions, "its type is not the event_type of the event")
	}
	r.SetSession(p, d.Intern(session))
}

func readAgentHook(f *fact.Fact, raw []byte) fact.RecordedLine {
	if reply, is := replyOf(raw); is {
		f.Kind, f.EventID, f.VerdictClaim = fact.KindAdmissionReply, reply.EventID, fact.VerdictClaim{Verdict: fact.ParseClaimedVerdict(reply.Decision), Seq: f.Seq}
		if a := reply.Metadata.Approval; a != nil {
			f.Approval = fact.Approval{ResumePolicy: fact.BoundID(a.ResumePolicy), Status: a.Status, Workflow: fact.BoundID(a.WorkflowID), Action: fact.BoundID(a.ActionID), ExpiresAt: fact.ParseInstant(a.ExpiresAt)}.PointerOrNil()
		}
		f.EventFindings = replyFindings(f, reply)
		if wrong := approvalDefect(raw); wrong != "" { // as of an event: it approves nothing
			f.Approval = nil
			f.EventFindings = append(f.EventFindings, fact.SingleEventFinding("AH-C-100", wrong, f))
		}
		return fact.RecordedLine{Fact: f}
	}
	e, err := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return fact.RecordedLine{Fact: f, Err: err, Unreadable: true}
	}
	f.Origin = fact.OriginOf("", e.Source, e.SessionID)
	agentHookFact(f, hookEvent{Event: e, doc: withPlainIDs(strictjson.FromTree(e.Tree)), formBuffer: new(fact.FormBuffer)}, false)
	return fact.RecordedLine{Fact: f, Err: err, Time: e.Time, Violations: schemas.Default().StrictAgentHook(e.Tree)}
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

func (e *engine) trackAgentHook(w *protocolSession, f *fact.Fact, n novelty) {
	e.findings.reportEventFindings(w, f)
	if n != novel {
		w.hook.ApplyAmended(hookEventOf(f))
		return
	}
	hookEventOf(f).Seq, hookEventOf(f).At = f.Seq, f.At
	e.declarations.applyRegistration(f)
	e.calls.setWebVerdict(f)
	if s := e.calls.find(f.Key); s != nil && f.Kind == fact.KindSessionEnd && s.askedAdmission {
		w.hook.NoteRequested(agenthook.PreToolUse)
	}
	e.trackers.applyAgentHook(w, f)
	e.attestations.checkNonce(w, f)
	e.attestations.checkHookFingerprints(w, f)
	e.approvals.checkApprovalEvent(w, f)
	e.declarations.checkDeclared(*w.origin, f, w.hook)
}

// applyAgentHook applies an event to its session.
func (ts *trackers) applyAgentHook(w *protocolSession, f *fact.Fact) {
	found := w.hook.Apply(hookEventOf(f))
	ts.accountStoredItems(w)
	ts.findings.ReportSessionFindings(f, *w.origin, found)
}

// noteDecidedCall tells the session of a call that a verdict on it is on record
// (AH-C-032).
func (ts *trackers) noteDecidedCall(c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre && f.Kind != fact.KindDecision || !c.hasPre || len(c.decisions) == 0 {
		return
	}
	if w, ok := ts.sessions.Peek(protocolSessionKey{f.Key, protoAgentHook}); ok && w.hook != nil {
		ts.findings.ReportSessionFindings(f, *w.origin, w.hook.NoteDecided(c.id, c.preEvent))
	}
}

// checkOutsideGate: the session's attestation claims a gate that this call did not
// go through (AH-C-084).
func (ts *trackers) checkOutsideGate(c *call, f *fact.Fact) {
	w, ok := ts.sessions.Peek(protocolSessionKey{f.Key, protoAgentHook})
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

func agentHookPost(f *fact.Fact, e hookEvent) {
	f.Effect = fact.HadEffect
	if x, ok := e.Execution(); ok {
		f.Outcome, f.StartedAt, f.HasMutationReason = fact.BoundID(x.Outcome), fact.ParseInstant(x.StartedAt), strings.TrimSpace(x.MutationReason) != ""
		if x.DidNotRun(e.hasExecutedArguments()) {
			f.Effect = fact.NoEffect
		}
	}
	if canonical := e.canonicalExecuted(); canonical != nil {
		f.Args = fact.NewArguments(canonical, e.keys, redactedArguments(e.Event))
	}
	f.LacksCallID = f.CallKey.Id == "" && f.RetriedKey != (fact.CallKey{})
}

// hookEventOf is the event of a fact, nil for requests and decisions.
func hookEventOf(f *fact.Fact) *hooksession.Event {
	e, _ := f.Event.(*hooksession.Event)
	return e
}
