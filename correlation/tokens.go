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
	tokenUse struct {
		session protocolSessionKey
		event   string
		seq     uint64
	}
)

// recordReplyToken notes whose a question's reply token is (AAEP-C-053).
func (m *machine) recordReplyToken(w *protocolSession, f *fact) {
	token := f.aaep.Token()
	if token == "" {
		return
	}
	key := tokenKey{f.key.tenant, f.key.source, sumOf(token)}
	if use, known := m.replyTokens.get(key); known && use.event != f.eventID {
		b := singleEventFinding("AAEP-C-053", "", f)
		b.Events, b.Seqs = append([]string{use.event}, b.Events...), append([]uint64{use.seq}, b.Seqs...)
		m.findings.reportSessionFinding(f, *w.origin, b)
	}
	m.replyTokens.put(key, tokenUse{w.id(), f.eventID, f.seq})
	m.tokenOwners.put(tenantToken{key.tenant, key.token}, key)
	m.applyEarlyReplies(w, f, tenantToken{key.tenant, key.token})
}

// routeQuestionReply takes a reply. It has no session: it belongs to the question of its
// publisher that has its token or, where subscribers publish their replies
// themselves, of the publisher in the same tenant that used the token last.
func (m *machine) routeQuestionReply(f *fact) {
	m.findings.reportEventFindings(nil, f)
	f.aaep.Seq, f.aaep.At, f.aaep.Recorded = f.seq, f.at, m.opts.fromRecording
	token := sumOf(f.aaep.Token())
	use, known := m.replyTokens.get(tokenKey{f.key.tenant, f.key.source, token})
	if !known {
		if key, other := m.tokenOwners.get(tenantToken{f.key.tenant, token}); other {
			use, known = m.replyTokens.get(key)
		}
	}
	if !known {
		id := m.findings.reportSessionFinding(f, f.origin, aaepsession.UnknownReply(f.aaep))
		m.bufferEarlyReply(f, tenantToken{f.key.tenant, token}, id)
		return
	}
	if w, ok := m.protocolSessions.get(use.session); ok {
		m.applyQuestionReply(w, f)
	}
}

func (m *machine) applyQuestionReply(w *protocolSession, f *fact) {
	w.lastActivity = m.timers.currentActivity()
	m.checkSubscriptionOwner(f, *w.origin)
	m.checkReplySubscription(f, *w.origin)
	m.findings.reportSessionFindings(f, *w.origin, w.aaep.Apply(f.aaep))
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

func (m *machine) bufferEarlyReply(f *fact, k tenantToken, finding string) {
	before, _ := m.earlyReplies.get(k)
	if len(before) < maxEarlyReplies {
		m.earlyReplies.put(k, append(slices.Clip(before), earlyReply{finding, f.origin, f.seq, f.at, f.contentSum, f.aaep.Reply()}))
	}
}

// applyEarlyReplies applies the replies that overtook their question: those whose sender
// says that they came after it. That nobody asked is taken back.
func (m *machine) applyEarlyReplies(w *protocolSession, asked *fact, k tenantToken) {
	replies, _ := m.earlyReplies.get(k)
	if len(replies) == 0 {
		return
	}
	m.earlyReplies.put(k, nil)
	for _, r := range replies {
		e := r.reply.Event(r.seq, r.at)
		if !aaepsession.Follows(e, asked.aaep) {
			continue
		}
		f := &fact{kind: kindQuestionReply, origin: r.origin, protocol: protoAAEP, seq: r.seq, at: r.at, contentSum: r.content, aaep: e}
		m.findings.reportCheckFinding("AAEP-C-110", nil, f, findingFrom(asked.eventID).withContent(r.content).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).
			retracting(r.finding).withText("its question came later"))
		m.applyQuestionReply(w, f)
	}
}
