package conformance

import (
	"slices"
	"strings"

	hooksession "github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// Facet is something in the traffic that gives a requirement something to judge.
type Facet string

// TypeOf is that a type of event was seen.
func TypeOf(eventType string) Facet { return Facet(eventType + " events") }

// The facets of both protocols.
const (
	Event           Facet = "events"
	FollowingEvents Facet = "events behind another of their session"
	RepeatedEvents  Facet = "events that came more than once"
	CallID          Facet = "announcements with a tool call id"

	OpenCalls Facet = "open: calls were announced and have not ended yet"
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
	RecordedVerdicts      Facet = "recorded verdicts"
	Refusal               Facet = "denials"
	WaitingVerdicts       Facet = "verdicts that wait for an approval"
	DenialsAndWaits       Facet = "denials and verdicts that wait"
	RecordedWaits         Facet = "recorded verdicts that wait for an approval"
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

// The facets of AAEP.
const (
	Critical             Facet = "events that must be critical"
	Texts                Facet = "events with texts"
	SpokenEvents         Facet = "events that people hear"
	Terminal             Facet = "ends of sessions"
	Numbered             Facet = "events with a sequence number"
	InvocationsAndOutput Facet = "invocations and output"
	LeavesCalling        Facet = "changes of state away from calling a tool"
	Irreversible         Facet = "irreversible invocations"
	HighRisk             Facet = "reversible invocations of high risk"
	Question             Facet = "questions"
	IrreversibleAsked    Facet = "questions about something irreversible"
	Reply                Facet = "replies"
	Rejection            Facet = "rejections"
	AgentHookExecutions  Facet = "executions whose beginning AgentHook reports"
	Acceptance           Facet = "acceptances"

	SubscriptionRequests     Facet = "subscription requests"
	SubscriptionAnswers      Facet = "answers to subscription requests"
	OpenSubscriptionRequests Facet = "open: subscription requests, or requests for other terms, have no answer yet"
	AcceptedSubscriptions    Facet = "subscriptions"
	RefusedSubscriptions     Facet = "refused subscriptions"
	SignedOnly               Facet = "subscription requests that want a signed manifest"
	SignedManifests          Facet = "signed manifests"
	Renewal                  Facet = "requests for other terms of a subscription"
)

// facetList collects what an event shows.
type facetList []Facet

func (f *facetList) addIf(is bool, list ...Facet) {
	if is {
		*f = append(*f, list...)
	}
}

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
	f.addIf(pre && e.ToolInput != nil, AnnouncedArguments)
	f.addIf(is(agenthook.ToolCallValidated, agenthook.ToolCallRedacted, agenthook.ToolCallRetried), IntermediateSteps)
	if len(e.Metadata) > 0 {
		f.addBlocks(e, pre, post)
	}
	if post {
		x, said := e.Execution()
		executed, _ := e.Metadata["tool_input_executed"].(map[string]any)
		f.addIf(!said || !x.DidNotRun(len(executed) > 0), ToolExecutions)
		f.addIf(said && x.StartedAt != "", TimedExecutions)
	}
	return f
}

func (f *facetList) addBlocks(e *agenthook.Event, pre, post bool) {
	has := func(key string) bool { _, ok := e.Metadata[key]; return ok }
	f.addIf(has("instance_id") || has("managed_runtime"), Instance)
	f.addIf(has("reasoning_chars"), Reasoning)
	f.addIf(has("runtime_attestation"), Attested)
	f.addIf(has("redaction"), Redaction)
	f.addIf(has("execution"), ExecutionBlocks)
	f.addIf(post && (has("tool_input_executed") || e.ToolInput != nil), ExecutedArguments)
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
	if w, ok := e.Metadata["web"].(map[string]any); ok {
		f.addIf(true, WebEvents)
		f.addIf(w["content_hash"] != nil || w["screenshot_hash"] != nil, WebHash)
		f.addIf(e.EventType == agenthook.WebActionRequested && e.EvidencePhase == agenthook.PhasePreCommit, WebGate)
	}
}

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

// addVerdict: what a verdict gives to judge, whoever says it.
func (f *facetList) addVerdict(v events.Verdict) {
	f.addIf(v == events.Deny, Refusal, DenialsAndWaits)
	f.addIf(v == events.Ask || v == events.Defer, WaitingVerdicts, DenialsAndWaits)
}

// decisionFacets are those of a recorded decision.
func decisionFacets(v events.Verdict) facetList {
	f := facetList{RecordedVerdicts}
	f.addVerdict(v)
	f.addIf(v == events.Ask || v == events.Defer, RecordedWaits)
	return f
}

// aaepFacets are those of an AAEP event or reply.
func aaepFacets(e *aaep.Event) facetList {
	f := facetList{Event, TypeOf(e.Type)}
	f.addIf(e.IsTerminal(), Terminal)
	f.addIf(e.SequenceNumber != nil, Numbered)
	switch p := e.Payload.(type) {
	case *aaep.SessionErrored, *aaep.HandoffRequested:
		f.addIf(true, Critical)
	case *aaep.StateChanged:
		f.addIf(p.FromState == "calling_tool" && p.ToState != "calling_tool", LeavesCalling)
	case *aaep.OutputStreaming:
		f.addIf(true, InvocationsAndOutput)
	case *aaep.ToolInvoked:
		final := p.Irreversible != nil && *p.Irreversible
		f.addIf(true, InvocationsAndOutput)
		f.addIf(p.ToolCallID != "", CallID)
		f.addIf(final, Irreversible)
		f.addIf(!final && p.RiskLevel == "high", HighRisk)
	case *aaep.AwaitingConfirmation:
		final := (p.Irreversible != nil && *p.Irreversible) || p.Reversibility == "irreversible"
		f.addIf(true, Critical, Question)
		f.addIf(final, IrreversibleAsked)
	case *aaep.AwaitingClarification:
		f.addIf(true, Critical, Question)
	case *aaep.ConfirmationReply:
		f.addIf(true, Reply)
		f.addIf(p.Decision == "reject", Rejection)
		f.addIf(p.Decision == "accept", Acceptance)
	case *aaep.ClarificationReply:
		f.addIf(true, Reply)
	}
	f.addIf(slices.Contains(announcedTypes, e.Type), SpokenEvents)
	f.addIf(!e.IsReply() && hasReadableText(e.Tree), Texts)
	return f
}

// handshakeFacets are those of a message about a subscription.
func handshakeFacets(e *aaep.Event) facetList {
	var f facetList
	capabilities, _ := e.Tree["capabilities"].(map[string]any)
	_, signed := e.Tree["signed_manifest"]
	switch strings.TrimPrefix(e.Type, handshakePrefix) {
	case "request":
		f.addIf(true, SubscriptionRequests)
		f.addIf(capabilities["accept_signed_manifests_only"] == true, SignedOnly)
	case "accepted":
		f.addIf(true, SubscriptionAnswers, AcceptedSubscriptions)
		f.addIf(signed, SignedManifests)
	case "rejected":
		f.addIf(true, SubscriptionAnswers, RefusedSubscriptions)
	case "renegotiate":
		f.addIf(true, Renewal)
	}
	return f
}

// handshakePrefix begins the types of messages about subscriptions, which have no
// envelope.
const handshakePrefix = "subscription."

// announcedTypes are the types that people hear and whose schema does not ask for a
// normal summary.
var announcedTypes = []string{aaep.TypeToolCompleted, aaep.TypeAwaitingConfirmation, aaep.TypeAwaitingClarification,
	aaep.TypeStateChanged, aaep.TypeProgressUpdated, aaep.TypeHandoffRequested}

var readableFields = []string{"summary_terse", "summary_normal", "summary_detailed", "description", "args_summary", "request_text",
	"output_summary", "error_message", "action", "consequence", "question", "context", "reason"}

func hasReadableText(tree map[string]any) bool {
	return slices.ContainsFunc(readableFields, func(key string) bool { s, _ := tree[key].(string); return s != "" })
}
