package correlation

import "time"

// pass lets time pass up to t: deadlines that lie before or at it fire, and
// sessions that have been idle for too long are forgotten. Until the time that it
// finds there is nothing of the kind, unless a deadline is set that comes before.
// That holds because sessions are ordered by when they were last seen: whoever gets
// one to the front notes that it was seen (peek leaves it where it is). Otherwise
// who goes on from a snapshot would forget at another time.
func (m *machine) pass(t time.Time) {
	if m.offline {
		m.take(t)
	} else {
		m.reach(t)
	}
	if !m.now.Before(m.quiet) {
		m.passDeadlines()
		m.passFlows()
		m.passSessions()
	}
	if m.negotiating.len() > 0 {
		m.passNegotiations()
	}
}

// passDeadlines abandons the calls whose deadlines have come.
func (m *machine) passDeadlines() {
	for {
		c, ok := m.due.due(m.now)
		if !ok {
			break
		}
		m.abandon(c, byDeadline, &fact{at: c.deadline})
	}
	m.quiet = m.now.Add(sessionIdle)
	if next, any := m.due.next(); any {
		m.quiet = earlier(m.quiet, next.at)
	}
}

// passSessions forgets the sessions that have been idle for too long.
func (m *machine) passSessions() {
	for {
		s, ok := m.sessions.oldest()
		if !ok {
			return
		}
		if until, idle := m.idle(s.lastSeen, sessionIdle); !idle {
			m.quiet = earlier(m.quiet, until)
			return
		}
		if len(s.open) > 0 { // to be looked at after another day, and nobody waits for it
			if again, kept := m.sessions.get(s.key); kept {
				again.lastSeen = m.here()
			}
			continue
		}
		m.forgetSession(s)
	}
}

// soonest is the first of some points in time, if there is any.
type soonest struct {
	at  time.Time
	any bool
}

func (s *soonest) take(t time.Time) {
	if !s.any || t.Before(s.at) {
		s.at, s.any = t, true
	}
}

func (m *machine) nextFlow(next *soonest) {
	if w, ok := m.flows.oldest(); ok {
		at, _ := m.idle(w.lastSeen, sessionIdle)
		next.take(at)
	}
}
