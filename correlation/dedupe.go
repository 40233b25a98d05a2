package correlation

// sourceKey is one publisher of one tenant.
type sourceKey struct{ tenant, source string }

// sourceState is what is remembered of a publisher over all its sessions.
type sourceState struct {
	key     sourceKey
	seen    *window[sum, original] // by event id
	others  map[sum][]variant      // what else came under an id, which is rare
	emitted *window[sum, struct{}] // findings that were put out
}

func (s *sourceState) id() sourceKey { return s.key }

// variant is one content that came under an event id.
type variant struct{ content, core sum }

// original is the content that came first under an id.
type original struct {
	variant
	seq uint64
}

// has tells whether a content came under an id, and whether its core did.
func (s *sourceState) has(id sum, first, v variant) (same, sameCore bool) {
	same, sameCore = first.content == v.content, first.core == v.core
	for _, o := range s.others[id] {
		same, sameCore = same || o.content == v.content, sameCore || o.core == v.core
	}
	return same, sameCore
}

// another notes one more content under an id.
func (s *sourceState) another(id sum, v variant) {
	if len(s.others[id]) == maxVariants-1 {
		return
	}
	if s.others == nil {
		s.others = map[sum][]variant{}
	}
	s.others[id] = append(s.others[id], v)
}

// drop forgets the n event ids that came first.
func (s *sourceState) drop(n int) {
	for i := range n {
		if len(s.others) == 0 {
			break
		}
		delete(s.others, s.seen.nth(i))
	}
	s.seen.drop(n)
}

// novelty is how new an event is.
type novelty int

const (
	novel     novelty = iota // not seen before, or a conflict with what was seen
	duplicate                // seen before, to the letter
	amended                  // seen before but for what it says about verdict and approval
)

func (m *machine) source(k sourceKey) *sourceState { return m.sourceHashed(k, k.hash()) }

// sourceHashed is source for a key whose hash is known.
func (m *machine) sourceHashed(k sourceKey, hash uint32) *sourceState {
	if s, ok := m.sources.getHashed(k, hash); ok {
		return s
	}
	if m.sources.len() >= m.opts.MaxSources {
		if old, any := m.sources.oldest(); any {
			m.eventIDs -= old.seen.len()
		}
		m.sources.removeOldest()
	}
	s := &sourceState{
		key:     k,
		seen:    newWindow[sum, original](noLimit),
		emitted: newWindow[sum, struct{}](findingsPerEvent * m.opts.MaxEventsPerSource),
	}
	m.sources.add(s)
	return s
}

// novelty remembers a fact's id and content. Requests are not in it: asking
// again with the same event is how AgentHook resumes after an approval, and the
// event that was asked about is none that was seen before.
func (m *machine) novelty(f *fact) novelty {
	switch {
	case f.kind == kindRequest || f.kind == kindAsked || f.kind == kindReply:
		return novel
	case f.kind == kindDecision && f.decisionID == "": // only in recordings
		return novel
	case f.kind != kindDecision && f.eventID == "":
		return novel
	}
	id, v := f.idSum(), variant{f.content, f.core}
	s := m.sourceHashed(sourceKey{f.key.tenant, f.key.source}, f.whose().source)
	hash := id.hash()
	known := s.seen.atHashed(id, hash)
	if known == nil {
		m.trimIDs(s)
		*s.seen.add(id, hash) = original{v, f.seq}
		m.eventIDs++
		return novel
	}
	same, sameCore := s.has(id, known.variant, v)
	if same {
		return duplicate
	}
	s.another(id, v)
	if sameCore {
		return amended
	}
	m.report(ruleConflict, nil, f, about(f.eventID).distinct(f.core).proven(known.seq))
	return novel
}

// trimIDs makes room for one more event id, before it comes, so that what is full
// does not grow once more. Those go first of the publisher that was silent for the
// longest time, then those of the one that just spoke. Nobody loses those that every
// publisher may have.
func (m *machine) trimIDs(speaking *sourceState) {
	for m.eventIDs >= m.opts.MaxEvents {
		from := speaking
		if silent, any := m.sources.oldest(); any && silent.seen.len() > m.opts.MaxEventsPerSource {
			from = silent
		}
		over := from.seen.len() - m.opts.MaxEventsPerSource
		if from == speaking {
			over++ // with the one that comes
		}
		n := min(over, atOnce(m.opts.MaxEvents))
		if n <= 0 {
			return
		}
		from.drop(n)
		m.eventIDs -= n
	}
}

// idSum gives f.id; whoever reads messages ahead has set it.
func (f *fact) idSum() sum {
	if f.id == (sum{}) {
		if f.kind == kindDecision {
			f.id = sumOf("decision", f.decisionID)
		} else {
			f.id = sumOf("event", f.eventID)
		}
	}
	return f.id
}

// conflict compares a request with the event that shares its id: they must be
// the same but for what admission adds (AH-C-050).
func (m *machine) conflict(c *call, f *fact) {
	crossed := (f.kind == kindPre && c.frameKind == kindRequest) || (f.kind == kindRequest && c.frameKind == kindPre)
	if !crossed || f.eventID == "" || f.eventID != c.frameEvent {
		return
	}
	if f.frame != c.frame || compare(&c.args, &f.args) == different {
		m.report(ruleConflict, nil, f, about(f.eventID).distinct(f.core).in(c))
	}
}

// secondInvocation: in AAEP an id belongs to one invocation of a session
// (AAEP-C-052).
func (m *machine) secondInvocation(s *session, c *call, f *fact) {
	if f.kind != kindPre || f.slot.id == "" {
		return
	}
	sl := s.slot(f)
	if sl.invoked == "" {
		sl.invoked = first(f.eventID, "?")
		return
	}
	if sl.invoked != f.eventID {
		v := about(sl.invoked, f.eventID)
		if o := s.findIn(f.slot, sl.invoked, func(o *call) bool { return o.preEvent == sl.invoked }); o != nil {
			v.in(o)
		}
		m.report(ruleReused, c, f, v.detail(detailReusedAAEP))
	}
}
