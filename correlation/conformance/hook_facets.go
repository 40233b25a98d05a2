package conformance

import (
	"cmp"
	"slices"

	hooksession "github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// The facets of AgentHook.
const (
	ToolEvents            Facet = "tool events"
	PastReports           Facet = "reports of something past that claim a phase"
	Instance              Facet = "events that name their instance or runtime"
	SessionBounds         Facet = "starts and ends of sessions"
	ModelCalls            Facet = "model calls"
	ModelCallReports      Facet = "reports of model calls"
	OpenModelCalls        Facet = "open: model calls were announced and have not ended yet"
	Reasoning             Facet = "reports of model calls with a length of reasoning"
	RetriesAndHandoffs    Facet = "retries and handoffs"
	PreCommit             Facet = "calls that claim pre_commit"
	CallsWithVerdict      Facet = "calls that carry a verdict"
	CallsWithoutVerdict   Facet = "calls that carry no verdict and report no fail mode"
	CallsWithoutPreCommit Facet = "announcements that claim no pre_commit"
	CallsWithoutID        Facet = "announcements without a tool call id"
	ToolExecutions        Facet = "executions"
	AnnouncedArguments    Facet = "announced arguments"
	ExecutedArguments     Facet = "executed arguments"
	FailMode              Facet = "fail modes that fired"
	Attested              Facet = "attestations"
	Governed              Facet = "governed events"
	GovernedPre           Facet = "governed announcements"
	GovernedPost          Facet = "ends of governed calls"
	UngovernedPre         Facet = "announcements without a block of the profile"
	UngovernedPost        Facet = "ends of calls without a block of the profile"
	ToolIdentities        Facet = "tool identities"
	UnknownAnswers        Facet = "open: calls answer \"unknown\", and what a manifest's limitations cover is in words"
	Translation           Facet = "tool identities with a translation"
	SchemaHashes          Facet = "events with several schema hashes"
	ValidationFailed      Facet = "validations that failed"
	Redaction             Facet = "redactions"
	RiskBlocks            Facet = "risk blocks"
	Retry                 Facet = "retries"
	TimedExecutions       Facet = "executions that say when they began"
	ExecutionBlocks       Facet = "execution blocks"
	NeedsHuman            Facet = "calls that need a person's approval"
	IntermediateSteps     Facet = "steps between call and execution"
	WebEvents             Facet = "web events"
	WebHash               Facet = "hashes of web content"
	WebGate               Facet = "web actions that claim pre_commit"
)

// agentHookFacets are those of an AgentHook event, but for those that take more than
// one event.
func agentHookFacets(e *agenthook.Event) facetList {
	f := facetList{Event, TypeOf(e.EventType)}
	is := func(types ...string) bool { return slices.Contains(types, e.EventType) }
	pre, post := is(agenthook.PreToolUse), is(agenthook.PostToolUse)
	f.addIf(pre || post, ToolEvents)
	f.addIf(is(agenthook.SessionStart, agenthook.SessionEnd), SessionBounds)
	f.addIf(is(agenthook.PreLLMCall), ModelCalls)
	f.addIf(is(agenthook.PostLLMCall), ModelCallReports)
	f.addIf(is(agenthook.AgentHandoff), RetriesAndHandoffs)
	f.addIf(e.EvidencePhase != "" && !pre && (agenthook.IsPost(e.EventType) || is(agenthook.ModelResponse, agenthook.SessionEnd, agenthook.ErrorOccurred,
		agenthook.WebSearchResultsReturned, agenthook.WebPageRead, agenthook.WebActionCompleted, agenthook.EvidenceUsedInOutput)), PastReports)
	f.addIf(pre && e.ToolCallID() != "", CallID)
	f.addIf(pre && e.ToolCallID() == "", CallsWithoutID)
	f.addIf(pre && e.EvidencePhase == "", CallsWithoutPreCommit)
	f.addIf(pre && !e.HasGovernanceBlock(), UngovernedPre)
	f.addIf(post && !e.HasGovernanceBlock(), UngovernedPost)
	f.addIf(pre && e.EvidencePhase == agenthook.PhasePreCommit, PreCommit)
	f.addIf(pre && e.ToolInput.Exists(), AnnouncedArguments)
	f.addIf(is(agenthook.ToolCallValidated, agenthook.ToolCallRedacted, agenthook.ToolCallRetried), IntermediateSteps)
	if e.HasMetadata() {
		f.addBlocks(e, pre, post)
	}
	if post {
		x, said := e.Execution()
		executed := e.Metadata.Get("tool_input_executed")
		f.addIf(!said || !x.DidNotRun(executed.Kind() == strictjson.KindObject && executed.Len() > 0), ToolExecutions)
		f.addIf(said && x.StartedAt != "", TimedExecutions)
	}
	return f
}

func (f *facetList) addBlocks(e *agenthook.Event, pre, post bool) {
	has := func(key string) bool { return e.Metadata.Get(key).Exists() }
	f.addIf(has("instance_id") || has("managed_runtime"), Instance)
	f.addIf(has("reasoning_chars"), Reasoning)
	f.addIf(has("runtime_attestation"), Attested)
	f.addIf(has("redaction"), Redaction)
	f.addIf(has("execution"), ExecutionBlocks)
	f.addIf(post && (has("tool_input_executed") || e.ToolInput.Exists()), ExecutedArguments)
	if v, ok := e.AdmissionVerdict(); ok {
		f.addIf(pre, CallsWithVerdict)
		f.addVerdict(events.Verdict(v.Verdict))
	}
	if mode, ok := e.FailMode(); ok {
		f.addIf(mode.Triggered, FailMode)
	}
	if r, ok := e.Retry(); ok {
		f.addIf(true, Retry)
		f.addIf(r.PreviousToolCallID != "" || (r.Attempt != nil && *r.Attempt > 1), RetriesAndHandoffs)
	}
	if v, ok := e.Validation(); ok {
		f.addIf(v.Status == "failed", ValidationFailed)
	}
	if r, ok := e.Risk(); ok {
		f.addIf(true, RiskBlocks)
		f.addIf(pre && r.RequiresHumanApproval != nil && *r.RequiresHumanApproval, NeedsHuman)
	}
	f.addIdentity(e, pre)
	if w := e.Metadata.Get("web"); w.Kind() == strictjson.KindObject {
		f.addIf(true, WebEvents)
		f.addIf(isSet(w.Get("content_hash")) || isSet(w.Get("screenshot_hash")), WebHash)
		f.addIf(e.EventType == agenthook.WebActionRequested && e.EvidencePhase == agenthook.PhasePreCommit, WebGate)
	}
}

// isSet reports whether a member is there and not null.
func isSet(v strictjson.Value) bool { return v.Exists() && v.Kind() != strictjson.KindNull }

func (f *facetList) addIdentity(e *agenthook.Event, pre bool) {
	hashes := 0
	count := func(hash string) {
		if hash != "" {
			hashes++
		}
	}
	f.addIf(e.HasGovernanceBlock(), Governed)
	f.addIf(pre && e.HasGovernanceBlock(), GovernedPre)
	f.addIf(pre && e.HasGovernanceBlock() && hooksession.AnswersUnknown(e), UnknownAnswers)
	identity, identified := e.ToolIdentity()
	if identified {
		count(identity.SchemaHash)
		f.addIf(true, ToolIdentities)
	}
	if t, ok := e.ProviderTranslation(); ok {
		count(t.SchemaHash)
		f.addIf(identified, Translation)
	}
	if v, ok := e.Validation(); ok {
		count(v.SchemaHash)
	}
	f.addIf(hashes > 1, SchemaHashes)
}

// completeHookView: a publisher that has no call that waits has no gate, whatever else its calls claim.
func completeHookView(counts map[Facet]uint64) {
	if counts[PreCommit] == 0 {
		counts[CallsWithoutPreCommit] = counts[TypeOf(agenthook.PreToolUse)]
	}
}

// addHookEvent takes an event, and tells whether it can be read.
func addHookEvent(t *Tally, source string, raw []byte) bool {
	e, _ := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e != nil {
		t.addAgentHook(e, sessionKey{fact.BoundID(cmp.Or(source, e.Source)), fact.BoundID(e.SessionID)})
	}
	return e != nil
}

func (t *Tally) addAgentHook(e *agenthook.Event, p sessionKey) {
	o := t.sessionTally(subject.ProtoAgentHook, p)
	fresh := o.addEvent(e.EventID, agentHookFacets(e))
	id := e.ToolCallID()
	switch {
	case !fresh:
	case e.EventType == agenthook.PreLLMCall:
		o.openModelCalls++
	case e.EventType == agenthook.PostLLMCall, e.EventType == agenthook.ErrorOccurred && id == "": // H-13
		o.openModelCalls--
	}
	if e.EventType == agenthook.PostToolUse && (e.HasGovernanceBlock() || o.isGoverned(id)) {
		o.counts[GovernedPost]++
	}
	verdict, stamped := e.AdmissionVerdict()
	mode, is := e.FailMode()
	excused := is && mode.Triggered
	pre := e.EventType == agenthook.PreToolUse
	if pre && e.HasGovernanceBlock() && id != "" {
		o.rememberID("governed\x00" + id)
	}
	if id == "" {
		id = "event " + e.EventID
	}
	waits := pre && (e.EvidencePhase == agenthook.PhasePreCommit || e.EvidencePhase == "")
	denied := stamped && verdict.Verdict == string(events.Deny)
	o.ended = o.ended || e.EventType == agenthook.SessionEnd
	if pre || excused || e.ClosesCall() {
		o.addCall(id, callState{needsVerdict: waits, hasVerdict: stamped || excused, announced: pre && e.ToolCallID() != "", ended: e.ClosesCall() || denied})
	}
}

// readHookRequest gives the session that a request names, and its facets.
func readHookRequest(raw []byte) (session string, f facetList, ok bool) {
	e, _ := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return "", nil, false
	}
	f.addIf(e.ToolInput.Exists(), AnnouncedArguments)
	return e.SessionID, f, true
}

// readHookReply gives the event that a gate's reply is to, and its facets.
func readHookReply(line []byte) (event string, f facetList, ok bool) {
	reply, err := agenthook.ParseReply(line)
	if err != nil {
		return "", nil, false
	}
	f.addVerdict(events.Verdict(reply.Decision))
	return agenthook.NormaliseID(reply.EventID), f, true
}

// indexHookEvent notes an event that later answers may be about.
func indexHookEvent(x recordingIndex, line []byte, publisher string) {
	e, _ := agenthook.Decode(line, strictjson.DefaultLimits)
	if e == nil {
		return
	}
	at := sessionKey{cmp.Or(publisher, e.Source), e.SessionID}
	for key, in := range map[string]map[string]sessionKey{"e" + e.EventID: x.byEvent, "c" + e.ToolCallID(): x.byCall, "s" + e.SessionID: x.bySession} {
		if _, there := in[key[1:]]; !there && len(key) > 1 {
			in[key[1:]] = at
		}
	}
}
