package correlation

import (
	aaepsession "github.com/countersign-dev/countersign/correlation/aaep"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
)

// AAEP's handshake: a subscriber asks, a producer accepts or refuses, and terms
// change later. Publishers need not publish it; what is published is held against
// chapter 5 (package correlation/aaep).

// maxNegotiations bounds the publishers whose subscriptions are followed (at most
// about 150 KB each, usually under 1 KB); the least recently active are forgotten.
const maxNegotiations = 1024

// negotiations are the subscriptions that publishers and subscribers agree on, by publisher.
type negotiations struct {
	opts        *engineOptions `snapshot:"-"` // given anew
	timers      *timers
	findings    *findings
	byPublisher *tables.LRU[fact.SourceKey, *publisherNegotiations]
}

func newNegotiations(t *timers, fs *findings) *negotiations {
	return &negotiations{timers: t, findings: fs, byPublisher: tables.NewLRU[fact.SourceKey, *publisherNegotiations]()}
}

// publisherNegotiations is what the subscriptions of one publisher come to.
type publisherNegotiations struct {
	key          fact.SourceKey
	origin       *fact.Origin
	lastActivity activity
	state        aaepsession.Negotiations
}

func (n *publisherNegotiations) ID() fact.SourceKey { return n.key }

// negotiationKey is the key of a publisher's negotiations. A recording has one publisher.
func (ng *negotiations) negotiationKey(tenant, source string) fact.SourceKey {
	if ng.opts.fromRecording {
		source = ""
	}
	return fact.SourceKey{Tenant: tenant, Source: source}
}

// originSharer gives a fact's origin in memory that is shared.
type originSharer interface {
	sharedOrigin(f *fact.Fact) *fact.Origin
}

// ensure finds what is known of a publisher, or begins to know it.
func (ng *negotiations) ensure(key fact.SourceKey, f *fact.Fact, names originSharer) *publisherNegotiations {
	n, known := ng.byPublisher.Get(key)
	if !known {
		if ng.byPublisher.Len() >= maxNegotiations {
			ng.byPublisher.RemoveOldest()
		}
		n = &publisherNegotiations{key: key, origin: names.sharedOrigin(f)}
		ng.byPublisher.Add(n)
	}
	return n
}

// handleHandshake takes a message about a subscription.
func (ng *negotiations) handleHandshake(f *fact.Fact, names originSharer) {
	ng.findings.reportEventFindings(nil, f)
	n := ng.ensure(ng.negotiationKey(f.Key.Tenant, f.Key.Source), f, names)
	n.lastActivity = ng.timers.currentActivity()
	aaepEvent(f).Seq, aaepEvent(f).At = f.Seq, f.At
	ng.reportOverdueNegotiations(n)
	// What time has proved is told apart by itself, whatever message came next.
	ng.findings.ReportSessionFindings(&fact.Fact{Protocol: protoAAEP}, *n.origin, n.state.RetractOverdue(aaepEvent(f)))
	ng.findings.ReportSessionFindings(f, f.Origin, n.state.Negotiate(aaepEvent(f)))
}

func (ng *negotiations) reportOverdueNegotiations(n *publisherNegotiations) {
	ng.findings.ReportSessionFindings(&fact.Fact{Protocol: protoAAEP}, *n.origin, n.state.ReportOverdue(ng.timers.toBrokerTime(ng.timers.now())))
}

// expireNegotiations lets time pass for the publishers that negotiate no more.
func (ng *negotiations) expireNegotiations() {
	for {
		n, ok := ng.byPublisher.Oldest()
		if !ok {
			return
		}
		if _, idle := ng.timers.checkIdle(n.lastActivity, aaepsession.AnswerTimeout); !idle {
			return
		}
		ng.reportOverdueNegotiations(n)
		if n.state.IsForgettable() {
			ng.byPublisher.Remove(n.key)
		} else if again, kept := ng.byPublisher.Get(n.key); kept {
			again.lastActivity = ng.timers.currentActivity() // to be looked at after another day
		}
	}
}

// checkReplySubscription holds a reply against the subscription that it came on, as the
// publisher that had asked accepted it (AAEP-C-112).
func (ng *negotiations) checkReplySubscription(f *fact.Fact, asked fact.Origin) {
	n, known := ng.byPublisher.Peek(ng.negotiationKey(asked.Key.Tenant, asked.Key.Source))
	if !known {
		return
	}
	if b := n.state.CheckReply(aaepEvent(f)); b != nil {
		ng.findings.ReportSessionFinding(f, asked, b)
	}
}

// nextNegotiationTimeout is when the next request may have waited for too long.
func (ng *negotiations) nextNegotiationTimeout(next *earliestTime) {
	for _, n := range ng.byPublisher.All() {
		if n.state.HasOpenRequests() {
			at, _ := ng.timers.checkIdle(n.lastActivity, aaepsession.AnswerTimeout)
			next.keepEarlier(at)
		}
	}
}
