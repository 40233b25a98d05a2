// Package aioc has the row of the protocols tool and handoff of aioc at the stage of evidence.
package aioc

import "github.com/countersign-dev/countersign/evidence/internal/protocol/storable"

// Row is the row of aioc's proposals, policy decisions and governance events.
var Row = &storable.Row{
	Keep: storable.Members(map[storable.KeepRule]string{
		storable.KeepIdentifier: "schemaVersion id type kind timestamp occurredAt severity status runId turn callId agentName toolName fromAgentName toAgentName providerName model " +
			"decision resultMode policyVersion expiresAt resource.kind resource.name resource.action code " +
			"subject.kind subject.name subject.turn subject.callId policy.decision policy.resultMode policy.policyVersion policy.expiresAt",
	}),
	// The hashes are plain: of short arguments they say as much as the arguments.
	NeverStore: storable.NeverStored(storable.NeverStore,
		"proposalHash argsHash payloadHash contextSnapshot question response items promptText prompt rawArguments argsCanonicalJson canonicalPayloadJson payloadCanonicalJson errorMessage messages",
		"runContext parsedArguments arguments handoffPayload payload"),
}
