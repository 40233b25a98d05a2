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
	// hookFingerprint is what a publisher's hook was when it last called itself trusted.
	hookFingerprint struct {
		fingerprint sum
		event       string
		seq         uint64
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

// checkNonce notes in which attestation a nonce was used (AH-C-122).
func (m *machine) checkNonce(w *protocolSession, f *fact) {
	if f.hook.Nonce() == "" {
		return
	}
	key := tokenKey{f.key.tenant, f.key.source, sumOf(f.hook.Nonce())}
	if before, used := m.nonces.get(key); used && before.event != f.eventID {
		b := singleEventFinding("AH-C-122", "its nonce was used before", f)
		b.Case, b.Events, b.Seqs = "nonce", append([]string{before.event}, b.Events...), append([]uint64{before.seq}, b.Seqs...)
		m.findings.reportSessionFinding(f, *w.origin, b)
	}
	m.nonces.put(key, nonceUse{f.eventID, f.seq})
}

// checkHookFingerprints compares the hooks that a session calls trusted with what they were in
// their publisher's sessions before (AH-C-129).
func (m *machine) checkHookFingerprints(w *protocolSession, f *fact) {
	for _, h := range f.hook.Met() {
		key := tokenKey{f.key.tenant, f.key.source, sumOf(h.Hook)}
		now := hookFingerprint{sumOf(h.Print), f.eventID, f.seq}
		if before, known := m.hookFingerprints.get(key); known && h.Unexpected && before.fingerprint != now.fingerprint {
			b := singleEventFinding("AH-C-129", "an earlier session knew it with another fingerprint", f)
			b.Case, b.Call = h.Hook, ""
			b.Events, b.Seqs = append([]string{before.event}, b.Events...), append([]uint64{before.seq}, b.Seqs...)
			m.findings.reportSessionFinding(f, *w.origin, b)
		}
		m.hookFingerprints.put(key, now)
	}
}

// approvalStatus is where an approval workflow stands, and since when it does by
// the broker's clock.
type approvalStatus struct {
	status string
	at     time.Time
}

// recordApprovalStatus notes the status of an approval workflow.
func (m *machine) recordApprovalStatus(k workflowKey, status string, at time.Time) {
	if w, known := m.approvalIndex.get(k); !known || w.status != status {
		m.approvalIndex.put(k, approvalStatus{status, at})
	}
}

// checkApprovalEvent compares what an event tells of an approval with its record
// (AH-C-111).
func (m *machine) checkApprovalEvent(w *protocolSession, f *fact) {
	if f.kind != kindApproval || f.approval.valueOrZero().workflow == "" {
		return
	}
	recorded, known := m.approvalIndex.get(workflowKey{f.key.tenant, sumOf(f.approval.workflow)})
	if known && isGranted(recorded.status) != f.approval.hasStatus(statusApproved) {
		m.findings.reportSessionFinding(f, *w.origin, singleEventFinding("AH-C-111", "", f))
	}
}
