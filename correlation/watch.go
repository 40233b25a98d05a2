package correlation

import (
	"github.com/countersign-dev/countersign/correlation/aaepsession"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/hooksession"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// tracker follows sessions as their protocol orders them, beside the calls: which
// event may follow which, who was asked what, which output is complete.
type tracker struct {
	protocolSessions  *lru[protocolSessionKey, *protocolSession]
	trackerTombstones *fifoMap[protocolSessionKey, trackerTombstone]
	storedItems       int // of all flows; at most the next
	storedItemLimit   int
	runningSessions   map[sourceKey]int               // AAEP sessions that have started and not ended
	replyTokens       *fifoMap[tokenKey, tokenUse]    // reply tokens, by publisher
	tokenOwners       *fifoMap[tenantToken, tokenKey] // the publisher that used a token last
	earlyReplies      *fifoMap[tenantToken, []earlyReply]
	// subscriptionOwners are who replied on them, by tenant.
	subscriptionOwners *fifoMap[tenantToken, string]
	negotiations       *lru[sourceKey, *publisherNegotiations]
}

func newTracker() tracker {
	return tracker{
		storedItemLimit:  maxStoredItems,
		protocolSessions: newLRU[protocolSessionKey, *protocolSession](), trackerTombstones: newFIFOMap[protocolSessionKey, trackerTombstone](maxTombstones), runningSessions: map[sourceKey]int{},
		replyTokens: newFIFOMap[tokenKey, tokenUse](maxTokens), tokenOwners: newFIFOMap[tenantToken, tokenKey](maxTokens),
		earlyReplies:       newFIFOMap[tenantToken, []earlyReply](maxEarlyTokens),
		subscriptionOwners: newFIFOMap[tenantToken, string](maxTokens),
		negotiations:       newLRU[sourceKey, *publisherNegotiations](),
	}
}

// protocolSessionKey is one session in one protocol.
type protocolSessionKey struct {
	sessionKey
	protocol string
}

// protocolSession is a session that is followed; one of the two is set.
type protocolSession struct {
	origin       *origin // shared, and never changed
	protocol     string
	lastActivity activity
	aaep         *aaepsession.Session
	hook         *hooksession.Session
	givenHints   map[string]bool // hints of schemas that were given
	storedItems  int
	share        *share `snapshot:"-"` // its publisher in the table of flows
}

func (w *protocolSession) id() protocolSessionKey {
	return protocolSessionKey{w.origin.key, w.protocol}
}

func (w *protocolSession) owner() sourceKey { return w.origin.key.publisher() }

func (w *protocolSession) holds(h *share) { w.share = h }

// accountStoredItems counts what a session remembers, and forgets others if all together remember
// too much: see surplus.
func (m *machine) accountStoredItems(w *protocolSession) {
	before := w.storedItems
	if w.aaep != nil {
		w.storedItems = w.aaep.Weight()
	} else {
		w.storedItems = w.hook.Weight()
	}
	m.storedItems += w.storedItems - before
	m.protocolSessions.count(w.share, byWeight, w.storedItems-before)
	for m.storedItems > m.storedItemLimit {
		old, any := m.protocolSessions.surplus(byWeight, w.owner(), w.id())
		if !any {
			return
		}
		m.forgetProtocolSession(old, trackerTombstone{})
	}
}

// trackerTombstone is what is kept of a session that is not followed any more.
type trackerTombstone struct {
	aaep    aaepsession.Memory
	hook    hooksession.Memory
	silence *catalogue.Breach // it was said to have fallen silent
}

// expireProtocolSessions forgets the sessions that have been idle for too long.
func (m *machine) expireProtocolSessions() {
	for {
		w, ok := m.protocolSessions.oldest()
		if !ok {
			return
		}
		if until, idle := m.timers.checkIdle(w.lastActivity, sessionIdle); !idle {
			m.timers.wakeAt(until)
			return
		}
		d := trackerTombstone{}
		if w.aaep != nil {
			if d.silence = w.aaep.Silent(); d.silence != nil {
				m.findings.reportSessionFinding(&fact{protocol: protoAAEP}, *w.origin, d.silence)
			}
		}
		m.forgetProtocolSession(w, d)
	}
}

func (m *machine) forgetProtocolSession(w *protocolSession, d trackerTombstone) {
	if w.aaep != nil {
		d.aaep = w.aaep.Memory()
		m.countRunningSessions(w, w.aaep.Running(), false)
	} else {
		d.hook = w.hook.Memory()
	}
	m.storedItems -= w.storedItems
	m.protocolSessions.count(w.share, byWeight, -w.storedItems)
	m.trackerTombstones.put(w.id(), d)
	m.protocolSessions.remove(w.id())
}

// ensureProtocolSession finds the session of a fact or begins to follow it.
func (m *machine) ensureProtocolSession(f *fact) *protocolSession {
	key := protocolSessionKey{f.key, f.protocol}
	w, ok := m.protocolSessions.getHashed(key, f.protocolSessionHash())
	if !ok {
		if m.protocolSessions.len() >= m.opts.MaxSessions {
			if old, any := m.protocolSessions.surplus(byPlaces, key.publisher(), key); any {
				m.forgetProtocolSession(old, trackerTombstone{})
			}
		}
		d, _ := m.trackerTombstones.get(key)
		w = &protocolSession{origin: m.sharedOrigin(f), protocol: f.protocol}
		if f.aaep != nil {
			w.aaep = aaepsession.Restore(d.aaep)
			m.countRunningSessions(w, false, w.aaep.Running())
			m.retractSilence(w, f, d)
		} else {
			w.hook = hooksession.Restore(d.hook)
		}
		m.protocolSessions.add(w)
	}
	w.lastActivity = m.timers.currentActivity()
	return w
}

// retractSilence takes back that a session fell silent.
func (m *machine) retractSilence(w *protocolSession, f *fact, d trackerTombstone) {
	if d.silence == nil {
		return
	}
	m.findings.reportSessionFinding(f, *w.origin, &catalogue.Breach{Check: d.silence.Check, What: "the session goes on", Events: []string{f.eventID},
		Seqs: []uint64{f.seq}, Withdraws: d.silence, Retracts: true})
	d.silence = nil
	m.trackerTombstones.put(w.id(), d)
}

// countRunningSessions keeps how many AAEP sessions of a publisher are running.
func (m *machine) countRunningSessions(w *protocolSession, before, after bool) {
	k := sourceKey{w.origin.key.tenant, w.origin.key.source}
	switch {
	case after && !before:
		m.runningSessions[k]++
	case before && !after:
		if m.runningSessions[k]--; m.runningSessions[k] <= 0 {
			delete(m.runningSessions, k)
		}
	}
}

// trackFact hands a fact to its session.
func (m *machine) trackFact(f *fact, n novelty) {
	if f.evidence != nil {
		m.findings.reportEventFindings(nil, f)
		if n == novel {
			m.mandates.checkEvidence(f)
		}
		return
	}
	if f.mandateRef != nil {
		m.mandates.recordMandateUse(f, f.mandateRef)
	}
	if f.kind == kindDecision && n == novel {
		m.admissions.checkAdmissionDecision(f)
		m.approvals.checkIgnoredApproval(f)
	}
	if f.requestFlags != 0 {
		m.admissions.recordFlaggedRequest(f)
	}
	if f.receiptDecisionID != "" {
		m.admissions.recordNamedDecision(f)
	}
	watched := f.key.session != noSession && (f.aaep != nil || f.hook != nil)
	switch {
	case f.aaep != nil && f.kind == kindQuestionReply:
		m.routeQuestionReply(f)
	case f.aaep != nil && f.aaep.IsHandshake():
		m.handleHandshake(f)
	case watched && f.aaep != nil:
		m.trackAAEP(m.ensureProtocolSession(f), f, n)
	case watched:
		m.trackAgentHook(m.ensureProtocolSession(f), f, n)
	case f.aaep != nil:
		m.findings.reportEventFindings(nil, f)
		m.findings.reportSessionFindings(f, f.origin, aaepsession.Hints(f.aaep))
	case f.hook != nil:
		m.findings.reportEventFindings(nil, f)
		if n == novel {
			m.declarations.applyRegistration(f)
			m.declarations.checkDeclared(f.origin, f, nil)
		}
		m.findings.reportSessionFindings(f, f.origin, hooksession.Alone(f.hook))
	default:
		m.findings.reportEventFindings(nil, f)
	}
}

func (m *machine) trackAAEP(w *protocolSession, f *fact, n novelty) {
	m.findings.reportEventFindings(w, f)
	if n != novel {
		return
	}
	f.aaep.Seq, f.aaep.At, f.aaep.Recorded, f.aaep.Until = f.seq, f.at, m.opts.fromRecording, m.opts.recordedUntil
	before, stray := w.aaep.Running(), w.aaep.Unstarted()
	found := w.aaep.Apply(f.aaep)
	m.countRunningSessions(w, before, w.aaep.Running())
	m.accountStoredItems(w)
	m.findings.reportSessionFindings(f, *w.origin, found)
	if f.kind == kindPre {
		if asked, accepted, explicit := w.aaep.Confirmation(f.aaep); asked.Seq != 0 {
			f.confirmation = &confirmation{asked, accepted, explicit}
		}
	}
	if !stray && w.aaep.Unstarted() && m.runningSessions[sourceKey{f.key.tenant, f.key.source}] > 0 {
		m.findings.reportSessionFinding(f, *w.origin, singleEventFinding("AAEP-C-054", "", f))
	}
	m.recordReplyToken(w, f)
}

func (m *machine) trackAgentHook(w *protocolSession, f *fact, n novelty) {
	m.findings.reportEventFindings(w, f)
	if n != novel {
		w.hook.Amend(f.hook)
		return
	}
	f.hook.Seq, f.hook.At = f.seq, f.at
	m.declarations.applyRegistration(f)
	m.setWebVerdict(f)
	if s, ok := m.sessions.peek(f.key); ok && f.kind == kindSessionEnd && s.askedAdmission {
		w.hook.Requested(agenthook.PreToolUse)
	}
	found := w.hook.Apply(f.hook)
	m.accountStoredItems(w)
	m.findings.reportSessionFindings(f, *w.origin, found)
	m.attestations.checkNonce(w, f)
	m.attestations.checkHookFingerprints(w, f)
	m.approvals.checkApprovalEvent(w, f)
	m.declarations.checkDeclared(*w.origin, f, w.hook)
}

// noteDecidedCall tells the session of a call that a verdict on it is on record
// (AH-C-032).
func (m *machine) noteDecidedCall(c *call, f *fact) {
	if f.protocol != protoAgentHook || f.kind != kindPre && f.kind != kindDecision || !c.hasPre || len(c.decisions) == 0 {
		return
	}
	if w, ok := m.protocolSessions.peek(protocolSessionKey{f.key, protoAgentHook}); ok && w.hook != nil {
		m.findings.reportSessionFindings(f, *w.origin, w.hook.Decided(c.id, c.preEvent))
	}
}

// singleEventFinding is a breach that one event proves.
func singleEventFinding(check, what string, f *fact) *catalogue.Breach {
	b := &catalogue.Breach{Check: check, What: what, Seqs: []uint64{f.seq}, Call: f.callID}
	if f.eventID != "" {
		b.Events = []string{f.eventID}
	}
	return b
}

// reportEventFindings reports the checks that an event fails by itself; hints once a session.
func (fs *findings) reportEventFindings(w *protocolSession, f *fact) {
	for _, b := range f.eventFindings {
		if b.Severity == events.SeverityInfo && w != nil {
			if w.givenHints[b.Check+b.Case] {
				continue
			}
			if w.givenHints == nil {
				w.givenHints = map[string]bool{}
			}
			w.givenHints[b.Check+b.Case] = true
		}
		fs.reportSessionFinding(f, f.origin, b)
	}
}

func (fs *findings) reportSessionFindings(f *fact, who origin, found []*catalogue.Breach) {
	for _, b := range found {
		fs.reportSessionFinding(f, who, b)
	}
}
