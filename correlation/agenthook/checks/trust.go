package checks

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// trustChecks are the checks of attestations, manifests, hooks and contracts, 2.F,
// and of web evidence, 2.G.
var trustChecks = []catalogue.Check{
	specification.Check("120", "6", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event", "A runtime's attestation has not the form that AgentHook gives it.", fixAttest),
	specification.Check("121", "6", catalogue.Should, events.SeverityLow, catalogue.ScopeSession, "events in order", "A session's attestation came after its work had begun.", fixAttest),
	specification.Check("122", "6, AHP-004", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "attestations of the publisher", "An attestation is for another session or time, or was used before.", fixAttest),
	specification.Check("123", "6, AHP-004", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "event; signatures of others are not verified", "An attestation calls itself signed and has no signature.", fixAttest),
	specification.Check("124", "6", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "attestation and events", "A session claims a gate, and has no subscriber that could deny or events that do not wait.", fixAttest),
	specification.Undecidable("125", "6, SECURITY", catalogue.Must, catalogue.ScopeEndpoint, "own product", "Something in a text was taken for an attestation.", "Countersign reads an attestation only from metadata.runtime_attestation; other readers are not on the log."),
	specification.Check("126", "7", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "changes of publishers' documents: manifests that the admitter could not use; countersign publisher put refuses them, and secrets in one are not looked for here, as the log does not hold it", "A publisher's manifest has not the form it must have, or has secrets in it.", fixDeclared),
	specification.Check("127", "7", catalogue.Must, events.SeverityLow, catalogue.ScopeSession, "events, and the manifest in force as the log records it: a type that it declares not exposed or planned, said once a publisher and type; decisions that refused a request of such a type; that a declared event never comes is not looked at", "A publisher's events are not those that its manifest speaks of.", fixDeclared),
	specification.Check("128", "AHP-008", catalogue.Should, events.SeverityLow, catalogue.ScopeEvent, "event", "A hook's trust is described with words that do not exist, or not in full.", fixAttest),
	specification.Check("129", "9, AHP-008", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "hooks of the session, against what their events expect, what they were before in it, and otherwise what the publisher's sessions before it last called trusted; decisions that found another fingerprint than a manifest expects, on requests whose hooks all call themselves trusted; expectations of a registry are not known", "A hook calls itself trusted and is not what it should be.", "Review the hook; it has changed."),
	specification.Check("130", "9, AHP-009", catalogue.Should, events.SeverityLow, catalogue.ScopeSession, "contract and hooks of the session", "A hook that the contract requires is not to be relied on, and the contract does not fail closed.", "Review the hook, or make the contract fail closed."),
	specification.Check("131", "AHP-008, AHP-009", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "hook_trust and runtime_contract; credentials in the forms of their issuers", "A fingerprint, command or contract has a secret in it.", catalogue.FixSecret),
	specification.Check("132", "AHP-009", catalogue.Should, events.SeverityLow, catalogue.ScopeSession, "events in order; at the session's end, required hooks of SPEC 2 of which there was no event and no word of trust, where the session lists its hooks or told of what the hook must come before; what a lock file or registry expects is not known, nor which runtime claims high assurance, without which no contract has to be signed", "A runtime's contract was loaded after its first call, or requires a hook that was never there.", fixAttest),
	specification.Check("133", "AHP-009", catalogue.Derived, events.SeverityLow, catalogue.ScopeEvent, "event", "The hash of a contract or hook is none.", fixAttest),
	specification.Check("134", "1, AHP-006", catalogue.Should, events.SeverityHigh, catalogue.ScopeSession, "copies of requests whose managed_runtime is revoked, denied, expired or not compliant, and the decisions on them; which strength a runtime must have is declared nowhere", "A runtime was let in that does not meet what policy wants of it.", fixAdmitter),
	specification.Undecidable("135", "1", catalogue.Should, catalogue.ScopeEndpoint, "own pipeline", "What was verified is written where the publisher's claims stand.", "A claim and a verified value look the same. Annotations that only a bus may write are AH-C-014."),
	specification.Undecidable("136", "AHP-005, AHP-010", catalogue.Must, catalogue.ScopeEvent, "task, agent", "An agent's own summary is passed off as its user's.", "task_source is what its writer says. Policies do not see summaries or goals (publisher_claims_ignored)."),
	specification.Undecidable("137", "1, AHP-006", catalogue.Must, catalogue.ScopeDeployment, "product text", "The product claims to find every agent on a network.", "Product texts are not on the log."),

	specification.Check("140", "5, AHP-012", catalogue.Must, events.SeverityInfo, catalogue.ScopeSession, "web events of a session that uses the profile's types: other types that begin with Web; that evidence is made up, or a step left out without a trace, shows in no event", "Web activity goes by other names than the profile's.", fixWeb),
	specification.Check("141", "3", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "web events; what comes later and was there in time by its own clock takes the finding back", "A step of a web search follows from nothing before it.", fixWeb),
	specification.Check("142", "2", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "web events; what comes later and was there in time by its own clock takes the finding back", "A web action completed that the runtime had not requested.", fixWeb),
	specification.Check("143", "3", catalogue.Should, events.SeverityLow, catalogue.ScopeSession, "web events, and the ModelResponse or PostLLMCall that they name as parent_event_id or correlation_id; what comes later and was there in time by its own clock takes the finding back, and so does the output whenever it comes", "Evidence was used that no event recorded, or in an output that is not known.", fixWeb),
	specification.Check("144", "3", catalogue.Derived, events.SeverityLow, catalogue.ScopeSession, "web events", "A hash of web content is none, or the same content has two.", fixWeb),
	specification.Check("145", "5, AHP-012", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "web events", "A web action that claims a gate went on without an allow.", fixGate),
}

// deploymentChecks are the checks of deployments: 2.H. The log decides next to none.
var deploymentChecks = []catalogue.Check{
	specification.Undecidable("160", "A", catalogue.Must, catalogue.ScopeDeployment, "transport", "Events cross a boundary of trust unprotected.", "How a connection was protected is a property of the connection; the broker's configuration says what it demands."),
	specification.Undecidable("161", "1", catalogue.Should, catalogue.ScopeDeployment, "product", "Pseudonymous ids are kept without a policy for them.", "The streams' limits, the tables' retention and the database's users decide it."),
	specification.Undecidable("162", "AHP-013", catalogue.Should, catalogue.ScopeDeployment, "product", "The trace is lost between event and export.", "An export is not on the log; the records have the trace (docs/opentelemetry.md)."),
	specification.Undecidable("163", "3, AHP-012", catalogue.Should, catalogue.ScopeDeployment, "product", "Content is kept without bounds, or not apart from the evidence.", "How evidence is stored is how the system is built: tables with retention of their own, apart from the log."),
	specification.Undecidable("164", "4", catalogue.Derived, catalogue.ScopeDeployment, "product", "Only a time window keeps events from counting twice.", "How duplicates are told apart is in the code: by content and sequence, with tests that replay and reorder."),
	specification.Check("165", "4, 6", catalogue.Derived, events.SeverityInfo, catalogue.ScopeSession, "fail modes that fire, and the registration in force, where neither that nor the session's attestation or contract says what the publisher's fail mode is; timeouts and strategies are not looked at", "Auditors cannot see how a publisher behaves without a verdict.", fixDeclared),
}
