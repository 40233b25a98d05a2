// Package conformance holds the conformance tiers and profiles of AgentHook, and what its events
// give them to judge.
package conformance

import (
	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/subject"
)

// Row is the row of AgentHook in the table of conformance.
var Row = profile.Row{
	Profiles:     profiles,
	AddEvent:     addEvent,
	ReadRequest:  readRequest,
	Identify:     identify,
	ReadReply:    readReply,
	CompleteView: completeView,
}

// Names of AgentHook's tiers and profiles.
const (
	Bronze           = "bronze"
	Silver           = "silver"
	Gold             = "gold"
	AdmissionBound   = "admission-bound"
	ActionGovernance = "action-governance"
	WebEvidence      = "web-evidence"
)

const checked = "AgentHook 0.2 (draft), "

// profiles are those of SPEC 5, CONFORMANCE and AHP-012, AHP-013. A tier wants 80 percent
// of its set, of which what a runtime does not expose is excused; a profile wants
// all of it.
var profiles = []profile.Profile{
	{Name: Bronze, Protocol: subject.ProtoAgentHook, Title: checked + "Bronze tier", Percent: 80, Requirements: bronze},
	{Name: Silver, Protocol: subject.ProtoAgentHook, Title: checked + "Silver tier", Percent: 80, Includes: Bronze, Requirements: []profile.Requirement{
		profile.NotWhileOpen(OpenModelCalls, profile.Check("llm-pairs", "Every PreLLMCall is answered by exactly one PostLLMCall.", "AH-C-057", ModelCalls)),
		profile.WithHints(profile.Check("llm-figures", "PostLLMCall gives model, provider, tokens and response.", "AH-C-058", ModelCallReports)),
	}},
	{Name: Gold, Protocol: subject.ProtoAgentHook, Title: checked + "Gold tier", Percent: 80, Includes: Silver, Requirements: []profile.Requirement{
		profile.Check("reasoning", "Reasoning is no longer than the length given for it.", "AH-C-059", Reasoning),
		profile.WithHints(profile.Check("correlation", "What starts another session or attempt carries a correlation id.", "AH-C-060", RetriesAndHandoffs)),
	}},
	{Name: AdmissionBound, Protocol: subject.ProtoAgentHook, Title: checked + "admission-bound profile", Percent: 100, ClaimSigns: []profile.Facet{PreCommit, CallsWithVerdict, Attested, FailMode}, Requirements: admissionBound},
	{Name: ActionGovernance, Protocol: subject.ProtoAgentHook, Title: checked + "action-governance profile (AHP-013)", Percent: 100, ClaimSigns: []profile.Facet{Governed, IntermediateSteps}, Requirements: actionGovernance},
	{Name: WebEvidence, Protocol: subject.ProtoAgentHook, Title: checked + "web-evidence profile (AHP-012)", Percent: 100, ClaimSigns: []profile.Facet{WebEvents}, Requirements: webEvidence},
}

