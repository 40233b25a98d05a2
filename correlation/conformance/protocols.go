package conformance

import "github.com/countersign-dev/countersign/events/subject"

// protocolRow is what conformance takes of a protocol.
type protocolRow struct {
	profiles []Profile
	// addEvent takes an event of a publisher, and tells whether it can be read.
	addEvent func(t *Tally, source string, raw []byte) bool
	// readRequest reads the admitter's copy of a request; nil if nothing is judged of it.
	readRequest func(raw []byte) (session string, f facetList, ok bool)
	// isLate tells, in a recording, the messages that name no publisher and are taken when
	// all publishers are known; nil if the protocol has none.
	isLate func(line []byte) bool
	// index notes a recorded event that answers may be about; nil if they name their session.
	index func(x recordingIndex, line []byte, publisher string)
	// readReply reads a recorded reply that is no decision; nil if the protocol has none.
	readReply func(line []byte) (event string, f facetList, ok bool)
	// lateProducer reads the producer that a late message names; nil if none does.
	lateProducer func(line []byte) (producer string, named bool)
	// completeView adds to all that was seen of a subject what only the whole shows; nil if nothing.
	completeView func(counts map[Facet]uint64)
	// borrowed are the facets that the traffic of the same session in another protocol shows.
	borrowed []borrowedFacet
}

// borrowedFacet is a facet of another protocol, and as which it counts.
type borrowedFacet struct {
	protocol  string
	facet, as Facet
}

// protocolOrder is the order in which reports list the protocols.
var protocolOrder = []string{subject.ProtoAgentHook, subject.ProtoAAEP}

var protocols = map[string]protocolRow{
	subject.ProtoAgentHook: {
		profiles:     agentHookProfiles,
		addEvent:     addHookEvent,
		readRequest:  readHookRequest,
		index:        indexHookEvent,
		readReply:    readHookReply,
		completeView: completeHookView,
	},
	subject.ProtoAAEP: {
		profiles:     aaepLevels,
		addEvent:     addAAEPEvent,
		isLate:       isHandshake,
		lateProducer: acceptingProducer,
		borrowed:     []borrowedFacet{{subject.ProtoAgentHook, TimedExecutions, AgentHookExecutions}},
	},
}
