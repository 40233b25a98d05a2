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

// hookProfiles: SPEC 5, CONFORMANCE and AHP-012, AHP-013. A tier wants 80 percent
// of its set, of which what a runtime does not expose is excused; a profile wants
// all of it.
var hookProfiles = []Profile{
	{Name: Bronze, Protocol: subject.ProtoAgentHook, Title: checkedHook + "Bronze tier", Percent: 80, Requirements: bronze},
	{Name: Silver, Protocol: subject.ProtoAgentHook, Title: checkedHook + "Silver tier", Percent: 80, Includes: Bronze, Requirements: []Requirement{
		until(LLMOpen, must("llm-pairs", "Every PreLLMCall is answered by exactly one PostLLMCall.", "AH-C-057", LLMPre)),
		tight(must("llm-figures", "PostLLMCall gives model, provider, tokens and response.", "AH-C-058", LLMPost)),
	}},
	{Name: Gold, Protocol: subject.ProtoAgentHook, Title: checkedHook + "Gold tier", Percent: 80, Includes: Silver, Requirements: []Requirement{
		must("reasoning", "Reasoning is no longer than the length given for it.", "AH-C-059", Reasoning),
		tight(must("correlation", "What starts another session or attempt carries a correlation id.", "AH-C-060", Leads)),
	}},
	{Name: AdmissionBound, Protocol: subject.ProtoAgentHook, Title: checkedHook + "admission-bound profile", Percent: 100, Signs: []Facet{PreCommit, Stamped, Attested, FailMode}, Requirements: admissionBound},
	{Name: ActionGovernance, Protocol: subject.ProtoAgentHook, Title: checkedHook + "action-governance profile (AHP-013)", Percent: 100, Signs: []Facet{Governed, Steps}, Requirements: actionGovernance},
	{Name: WebEvidence, Protocol: subject.ProtoAgentHook, Title: checkedHook + "web-evidence profile (AHP-012)", Percent: 100, Signs: []Facet{Web}, Requirements: webEvidence},
}

// bronze is the Bronze set: an envelope that is valid, which no score outweighs,
// the ten lifecycle types of SPEC 2, and their order.
var bronze = []Requirement{
	hard("json", "Every event is one JSON object that all readers read alike.", Event, "AH-C-001"),
	hard("envelope", "Every event has the envelope's fields and no others.", Event, "AH-C-002", "AH-C-003", "AH-C-007", "AH-C-008", "AH-C-010", "AH-C-011"),
	hard("uuid", "Every event id is a UUID.", Event, "AH-C-004"),
	hard("timestamp", "Every time stamp is one.", Event, "AH-C-006"),
	hard("type-name", "Every event type is in PascalCase.", Event, "AH-C-005"),
	must("tool-name", "Tool events name their tool.", "AH-C-009", Tool),
	must("phase", "What reports something past does not claim to come before it.", "AH-C-012", Afterwards),

	shows("session-start", "Sessions announce their start.", agenthook.SessionStart, TypeOf(agenthook.SessionStart)),
	shows("session-end", "Sessions announce their end.", agenthook.SessionEnd, TypeOf(agenthook.SessionEnd)),
	shows("prompt", "Prompts are reported.", agenthook.UserPromptSubmit, TypeOf(agenthook.UserPromptSubmit)),
	shows("pre-llm", "Model calls are announced.", agenthook.PreLLMCall, TypeOf(agenthook.PreLLMCall)),
	shows("post-llm", "Model calls are reported when they end.", agenthook.PostLLMCall, TypeOf(agenthook.PostLLMCall)),
	shows("response", "Responses are reported.", agenthook.ModelResponse, TypeOf(agenthook.ModelResponse)),
	shows("pre-tool", "Tool calls are announced.", agenthook.PreToolUse, TypeOf(agenthook.PreToolUse)),
	shows("post-tool", "Tool calls are reported when they end.", agenthook.PostToolUse, TypeOf(agenthook.PostToolUse)),
	shows("handoff", "Handoffs are reported.", agenthook.AgentHandoff, TypeOf(agenthook.AgentHandoff)),
	shows("error", "Errors are reported.", agenthook.ErrorOccurred, TypeOf(agenthook.ErrorOccurred)),

	must("same-id", "An event that comes again says the same.", "AH-C-050", Again),
	must("order", "Events of a session keep their order on the way.", "AH-C-053"),
	must("clock", "Time does not run backwards within a session.", "AH-C-054", Sequel),
	must("one-session", "A session is one instance's.", "AH-C-055", Instance),
	must("bounds", "A session's events lie between its start and its end.", "AH-C-056", Bounds),
	must("announced", "No tool call ends that was not announced.", "AH-C-078", TypeOf(agenthook.PostToolUse)),
	until(StillOpen, must("closed", "Every tool call that was announced comes to an end.", "AH-C-079", TypeOf(agenthook.PreToolUse))),
}