// bronze is the Bronze set: an envelope that is valid, which no score outweighs,
// the ten lifecycle types of SPEC 2, and their order.
var bronze = []profile.Requirement{
	profile.Hard("json", "Every event is one JSON object that all readers read alike.", "AH-C-001"),
	profile.Hard("envelope", "Every event has the envelope's fields and no others.", "AH-C-002", "AH-C-003", "AH-C-007", "AH-C-008", "AH-C-010", "AH-C-011"),
	profile.Hard("uuid", "Every event id is a UUID.", "AH-C-004"),
	profile.Hard("timestamp", "Every time stamp is one.", "AH-C-006"),
	profile.Hard("type-name", "Every event type is in PascalCase.", "AH-C-005"),
	profile.Check("tool-name", "Tool events name their tool.", "AH-C-009", ToolEvents),
	profile.Check("phase", "What reports something past does not claim to come before it.", "AH-C-012", PastReports),

	profile.Type("session-start", "Sessions announce their start.", agenthook.SessionStart, profile.TypeOf(agenthook.SessionStart)),
	profile.Type("session-end", "Sessions announce their end.", agenthook.SessionEnd, profile.TypeOf(agenthook.SessionEnd)),
	profile.Type("prompt", "Prompts are reported.", agenthook.UserPromptSubmit, profile.TypeOf(agenthook.UserPromptSubmit)),
	profile.Type("pre-llm", "Model calls are announced.", agenthook.PreLLMCall, profile.TypeOf(agenthook.PreLLMCall)),
	profile.Type("post-llm", "Model calls are reported when they end.", agenthook.PostLLMCall, profile.TypeOf(agenthook.PostLLMCall)),
	profile.Type("response", "Responses are reported.", agenthook.ModelResponse, profile.TypeOf(agenthook.ModelResponse)),
	profile.Type("pre-tool", "Tool calls are announced.", agenthook.PreToolUse, profile.TypeOf(agenthook.PreToolUse)),
	profile.Type("post-tool", "Tool calls are reported when they end.", agenthook.PostToolUse, profile.TypeOf(agenthook.PostToolUse)),
	profile.Type("handoff", "Handoffs are reported.", agenthook.AgentHandoff, profile.TypeOf(agenthook.AgentHandoff)),
	profile.Type("error", "Errors are reported.", agenthook.ErrorOccurred, profile.TypeOf(agenthook.ErrorOccurred)),

	profile.Check("same-id", "An event that comes again says the same.", "AH-C-050", profile.RepeatedEvents),
	profile.Check("order", "Events of a session keep their order on the way.", "AH-C-053"),
	profile.Check("clock", "Time does not run backwards within a session.", "AH-C-054", profile.FollowingEvents),
	profile.Check("one-session", "A session is one instance's.", "AH-C-055", Instance),
	profile.Check("bounds", "A session's events lie between its start and its end.", "AH-C-056", SessionBounds),
	profile.Check("announced", "No tool call ends that was not announced.", "AH-C-078", profile.TypeOf(agenthook.PostToolUse)),
	profile.NotWhileOpen(profile.OpenCalls, profile.Check("closed", "Every tool call that was announced comes to an end.", "AH-C-079", profile.TypeOf(agenthook.PreToolUse))),
}

// admissionBound: SPEC 4 and 5, five demands. That a call waited is proved by the
// log's order, not by what events say of themselves.
var admissionBound = []profile.Requirement{
	{ID: "phase", Text: "Calls that wait for a verdict say so: pre_commit.", Checks: []string{"AH-C-013", "AH-C-124"}, Hints: true, Needs: []profile.Facet{PreCommit}, BrokenBy: CallsWithoutPreCommit},
	profile.Check("no-false-phase", "What reports something past does not claim to come before it.", "AH-C-012", PastReports),
	profile.Check("denied", "What was denied does not run.", "AH-C-075", profile.Refusal),
	profile.Check("pending", "What waits for an approval does not run before it.", "AH-C-076", profile.WaitingVerdicts),
	profile.Check("not-evaded", "What was denied or waits does not come back by another name.", "AH-C-077", profile.DenialsAndWaits),
	{ID: "waits", Text: "Nothing runs without a verdict, or before it.", Checks: []string{"executed_without_verdict", "executed_before_verdict", "AH-C-083"}, Needs: []profile.Facet{profile.RecordedVerdicts, ToolExecutions}},
	{ID: "recorded", Text: "Calls that wait carry their verdict.", Checks: []string{"AH-C-032"}, Needs: []profile.Facet{PreCommit}, BrokenBy: profile.CallsWithoutVerdict},
	profile.Check("true-verdict", "The verdict that an event carries is the one on record.", "AH-C-082", profile.RecordedVerdicts, CallsWithVerdict),
	profile.Check("fail-mode", "A fail mode that fires is reported as an event.", "AH-C-073", FailMode),
	profile.Check("fail-mode-documented", "What happens without a verdict is documented and can be chosen.", "AH-C-074"),
	profile.BrokenBy(CallsWithoutID, profile.WithHints(profile.Check("call-id", "A call keeps one tool_call_id from its announcement to its end.", "AH-C-087", PreCommit))),
	profile.Check("own-id", "No two open calls share a tool_call_id.", "AH-C-052", profile.CallID),
	profile.Check("own-arguments", "What runs is what was admitted.", "AH-C-080", AnnouncedArguments, ExecutedArguments),
	profile.Check("gate", "Nothing runs around a gate that the session's attestation claims.", "AH-C-084", profile.RecordedVerdicts, Attested, ToolExecutions),
}

