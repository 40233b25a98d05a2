package correlation

import "github.com/countersign-dev/countersign/correlation/aaepsession"

// AAEP's handshake: a subscriber asks, a producer accepts or refuses, and terms
// change later. Publishers need not publish it; what is published is held against
// chapter 5 (package aaepsession).

// maxNegotiations bounds the publishers whose subscriptions are followed (at most
// about 150 KB each, usually under 1 KB); the least recently active are forgotten.
const maxNegotiations = 1024

// publisherNegotiations is what the subscriptions of one publisher come to.
type publisherNegotiations struct {
	key          sourceKey
	origin       *origin
	lastActivity activity
	state        aaepsession.Negotiations
}

func (n *publisherNegotiations) id() sourceKey { return n.key }

// negotiationKey says whose negotiations a publisher's are. A recording is of one.
func (m *machine) negotiationKey(tenant, source string) sourceKey {
	if m.opts.fromRecording {
		source = ""
	}
	return sourceKey{tenant, source}
}

// handleHandshake takes a message about a subscription.
func (m *machine) handleHandshake(f *fact) {
	m.findings.reportEventFindings(nil, f)
	key := m.negotiationKey(f.key.tenant, f.key.source)
	n, known := m.negotiations.get(key)
	if !known {
		if m.negotiations.len() >= maxNegotiations {
			m.negotiations.removeOldest()
		}
		n = &publisherNegotiations{key: key, origin: m.sharedOrigin(f)}
		m.negotiations.add(n)
	}
	n.lastActivity = m.timers.currentActivity()
	f.aaep.Seq, f.aaep.At = f.seq, f.at
	m.reportOverdueNegotiations(n)
	// What time has proved is told apart by itself, whatever message came next.
	m.findings.reportSessionFindings(&fact{protocol: protoAAEP}, *n.origin, n.state.Late(f.aaep))
	m.findings.reportSessionFindings(f, f.origin, n.state.Negotiate(f.aaep))
}

func (m *machine) reportOverdueNegotiations(n *publisherNegotiations) {
	m.findings.reportSessionFindings(&fact{protocol: protoAAEP}, *n.origin, n.state.Overdue(m.timers.toBrokerTime(m.timers.now())))
}

// expireNegotiations lets time pass for the publishers that negotiate no more.
func (m *machine) expireNegotiations() {
	for {
		n, ok := m.negotiations.oldest()
		if !ok {
			return
		}
		if _, idle := m.timers.checkIdle(n.lastActivity, aaepsession.Patience); !idle {
			return
		}
		m.reportOverdueNegotiations(n)
		if n.state.Forgettable() {
			m.negotiations.remove(n.key)
		} else if again, kept := m.negotiations.get(n.key); kept {
			again.lastActivity = m.timers.currentActivity() // to be looked at after another day
		}
	}
}

// checkReplySubscription holds a reply against the subscription that it came on, as the
// publisher that had asked accepted it (AAEP-C-112).
func (m *machine) checkReplySubscription(f *fact, asked origin) {
	n, known := m.negotiations.peek(m.negotiationKey(asked.key.tenant, asked.key.source))
	if !known {
		return
	}
	if b := n.state.Entitled(f.aaep); b != nil {
		m.findings.reportSessionFinding(f, asked, b)
	}
}

// nextNegotiationTimeout is when the next request may have waited for too long.
func (m *machine) nextNegotiationTimeout(next *earliestTime) {
	for _, n := range m.negotiations.all() {
		if n.state.Waiting() {
			at, _ := m.timers.checkIdle(n.lastActivity, aaepsession.Patience)
			next.keepEarlier(at)
		}
	}
}
