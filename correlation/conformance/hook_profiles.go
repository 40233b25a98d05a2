package conformance

import (
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/subject"
)

// Names of AgentHook's tiers and profiles.
const (
	Bronze           = "bronze"
	Silver           = "silver"
	Gold             = "gold"
	AdmissionBound   = "admission-bound"
	ActionGovernance = "action-governance"
	WebEvidence      = "web-evidence"
)

const checkedHook = "AgentHook 0.2 (draft), "

// agentHookProfiles: SPEC 5, CONFORMANCE and AHP-012, AHP-013. A tier wants 80 percent
// of its set, of which what a runtime does not expose is excused; a profile wants
// all of it.
var agentHookProfiles = []Profile{
	{Name: Bronze, Protocol: subject.ProtoAgentHook, Title: checkedHook + "Bronze tier", Percent: 80, Requirements: bronze},
	{Name: Silver, Protocol: subject.ProtoAgentHook, Title: checkedHook + "Silver tier", Percent: 80, Includes: Bronze, Requirements: []Requirement{
		notWhileOpen(OpenModelCalls, checkRequirement("llm-pairs", "Every PreLLMCall is answered by exactly one PostLLMCall.", "AH-C-057", ModelCalls)),
		withHints(checkRequirement("llm-figures", "PostLLMCall gives model, provider, tokens and response.", "AH-C-058", ModelCallReports)),
	}},
	{Name: Gold, Protocol: subject.ProtoAgentHook, Title: checkedHook + "Gold tier", Percent: 80, Includes: Silver, Requirements: []Requirement{
		checkRequirement("reasoning", "Reasoning is no longer than the length given for it.", "AH-C-059", Reasoning),
		withHints(checkRequirement("correlation", "What starts another session or attempt carries a correlation id.", "AH-C-060", RetriesAndHandoffs)),
	}},
	{Name: AdmissionBound, Protocol: subject.ProtoAgentHook, Title: checkedHook + "admission-bound profile", Percent: 100, ClaimSigns: []Facet{PreCommit, CallsWithVerdict, Attested, FailMode}, Requirements: admissionBound},
	{Name: ActionGovernance, Protocol: subject.ProtoAgentHook, Title: checkedHook + "action-governance profile (AHP-013)", Percent: 100, ClaimSigns: []Facet{Governed, IntermediateSteps}, Requirements: actionGovernance},
	{Name: WebEvidence, Protocol: subject.ProtoAgentHook, Title: checkedHook + "web-evidence profile (AHP-012)", Percent: 100, ClaimSigns: []Facet{WebEvents}, Requirements: webEvidence},
}

// bronze is the Bronze set: an envelope that is valid, which no score outweighs,
// the ten lifecycle types of SPEC 2, and their order.
var bronze = []Requirement{
	hardRequirement("json", "Every event is one JSON object that all readers read alike.", "AH-C-001"),
	hardRequirement("envelope", "Every event has the envelope's fields and no others.", "AH-C-002", "AH-C-003", "AH-C-007", "AH-C-008", "AH-C-010", "AH-C-011"),
	hardRequirement("uuid", "Every event id is a UUID.", "AH-C-004"),
	hardRequirement("timestamp", "Every time stamp is one.", "AH-C-006"),
	hardRequirement("type-name", "Every event type is in PascalCase.", "AH-C-005"),
	checkRequirement("tool-name", "Tool events name their tool.", "AH-C-009", ToolEvents),
	checkRequirement("phase", "What reports something past does not claim to come before it.", "AH-C-012", PastReports),

	typeRequirement("session-start", "Sessions announce their start.", agenthook.SessionStart, TypeOf(agenthook.SessionStart)),
	typeRequirement("session-end", "Sessions announce their end.", agenthook.SessionEnd, TypeOf(agenthook.SessionEnd)),
	typeRequirement("prompt", "Prompts are reported.", agenthook.UserPromptSubmit, TypeOf(agenthook.UserPromptSubmit)),
	typeRequirement("pre-llm", "Model calls are announced.", agenthook.PreLLMCall, TypeOf(agenthook.PreLLMCall)),
	typeRequirement("post-llm", "Model calls are reported when they end.", agenthook.PostLLMCall, TypeOf(agenthook.PostLLMCall)),
	typeRequirement("response", "Responses are reported.", agenthook.ModelResponse, TypeOf(agenthook.ModelResponse)),
	typeRequirement("pre-tool", "Tool calls are announced.", agenthook.PreToolUse, TypeOf(agenthook.PreToolUse)),
	typeRequirement("post-tool", "Tool calls are reported when they end.", agenthook.PostToolUse, TypeOf(agenthook.PostToolUse)),
	typeRequirement("handoff", "Handoffs are reported.", agenthook.AgentHandoff, TypeOf(agenthook.AgentHandoff)),
	typeRequirement("error", "Errors are reported.", agenthook.ErrorOccurred, TypeOf(agenthook.ErrorOccurred)),

	checkRequirement("same-id", "An event that comes again says the same.", "AH-C-050", RepeatedEvents),
	checkRequirement("order", "Events of a session keep their order on the way.", "AH-C-053"),
	checkRequirement("clock", "Time does not run backwards within a session.", "AH-C-054", FollowingEvents),
	checkRequirement("one-session", "A session is one instance's.", "AH-C-055", Instance),
	checkRequirement("bounds", "A session's events lie between its start and its end.", "AH-C-056", SessionBounds),
	checkRequirement("announced", "No tool call ends that was not announced.", "AH-C-078", TypeOf(agenthook.PostToolUse)),
	notWhileOpen(OpenCalls, checkRequirement("closed", "Every tool call that was announced comes to an end.", "AH-C-079", TypeOf(agenthook.PreToolUse))),
}