// admissionBound: SPEC 4 and 5, five demands. That a call waited is proved by the
// log's order, not by what events say of themselves.
var admissionBound = []Requirement{
	{ID: "phase", Text: "Calls that wait for a verdict say so: pre_commit.", Checks: []string{"AH-C-013", "AH-C-124"}, Hints: true, Needs: []Facet{PreCommit}, Breaks: Unphased},
	must("no-false-phase", "What reports something past does not claim to come before it.", "AH-C-012", Afterwards),
	must("denied", "What was denied does not run.", "AH-C-075", Refusal),
	must("pending", "What waits for an approval does not run before it.", "AH-C-076", Pending),
	must("not-evaded", "What was denied or waits does not come back by another name.", "AH-C-077", Obstacle),
	{ID: "waits", Text: "Nothing runs without a verdict, or before it.", Checks: []string{"executed_without_verdict", "executed_before_verdict", "AH-C-083"}, Needs: []Facet{Verdict, Ran}},
	{ID: "recorded", Text: "Calls that wait carry their verdict.", Checks: []string{"AH-C-032"}, Needs: []Facet{PreCommit}, Breaks: Unstamped},
	must("true-verdict", "The verdict that an event carries is the one on record.", "AH-C-082", Verdict, Stamped),
	must("fail-mode", "A fail mode that fires is reported as an event.", "AH-C-073", FailMode),
	must("fail-mode-documented", "What happens without a verdict is documented and can be chosen.", "AH-C-074"),
	lacking(Nameless, tight(must("call-id", "A call keeps one tool_call_id from its announcement to its end.", "AH-C-087", PreCommit))),
	must("own-id", "No two open calls share a tool_call_id.", "AH-C-052", CallID),
	must("own-arguments", "What runs is what was admitted.", "AH-C-080", Input, Executed),
	must("gate", "Nothing runs around a gate that the session's attestation claims.", "AH-C-084", Attested, Ran),
}

// actionGovernance: AHP-013.
var actionGovernance = []Requirement{
	must("schema", "Governed events follow the profile's schema.", "AH-C-030", Governed),
	lacking(UngovernedPre, must("before", "A PreToolUse says all that the profile wants before a call.", "AH-C-031", GovernedPre)),
	must("verdict", "A governed call that claims pre_commit carries its verdict.", "AH-C-032", GovernedPre, PreCommit),
	lacking(UngovernedPost, must("after", "A PostToolUse says all that the profile wants after it.", "AH-C-033", GovernedPost)),
	must("identity", "Tool identities have the profile's form.", "AH-C-034", Identified),
	must("surface", "Identity and translation name one surface.", "AH-C-035", Translation),
	must("schema-hash", "The blocks of an event name one schema for a tool.", "AH-C-036", Hashes),
	must("validation", "What failed its validation does not go on.", "AH-C-037", ValidationFailed),
	must("redaction", "What is listed as redacted is.", "AH-C-038", Redaction),
	must("secret", "Calls that claim to have no secret have none.", "AH-C-039", Risk),
	must("attempt", "A second attempt names the first.", "AH-C-040", Retry),
	must("execution", "Executions end after they begin, and their hashes are hashes.", "AH-C-041", Execution),
	must("human", "What needs a person's approval is not allowed without one.", "AH-C-042", NeedsHuman),
	{ID: "unknown", Text: "Who must answer \"unknown\" says so in the manifest.", Checks: []string{"AH-C-043"}, Needs: []Facet{GovernedPre}, Open: Unsaid},
	must("steps", "Steps between call and execution claim the right phase.", "AH-C-044", Steps),
	must("bulk", "Large or sensitive values are referred to, not embedded.", "AH-C-045", Governed),
	must("denied", "What was denied does not run.", "AH-C-075", Refusal),
	must("pending", "What waits for an approval does not run before it.", "AH-C-076", Pending),
	must("not-evaded", "What was denied or waits does not come back by another name.", "AH-C-077", Obstacle),
	must("announced", "No call ends that was not announced.", "AH-C-078", TypeOf(agenthook.PostToolUse)),
	until(StillOpen, must("closed", "Every call that was announced comes to an end.", "AH-C-079", TypeOf(agenthook.PreToolUse))),
	must("arguments", "What ran is what was admitted, or the event says why not.", "AH-C-080", Input, Executed),
	must("approved", "What ran after an approval says which.", "AH-C-081", Asked, Ran),
}

// webEvidence: AHP-012.
var webEvidence = []Requirement{
	shows("searches", "Searches are reported.", agenthook.WebSearchRequested, TypeOf(agenthook.WebSearchRequested)),
	shows("results", "Their results are reported.", agenthook.WebSearchResultsReturned, TypeOf(agenthook.WebSearchResultsReturned)),
	shows("selections", "Selections are reported.", agenthook.WebResultSelected, TypeOf(agenthook.WebResultSelected)),
	shows("pages", "Pages that are read are reported.", agenthook.WebPageRead, TypeOf(agenthook.WebPageRead)),
	shows("actions", "Web actions are announced.", agenthook.WebActionRequested, TypeOf(agenthook.WebActionRequested)),
	shows("completions", "Web actions are reported when they end.", agenthook.WebActionCompleted, TypeOf(agenthook.WebActionCompleted)),
	shows("uses", "The use of evidence is reported.", agenthook.EvidenceUsedInOutput, TypeOf(agenthook.EvidenceUsedInOutput)),
	tight(must("names", "Web activity goes by the profile's names.", "AH-C-140", Web)),
	must("steps", "Every step follows from one before it.", "AH-C-141", Web),
	must("requested", "No web action ends that was not requested.", "AH-C-142", TypeOf(agenthook.WebActionCompleted)),
	must("recorded", "Evidence that is used was recorded.", "AH-C-143", TypeOf(agenthook.EvidenceUsedInOutput)),
	must("content", "One content has one hash.", "AH-C-144", WebHash),
	must("gate", "A web action that claims a gate waits for its verdict.", "AH-C-145", WebGate),
}
