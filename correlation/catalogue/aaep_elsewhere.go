package catalogue

// aaepElsewhere are the checks of subscriptions, transport and privacy: 2.H and
// 2.I. The log decides none of them.
var aaepElsewhere = []Check{
	aaepNot("150", "9.5.1", Must, ScopeEndpoint, "own endpoint", "A subscription request got no answer.", "The handshake runs between a producer and its subscriber and is not published; Countersign itself offers no AAEP subscriptions."),
	aaepNot("151", "5.4.4", Must, ScopeEndpoint, "own endpoint", "More was granted to a subscriber than it had asked for.", "What was asked for and what was granted is said in the handshake, which is not published."),
	aaepNot("152", "5.5.3", Must, ScopeEndpoint, "own endpoint", "A subscription was refused with a reason that does not exist.", "Refusals are part of the handshake, which is not published."),
	aaepNot("153", "12.5.2", Must, ScopeEndpoint, "own endpoint", "A version that nobody speaks was accepted, or refused for another reason.", "Versions are agreed on in the handshake, which is not published; the version of each event is checked (AAEP-C-016)."),
	aaepNot("154", "5.3.1.12", Must, ScopeEndpoint, "own endpoint", "A subscriber that wants signed manifests was accepted without one.", "Whether a subscriber wants signed manifests is said in the handshake, which is not published."),
	aaepNot("155", "7.3.1", Must, ScopeEndpoint, "own endpoint", "Two extensions with one prefix were accepted.", "The extensions of a subscription are named in the handshake, which is not published."),
	aaepNot("156", "5.3.2, 3.2.2, 3.4.3, 4.2.1, 12.2.1", Must, ScopeEndpoint, "own endpoint", "Something unknown made an endpoint refuse or fail.", "That an endpoint refused something leaves no event behind; that Countersign takes unknown types, states and namespaces is tested in its own code."),
	aaepNot("157", "5.3.1.1, 5.6.1", Must, ScopeEndpoint, "own endpoint", "A subscriber got events faster than it had agreed to.", "How fast a subscriber got its events is known where it is served; the log knows only how fast they were published."),
	aaepNot("158", "5.3.1.7", Must, ScopeEndpoint, "own endpoint", "A subscriber got events that it had filtered out.", "What a subscriber filtered out, and what it got, is known where it is served."),
	aaepNot("159", "5.5.4, 5.6", Must, ScopeEndpoint, "own endpoint", "A critical event was held back, merged or lost on its way.", "What happened to an event on its way to a subscriber is not on the log, which holds every event that reached it."),
	aaepNot("160", "5.7", Must, ScopeEndpoint, "own endpoint", "New terms of a subscription were not answered or not kept.", "New terms are agreed on between a producer and its subscriber, and not published."),
	aaepNot("161", "5.8", Must, ScopeEndpoint, "own endpoint", "Events went on after a subscription was closed.", "That a subscription was closed is not published, so nothing can be said to come after it."),
	aaepNot("162", "5.9", Must, ScopeEndpoint, "own endpoint", "One slow subscriber slowed down another.", "How long deliveries took is known where they are made; the metrics of the broker have it, the log does not."),
	aaepNot("163", "9.5.2", Must, ScopeEndpoint, "subscriber", "A subscriber did not notice events out of order or twice.", "What a subscriber noticed is known to it alone; that numbers and ids are in order for it to notice is checked (AAEP-C-050, C-065)."),
	aaepNot("164", "5.3.1.4, 5.5.4", Must, ScopeEndpoint, "own endpoint", "A question went to somebody who cannot answer it.", "What a subscriber can answer is said in the handshake, which is not published."),
	aaepNot("165", "5.10, 9.5.1, 10.4.2", Must, ScopeDeployment, "manifest", "The producer's manifest is missing or does not verify.", "A manifest is fetched from its producer's address; looking there takes the network, which no check of the log uses."),
	aaepNot("166", "8.7, B.1.5", Should, ScopeEndpoint, "own endpoint", "A subscriber that came back was not brought up to date.", "That a subscriber went away and came back is not published."),

	aaepNot("180", "8.2.1", Must, ScopeDeployment, "transport", "What was received is not what was sent, byte for byte.", "The log holds what arrived, and nothing beside it says what was sent. Evidence keeps a digest of the bytes that arrived (countersign verify)."),
	aaep("181", "8.2.2", Must, medium, ScopeEvent, "bytes", "A message of the transport held more or less than one AAEP message.", "Publish every event in a message of its own."),
	aaepNot("182", "8.2.3", Must, ScopeDeployment, "transport", "A session's messages overtook each other on their way.", "The log's order is the one in which events arrived; that it is not the one in which they were sent shows only in sequence numbers, which AAEP-C-065 checks."),
	aaepNot("183", "8.2.4", Must, ScopeDeployment, "transport", "Messages were lost on their way.", "What was lost is not there to be seen. Gaps in sequence numbers are a finding (AAEP-C-065), and verify shows that nothing was lost after it arrived."),
	aaepNot("184", "8.2.5", Must, ScopeDeployment, "transport", "The producer was not told that a subscriber had gone.", "The broker tells no producer about its subscribers, and no event would say that it should have."),
	aaepNot("185", "8.2.6", Must, ScopeDeployment, "transport", "There is no way to reply.", "Whether replies can be published is a matter of permissions; countersign doctor tries them."),
	aaepNot("186", "8.2.7, 10.1.2, 10.3.2", Must, ScopeDeployment, "transport", "Somebody may publish or subscribe without having said who it is.", "Who may connect is in the broker's configuration; countersign doctor checks accounts and permissions."),
	aaepNot("187", "8.2.8", Must, ScopeDeployment, "transport", "A network hop is not encrypted.", "Encryption is a property of connections, not of messages; the broker's configuration says what it demands."),
	aaepNot("188", "8.3", Must, ScopeDeployment, "transport", "The transport does not take messages as large as it must.", "The largest message that is taken is in the broker's configuration; a message that was refused is not on the log."),
	aaep("189", "6.2.4", Must, low, ScopeEvent, "texts of the event", "A reply token stands in a text that people read.", "Keep reply tokens in reply_token; whoever has one may try to answer."),
	aaepNot("190", "10.5.2", Should, ScopeDeployment, "product", "Records are kept without limits on time or access.", "How long records are kept, and who may read them, is configuration: the streams' limits, the tables' retention and the database's users."),
	aaepNot("191", "10.5.3", Must, ScopeDeployment, "product", "Somebody sees more than their role needs.", "What somebody was shown is known where it was shown; the log holds what was published, for those whom its permissions let read."),
	aaepNot("192", "10.2", Should, ScopeDeployment, "product", "A publisher that sends too much is neither slowed nor noticed.", "Rates that are allowed are in no event; that somebody publishes too much is for the metrics to show."),
}
