package correlation

import (
	"github.com/countersign-dev/countersign/correlation/aaepsession"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/hooksession"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// watch follows sessions as their protocol orders them, beside the calls: which
// event may follow which, who was asked what, which output is complete.
type watch struct {
	flows   *lru[flowKey, *flow]
	gone    *window[flowKey, departed]
	weight  int // of all flows; at most the next
	most    int
	running map[sourceKey]int              // AAEP sessions that have started and not ended
	tokens  *window[tokenKey, tokenUse]    // reply tokens, by publisher
	asked   *window[tenantToken, tokenKey] // the publisher that used a token last
	early   *window[tenantToken, []earlyReply]
	// mandates are those that the log names, decidedUnder those of a session's decisions.
	mandates     *window[mandateKey, *mandate]
	decidedUnder *window[sessionKey, []sum]
	// subscriptions are who replied on them, by tenant.
	subscriptions *window[tenantToken, string]
	nonces        *window[tokenKey, nonceUse]          // of attestations, by publisher
	prints        *window[tokenKey, hookPrint]         // of hooks, by publisher
	ledger        *window[workflowKey, approvalStatus] // approval workflows: their status on record
	workflows     *window[workflowKey, *workflow]      // what decisions opened them for
	traces        *window[sum, *traced]                // decisions that leave a trace event, by id
	receipts      *window[sum, sum]                    // decisions whose receipts allow something: the call that they were made for
	negotiating   *lru[sourceKey, *negotiating]
	declared      declarations
	flagged       *window[sum, flagged]       // requests, by decision
	named         *window[sum, namedDecision] // decisions that events named first
}

func newWatch() watch {
	return watch{
		most:  maxWeight,
		flows: newLRU[flowKey, *flow](), gone: newWindow[flowKey, departed](maxTombstones), running: map[sourceKey]int{},
		tokens: newWindow[tokenKey, tokenUse](maxTokens), asked: newWindow[tenantToken, tokenKey](maxTokens),
		early:    newWindow[tenantToken, []earlyReply](maxEarlyTokens),
		mandates: newWindow[mandateKey, *mandate](maxMandates), decidedUnder: newWindow[sessionKey, []sum](maxMandates),
		subscriptions: newWindow[tenantToken, string](maxTokens),
		nonces:        newWindow[tokenKey, nonceUse](maxTokens), prints: newWindow[tokenKey, hookPrint](maxTokens),
		ledger: newWindow[workflowKey, approvalStatus](maxLedger), workflows: newWindow[workflowKey, *workflow](maxLedger),
		traces: newWindow[sum, *traced](maxTraces), receipts: newWindow[sum, sum](maxReceipts),
		negotiating: newLRU[sourceKey, *negotiating](),
		flagged:     newWindow[sum, flagged](maxMarked), named: newWindow[sum, namedDecision](maxNamed),
	}
}

// flowKey is one session in one protocol.
type flowKey struct {
	sessionKey
	protocol string
}

// flow is a session that is followed; one of the two is set.
type flow struct {
	names    *origin // shared, and never changed
	protocol string
	lastSeen seen
	aaep     *aaepsession.Session
	hook     *hooksession.Session
	hinted   map[string]bool // hints of schemas that were given
	weight   int
	share    *share `snapshot:"-"` // its publisher in the table of flows
}

func (w *flow) id() flowKey { return flowKey{w.names.key, w.protocol} }

func (w *flow) owner() sourceKey { return w.names.key.publisher() }

func (w *flow) holds(h *share) { w.share = h }

// weigh counts what a session remembers, and forgets others if all together remember
// too much: see surplus.
func (m *machine) weigh(w *flow) {
	before := w.weight
	if w.aaep != nil {
		w.weight = w.aaep.Weight()
	} else {
		w.weight = w.hook.Weight()
	}
	m.weight += w.weight - before
	m.flows.count(w.share, byWeight, w.weight-before)
	for m.weight > m.most {
		old, any := m.flows.surplus(byWeight, w.owner(), w.id())
		if !any {
			return
		}
		m.forgetFlow(old, departed{})
	}
}

// departed is what is kept of a session that is not followed any more.
type departed struct {
	aaep   aaepsession.Memory
	hook   hooksession.Memory
	silent *catalogue.Breach // it was said to have fallen silent
}

// passFlows forgets the sessions that have been idle for too long.
func (m *machine) passFlows() {
	for {
		w, ok := m.flows.oldest()
		if !ok {
			return
		}
		if until, idle := m.idle(w.lastSeen, sessionIdle); !idle {
			m.quiet = earlier(m.quiet, until)
			return
		}
		d := departed{}
		if w.aaep != nil {
			if d.silent = w.aaep.Silent(); d.silent != nil {
				m.breach(&fact{protocol: protoAAEP}, *w.names, d.silent)
			}
		}
		m.forgetFlow(w, d)
	}
}

func (m *machine) forgetFlow(w *flow, d departed) {
	if w.aaep != nil {
		d.aaep = w.aaep.Memory()
		m.count(w, w.aaep.Running(), false)
	} else {
		d.hook = w.hook.Memory()
	}
	m.weight -= w.weight
	m.flows.count(w.share, byWeight, -w.weight)
	m.gone.put(w.id(), d)
	m.flows.remove(w.id())
}

// flow finds the session of a fact or begins to follow it.
func (m *machine) flow(f *fact) *flow {
	key := flowKey{f.key, f.protocol}
	w, ok := m.flows.getHashed(key, f.flowHash())
	if !ok {
		if m.flows.len() >= m.opts.MaxSessions {
			if old, any := m.flows.surplus(byPlaces, key.publisher(), key); any {
				m.forgetFlow(old, departed{})
			}
		}
		d, _ := m.gone.get(key)
		w = &flow{names: m.origin(f), protocol: f.protocol}
		if f.aaep != nil {
			w.aaep = aaepsession.Restore(d.aaep)
			m.count(w, false, w.aaep.Running())
			m.unsilence(w, f, d)
		} else {
			w.hook = hooksession.Restore(d.hook)
		}
		m.flows.add(w)
	}
	w.lastSeen = m.here()
	return w
}

// unsilence takes back that a session fell silent.
func (m *machine) unsilence(w *flow, f *fact, d departed) {
	if d.silent == nil {
		return
	}
	m.breach(f, *w.names, &catalogue.Breach{Check: d.silent.Check, What: "the session goes on", Events: []string{f.eventID},
		Seqs: []uint64{f.seq}, Withdraws: d.silent, Retracts: true})
	d.silent = nil
	m.gone.put(w.id(), d)
}

// count keeps how many AAEP sessions of a publisher are running.
func (m *machine) count(w *flow, before, after bool) {
	k := sourceKey{w.names.key.tenant, w.names.key.source}
	switch {
	case after && !before:
		m.running[k]++
	case before && !after:
		if m.running[k]--; m.running[k] <= 0 {
			delete(m.running, k)
		}
	}
}

// follow hands a fact to its session.
func (m *machine) follow(f *fact, n novelty) {
	if f.evidence != nil {
		m.notes(nil, f)
		if n == novel {
			m.recordedUnder(f)
		}
		return
	}
	if f.under != nil {
		m.under(f, f.under)
	}
	if f.kind == kindDecision && n == novel {
		m.reviewed(f)
	}
	if f.marks != 0 {
		m.requested(f)
	}
	if f.receiptOf != "" {
		m.names(f)
	}
	watched := f.key.session != noSession && (f.aaep != nil || f.hook != nil)
	switch {
	case f.aaep != nil && f.kind == kindAnswer:
		m.answer(f)
	case f.aaep != nil && f.aaep.IsHandshake():
		m.negotiate(f)
	case watched && f.aaep != nil:
		m.followAAEP(m.flow(f), f, n)
	case watched:
		m.followHook(m.flow(f), f, n)
	case f.aaep != nil:
		m.notes(nil, f)
		m.breaches(f, f.origin, aaepsession.Hints(f.aaep))
	case f.hook != nil:
		m.notes(nil, f)
		if n == novel {
			m.governed(f)
			m.asDeclared(f.origin, f)
		}
		m.breaches(f, f.origin, hooksession.Alone(f.hook))
	default:
		m.notes(nil, f)
	}
}

func (m *machine) followAAEP(w *flow, f *fact, n novelty) {
	m.notes(w, f)
	if n != novel {
		return
	}
	f.aaep.Seq, f.aaep.At, f.aaep.Recorded, f.aaep.Until = f.seq, f.at, m.offline, m.until
	before, stray := w.aaep.Running(), w.aaep.Unstarted()
	found := w.aaep.Apply(f.aaep)
	m.count(w, before, w.aaep.Running())
	m.weigh(w)
	m.breaches(f, *w.names, found)
	if f.kind == kindPre {
		if asked, accepted, explicit := w.aaep.Confirmation(f.aaep); asked.Seq != 0 {
			f.rests = &confirmation{asked, accepted, explicit}
		}
	}
	if !stray && w.aaep.Unstarted() && m.running[sourceKey{f.key.tenant, f.key.source}] > 0 {
		m.breach(f, *w.names, single("AAEP-C-054", "", f))
	}
	m.token(w, f)
}

func (m *machine) followHook(w *flow, f *fact, n novelty) {
	m.notes(w, f)
	if n != novel {
		w.hook.Amend(f.hook)
		return
	}
	f.hook.Seq, f.hook.At = f.seq, f.at
	m.governed(f)
	m.webVerdict(f)
	if s, ok := m.sessions.peek(f.key); ok && f.kind == kindSessionEnd && s.requested {
		w.hook.Requested(agenthook.PreToolUse)
	}
	found := w.hook.Apply(f.hook)
	m.weigh(w)
	m.breaches(f, *w.names, found)
	m.nonce(w, f)
	m.hooks(w, f)
	m.contradicted(w, f)
	m.asDeclared(*w.names, f)
}

// admitted tells the session of a call that a verdict on it is on record
// (AH-C-032).
func (m *machine) admitted(c *call, f *fact) {
	if f.protocol != protoAgentHook || f.kind != kindPre && f.kind != kindDecision || !c.hasPre || len(c.decisions) == 0 {
		return
	}
	if w, ok := m.flows.peek(flowKey{f.key, protoAgentHook}); ok && w.hook != nil {
		m.breaches(f, *w.names, w.hook.Decided(c.id, c.preEvent))
	}
}

// single is a breach that one event proves.
func single(check, what string, f *fact) *catalogue.Breach {
	b := &catalogue.Breach{Check: check, What: what, Seqs: []uint64{f.seq}, Call: f.callID}
	if f.eventID != "" {
		b.Events = []string{f.eventID}
	}
	return b
}

// notes reports the checks that an event fails by itself; hints once a session.
func (m *machine) notes(w *flow, f *fact) {
	for _, b := range f.notes {
		if b.Severity == events.SeverityInfo && w != nil {
			if w.hinted[b.Check+b.Case] {
				continue
			}
			if w.hinted == nil {
				w.hinted = map[string]bool{}
			}
			w.hinted[b.Check+b.Case] = true
		}
		m.breach(f, f.origin, b)
	}
}

func (m *machine) breaches(f *fact, who origin, found []*catalogue.Breach) {
	for _, b := range found {
		m.breach(f, who, b)
	}
}
