package correlation

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/aaepsession"
	"github.com/countersign-dev/countersign/events"
)

type (
	tokenKey struct {
		tenant, source string
		token          sum
	}
	tenantToken struct {
		tenant string
		token  sum
	}
	workflowKey struct {
		tenant   string
		workflow sum
	}
	nonceUse struct {
		event string
		seq   uint64
	}
	// hookPrint is what a publisher's hook was when it last called itself trusted.
	hookPrint struct {
		print sum
		event string
		seq   uint64
	}
	tokenUse struct {
		flow  flowKey
		event string
		seq   uint64
	}
)

// token notes whose a question's reply token is (AAEP-C-053).
func (m *machine) token(w *flow, f *fact) {
	token := f.aaep.Token()
	if token == "" {
		return
	}
	key := tokenKey{f.key.tenant, f.key.source, sumOf(token)}
	if use, known := m.tokens.get(key); known && use.event != f.eventID {
		b := single("AAEP-C-053", "", f)
		b.Events, b.Seqs = append([]string{use.event}, b.Events...), append([]uint64{use.seq}, b.Seqs...)
		m.breach(f, *w.names, b)
	}
	m.tokens.put(key, tokenUse{w.id(), f.eventID, f.seq})
	m.asked.put(tenantToken{key.tenant, key.token}, key)
	m.repliedBefore(w, f, tenantToken{key.tenant, key.token})
}

// answer takes a reply. It has no session: it belongs to the question of its
// publisher that has its token or, where subscribers publish their replies
// themselves, of the publisher in the same tenant that used the token last.
func (m *machine) answer(f *fact) {
	m.notes(nil, f)
	f.aaep.Seq, f.aaep.At, f.aaep.Recorded = f.seq, f.at, m.offline
	token := sumOf(f.aaep.Token())
	use, known := m.tokens.get(tokenKey{f.key.tenant, f.key.source, token})
	if !known {
		if key, other := m.asked.get(tenantToken{f.key.tenant, token}); other {
			use, known = m.tokens.get(key)
		}
	}
	if !known {
		id := m.breach(f, f.origin, aaepsession.UnknownReply(f.aaep))
		m.keepReply(f, tenantToken{f.key.tenant, token}, id)
		return
	}
	if w, ok := m.flows.get(use.flow); ok {
		m.replied(w, f)
	}
}

func (m *machine) replied(w *flow, f *fact) {
	w.lastSeen = m.here()
	m.entitled(f, *w.names)
	m.subscribed(f, *w.names)
	m.breaches(f, *w.names, w.aaep.Apply(f.aaep))
}

// earlyReply is a reply whose question is not on the log yet: whoever asked and
// whoever replied have connections of their own, and one may overtake the other.
type earlyReply struct {
	finding string // that nobody asked
	origin  origin
	seq     uint64
	at      time.Time // the broker's
	content sum
	reply   aaepsession.Reply
}

func (m *machine) keepReply(f *fact, k tenantToken, finding string) {
	before, _ := m.early.get(k)
	if len(before) < maxEarlyReplies {
		m.early.put(k, append(slices.Clip(before), earlyReply{finding, f.origin, f.seq, f.at, f.content, f.aaep.Reply()}))
	}
}

// repliedBefore applies the replies that overtook their question: those whose sender
// says that they came after it. That nobody asked is taken back.
func (m *machine) repliedBefore(w *flow, asked *fact, k tenantToken) {
	replies, _ := m.early.get(k)
	if len(replies) == 0 {
		return
	}
	m.early.put(k, nil)
	for _, r := range replies {
		e := r.reply.Event(r.seq, r.at)
		if !aaepsession.Follows(e, asked.aaep) {
			continue
		}
		f := &fact{kind: kindAnswer, origin: r.origin, protocol: protoAAEP, seq: r.seq, at: r.at, content: r.content, aaep: e}
		m.check("AAEP-C-110", nil, f, about(asked.eventID).distinct(r.content).detail(detailWithdrawn).grade(events.SeverityInfo).
			withdrawing(r.finding).saying("its question came later"))
		m.replied(w, f)
	}
}

// nonce notes in which attestation a nonce was used (AH-C-122).
func (m *machine) nonce(w *flow, f *fact) {
	if f.hook.Nonce() == "" {
		return
	}
	key := tokenKey{f.key.tenant, f.key.source, sumOf(f.hook.Nonce())}
	if before, used := m.nonces.get(key); used && before.event != f.eventID {
		b := single("AH-C-122", "its nonce was used before", f)
		b.Case, b.Events, b.Seqs = "nonce", append([]string{before.event}, b.Events...), append([]uint64{before.seq}, b.Seqs...)
		m.breach(f, *w.names, b)
	}
	m.nonces.put(key, nonceUse{f.eventID, f.seq})
}

// hooks compares the hooks that a session calls trusted with what they were in
// their publisher's sessions before (AH-C-129).
func (m *machine) hooks(w *flow, f *fact) {
	for _, h := range f.hook.Met() {
		key := tokenKey{f.key.tenant, f.key.source, sumOf(h.Hook)}
		now := hookPrint{sumOf(h.Print), f.eventID, f.seq}
		if before, known := m.prints.get(key); known && h.Unexpected && before.print != now.print {
			b := single("AH-C-129", "an earlier session knew it with another fingerprint", f)
			b.Case, b.Call = h.Hook, ""
			b.Events, b.Seqs = append([]string{before.event}, b.Events...), append([]uint64{before.seq}, b.Seqs...)
			m.breach(f, *w.names, b)
		}
		m.prints.put(key, now)
	}
}

// approvalStatus is where an approval workflow stands, and since when it does by
// the broker's clock.
type approvalStatus struct {
	status string
	at     time.Time
}

// onRecord notes the status of an approval workflow.
func (m *machine) onRecord(k workflowKey, status string, at time.Time) {
	if w, known := m.ledger.get(k); !known || w.status != status {
		m.ledger.put(k, approvalStatus{status, at})
	}
}

// contradicted compares what an event tells of an approval with its record
// (AH-C-111).
func (m *machine) contradicted(w *flow, f *fact) {
	if f.kind != kindGrant || f.approval.value().workflow == "" {
		return
	}
	recorded, known := m.ledger.get(workflowKey{f.key.tenant, sumOf(f.approval.workflow)})
	if known && granted(recorded.status) != f.approval.is(statusApproved) {
		m.breach(f, *w.names, single("AH-C-111", "", f))
	}
}
