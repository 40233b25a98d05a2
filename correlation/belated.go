package correlation

import "github.com/countersign-dev/countersign/events"

// A completion may come before what announces its call. That it did stays a
// finding, though a small one (AAEP-C-080, AH-C-078): that nobody had announced it is
// withdrawn. And the announcement, once it is there, begins no second call that would
// be missing its end. Which of the two happened first only
// the producer's own clock can tell: runtimes repeat ids, and the next call under
// one must not be taken for the beginning of the last.

// belated finds the call that a pre event or request should have been before: the
// oldest one under its id, or of its tool and arguments where nothing has ids, that
// ended without.
func belated(sl *slot, f *fact) *call {
	if f.kind != kindPre && f.kind != kindRequest {
		return nil
	}
	for _, c := range sl.calls {
		if c.state == events.CallOrphaned && !c.unfold().hasPre && c.overtook(f) && (f.slot.id != "" || compare(&c.executed, &f.args) != different) {
			return c
		}
	}
	return nil
}

// overtook tells whether the end of a call, or that it was stopped, was reported
// before the announcement that by its own word is not later. A clock that shows
// whole seconds does not tell a request for the next call from one for this.
func (c *call) overtook(f *fact) bool {
	stopped := c.closing == byStop || c.closing == byError
	if !c.hasPost && !stopped || f.said.at.IsZero() || c.endedAt.IsZero() {
		return false
	}
	if c.postProtocol != f.protocol && (f.slot.id == "" || c.same(f) == different) {
		return false
	}
	fine := f.kind == kindPre || c.endedAt.Nanosecond() != 0
	return f.said.at.Before(c.endedAt) || fine && f.said.at.Equal(c.endedAt)
}

// end is the completion of a call, as a fact.
func (c *call) end() *fact {
	f := &fact{
		kind: kindPost, seq: c.execSeq, protocol: c.postProtocol, origin: *c.session.origin, eventID: c.postEvent,
		callID: c.id, tool: c.tool, slot: c.slot.key, args: c.executed, approval: c.granted,
		ran: c.ran, outcome: c.outcome, startedAt: c.claimed.StartedAt.Time, mutation: c.mutated,
	}
	for _, s := range c.timeline {
		if s.step == stepCompleted {
			f.at = s.at()
		}
	}
	return f
}

// announceLate takes the announcement of a call whose end is known. What it adds
// to what is known counts: the arguments, and what it says of the verdict.
func (m *machine) announceLate(c *call, f *fact) {
	end, before := c.end(), c.standing()
	c.attach(f)
	if c.state != events.CallOrphaned {
		m.heardLate(c, end, before)
		if st := c.standing(); end.ran == ranMaybe && st.verdict == events.Deny {
			m.judgeDoubtful(c, end, st)
		}
		if st := c.standing(); c.match == matchInconclusive && end.args.known && st.verdict != events.Deny {
			m.compareInput(c, end, st)
		}
		return
	}
	tried := c.session.predecessor(f)
	c.state = stateAfter(end)
	m.announcedAfterAll(c, f)
	if tried != nil && tried.order < c.order && c.previous == nil { // what it tries again counts, whenever it says so
		c.previous = tried.judged()
		m.follows(c, tried)
	}
	if f.kind == kindPre && f.preCommit && f.slot.id != "" {
		m.check("AH-C-083", c, f, about(c.postEvent, f.eventID).saying("its end was reported before it was announced"))
	}
	switch st := c.standing(); {
	case st.verdict != "" || m.opts.RequireVerdict: // an announcement is no verdict
		m.judge(c, end)
	case end.ran != ranNo:
		m.compareInput(c, end, st)
	}
}

// announcedAfterAll takes back that a call had not been announced, and says what is
// left of it.
func (m *machine) announcedAfterAll(c *call, f *fact) {
	for _, made := range c.taken(OrphanCompletion, "AH-C-078", "AAEP-C-080", "AAEP-C-083") {
		back := about(c.postEvent, f.eventID).detail(detailWithdrawn).grade(events.SeverityInfo).withdrawing(made.id)
		if made.rule == OrphanCompletion {
			m.report(ruleOrphan, c, f, back)
			continue
		}
		rule := checkRules[made.rule]
		m.finding(rule, c, f, back.saying("what announces the call came later"))
		m.finding(rule, c, f, about(c.postEvent, f.eventID).detail(detailOvertaken).grade(events.SeverityLow).saying("its end overtook what announces it"))
	}
}

// heardLate judges an execution again that turns out to have been denied or put
// off.
func (m *machine) heardLate(c *call, end *fact, before standing) {
	st := c.standing()
	if !c.hasPost || st.ledger != nil || st.verdict == "" || st.verdict == events.Allow || st.verdict == before.verdict {
		return
	}
	m.judge(c, end)
}

// cameFirst: a call that claims to have asked first was reported as done before
// (AH-C-083). If it is reported again, what had been reported was another call.
func (m *machine) cameFirst(sl *slot, c *call, f *fact) {
	if f.kind != kindPre || !f.preCommit || f.slot.id == "" {
		return
	}
	for _, o := range sl.calls {
		if o.state == events.CallOrphaned && !o.differs(f) && o.unfold().same(f) != different {
			c.cameFirst = madeFinding{o.postEvent, m.check("AH-C-083", c, f, about(o.postEvent, f.eventID).in(o).saying("its end was reported before it was announced"))}
			return
		}
	}
}

// cameFirstNot takes that back.
func (m *machine) cameFirstNot(c *call, f *fact) {
	if c.cameFirst.id == "" {
		return
	}
	m.check("AH-C-083", c, f, about(c.cameFirst.rule, c.firstEvent(), f.eventID).detail(detailWithdrawn).
		grade(events.SeverityInfo).withdrawing(c.cameFirst.id).saying("its own end came later"))
	c.cameFirst = madeFinding{}
}
