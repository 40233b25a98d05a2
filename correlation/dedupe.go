package correlation

// sourceKey is one publisher of one tenant.
type sourceKey struct{ tenant, source string }

// sourceState is what is remembered of a publisher over all its sessions.
type sourceState struct {
	key     sourceKey
	seen    *window[sum, variants] // by event id
	emitted *window[sum, struct{}] // findings that were put out
}

func (s *sourceState) id() sourceKey { return s.key }

// variant is one content that came under an event id.
type variant struct{ content, core sum }

// variants are the contents that came under an event id; it is rare that there
// is more than one.
type variants struct {
	first variant
	more  []variant
}

// has tells whether a content is known, and whether its core is.
func (v variants) has(content, core sum) (same, sameCore bool) {
	same, sameCore = v.first.content == content, v.first.core == core
	for _, o := range v.more {
		same, sameCore = same || o.content == content, sameCore || o.core == core
	}
	return same, sameCore
}

// novelty is how new an event is.
type novelty int

const (
	novel     novelty = iota // not seen before, or a conflict with what was seen
	duplicate                // seen before, to the letter
	amended                  // seen before but for what it says about verdict and approval
)

func (m *machine) source(k sourceKey) *sourceState {
	if s, ok := m.sources.get(k); ok {
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
		seen:    newWindow[sum, variants](noLimit),
		emitted: newWindow[sum, struct{}](findingsPerEvent * m.opts.MaxEventsPerSource),
	}
	m.sources.add(s)
	return s
}

// novelty remembers a fact's id and content. Requests are not in it: asking
// again with the same event is how AgentHook resumes after an approval.
func (m *machine) novelty(f *fact) novelty {
	switch {
	case f.kind == kindRequest || f.kind == kindReply:
		return novel
	case f.kind == kindDecision && f.decisionID == "": // only in recordings
		return novel
	case f.kind != kindDecision && f.eventID == "":
		return novel
	}
	id := f.idSum()
	seen := m.source(sourceKey{f.key.tenant, f.key.source}).seen
	known, there := seen.get(id)
	if !there {
		seen.put(id, variants{first: variant{f.content, f.core}})
		m.eventIDs++
		m.trimIDs(seen)
		return novel
	}
	same, sameCore := known.has(f.content, f.core)
	if same {
		return duplicate
	}
	if len(known.more) < maxVariants-1 {
		known.more = append(known.more, variant{f.content, f.core})
		seen.put(id, known)
	}
	if sameCore {
		return amended
	}
	m.report(ruleConflict, nil, f, about(f.eventID).distinct(f.core))
	return novel
}

// trimIDs forgets event ids while all publishers together have too many: first
// those of the publisher that was silent for the longest time, then those of the
// one that just spoke. Nobody loses those that every publisher may have.
func (m *machine) trimIDs(speaking *window[sum, variants]) {
	for m.eventIDs > m.opts.MaxEvents {
		from := speaking
		if silent, any := m.sources.oldest(); any && silent.seen.len() > m.opts.MaxEventsPerSource {
			from = silent.seen
		}
		if from.len() <= m.opts.MaxEventsPerSource {
			return
		}
		from.drop()
		m.eventIDs--
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
	if f.frame != c.frame || compare(c.args, f.args) == different {
		m.report(ruleConflict, nil, f, about(f.eventID).distinct(f.core))
	}
}

// secondInvocation: in AAEP an id belongs to one invocation of a session
// (AAEP-C-052).
func (m *machine) secondInvocation(s *session, c *call, f *fact) {
	if f.kind != kindPre || f.protocol != protoAAEP || f.slot.id == "" {
		return
	}
	sl := s.slot(f.slot)
	if sl.invoked == "" {
		sl.invoked = first(f.eventID, "?")
		return
	}
	if sl.invoked != f.eventID {
		m.report(ruleReused, c, f, about(sl.invoked, f.eventID).detail(detailReusedAAEP))
	}
}
