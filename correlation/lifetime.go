package correlation

// session finds a session or makes it, and notes that it is alive.
func (m *machine) session(f *fact) *session {
	s, ok := m.sessions.getHashed(f.key, f.whose().session)
	if !ok {
		if m.sessions.len() >= m.opts.MaxSessions {
			m.evict()
		}
		floor, _ := m.tombs.get(f.key)
		s = &session{machine: m, origin: m.origin(f), floor: floor}
		if k, known := m.parents.get(f.key); known {
			s.kin = k.rank
		}
		m.sessions.add(s)
	}
	s.lastSeen = m.here()
	return s
}

// evict closes and forgets the least recently active session.
func (m *machine) evict() {
	s, ok := m.sessions.oldest()
	if !ok {
		return
	}
	m.stats.Evicted++
	for len(s.open) > 0 {
		m.abandon(s.open[0], byDeadline, &fact{at: m.now})
	}
	m.forgetSession(s)
}

func (m *machine) forgetSession(s *session) {
	m.tombs.put(s.key, s.highest())
	m.stats.Calls -= len(s.closed)
	for _, c := range s.closed {
		m.releaseDifferences(c)
	}
	m.stats.IDs -= s.slots.len()
	m.sessions.remove(s.key)
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
	for m.sessions.len() > 1 && (m.stats.Calls > m.opts.MaxCalls || m.stats.IDs > m.opts.MaxIDs) {
		m.evict()
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