// actionGovernance: AHP-013.
var actionGovernance = []profile.Requirement{
	profile.Check("schema", "Governed events follow the profile's schema.", "AH-C-030", Governed),
	profile.BrokenBy(UngovernedPre, profile.Check("before", "A PreToolUse says all that the profile wants before a call.", "AH-C-031", GovernedPre)),
	profile.Check("verdict", "A governed call that claims pre_commit carries its verdict.", "AH-C-032", GovernedPre, PreCommit),
	profile.BrokenBy(UngovernedPost, profile.Check("after", "A PostToolUse says all that the profile wants after it.", "AH-C-033", GovernedPost)),
	profile.Check("identity", "Tool identities have the profile's form.", "AH-C-034", ToolIdentities),
	profile.Check("surface", "Identity and translation name one surface.", "AH-C-035", Translation),
	profile.Check("schema-hash", "The blocks of an event name one schema for a tool.", "AH-C-036", SchemaHashes),
	profile.Check("validation", "What failed its validation does not go on.", "AH-C-037", ValidationFailed),
	profile.Check("redaction", "What is listed as redacted is.", "AH-C-038", Redaction),
	profile.Check("secret", "Calls that claim to have no secret have none.", "AH-C-039", RiskBlocks),
	profile.Check("attempt", "A second attempt names the first.", "AH-C-040", Retry),
	profile.Check("execution", "Executions end after they begin, and their hashes are hashes.", "AH-C-041", ExecutionBlocks),
	profile.Check("human", "What needs a person's approval is not allowed without one.", "AH-C-042", NeedsHuman),
	{ID: "unknown", Text: "A publisher that must answer \"unknown\" says so in the manifest.", Checks: []string{"AH-C-043"}, Needs: []profile.Facet{GovernedPre}, Pending: UnknownAnswers},
	profile.Check("steps", "Steps between call and execution claim the right phase.", "AH-C-044", IntermediateSteps),
	profile.Check("bulk", "Large or sensitive values are referred to, not embedded.", "AH-C-045", Governed),
	profile.Check("denied", "What was denied does not run.", "AH-C-075", profile.Refusal),
	profile.Check("pending", "What waits for an approval does not run before it.", "AH-C-076", profile.WaitingVerdicts),
	profile.Check("not-evaded", "What was denied or waits does not come back by another name.", "AH-C-077", profile.DenialsAndWaits),
	profile.Check("announced", "No call ends that was not announced.", "AH-C-078", profile.TypeOf(agenthook.PostToolUse)),
	profile.NotWhileOpen(profile.OpenCalls, profile.Check("closed", "Every call that was announced comes to an end.", "AH-C-079", profile.TypeOf(agenthook.PreToolUse))),
	profile.Check("arguments", "What ran is what was admitted, or the event says why not.", "AH-C-080", AnnouncedArguments, ExecutedArguments),
	profile.Check("approved", "What ran after an approval says which.", "AH-C-081", profile.RecordedWaits, ToolExecutions),
}

// webEvidence: AHP-012.
var webEvidence = []profile.Requirement{
	profile.Type("searches", "Searches are reported.", agenthook.WebSearchRequested, profile.TypeOf(agenthook.WebSearchRequested)),
	profile.Type("results", "Their results are reported.", agenthook.WebSearchResultsReturned, profile.TypeOf(agenthook.WebSearchResultsReturned)),
	profile.Type("selections", "Selections are reported.", agenthook.WebResultSelected, profile.TypeOf(agenthook.WebResultSelected)),
	profile.Type("pages", "Pages that are read are reported.", agenthook.WebPageRead, profile.TypeOf(agenthook.WebPageRead)),
	profile.Type("actions", "Web actions are announced.", agenthook.WebActionRequested, profile.TypeOf(agenthook.WebActionRequested)),
	profile.Type("completions", "Web actions are reported when they end.", agenthook.WebActionCompleted, profile.TypeOf(agenthook.WebActionCompleted)),
	profile.Type("uses", "The use of evidence is reported.", agenthook.EvidenceUsedInOutput, profile.TypeOf(agenthook.EvidenceUsedInOutput)),
	profile.WithHints(profile.Check("names", "Web activity goes by the profile's names.", "AH-C-140", WebEvents)),
	profile.Check("steps", "Every step follows from one before it.", "AH-C-141", WebEvents),
	profile.Check("requested", "No web action ends that was not requested.", "AH-C-142", profile.TypeOf(agenthook.WebActionCompleted)),
	profile.Check("recorded", "Evidence that is used was recorded.", "AH-C-143", profile.TypeOf(agenthook.EvidenceUsedInOutput)),
	profile.Check("content", "One content has one hash.", "AH-C-144", WebHash),
	profile.Check("gate", "A web action that claims a gate waits for its verdict.", "AH-C-145", WebGate),
}
