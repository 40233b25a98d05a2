package conformance

import (
	"cmp"
	"slices"

	hooksession "github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// The facets of AgentHook.
const (
	ToolEvents            profile.Facet = "tool events"
	PastReports           profile.Facet = "reports of something past that claim a phase"
	Instance              profile.Facet = "events that name their instance or runtime"
	SessionBounds         profile.Facet = "starts and ends of sessions"
	ModelCalls            profile.Facet = "model calls"
	ModelCallReports      profile.Facet = "reports of model calls"
	OpenModelCalls        profile.Facet = "open: model calls were announced and have not ended yet"
	Reasoning             profile.Facet = "reports of model calls with a length of reasoning"
	RetriesAndHandoffs    profile.Facet = "retries and handoffs"
	PreCommit             profile.Facet = "calls that claim pre_commit"
	CallsWithVerdict      profile.Facet = "calls that carry a verdict"
	CallsWithoutPreCommit profile.Facet = "announcements that claim no pre_commit"
	CallsWithoutID        profile.Facet = "announcements without a tool call id"
	ToolExecutions        profile.Facet = "executions"
	AnnouncedArguments    profile.Facet = "announced arguments"
	ExecutedArguments     profile.Facet = "executed arguments"
	FailMode              profile.Facet = "fail modes that fired"
	Attested              profile.Facet = "attestations"
	Governed              profile.Facet = "governed events"
	GovernedPre           profile.Facet = "governed announcements"
	GovernedPost          profile.Facet = "ends of governed calls"
	UngovernedPre         profile.Facet = "announcements without a block of the profile"
	UngovernedPost        profile.Facet = "ends of calls without a block of the profile"
	ToolIdentities        profile.Facet = "tool identities"
	UnknownAnswers        profile.Facet = "open: calls answer \"unknown\", and what a manifest's limitations cover is in words"
	Translation           profile.Facet = "tool identities with a translation"
	SchemaHashes          profile.Facet = "events with several schema hashes"
	ValidationFailed      profile.Facet = "validations that failed"
	Redaction             profile.Facet = "redactions"
	RiskBlocks            profile.Facet = "risk blocks"
	Retry                 profile.Facet = "retries"
	TimedExecutions       profile.Facet = "executions that say when they began"
	ExecutionBlocks       profile.Facet = "execution blocks"
	NeedsHuman            profile.Facet = "calls that need a person's approval"
	IntermediateSteps     profile.Facet = "steps between call and execution"
	WebEvents             profile.Facet = "web events"
	WebHash               profile.Facet = "hashes of web content"
	WebGate               profile.Facet = "web actions that claim pre_commit"
)

// facets are those of an event, but for those that take more than
// one event.
func facets(e *agenthook.Event) profile.Facets {
	f := profile.Facets{profile.Event, profile.TypeOf(e.EventType)}
	is := func(types ...string) bool { return slices.Contains(types, e.EventType) }
	pre, post := is(agenthook.PreToolUse), is(agenthook.PostToolUse)
	f.AddIf(pre || post, ToolEvents)
	f.AddIf(is(agenthook.SessionStart, agenthook.SessionEnd), SessionBounds)
	f.AddIf(is(agenthook.PreLLMCall), ModelCalls)
	f.AddIf(is(agenthook.PostLLMCall), ModelCallReports)
	f.AddIf(is(agenthook.AgentHandoff), RetriesAndHandoffs)
	f.AddIf(e.EvidencePhase != "" && !pre && (agenthook.IsPost(e.EventType) || is(agenthook.ModelResponse, agenthook.SessionEnd, agenthook.ErrorOccurred,
		agenthook.WebSearchResultsReturned, agenthook.WebPageRead, agenthook.WebActionCompleted, agenthook.EvidenceUsedInOutput)), PastReports)
	f.AddIf(pre && e.ToolCallID() != "", profile.CallID)
	f.AddIf(pre && e.ToolCallID() == "", CallsWithoutID)
	f.AddIf(pre && e.EvidencePhase == "", CallsWithoutPreCommit)
	f.AddIf(pre && !e.HasGovernanceBlock(), UngovernedPre)
	f.AddIf(post && !e.HasGovernanceBlock(), UngovernedPost)
	f.AddIf(pre && e.EvidencePhase == agenthook.PhasePreCommit, PreCommit)
	f.AddIf(pre && e.ToolInput.Exists(), AnnouncedArguments)
	f.AddIf(is(agenthook.ToolCallValidated, agenthook.ToolCallRedacted, agenthook.ToolCallRetried), IntermediateSteps)
	if e.HasMetadata() {
		addBlocks(&f, e, pre, post)
	}
	if post {
		x := e.Execution
		executed := e.Metadata.Get("tool_input_executed")
		f.AddIf(x == nil || !x.DidNotRun(executed.Kind() == strictjson.KindObject && executed.Len() > 0), ToolExecutions)
		f.AddIf(x != nil && x.StartedAt != "", TimedExecutions)
	}
	return f
}

func addBlocks(f *profile.Facets, e *agenthook.Event, pre, post bool) {
	has := func(key string) bool { return e.Metadata.Get(key).Exists() }
	f.AddIf(has("instance_id") || has("managed_runtime"), Instance)
	f.AddIf(has("reasoning_chars"), Reasoning)
	f.AddIf(has("runtime_attestation"), Attested)
	f.AddIf(has("redaction"), Redaction)
	f.AddIf(has("execution"), ExecutionBlocks)
	f.AddIf(post && (has("tool_input_executed") || e.ToolInput.Exists()), ExecutedArguments)
	if v := e.AdmissionVerdict; v != nil {
		f.AddIf(pre, CallsWithVerdict)
		f.AddVerdict(events.Verdict(v.Verdict))
	}
	if mode := e.FailMode; mode != nil {
		f.AddIf(mode.Triggered, FailMode)
	}
	if r := e.Retry; r != nil {
		f.AddIf(true, Retry)
		f.AddIf(r.PreviousToolCallID != "" || (r.Attempt != nil && *r.Attempt > 1), RetriesAndHandoffs)
	}
	if v := e.Validation; v != nil {
		f.AddIf(v.Status == "failed", ValidationFailed)
	}
	if r := e.Risk; r != nil {
		f.AddIf(true, RiskBlocks)
		f.AddIf(pre && r.RequiresHumanApproval != nil && *r.RequiresHumanApproval, NeedsHuman)
	}
	addIdentity(f, e, pre)
	if w := e.Metadata.Get("web"); w.Kind() == strictjson.KindObject {
		f.AddIf(true, WebEvents)
		f.AddIf(isSet(w.Get("content_hash")) || isSet(w.Get("screenshot_hash")), WebHash)
		f.AddIf(e.EventType == agenthook.WebActionRequested && e.EvidencePhase == agenthook.PhasePreCommit, WebGate)
	}
}

// isSet reports whether a member is there and not null.
func isSet(v strictjson.Value) bool { return v.Exists() && v.Kind() != strictjson.KindNull }

func addIdentity(f *profile.Facets, e *agenthook.Event, pre bool) {
	f.AddIf(e.HasGovernanceBlock(), Governed)
	f.AddIf(pre && e.HasGovernanceBlock(), GovernedPre)
	f.AddIf(pre && e.HasGovernanceBlock() && hooksession.AnswersUnknown(e), UnknownAnswers)
	f.AddIf(e.ToolIdentity != nil, ToolIdentities)
	f.AddIf(e.ToolIdentity != nil && e.ProviderTranslation != nil, Translation)
	f.AddIf(len(e.SchemaHashes()) > 1, SchemaHashes)
}

// completeView: a publisher that has no call that waits has no gate, whatever else its calls claim.
func completeView(counts map[profile.Facet]uint64) {
	if counts[PreCommit] == 0 {
		counts[CallsWithoutPreCommit] = counts[profile.TypeOf(agenthook.PreToolUse)]
	}
}

// addEvent takes an event, and reports whether it can be read.
func addEvent(s *profile.Sessions, source string, raw []byte) bool {
	e, _ := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e != nil {
		addSessionEvent(s.Of(profile.KeyOf(cmp.Or(source, e.Source), e.SessionID)), e)
	}
	return e != nil
}

func addSessionEvent(o *profile.Session, e *agenthook.Event) {
	fresh := o.AddEvent(e.EventID, facets(e))
	id := e.ToolCallID()
	switch {
	case !fresh:
	case e.EventType == agenthook.PreLLMCall:
		o.AddOpen(OpenModelCalls, 1)
	case e.EventType == agenthook.PostLLMCall, e.EventType == agenthook.ErrorOccurred && id == "": // H-13
		o.AddOpen(OpenModelCalls, -1)
	}
	if e.EventType == agenthook.PostToolUse && (e.HasGovernanceBlock() || id != "" && o.HasID(governedPrefix+id)) {
		o.Counts[GovernedPost]++
	}
	verdict := e.AdmissionVerdict
	excused := e.FailMode != nil && e.FailMode.Triggered
	pre := e.EventType == agenthook.PreToolUse
	if pre && e.HasGovernanceBlock() && id != "" {
		o.NoteID(governedPrefix + id)
	}
	if id == "" {
		id = "event " + e.EventID
	}
	waits := pre && (e.EvidencePhase == agenthook.PhasePreCommit || e.EvidencePhase == "")
	denied := verdict != nil && verdict.Verdict == string(events.Deny)
	if e.EventType == agenthook.SessionEnd {
		o.End()
	}
	if pre || excused || e.ClosesCall() {
		o.AddCall(id, profile.Call{NeedsVerdict: waits, HasVerdict: verdict != nil || excused, Announced: pre && e.ToolCallID() != "", Ended: e.ClosesCall() || denied})
	}
}

// governedPrefix begins the ids by which calls are noted that were announced as governed ones.
const governedPrefix = "governed\x00"

// readRequest gives the session that a request names, and its facets.
func readRequest(raw []byte) (session string, f profile.Facets, ok bool) {
	e, _ := agenthook.Decode(raw, strictjson.DefaultLimits)
	if e == nil {
		return "", nil, false
	}
	f.AddIf(e.ToolInput.Exists(), AnnouncedArguments)
	return e.SessionID, f, true
}

// readReply gives the event that a gate's reply is to, and its facets.
func readReply(line []byte) (event string, f profile.Facets, ok bool) {
	reply, err := agenthook.ParseReply(line)
	if err != nil {
		return "", nil, false
	}
	f.AddVerdict(events.Verdict(reply.Decision))
	return events.NormaliseID(reply.EventID), f, true
}

// identify reads what later answers name an event by.
func identify(line []byte) (id profile.Identity, ok bool) {
	e, _ := agenthook.Decode(line, strictjson.DefaultLimits)
	if e == nil {
		return id, false
	}
	return profile.Identity{Source: e.Source, Session: e.SessionID, Event: e.EventID, Call: e.ToolCallID()}, true
}
