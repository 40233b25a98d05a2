package correlation

import "github.com/countersign-dev/countersign/correlation/aaepsession"

// AAEP's handshake: a subscriber asks, a producer accepts or refuses, and terms
// change later. Publishers need not publish it; what is published is held against
// chapter 5 (package aaepsession).

// maxNegotiating bounds the publishers whose subscriptions are followed (at most
// about 150 KB each, usually under 1 KB); the least recently active are forgotten.
const maxNegotiating = 1024

// negotiating is what the subscriptions of one publisher come to.
type negotiating struct {
	key      sourceKey
	names    *origin
	lastSeen seen
	state    aaepsession.Negotiations
}

func (n *negotiating) id() sourceKey { return n.key }

// negotiator says whose negotiations a publisher's are. A recording is of one.
func (m *machine) negotiator(tenant, source string) sourceKey {
	if m.offline {
		source = ""
	}
	return sourceKey{tenant, source}
}

// negotiate takes a message about a subscription.
func (m *machine) negotiate(f *fact) {
	m.notes(nil, f)
	key := m.negotiator(f.key.tenant, f.key.source)
	n, known := m.negotiating.get(key)
	if !known {
		if m.negotiating.len() >= maxNegotiating {
			m.negotiating.removeOldest()
		}
		n = &negotiating{key: key, names: m.origin(f)}
		m.negotiating.add(n)
	}
	n.lastSeen = m.here()
	f.aaep.Seq, f.aaep.At = f.seq, f.at
	m.overdue(n)
	// What time has proved is told apart by itself, whatever message came next.
	m.breaches(&fact{protocol: protoAAEP}, *n.names, n.state.Late(f.aaep))
	m.breaches(f, f.origin, n.state.Negotiate(f.aaep))
}

func (m *machine) overdue(n *negotiating) {
	m.breaches(&fact{protocol: protoAAEP}, *n.names, n.state.Overdue(m.shown(m.now)))
}

// passNegotiations lets time pass for the publishers that negotiate no more.
func (m *machine) passNegotiations() {
	for {
		n, ok := m.negotiating.oldest()
		if !ok {
			return
		}
		if _, idle := m.idle(n.lastSeen, aaepsession.Patience); !idle {
			return
		}
		m.overdue(n)
		if n.state.Forgettable() {
			m.negotiating.remove(n.key)
		} else if again, kept := m.negotiating.get(n.key); kept {
			again.lastSeen = m.here() // to be looked at after another day
		}
	}
}

// subscribed holds a reply against the subscription that it came on, as the
// publisher that had asked accepted it (AAEP-C-112).
func (m *machine) subscribed(f *fact, asked origin) {
	n, known := m.negotiating.peek(m.negotiator(asked.key.tenant, asked.key.source))
	if !known {
		return
	}
	if b := n.state.Entitled(f.aaep); b != nil {
		m.breach(f, asked, b)
	}
}

// nextAnswer is when the next request may have waited for too long.
func (m *machine) nextAnswer(next *soonest) {
	for _, n := range m.negotiating.all() {
		if n.state.Waiting() {
			at, _ := m.idle(n.lastSeen, aaepsession.Patience)
			next.take(at)
		}
	}
}
