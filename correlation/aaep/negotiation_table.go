package aaep

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events/subject"
)

// In AAEP's handshake a subscriber asks for a subscription, a producer accepts or rejects it,
// and the terms may change later. A publisher need not publish these messages. What it
// publishes is checked against AAEP chapter 5.

// maxNegotiations bounds the publishers with followed subscriptions (at most about 150 KB
// each, usually under 1 KB). The least recently active one of the tenant that has most is
// forgotten.
const maxNegotiations = 1024

// NegotiationTable holds the negotiations of each publisher.
type NegotiationTable struct {
	findings      fact.Reporter    `snapshot:"-"` // not part of a snapshot, as are the next two
	time          *eventtime.Clock `snapshot:"-"`
	fromRecording bool             `snapshot:"-"`
	byPublisher   *tables.LRU[fact.PublisherKey, *publisherNegotiations]
}

// NewNegotiationTable makes the part. Configure MUST be called before its use.
func NewNegotiationTable() *NegotiationTable {
	return &NegotiationTable{byPublisher: tables.NewLRU[fact.PublisherKey, *publisherNegotiations]()}
}

// Configure sets what is not part of a snapshot.
func (ng *NegotiationTable) Configure(r fact.Reporter, t *eventtime.Clock, fromRecording bool) {
	ng.findings, ng.time, ng.fromRecording = r, t, fromRecording
}

// publisherNegotiations are the negotiations of one publisher.
type publisherNegotiations struct {
	key          fact.PublisherKey
	origin       *fact.Origin
	lastActivity eventtime.Activity
	state        Negotiations
}

func (n *publisherNegotiations) ID() fact.PublisherKey { return n.key }

func (n *publisherNegotiations) Owner() tables.PublisherKey { return n.key.TenantTableKey() }

func (n *publisherNegotiations) Holds(*tables.Share) {}

// negotiationKey is the key of a publisher's negotiations. All of a recording has one key.
func (ng *NegotiationTable) negotiationKey(tenant, source string) fact.PublisherKey {
	if ng.fromRecording {
		source = ""
	}
	return fact.PublisherKey{Tenant: tenant, Source: source}
}

// originSharer returns a fact's origin in shared memory.
type originSharer interface {
	SharedOrigin(f *fact.Fact) *fact.Origin
}

// ensure returns the negotiations of a publisher, and adds them if they are missing.
func (ng *NegotiationTable) ensure(key fact.PublisherKey, f *fact.Fact, names originSharer) *publisherNegotiations {
	n, known := ng.byPublisher.Get(key)
	if !known {
		n = &publisherNegotiations{key: key, origin: names.SharedOrigin(f)}
		if ng.byPublisher.Len() >= maxNegotiations {
			if old, found := ng.byPublisher.Surplus(tables.ByPlaces, n.Owner(), key); found {
				ng.byPublisher.Remove(old.key)
			}
		}
		ng.byPublisher.Add(n)
	}
	return n
}

// Apply applies a message about a subscription.
func (ng *NegotiationTable) Apply(f *fact.Fact, names originSharer) {
	ng.findings.ReportEventFindings(f)
	n := ng.ensure(ng.negotiationKey(f.Key.Tenant, f.Key.Source), f, names)
	n.lastActivity = ng.time.CurrentActivity()
	EventOf(f).Seq, EventOf(f).At = f.Seq, f.At
	ng.reportOverdueNegotiations(n)
	// A finding of passed time does not depend on the message that came next.
	ng.findings.ReportSessionFindings(&fact.Fact{Protocol: subject.ProtoAAEP}, *n.origin, n.state.RetractOverdue(EventOf(f)))
	ng.findings.ReportSessionFindings(f, f.Origin, n.state.Negotiate(EventOf(f)))
}

func (ng *NegotiationTable) reportOverdueNegotiations(n *publisherNegotiations) {
	ng.findings.ReportSessionFindings(&fact.Fact{Protocol: subject.ProtoAAEP}, *n.origin, n.state.ReportOverdue(ng.time.ToBrokerTime(ng.time.Now())))
}

// Expire reports overdue requests, and forgets idle publishers.
func (ng *NegotiationTable) Expire() {
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
			again.lastActivity = ng.time.CurrentActivity() // it is looked at again after another day
		}
	}
}

// checkReplySubscription compares a reply with the subscription that it came on (AAEP-C-112).
func (ng *NegotiationTable) checkReplySubscription(f *fact.Fact, asked fact.Origin) {
	n, known := ng.byPublisher.Peek(ng.negotiationKey(asked.Key.Tenant, asked.Key.Source))
	if !known {
		return
	}
	if found := n.state.CheckReply(EventOf(f)); found != nil {
		ng.findings.ReportSessionFinding(f, asked, found)
	}
}

// NextTimeout lowers next to the time when a request may become overdue.
func (ng *NegotiationTable) NextTimeout(next *eventtime.Earliest) {
	for _, n := range ng.byPublisher.All() {
		if n.state.HasOpenRequests() {
			at, _ := ng.time.CheckIdle(n.lastActivity, AnswerTimeout)
			next.KeepEarlier(at)
		}
	}
}
