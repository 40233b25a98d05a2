package aaep

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events/subject"
)

// AAEP's handshake: a subscriber asks, a producer accepts or refuses, and terms
// change later. Publishers need not publish it; what is published is held against
// chapter 5 (package correlation/aaep).

// maxNegotiations bounds the publishers with subscriptions that are followed (at most
// about 150 KB each, usually under 1 KB); the least recently active are forgotten.
const maxNegotiations = 1024

// Handshakes are the subscriptions that publishers and subscribers agree on, by publisher.
type Handshakes struct {
	findings      fact.Reporter    `snapshot:"-"` // given anew, as are the next two
	time          *eventtime.Clock `snapshot:"-"`
	fromRecording bool             `snapshot:"-"`
	byPublisher   *tables.LRU[fact.SourceKey, *publisherNegotiations]
}

// NewHandshakes makes the part; configure it before use.
func NewHandshakes() *Handshakes {
	return &Handshakes{byPublisher: tables.NewLRU[fact.SourceKey, *publisherNegotiations]()}
}

// Configure gives the part what is no state.
func (ng *Handshakes) Configure(r fact.Reporter, t *eventtime.Clock, fromRecording bool) {
	ng.findings, ng.time, ng.fromRecording = r, t, fromRecording
}

// publisherNegotiations is what the subscriptions of one publisher come to.
type publisherNegotiations struct {
	key          fact.SourceKey
	origin       *fact.Origin
	lastActivity eventtime.Activity
	state        Negotiations
}

func (n *publisherNegotiations) ID() fact.SourceKey { return n.key }

// negotiationKey is the key of a publisher's negotiations. A recording has one publisher.
func (ng *Handshakes) negotiationKey(tenant, source string) fact.SourceKey {
	if ng.fromRecording {
		source = ""
	}
	return fact.SourceKey{Tenant: tenant, Source: source}
}

// originSharer gives a fact's origin in memory that is shared.
type originSharer interface {
	SharedOrigin(f *fact.Fact) *fact.Origin
}

// ensure finds what is known of a publisher, or begins to know it.
func (ng *Handshakes) ensure(key fact.SourceKey, f *fact.Fact, names originSharer) *publisherNegotiations {
	n, known := ng.byPublisher.Get(key)
	if !known {
		if ng.byPublisher.Len() >= maxNegotiations {
			ng.byPublisher.RemoveOldest()
		}
		n = &publisherNegotiations{key: key, origin: names.SharedOrigin(f)}
		ng.byPublisher.Add(n)
	}
	return n
}

// HandleHandshake takes a message about a subscription.
func (ng *Handshakes) HandleHandshake(f *fact.Fact, names originSharer) {
	ng.findings.ReportEventFindings(f)
	n := ng.ensure(ng.negotiationKey(f.Key.Tenant, f.Key.Source), f, names)
	n.lastActivity = ng.time.CurrentActivity()
	EventOf(f).Seq, EventOf(f).At = f.Seq, f.At
	ng.reportOverdueNegotiations(n)
	// What time has proved is told apart by itself, whatever message came next.
	ng.findings.ReportSessionFindings(&fact.Fact{Protocol: subject.ProtoAAEP}, *n.origin, n.state.RetractOverdue(EventOf(f)))
	ng.findings.ReportSessionFindings(f, f.Origin, n.state.Negotiate(EventOf(f)))
}

func (ng *Handshakes) reportOverdueNegotiations(n *publisherNegotiations) {
	ng.findings.ReportSessionFindings(&fact.Fact{Protocol: subject.ProtoAAEP}, *n.origin, n.state.ReportOverdue(ng.time.ToBrokerTime(ng.time.Now())))
}

// ExpireNegotiations lets time pass for the publishers that negotiate no more.
func (ng *Handshakes) ExpireNegotiations() {
	for {
		n, ok := ng.byPublisher.Oldest()
		if !ok {
			return
		}
		if _, idle := ng.time.CheckIdle(n.lastActivity, AnswerTimeout); !idle {
			return
		}
		ng.reportOverdueNegotiations(n)
		if n.state.IsForgettable() {
			ng.byPublisher.Remove(n.key)
		} else if again, kept := ng.byPublisher.Get(n.key); kept {
			again.lastActivity = ng.time.CurrentActivity() // to be looked at after another day
		}
	}
}

// checkReplySubscription holds a reply against the subscription that it came on, as the
// publisher that had asked accepted it (AAEP-C-112).
func (ng *Handshakes) checkReplySubscription(f *fact.Fact, asked fact.Origin) {
	n, known := ng.byPublisher.Peek(ng.negotiationKey(asked.Key.Tenant, asked.Key.Source))
	if !known {
		return
	}
	if found := n.state.CheckReply(EventOf(f)); found != nil {
		ng.findings.ReportSessionFinding(f, asked, found)
	}
}

// NextNegotiationTimeout is when the next request may have waited for too long.
func (ng *Handshakes) NextNegotiationTimeout(next *eventtime.Earliest) {
	for _, n := range ng.byPublisher.All() {
		if n.state.HasOpenRequests() {
			at, _ := ng.time.CheckIdle(n.lastActivity, AnswerTimeout)
			next.KeepEarlier(at)
		}
	}
}
