package correlation

import "github.com/countersign-dev/countersign/events"

// complete takes a completion: it ends the oldest armed occurrence, comes late
// for one that was closed without it, or has nothing before it.
func (m *machine) complete(f *fact) {
	if !f.hasTool() && f.previous == (slotKey{}) {
		return
	}
	s := m.session(f)
	c, inferred := m.consume(s, f)
	if c == nil {
		if again := s.repeated(f); again != nil {
			m.effectFirst(again, f)
			m.completeAgain(again, f)
			return
		}
		if c = m.recallDenied(s, f); c == nil {
			m.orphan(s, f)
			return
		}
		defer m.makeRoom(s, c.slot)
	}
	c.inferred = c.inferred || inferred
	c.complete(f)
	m.unnamedEnd(c, f, inferred)
	m.cameFirstNot(c, f)
	m.judge(c, f)
	m.effectFirst(c, f)
	m.withdraw(c, f)
	m.close(c, stateAfter(f), byPost)
	m.judgeClaims(c, f)
	m.judgeReference(c, f)
	c.executed.raw = nil
	m.emit(c)
}

func (c *call) complete(f *fact) {
	c.describe(f)
	c.see(f)
	c.sayTimes(f)
	c.learn(f)
	c.step(stepCompleted, f)
	c.hasPost, c.postEvent, c.postProtocol = true, f.eventID, f.protocol
	c.outcome, c.mutated = f.outcome, f.mutation
	if !c.hasPre || !c.hasRequest && f.protocol == protoAgentHook {
		c.endedAt = f.said.at
	}
	if f.ran != ranNo {
		c.execSeq, c.executed = f.seq, f.args
	}
}

// orphan records a completion that nothing was before.
func (m *machine) orphan(s *session, f *fact) {
	c := m.occurrence(s, f)
	sl := c.slot
	sl.calls = append(sl.calls, c)
	c.state, c.closing = events.CallOrphaned, byPost
	c.complete(f)
	c.executed.raw = nil
	s.remember(c)
	detail := detailOrphan
	if sl.count > 1 {
		detail = detailOrphanAgain
	}
	m.excusably(ruleOrphan, c, f, about(f.eventID).detail(detail))
	m.orphanChecks(sl, c, f)
	m.spend(c, f)
	m.emit(c)
	m.makeRoom(s, sl)
}

// stateAfter is the state after a completion, by the protocol's own word; a word
// that nobody knows completes the call.
func stateAfter(f *fact) events.CallState {
	switch f.outcome {
	case "failed", "cancelled", "timed_out", "error", "timeout":
		return events.CallFailed
	case "denied", "blocked":
		return events.CallDenied
	}
	return events.CallCompleted
}

// remark takes what a producer says about a call beside announcing and
// completing it. What it says about calls that nobody knows yet is remembered
// if it ends them, and no finding.
func (m *machine) remark(f *fact) {
	s, ok := m.sessions.get(f.key)
	if !ok {
		m.anticipate(f)
		return
	}
	s.lastSeen = m.here()
	c := s.meant(f)
	if c == nil {
		m.excuse(s, f)
		m.anticipate(f)
		return
	}
	m.said(c, f)
	m.emit(c)
}

func (m *machine) stop(c *call, f *fact, state events.CallState, why closing) {
	if c.hasPost {
		return
	}
	c.step(stepClosed, f)
	if c.outcome == "" {
		c.outcome = f.outcome
	}
	if !c.hasRequest {
		c.endedAt = f.said.at
	}
	if c.open() || c.state == events.CallAbandoned {
		m.withdraw(c, f)
		m.close(c, state, why)
		m.judgeClaims(c, f)
	}
}

// meant finds the call that a remark is about: by its id, by the event it
// names, by the approval workflow.
func (s *session) meant(f *fact) *call {
	if sl := s.slotOf(f); sl != nil && f.slot.id != "" {
		if c := sl.oldestOpen(); c != nil {
			return c
		}
		return sl.latestClosed((*call).awaitsPost)
	}
	for _, event := range append([]string{f.eventID}, f.links...) {
		if c := s.findNamed(event, func(c *call) bool { return c.knows(event) }); c != nil {
			return c
		}
	}
	workflow := f.approval.value().workflow
	if workflow == "" {
		return nil
	}
	return s.findNamed(workflow, func(c *call) bool { return c.awaited().workflow == workflow })
}
