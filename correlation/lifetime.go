package correlation

// ensureSession finds a session or makes it, and notes that it is active.
func (e *engine) ensureSession(f *fact) *session {
	if s := e.calls.active(f); s != nil {
		return s
	}
	if e.calls.isFull() {
		e.evictSession(byPlaces, f.key)
	}
	return e.calls.addSession(e.sharedOrigin(f), e.lineage.parentOf(f.key).rank)
}

// evictSession closes and forgets a session for something of another one, which stays: see
// surplus. It reports whether there was one.
func (e *engine) evictSession(by measure, stays sessionKey) bool {
	s := e.calls.surplus(by, stays)
	if s == nil {
		return false
	}
	e.stats.Evicted++
	for len(s.open) > 0 {
		e.abandonCall(s.open[0], closedByDeadline, &fact{at: e.timers.now()})
	}
	e.calls.forgetSession(s)
	return true
}

// enforceCallBounds abandons and forgets what the bounds of Options leave no room for.
// The session that is being worked on stays.
func (e *engine) enforceCallBounds(s *session, sl *callGroup) {
	if len(sl.calls) > maxOpenPerID {
		if open := sl.openCalls(); len(open) > maxOpenPerID {
			e.abandonCall(open[0], closedByDeadline, &fact{at: e.timers.now()})
		}
	}
	if len(s.open) > e.opts.MaxOpenPerSession {
		e.abandonCall(s.open[0], closedByDeadline, &fact{at: e.timers.now()})
	}
	for _, by := range [...]measure{byCalls, byIDs} {
		for e.calls.exceeds(by) && e.evictSession(by, s.key) {
		}
	}
}

// endSession abandons what is still open when a session ends.
func (e *engine) endSession(f *fact) {
	if f.key.session == noSession {
		return
	}
	s := e.calls.touch(f.key)
	if s == nil {
		return
	}
	for len(s.open) > 0 {
		c := s.open[0]
		c.addStep(stepClosed, f)
		e.abandonCall(c, closedBySessionEnd, f)
	}
}

// sharedOrigin is a fact's origin to keep. Sessions of one publisher share the names of
// that, and a session's calls and what follows their order share all of it.
func (e *engine) sharedOrigin(f *fact) *origin {
	if s := e.calls.find(f.key); s != nil && *s.origin == f.origin {
		return s.origin
	}
	if w := e.trackers.find(f.key, f.protocol); w != nil && *w.origin == f.origin {
		return w.origin
	}
	o := f.origin
	names := e.history.sharedNames(o.key.publisher())
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