// admissionBound: SPEC 4 and 5, five demands. That a call waited is proved by the
// log's order, not by what events say of themselves.
var admissionBound = []Requirement{
	{ID: "phase", Text: "Calls that wait for a verdict say so: pre_commit.", Checks: []string{"AH-C-013", "AH-C-124"}, Hints: true, Needs: []Facet{PreCommit}, BrokenBy: CallsWithoutPreCommit},
	checkRequirement("no-false-phase", "What reports something past does not claim to come before it.", "AH-C-012", PastReports),
	checkRequirement("denied", "What was denied does not run.", "AH-C-075", Refusal),
	checkRequirement("pending", "What waits for an approval does not run before it.", "AH-C-076", WaitingVerdicts),
	checkRequirement("not-evaded", "What was denied or waits does not come back by another name.", "AH-C-077", DenialsAndWaits),
	{ID: "waits", Text: "Nothing runs without a verdict, or before it.", Checks: []string{"executed_without_verdict", "executed_before_verdict", "AH-C-083"}, Needs: []Facet{RecordedVerdicts, ToolExecutions}},
	{ID: "recorded", Text: "Calls that wait carry their verdict.", Checks: []string{"AH-C-032"}, Needs: []Facet{PreCommit}, BrokenBy: CallsWithoutVerdict},
	checkRequirement("true-verdict", "The verdict that an event carries is the one on record.", "AH-C-082", RecordedVerdicts, CallsWithVerdict),
	checkRequirement("fail-mode", "A fail mode that fires is reported as an event.", "AH-C-073", FailMode),
	checkRequirement("fail-mode-documented", "What happens without a verdict is documented and can be chosen.", "AH-C-074"),
	brokenBy(CallsWithoutID, withHints(checkRequirement("call-id", "A call keeps one tool_call_id from its announcement to its end.", "AH-C-087", PreCommit))),
	checkRequirement("own-id", "No two open calls share a tool_call_id.", "AH-C-052", CallID),
	checkRequirement("own-arguments", "What runs is what was admitted.", "AH-C-080", AnnouncedArguments, ExecutedArguments),
	checkRequirement("gate", "Nothing runs around a gate that the session's attestation claims.", "AH-C-084", Attested, ToolExecutions),
}

