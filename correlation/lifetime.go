package correlation

// ensureSession finds a session or makes it, and notes that it is alive.
func (m *machine) ensureSession(f *fact) *session {
	s, ok := m.sessions.getHashed(f.key, f.originHashes().session)
	if !ok {
		if m.sessions.len() >= m.opts.MaxSessions {
			m.evictSession(byPlaces, f.key)
		}
		floor, _ := m.sessionTombstones.get(f.key)
		s = &session{machine: m, origin: m.sharedOrigin(f), occurrenceFloor: int32(floor)}
		s.parentLinkRank = m.lineage.parentOf(f.key).rank
		m.sessions.add(s)
	}
	s.lastActivity = m.timers.currentActivity()
	return s
}

// evictSession closes and forgets a session for something of another one, which stays: see
// surplus. It reports whether there was one.
func (m *machine) evictSession(by measure, stays sessionKey) bool {
	s, ok := m.sessions.surplus(by, stays.publisher(), stays)
	if !ok {
		return false
	}
	m.stats.Evicted++
	for len(s.open) > 0 {
		m.abandonCall(s.open[0], closedByDeadline, &fact{at: m.timers.now()})
	}
	m.forgetSession(s)
	return true
}

func (m *machine) forgetSession(s *session) {
	m.sessionTombstones.put(s.key, s.highestOccurrence())
	for _, sl := range s.groups.list {
		if n := len(sl.calls); n > 0 {
			m.keepDenial(sl.calls[n-1])
		}
	}
	m.countCalls(s, -len(s.closed))
	for _, c := range s.closed {
		m.releaseCallDifferences(c)
	}
	m.countIDs(s, -s.groups.len())
	m.sessions.remove(s.key)
}

// countCalls and countIDs count what a session remembers, for all and for its
// publisher.
func (m *machine) countCalls(s *session, n int) {
	m.stats.Calls += n
	m.sessions.count(s.share, byCalls, n)
}

func (m *machine) countIDs(s *session, n int) {
	m.stats.IDs += n
	m.sessions.count(s.share, byIDs, n)
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
	for m.stats.Calls > m.opts.MaxCalls && m.evictSession(byCalls, s.key) {
	}
	for m.stats.IDs > m.opts.MaxIDs && m.evictSession(byIDs, s.key) {
	}
}

// endSession abandons what is still open when a session ends.
func (m *machine) endSession(f *fact) {
	if f.key.session == noSession {
		return
	}
	s, ok := m.sessions.get(f.key)
	if !ok {
		return
	}
	s.lastActivity = m.timers.currentActivity()
	for len(s.open) > 0 {
		c := s.open[0]
		c.addStep(stepClosed, f)
		m.abandonCall(c, closedBySessionEnd, f)
	}
}

// keepCallArgs counts the arguments that are kept for a call, and drops them if
// there is no room; releaseArgs gives the room back.
func (m *machine) keepCallArgs(c *call) {
	size := len(c.args.canonical)
	if size > maxArgsPerCall || m.stats.ArgsBytes+size > m.opts.MaxArgsBytes {
		c.args.canonical = nil
		return
	}
	m.stats.ArgsBytes += size
}

func (m *machine) releaseCallArgs(c *call) {
	m.stats.ArgsBytes -= len(c.args.canonical)
	c.args.canonical = nil
}
