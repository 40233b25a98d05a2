package correlation

// ensureSession finds a session or makes it, and notes that it is active.
func (m *machine) ensureSession(f *fact) *session {
	if s := m.calls.active(f); s != nil {
		return s
	}
	if m.calls.isFull() {
		m.evictSession(byPlaces, f.key)
	}
	return m.calls.addSession(m.sharedOrigin(f), m.lineage.parentOf(f.key).rank)
}

// evictSession closes and forgets a session for something of another one, which stays: see
// surplus. It reports whether there was one.
func (m *machine) evictSession(by measure, stays sessionKey) bool {
	s := m.calls.surplus(by, stays)
	if s == nil {
		return false
	}
	m.stats.Evicted++
	for len(s.open) > 0 {
		m.abandonCall(s.open[0], closedByDeadline, &fact{at: m.timers.now()})
	}
	m.calls.forgetSession(s)
	return true
}

// enforceCallBounds abandons and forgets what the bounds of Options leave no room for.
// The session that is being worked on stays.
func (m *machine) enforceCallBounds(s *session, sl *callGroup) {
	if len(sl.calls) > maxOpenPerID {
		if open := sl.openCalls(); len(open) > maxOpenPerID {
			m.abandonCall(open[0], closedByDeadline, &fact{at: m.timers.now()})
		}
	}
	if len(s.open) > m.opts.MaxOpenPerSession {
		m.abandonCall(s.open[0], closedByDeadline, &fact{at: m.timers.now()})
	}
	for _, by := range [...]measure{byCalls, byIDs} {
		for m.calls.exceeds(by) && m.evictSession(by, s.key) {
		}
	}
}

// endSession abandons what is still open when a session ends.
func (m *machine) endSession(f *fact) {
	if f.key.session == noSession {
		return
	}
	s := m.calls.touch(f.key)
	if s == nil {
		return
	}
	for len(s.open) > 0 {
		c := s.open[0]
		c.addStep(stepClosed, f)
		m.abandonCall(c, closedBySessionEnd, f)
	}
}

// sharedOrigin is a fact's origin to keep. Sessions of one publisher share the names of
// that, and a session's calls and what follows their order share all of it.
func (m *machine) sharedOrigin(f *fact) *origin {
	if s := m.calls.find(f.key); s != nil && *s.origin == f.origin {
		return s.origin
	}
	if w := m.trackers.find(f.key, f.protocol); w != nil && *w.origin == f.origin {
		return w.origin
	}
	o := f.origin
	names := m.history.sharedNames(o.key.publisher())
	o.key.tenant, o.key.source = names.tenant, names.source
	for _, n := range [...]struct {
		name *string
		key  string
	}{{&o.tenant, o.key.tenant}, {&o.source, o.key.source}, {&o.session, o.key.session}} {
		if *n.name == n.key {
			*n.name = n.key
		}
	}
	return &o
}
