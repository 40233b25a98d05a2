package correlation

import (
	"github.com/countersign-dev/countersign/correlation/aaep"
	"github.com/countersign-dev/countersign/correlation/agenthook"
	"github.com/countersign-dev/countersign/correlation/aioc"
	"github.com/countersign-dev/countersign/correlation/aump"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// protocols are the protocols of calls. A row's place is its bit in a protocolSet, and
// names are listed in this order.
var protocols []*protocolRow

// The rows refer to functions that read the table, which an initialiser must not.
func init() {
	setProtocols(aaepProtocol, aanaProtocol, agentHookProtocol, aumpProtocol, handoffProtocol, toolProtocol)
}

// aanaProtocol has no events: its calls are requests and decisions.
var aanaProtocol = &protocolRow{Protocol: fact.Protocol{Token: subject.ProtoAANA}, wordCode: 5, missingCheck: missingOfRequests}

// missingOfRequests is the check behind missing_completion of a protocol that has no
// check of its own.
const missingOfRequests = "AH-C-079"

// protocolRow is all that the engine knows of a protocol. The zero value of a field means
// "no": a row with a token alone is a protocol in which decisions are made and no event
// is published.
type protocolRow struct {
	fact.Protocol
	wordCode byte // how a compacted call writes the token, 1 to 6; 0: in full

	// What its events mean for more than a call. track takes an event that is no duplicate
	// and an invalid one goes to refuse.
	track        func(e *engine, f *fact.Fact, n novelty)
	refuse       func(e *engine, f *fact.Fact)
	noteNumber   func(e *engine, f *fact.Fact) // the number of an event that was refused
	noteDecided  func(ts *trackers, c *call, f *fact.Fact)
	sessions     *trackedSessions // nil: its sessions are not followed
	checkOrphan  func(j *judge, sl *callGroup, c *call, f *fact.Fact)
	unreadable   func(strictjson.Code) string // the check that an unreadable event breaks
	severalCheck string                       // the check that several events in one message break
	missingCheck string                       // the check behind missing_completion
	effectFirst  string                       // the check that an effect before an announcement in another protocol breaks
	equivalents  map[findingCase][]string
	isHandoffTo  func(tool, agent string) bool // an allowed call hands the session over: to the agent that its tool names

	callTraits
}

// callTraits are how a protocol's calls differ.
type callTraits struct {
	requestAnnounces  bool // a request is an event of the session, which announces the call
	mustBeAnswered    bool // an execution whose request has no verdict breaks a check
	rulesApprovals    bool // it says how an approved call comes back, and what its execution names
	rulesEnds         bool // the end of a call must carry the id of its beginning
	onceUnderID       bool // an id belongs to one invocation of a session; else it may come again when its call is over
	announcesStart    bool // an announcement says that the execution begins
	endsByCorrelation bool // a completion under an unknown id may end the call that its correlation id names
	endIsMust         bool // each announced call must be completed, before its session ends
	onePublisher      bool // all events of a recording are one publisher's
}

// unknownProtocol is the row of a token that is not in the table.
var unknownProtocol = &protocolRow{missingCheck: missingOfRequests}

// readingOf is how the messages of a protocol are read.
func readingOf(token string) *fact.Protocol { return &rowOf(token).Protocol }

// rowOf finds the row of a protocol.
func rowOf(token string) *protocolRow {
	for _, p := range protocols {
		if p.Token == token {
			return p
		}
	}
	return unknownProtocol
}

// The members that sessions have in one protocol only. One at most is set.
type (
	protocolState struct {
		aaep *aaep.Session
		hook *agenthook.Session
	}
	protocolTombstone struct {
		aaep    aaep.Tombstone
		hook    agenthook.Tombstone
		silence *catalogue.Finding // it was said to have fallen silent
	}
)

// protocolParts are the parts of the engine that belong to one protocol each.
type protocolParts struct {
	replies      *aaep.Replies
	negotiations *aaep.Handshakes
	attestations *agenthook.Attestations
	declarations *agenthook.Declarations
	mandates     *aump.Mandates
	traces       *aioc.Traces
}

func newProtocolParts() protocolParts {
	ng := aaep.NewHandshakes()
	return protocolParts{negotiations: ng, replies: aaep.NewReplies(ng), attestations: agenthook.NewAttestations(), declarations: new(agenthook.Declarations), mandates: aump.NewMandates(), traces: aioc.NewTraces()}
}

// configureProtocols gives the parts what is no state.
func (p *protocolParts) configureProtocols(e *engine, o *engineOptions) {
	p.negotiations.Configure(e.findings, e.timers.clock(), o.fromRecording)
	p.replies.Configure(e.findings, followedAAEP{e.trackers}, o.fromRecording)
	p.attestations.Configure(e.findings)
	p.declarations.Configure(e.findings)
	p.mandates.Configure(e.findings, o.ClockSkew)
}
