package catalogue

// hookTrust are the checks of attestations, manifests, hooks and contracts, 2.F,
// and of web evidence, 2.G.
var hookTrust = []Check{
	hook("120", "6", Must, medium, ScopeEvent, "event", "A runtime's attestation has not the form that AgentHook gives it.", fixAttest),
	hook("121", "6", Should, low, ScopeSession, "events in order", "A session's attestation came after its work had begun.", fixAttest),
	hook("122", "6, AHP-004", Derived, low, ScopeSession, "attestations of the publisher", "An attestation is for another session or time, or was used before.", fixAttest),
	hook("123", "6, AHP-004", Must, medium, ScopeEvent, "event; signatures of others are not verified", "An attestation calls itself signed and has no signature.", fixAttest),
	hook("124", "6", Must, medium, ScopeSession, "attestation and events", "A session claims a gate, and has no subscriber that could deny or events that do not wait.", fixAttest),
	hookNot("125", "6, SECURITY", Must, ScopeEndpoint, "own product", "Something in a text was taken for an attestation.", ownEndpoint),
	hookNot("126", "7", Must, ScopeDeployment, "manifest", "A publisher's manifest has not the form it must have, or has secrets in it.", manifests),
	hookNot("127", "7", Must, ScopeSession, "manifest and events", "A publisher's events are not those that its manifest speaks of.", manifests),
	hook("128", "AHP-008", Should, low, ScopeEvent, "event", "A hook's trust is described with words that do not exist, or not in full.", fixAttest),
	hook("129", "9, AHP-008", Must, medium, ScopeSession, "hooks of the session; expectations of a registry are not known", "A hook calls itself trusted and is not what it should be.", "Review the hook; it has changed."),
	hookNot("130", "9", Should, ScopeDeployment, "configuration", "A hook that was needed was not to be trusted, and calls went on.", "Which hooks a deployment requires is configuration that is not on the log."),
	hookNot("131", "AHP-008, AHP-009", Must, ScopeEvent, "event", "A fingerprint or command has a secret in it.", scanner),
	hook("132", "AHP-009", Should, low, ScopeSession, "events in order; what a registry expects is not known", "A runtime's contract was loaded after its first call.", fixAttest),
	hook("133", "AHP-009", Derived, low, ScopeEvent, "event", "The hash of a contract or hook is none.", fixAttest),
	hookNot("134", "1, AHP-006", Should, ScopeEndpoint, "own policies", "A runtime was let in that does not meet what policy wants of it.", ownEndpoint),
	hookNot("135", "1", Should, ScopeEndpoint, "own pipeline", "What was verified is written where the publisher's claims stand.", ownEndpoint),
	hookNot("136", "AHP-005, AHP-010", Must, ScopeEvent, "task, agent", "An agent's own summary is passed off as its user's.", outside),
	hookNot("137", "1, AHP-006", Must, ScopeDeployment, "product text", "The product claims to find every agent on a network.", deployment),

	hookNot("140", "5, AHP-012", Must, ScopeSession, "events, manifest", "Web activity goes by other names than the profile's.", manifests),
	hook("141", "3", Derived, low, ScopeSession, "web events", "A step of a web search follows from nothing before it.", fixWeb),
	hook("142", "2", Derived, low, ScopeSession, "web events", "A web action completed that nobody had requested.", fixWeb),
	hook("143", "3", Should, low, ScopeSession, "web events; that an output follows is not looked at", "Evidence was used that nobody recorded.", fixWeb),
	hook("144", "3", Derived, low, ScopeSession, "web events", "A hash of web content is none, or the same content has two.", fixWeb),
	hook("145", "5, AHP-012", Must, medium, ScopeSession, "web events", "A web action that claims a gate went on without an allow.", fixGate),
}

// hookElsewhere are the checks of deployments: 2.H. The log decides none.
var hookElsewhere = []Check{
	hookNot("160", "A", Must, ScopeDeployment, "transport", "Events cross a boundary of trust unprotected.", deployment),
	hookNot("161", "1", Should, ScopeDeployment, "product", "Pseudonymous ids are kept without a policy for them.", deployment),
	hookNot("162", "AHP-013", Should, ScopeDeployment, "product", "The trace is lost between event and export.", deployment),
	hookNot("163", "3, AHP-012", Should, ScopeDeployment, "product", "Content is kept without bounds, or not apart from the evidence.", deployment),
	hookNot("164", "4", Derived, ScopeDeployment, "product", "Only a time window keeps events from counting twice.", deployment),
	hookNot("165", "4, 6", Derived, ScopeDeployment, "product", "Auditors cannot see how a publisher behaves without a verdict.", deployment),
}
