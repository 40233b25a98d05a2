package correlation

// session finds a session or makes it, and notes that it is alive.
func (m *machine) session(f *fact) *session {
	s, ok := m.sessions.getHashed(f.key, f.whose().session)
	if !ok {
		if m.sessions.len() >= m.opts.MaxSessions {
			m.evict(byPlaces, f.key)
		}
		floor, _ := m.tombs.get(f.key)
		s = &session{machine: m, origin: m.origin(f), floor: int32(floor)}
		if k, known := m.parents.get(f.key); known {
			s.kin = k.rank
		}
		m.sessions.add(s)
	}
	s.lastSeen = m.here()
	return s
}

// evict closes and forgets a session for something of another one, which stays: see
// surplus. It reports whether there was one.
func (m *machine) evict(by measure, stays sessionKey) bool {
	s, ok := m.sessions.surplus(by, stays.publisher(), stays)
	if !ok {
		return false
	}
	m.stats.Evicted++
	for len(s.open) > 0 {
		m.abandon(s.open[0], byDeadline, &fact{at: m.now})
	}
	m.forgetSession(s)
	return true
}

func (m *machine) forgetSession(s *session) {
	m.tombs.put(s.key, s.highest())
	for _, sl := range s.slots.list {
		if n := len(sl.calls); n > 0 {
			m.keepDenial(sl.calls[n-1])
		}
	}
	m.countCalls(s, -len(s.closed))
	for _, c := range s.closed {
		m.releaseDifferences(c)
	}
	m.countIDs(s, -s.slots.len())
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

// makeRoom abandons and forgets what the bounds of Options leave no room for.
// The session that is being worked on stays.
func (m *machine) makeRoom(s *session, sl *slot) {
	if len(sl.calls) > maxOpenPerID {
		if open := sl.openCalls(); len(open) > maxOpenPerID {
			m.abandon(open[0], byDeadline, &fact{at: m.now})
		}
	}
	if len(s.open) > m.opts.MaxOpenPerSession {
		m.abandon(s.open[0], byDeadline, &fact{at: m.now})
	}
	for m.stats.Calls > m.opts.MaxCalls && m.evict(byCalls, s.key) {
	}
	for m.stats.IDs > m.opts.MaxIDs && m.evict(byIDs, s.key) {
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
	s.lastSeen = m.here()
	for len(s.open) > 0 {
		c := s.open[0]
		c.step(stepClosed, f)
		m.abandon(c, bySessionEnd, f)
	}
}

// keepArgs counts the arguments that are kept for a call, and drops them if
// there is no room; releaseArgs gives the room back.
func (m *machine) keepArgs(c *call) {
	size := len(c.args.raw)
	if size > maxArgsPerCall || m.stats.ArgsBytes+size > m.opts.MaxArgsBytes {
		c.args.raw = nil
		return
	}
	m.stats.ArgsBytes += size
}

func (m *machine) releaseArgs(c *call) {
	m.stats.ArgsBytes -= len(c.args.raw)
	c.args.raw = nil
}
