package correlation

// sourceKey is one publisher of one tenant.
type sourceKey struct{ tenant, source string }

// sourceState is what is remembered of a publisher over all its sessions.
type sourceState struct {
	seen    *window[sum, []variant] // by event id
	emitted *window[sum, struct{}]  // findings that were put out
}

// variant is one content that came under an event id.
type variant struct{ content, core sum }

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
		m.sources.removeOldest()
	}
	s := &sourceState{
		seen:    newWindow[sum, []variant](m.opts.MaxEventsPerSource),
		emitted: newWindow[sum, struct{}](findingsPerEvent * m.opts.MaxEventsPerSource),
	}
	m.sources.add(k, s)
	return s
}

// novelty remembers a fact's id and content. Requests are not in it: asking
// again with the same event is how AgentHook resumes after an approval.
func (m *machine) novelty(f *fact) novelty {
	id := sumOf("event", f.eventID)
	switch {
	case f.kind == kindRequest || f.kind == kindReply:
		return novel
	case f.kind == kindDecision && f.decisionID == "": // only in recordings
		return novel
	case f.kind == kindDecision:
		id = sumOf("decision", f.decisionID)
	case f.eventID == "":
		return novel
	}
	seen := m.source(sourceKey{f.key.tenant, f.key.source}).seen
	known, there := seen.get(id)
	result := novel
	for _, v := range known {
		if v.content == f.content {
			return duplicate
		}
		if v.core == f.core {
			result = amended
		}
	}
	if len(known) < maxVariants {
		seen.put(id, append(known, variant{f.content, f.core}))
	}
	if there && result == novel {
		m.report(ruleConflict, nil, f, about(f.eventID).distinct(f.core))
	}
	return result
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
