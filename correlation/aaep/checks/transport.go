package checks

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// transportChecks are the checks of subscriptions, transport and privacy: 2.H and
// 2.I. Of the handshake the log decides what was published of it, of transport and
// privacy next to nothing.
var transportChecks = []catalogue.Check{
	specification.Check("150", "9.5.1", catalogue.Must, events.SeverityLow, catalogue.ScopeSession, "requests and answers, where a publisher publishes both; after 24 hours, as AAEP sets no time", "A subscription request got no answer.", fixHandshake),
	specification.Check("151", "5.4.4", catalogue.Must, events.SeverityMedium, catalogue.ScopeSession, "request and answer, where no other request was open between the two; what one of them leaves out is not compared", "More was granted to a subscriber than it had asked for.", fixHandshake),
	specification.Check("152", "5.5.3", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "message", "A subscription was refused with a reason that does not exist.", fixHandshake),
	specification.Check("153", "12.5.2", catalogue.Must, events.SeverityLow, catalogue.ScopeSession, "request and answer; versions of AAEP that do not exist; which of the others a producer speaks is not on the log", "A version that does not exist was accepted, or refused for another reason.", fixHandshake),
	specification.Check("154", "5.3.1.12", catalogue.Must, events.SeverityLow, catalogue.ScopeSession, "request and answer; an answer that says where the manifest is may mean a signed one", "A subscriber that wants signed manifests was accepted without one.", fixHandshake),
	specification.Undecidable("155", "7.3.1", catalogue.Must, catalogue.ScopeEndpoint, "handshake, context documents", "Two extensions with one prefix were accepted.", "The prefix of an extension is in its context document, which no check fetches. One key twice is AAEP-C-022."),
	specification.Undecidable("156", "5.3.2, 3.2.2, 3.4.3, 4.2.1, 12.2.1", catalogue.Must, catalogue.ScopeEndpoint, "own endpoint", "Something unknown made an endpoint refuse or fail.", "A refusal gives one code for everything incompatible, and a silent failure leaves no event."),
	specification.Undecidable("157", "5.3.1.1, 5.6.1", catalogue.Must, catalogue.ScopeEndpoint, "own endpoint", "A subscriber got events faster than it had agreed to.", "No event says to which subscriber it went, or how fast."),
	specification.Undecidable("158", "5.3.1.7", catalogue.Must, catalogue.ScopeEndpoint, "own endpoint", "A subscriber got events that it had filtered out.", "No message says to which subscriptions an event was delivered. Filters looser than those asked for are AAEP-C-151."),
	specification.Undecidable("159", "5.5.4, 5.6", catalogue.Must, catalogue.ScopeEndpoint, "own endpoint", "A critical event was held back, merged or lost on its way.", "The way of an event to a subscriber is in no message. The log holds every event that reached it."),
	specification.Check("160", "5.7", catalogue.Must, events.SeverityLow, catalogue.ScopeSession, "requests for other terms and answers, where a publisher publishes both; after 24 hours; that events keep to new terms is not looked at", "New terms of a subscription were not answered or not kept.", fixHandshake),
	specification.Undecidable("161", "5.8", catalogue.Must, catalogue.ScopeEndpoint, "own endpoint", "Events went on after a subscription was closed.", "No event says on which subscriptions it goes out. A reply on a closed one is AAEP-C-112."),
	specification.Undecidable("162", "5.9", catalogue.Must, catalogue.ScopeEndpoint, "own endpoint", "One slow subscriber slowed down another.", "When an event reached each of its subscribers is in no message; the log has when it was published."),
	specification.Undecidable("163", "9.5.2", catalogue.Must, catalogue.ScopeEndpoint, "subscriber", "A subscriber did not notice events out of order or twice.", "Only the subscriber knows what it noticed. Numbers and ids are checked (AAEP-C-050, C-065)."),
	specification.Undecidable("164", "5.3.1.4, 5.5.4", catalogue.Must, catalogue.ScopeEndpoint, "own endpoint", "A question went to a subscription that cannot answer it.", "No event says where a question went, and AAEP also sends critical events to all subscriptions. A reply on a subscription without replies is AAEP-C-112."),
	specification.Check("165", "5.10, 9.5.1, 10.4.2", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "signed manifests that answers to requests carry: their form, agent and version; addresses are not fetched, and signatures not verified, as no key of a producer is on the log", "The producer's manifest is missing or does not verify.", fixHandshake),
	specification.Undecidable("166", "8.7, B.1.5", catalogue.Should, catalogue.ScopeEndpoint, "own endpoint", "A subscriber that came back was not brought up to date.", "No request says which event its subscriber saw last."),

	specification.Undecidable("180", "8.2.1", catalogue.Must, catalogue.ScopeDeployment, "transport", "What was received is not what was sent, byte for byte.", "The log holds what arrived, not what was sent. verify checks requests against the digest in their decision (request_digest_mismatch)."),
	specification.Check("181", "8.2.2", catalogue.Must, events.SeverityMedium, catalogue.ScopeEvent, "bytes", "A message of the transport held more or less than one AAEP message.", "Publish every event in a message of its own."),
	specification.Undecidable("182", "8.2.3", catalogue.Must, catalogue.ScopeDeployment, "transport", "A session's messages overtook each other on their way.", "The log has the order of arrival. Sequence numbers (AAEP-C-065) cannot tell the transport from the producer."),
	specification.Undecidable("183", "8.2.4", catalogue.Must, catalogue.ScopeDeployment, "transport", "Messages were lost on their way.", "What was lost is not on the log. Gaps in sequence numbers are AAEP-C-065; verify shows that nothing was lost after it arrived."),
	specification.Undecidable("184", "8.2.5", catalogue.Must, catalogue.ScopeDeployment, "transport", "The producer was not told that a subscriber had gone.", "The broker tells no producer about its subscribers, and no event would say that it should have."),
	specification.Undecidable("185", "8.2.6", catalogue.Must, catalogue.ScopeDeployment, "transport", "There is no way to reply.", "The broker's permissions decide it: a runtime may reply where it publishes events."),
	specification.Undecidable("186", "8.2.7, 10.1.2, 10.3.2", catalogue.Must, catalogue.ScopeDeployment, "transport", "A client may publish or subscribe without authenticating.", "The broker's configuration decides it: in deploy/nats each user has an account and a role, and countersign doctor tries to get beyond it."),
	specification.Undecidable("187", "8.2.8", catalogue.Must, catalogue.ScopeDeployment, "transport", "A network hop is not encrypted.", "Encryption is a property of connections, not of messages; the broker's configuration says what it demands."),
	specification.Undecidable("188", "8.3", catalogue.Must, catalogue.ScopeDeployment, "transport", "The transport does not take messages as large as it must.", "The broker's configuration decides it (max_payload); a refused message is not on the log."),
	specification.Check("189", "6.2.4", catalogue.Must, events.SeverityLow, catalogue.ScopeEvent, "texts of the event", "A reply token stands in a text that people read.", "Keep reply tokens in reply_token; a reader that has one may try to answer."),
	specification.Undecidable("190", "10.5.2", catalogue.Should, catalogue.ScopeDeployment, "product", "Records are kept without limits on time or access.", "The streams' limits, the tables' retention and the database's users decide it."),
	specification.Undecidable("191", "10.5.3", catalogue.Must, catalogue.ScopeDeployment, "product", "A user sees more than the role needs.", "The log holds what was published, not what was shown."),
	specification.Undecidable("192", "10.2", catalogue.Should, catalogue.ScopeDeployment, "product", "A publisher that sends too much is neither slowed nor noticed.", "No message says which rate a publisher may have. Policies limit requests, and decisions record what was counted."),
}
