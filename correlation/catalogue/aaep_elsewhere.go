package catalogue

// aaepElsewhere are the checks of subscriptions, transport and privacy: 2.H and
// 2.I. The log decides none of them.
var aaepElsewhere = []Check{
	aaepNot("150", "9.5.1", Must, ScopeEndpoint, "own endpoint", "A subscription request got no answer.", ownEndpoint),
	aaepNot("151", "5.4.4", Must, ScopeEndpoint, "own endpoint", "More was granted to a subscriber than it had asked for.", ownEndpoint),
	aaepNot("152", "5.5.3", Must, ScopeEndpoint, "own endpoint", "A subscription was refused with a reason that does not exist.", ownEndpoint),
	aaepNot("153", "12.5.2", Must, ScopeEndpoint, "own endpoint", "A version that nobody speaks was accepted, or refused for another reason.", ownEndpoint),
	aaepNot("154", "5.3.1.12", Must, ScopeEndpoint, "own endpoint", "A subscriber that wants signed manifests was accepted without one.", ownEndpoint),
	aaepNot("155", "7.3.1", Must, ScopeEndpoint, "own endpoint", "Two extensions with one prefix were accepted.", ownEndpoint),
	aaepNot("156", "5.3.2, 3.2.2, 3.4.3, 4.2.1, 12.2.1", Must, ScopeEndpoint, "own endpoint", "Something unknown made an endpoint refuse or fail.", ownEndpoint),
	aaepNot("157", "5.3.1.1, 5.6.1", Must, ScopeEndpoint, "own endpoint", "A subscriber got events faster than it had agreed to.", ownEndpoint),
	aaepNot("158", "5.3.1.7", Must, ScopeEndpoint, "own endpoint", "A subscriber got events that it had filtered out.", ownEndpoint),
	aaepNot("159", "5.5.4, 5.6", Must, ScopeEndpoint, "own endpoint", "A critical event was held back, merged or lost on its way.", ownEndpoint),
	aaepNot("160", "5.7", Must, ScopeEndpoint, "own endpoint", "New terms of a subscription were not answered or not kept.", ownEndpoint),
	aaepNot("161", "5.8", Must, ScopeEndpoint, "own endpoint", "Events went on after a subscription was closed.", ownEndpoint),
	aaepNot("162", "5.9", Must, ScopeEndpoint, "own endpoint", "One slow subscriber slowed down another.", ownEndpoint),
	aaepNot("163", "9.5.2", Must, ScopeEndpoint, "subscriber", "A subscriber did not notice events out of order or twice.", ownEndpoint),
	aaepNot("164", "5.3.1.4, 5.5.4", Must, ScopeEndpoint, "own endpoint", "A question went to somebody who cannot answer it.", subscriptions),
	aaepNot("165", "5.10, 9.5.1, 10.4.2", Must, ScopeDeployment, "manifest", "The producer's manifest is missing or does not verify.", manifests),
	aaepNot("166", "8.7, B.1.5", Should, ScopeEndpoint, "own endpoint", "A subscriber that came back was not brought up to date.", ownEndpoint),

	aaepNot("180", "8.2.1", Must, ScopeDeployment, "transport", "What was received is not what was sent, byte for byte.", deployment),
	aaepNot("181", "8.2.2", Must, ScopeDeployment, "transport", "A transport message held more or less than one AAEP message.", deployment),
	aaepNot("182", "8.2.3", Must, ScopeDeployment, "transport", "A session's messages overtook each other on their way.", deployment),
	aaepNot("183", "8.2.4", Must, ScopeDeployment, "transport", "Messages were lost on their way.", deployment),
	aaepNot("184", "8.2.5", Must, ScopeDeployment, "transport", "The producer was not told that a subscriber had gone.", deployment),
	aaepNot("185", "8.2.6", Must, ScopeDeployment, "transport", "There is no way to reply.", deployment),
	aaepNot("186", "8.2.7, 10.1.2, 10.3.2", Must, ScopeDeployment, "transport", "Somebody may publish or subscribe without having said who it is.", deployment),
	aaepNot("187", "8.2.8", Must, ScopeDeployment, "transport", "A network hop is not encrypted.", deployment),
	aaepNot("188", "8.3", Must, ScopeDeployment, "transport", "The transport does not take messages as large as it must.", deployment),
	aaepNot("189", "6.2.4", Must, ScopeDeployment, "product", "An id or token is used as if it were a credential, or shown where it is not needed.", deployment),
	aaepNot("190", "10.5.2", Should, ScopeDeployment, "product", "Records are kept without limits on time or access.", deployment),
	aaepNot("191", "10.5.3", Must, ScopeDeployment, "product", "Somebody sees more than their role needs.", deployment),
	aaepNot("192", "10.2", Should, ScopeDeployment, "product", "A publisher that sends too much is neither slowed nor noticed.", deployment),
}
