package correlation

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// maxEarly bounds what a session remembers of calls that nobody has announced
// yet; the oldest is forgotten.
const maxEarly = 64

// earlyRemark is what a producer said of a call's end, or of its fail mode, before
// anything announced the call: events overtake each other, and the same events
// must give the same findings.
type earlyRemark struct {
	kind              kind
	seq               uint64
	at                time.Time
	slot              slotKey
	protocol, eventID string
	outcome           string
	claim             claim
	approval          *approval
	said              time.Time // when it was, by its producer's clock
}

// ends tells whether a remark says how a call ended or why it needed no verdict.
func (f *fact) ends() bool {
	return f.kind == kindStopped || f.kind == kindError || f.kind == kindFailOpen
}

// anticipate remembers a remark about a call that was never heard of. Under an
// id that was, a remark that fits no call says something of one that is over.
func (m *machine) anticipate(f *fact) {
	if !f.ends() || f.slot.id == "" {
		return
	}
	s := m.session(f)
	if s.slotOf(f) != nil {
		return
	}
	if len(s.early) >= maxEarly {
		s.early = slices.Delete(s.early, 0, 1)
	}
	s.early = append(s.early, earlyRemark{
		kind: f.kind, seq: f.seq, at: f.at, slot: f.slot, protocol: f.protocol, eventID: f.eventID,
		outcome: f.outcome, claim: f.claim, approval: f.approval, said: f.said.at,
	})
}

// recall applies to a call what was said of it before it was announced.
func (m *machine) recall(s *session, c *call) {
	for i := 0; i < len(s.early); {
		r := s.early[i]
		if r.slot != c.slot.key {
			i++
			continue
		}
		s.early = slices.Delete(s.early, i, i+1)
		f := &fact{kind: r.kind, seq: r.seq, at: r.at, slot: r.slot, origin: *s.origin, protocol: r.protocol, eventID: r.eventID,
			outcome: r.outcome, claim: r.claim, approval: r.approval, said: said{at: r.said}}
		m.said(c, f)
	}
}

// said applies a remark to its call.
func (m *machine) said(c *call, f *fact) {
	c.learn(f)
	switch f.kind {
	case kindFailOpen:
		c.failOpen = true
	case kindStopped:
		m.stop(c, f, events.CallDenied, byStop)
	case kindError:
		m.stop(c, f, events.CallFailed, byError)
	case kindReply:
		m.settle(c, f)
	}
}

// madeFinding is a finding that later events may take back.
type madeFinding struct{ rule, id string }

// excusable notes a finding that would not have been made, or not as it was, if what
// may come late had come in time: the fail mode, the verdict, the announcement.
func (c *call) excusable(rule, id string) {
	c.excuses = append(c.excuses, madeFinding{rule, id})
}

// excusably reports what a late word may take back, under the checks that it breaks
// as well.
func (m *machine) excusably(r *Rule, c *call, f *fact, v *violation) {
	c.excusable(r.Name, m.report(r, c, f, v))
	for _, check := range equivalents(r, c, f, v) {
		_, id := identify(checkRules[check], c, f, v.as(r))
		c.excusable(check, id)
	}
}

// taken gives what was found of a call under these rules, and forgets it.
func (c *call) taken(rules ...string) (list []madeFinding) {
	c.excuses = slices.DeleteFunc(c.excuses, func(made madeFinding) bool {
		is := slices.Contains(rules, made.rule)
		if is {
			list = append(list, made)
		}
		return is
	})
	if len(c.excuses) == 0 {
		c.excuses = nil
	}
	return list
}

// failedOpen reports whether the publisher's fail mode let the call pass, and the
// log shows why: the admitter recorded the request, and no verdict came of it. The
// publisher's word alone would let it run whatever it likes without asking.
func (c *call) failedOpen() bool { return c.failOpen && c.hasRequest }

// excuse takes back what was found of a call that ran without a verdict: its
// publisher's fail mode had let it pass, and said so late.
func (m *machine) excuse(s *session, f *fact) {
	sl := s.slotOf(f)
	if f.kind != kindFailOpen || sl == nil || f.slot.id == "" {
		return
	}
	c := sl.latestClosed(func(c *call) bool { return c.hasPost && !c.failOpen && c.state != events.CallOrphaned })
	if c == nil {
		return
	}
	c.failOpen = true
	if !c.failedOpen() {
		return
	}
	excused := []string{"AH-C-073", "AH-C-084"}
	if c.claim.verdict == "" { // that a claimed verdict was not recorded, no fail mode excuses
		excused = append(excused, ExecutedWithoutVerdict)
	}
	for _, x := range c.taken(excused...) {
		back := about(c.firstEvent(), f.eventID).detail(detailWithdrawn).grade(events.SeverityInfo).withdrawing(x.id)
		if x.rule == ExecutedWithoutVerdict {
			m.report(ruleWithoutVerdict, c, f, back)
			m.report(ruleWithoutVerdict, c, f, about(c.firstEvent(), c.postEvent).detail(detailFailOpen).grade(events.SeverityInfo))
			continue
		}
		m.finding(checkRules[x.rule], c, f, back.saying("the fail mode had let it pass"))
	}
	m.emit(c)
}