// actionGovernance: AHP-013.
var actionGovernance = []Requirement{
	checkRequirement("schema", "Governed events follow the profile's schema.", "AH-C-030", Governed),
	brokenBy(UngovernedPre, checkRequirement("before", "A PreToolUse says all that the profile wants before a call.", "AH-C-031", GovernedPre)),
	checkRequirement("verdict", "A governed call that claims pre_commit carries its verdict.", "AH-C-032", GovernedPre, PreCommit),
	brokenBy(UngovernedPost, checkRequirement("after", "A PostToolUse says all that the profile wants after it.", "AH-C-033", GovernedPost)),
	checkRequirement("identity", "Tool identities have the profile's form.", "AH-C-034", ToolIdentities),
	checkRequirement("surface", "Identity and translation name one surface.", "AH-C-035", Translation),
	checkRequirement("schema-hash", "The blocks of an event name one schema for a tool.", "AH-C-036", SchemaHashes),
	checkRequirement("validation", "What failed its validation does not go on.", "AH-C-037", ValidationFailed),
	checkRequirement("redaction", "What is listed as redacted is.", "AH-C-038", Redaction),
	checkRequirement("secret", "Calls that claim to have no secret have none.", "AH-C-039", RiskBlocks),
	checkRequirement("attempt", "A second attempt names the first.", "AH-C-040", Retry),
	checkRequirement("execution", "Executions end after they begin, and their hashes are hashes.", "AH-C-041", ExecutionBlocks),
	checkRequirement("human", "What needs a person's approval is not allowed without one.", "AH-C-042", NeedsHuman),
	{ID: "unknown", Text: "A publisher that must answer \"unknown\" says so in the manifest.", Checks: []string{"AH-C-043"}, Needs: []Facet{GovernedPre}, Pending: UnknownAnswers},
	checkRequirement("steps", "Steps between call and execution claim the right phase.", "AH-C-044", IntermediateSteps),
	checkRequirement("bulk", "Large or sensitive values are referred to, not embedded.", "AH-C-045", Governed),
	checkRequirement("denied", "What was denied does not run.", "AH-C-075", Refusal),
	checkRequirement("pending", "What waits for an approval does not run before it.", "AH-C-076", WaitingVerdicts),
	checkRequirement("not-evaded", "What was denied or waits does not come back by another name.", "AH-C-077", DenialsAndWaits),
	checkRequirement("announced", "No call ends that was not announced.", "AH-C-078", TypeOf(agenthook.PostToolUse)),
	notWhileOpen(OpenCalls, checkRequirement("closed", "Every call that was announced comes to an end.", "AH-C-079", TypeOf(agenthook.PreToolUse))),
	checkRequirement("arguments", "What ran is what was admitted, or the event says why not.", "AH-C-080", AnnouncedArguments, ExecutedArguments),
	checkRequirement("approved", "What ran after an approval says which.", "AH-C-081", RecordedWaits, ToolExecutions),
}

// webEvidence: AHP-012.
var webEvidence = []Requirement{
	typeRequirement("searches", "Searches are reported.", agenthook.WebSearchRequested, TypeOf(agenthook.WebSearchRequested)),
	typeRequirement("results", "Their results are reported.", agenthook.WebSearchResultsReturned, TypeOf(agenthook.WebSearchResultsReturned)),
	typeRequirement("selections", "Selections are reported.", agenthook.WebResultSelected, TypeOf(agenthook.WebResultSelected)),
	typeRequirement("pages", "Pages that are read are reported.", agenthook.WebPageRead, TypeOf(agenthook.WebPageRead)),
	typeRequirement("actions", "Web actions are announced.", agenthook.WebActionRequested, TypeOf(agenthook.WebActionRequested)),
	typeRequirement("completions", "Web actions are reported when they end.", agenthook.WebActionCompleted, TypeOf(agenthook.WebActionCompleted)),
	typeRequirement("uses", "The use of evidence is reported.", agenthook.EvidenceUsedInOutput, TypeOf(agenthook.EvidenceUsedInOutput)),
	withHints(checkRequirement("names", "Web activity goes by the profile's names.", "AH-C-140", WebEvents)),
	checkRequirement("steps", "Every step follows from one before it.", "AH-C-141", WebEvents),
	checkRequirement("requested", "No web action ends that was not requested.", "AH-C-142", TypeOf(agenthook.WebActionCompleted)),
	checkRequirement("recorded", "Evidence that is used was recorded.", "AH-C-143", TypeOf(agenthook.EvidenceUsedInOutput)),
	checkRequirement("content", "One content has one hash.", "AH-C-144", WebHash),
	checkRequirement("gate", "A web action that claims a gate waits for its verdict.", "AH-C-145", WebGate),
}
