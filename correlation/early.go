package correlation

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// maxEarlyUpdates bounds what a session remembers of calls that nobody has announced
// yet; the oldest is forgotten.
const maxEarlyUpdates = 64

// earlyUpdate is what a producer said of a call's end, or of its fail mode, before
// anything announced the call: events overtake each other, and the same events
// must give the same findings.
type earlyUpdate struct {
	kind              factKind
	seq               uint64
	at                time.Time
	callKey           callKey
	protocol, eventID string
	outcome           string
	verdictClaim      verdictClaim
	approval          *approval
	happenedAt        time.Time // when it was, by its producer's clock
}

// endsCall tells whether a remark says how a call ended or why it needed no verdict.
func (f *fact) endsCall() bool {
	return f.kind == kindStopped || f.kind == kindError || f.kind == kindFailOpen
}

// bufferEarlyUpdate remembers a remark about a call that was never heard of. Under an
// id that was, a remark that fits no call says something of one that is over.
func (e *engine) bufferEarlyUpdate(f *fact) {
	if !f.endsCall() || f.callKey.id == "" {
		return
	}
	s := e.ensureSession(f)
	if s.findGroup(f) != nil {
		return
	}
	if len(s.earlyUpdates) >= maxEarlyUpdates {
		s.earlyUpdates = slices.Delete(s.earlyUpdates, 0, 1)
	}
	s.earlyUpdates = append(s.earlyUpdates, earlyUpdate{
		kind: f.kind, seq: f.seq, at: f.at, callKey: f.callKey, protocol: f.protocol, eventID: f.eventID,
		outcome: f.outcome, verdictClaim: f.verdictClaim, approval: f.approval, happenedAt: f.producerTimes.happenedAt,
	})
}

// applyEarlyUpdates applies to a call what was said of it before it was announced.
func (e *engine) applyEarlyUpdates(s *session, c *call) {
	for i := 0; i < len(s.earlyUpdates); {
		r := s.earlyUpdates[i]
		if r.callKey != c.group.key {
			i++
			continue
		}
		s.earlyUpdates = slices.Delete(s.earlyUpdates, i, i+1)
		f := &fact{kind: r.kind, seq: r.seq, at: r.at, callKey: r.callKey, origin: *s.origin, protocol: r.protocol, eventID: r.eventID,
			outcome: r.outcome, verdictClaim: r.verdictClaim, approval: r.approval, producerTimes: producerTimes{happenedAt: r.happenedAt}}
		e.applyCallUpdate(c, f)
	}
}

// applyCallUpdate applies a remark to its call.
func (e *engine) applyCallUpdate(c *call, f *fact) {
	c.applyClaims(f)
	switch f.kind {
	case kindFailOpen:
		c.failOpen = true
	case kindStopped:
		e.stopCall(c, f, events.CallDenied, closedByStop)
	case kindError:
		e.stopCall(c, f, events.CallFailed, closedByError)
	case kindAdmissionReply:
		e.settleVerdict(c, f)
	}
}

// findingRef is a finding that later events may take back.
type findingRef struct{ rule, id string }

// addRetractable notes a finding that would not have been made, or not as it was, if what
// may come late had come in time: the fail mode, the verdict, the announcement.
func (x *details) addRetractable(rule, id string) {
	x.retractable = append(x.retractable, findingRef{rule, id})
}

// reportRetractable reports what a late word may take back, under the checks that it breaks
// as well.
func (fs *findings) reportRetractable(r *Rule, c *call, f *fact, v *findingSpec) {
	c.addRetractable(r.Name, fs.reportRuleFinding(r, c, f, v))
	for _, check := range equivalentChecks(r, c, f, v) {
		_, id := identifyFinding(checkRules[check], c, f, v.asCheckFinding(r))
		c.addRetractable(check, id)
	}
}

// takeRetractable gives what was found of a call under these rules, and forgets it.
func (x *details) takeRetractable(rules ...string) (list []findingRef) {
	x.retractable = slices.DeleteFunc(x.retractable, func(made findingRef) bool {
		is := slices.Contains(rules, made.rule)
		if is {
			list = append(list, made)
		}
		return is
	})
	if len(x.retractable) == 0 {
		x.retractable = nil
	}
	return list
}

// isFailOpen reports whether the publisher's fail mode let the call pass, and the
// log shows why: the admitter recorded the request, and no verdict came of it. The
// publisher's word alone would let it run whatever it likes without asking.
func (x *details) isFailOpen() bool { return x.failOpen && x.hasRequest }

// retractForFailMode takes back what was found of a call that ran without a verdict: its
// publisher's fail mode had let it pass, and said so late.
func (j *judge) retractForFailMode(s *session, f *fact) {
	sl := s.findGroup(f)
	if f.kind != kindFailOpen || sl == nil || f.callKey.id == "" {
		return
	}
	c := sl.latestClosed(func(c *call) bool { return c.hasPost && !c.failOpen && c.state != events.CallOrphaned })
	if c == nil {
		return
	}
	c.failOpen = true
	if !c.isFailOpen() {
		return
	}
	excused := []string{"AH-C-073", "AH-C-084"}
	if c.verdictClaim.verdict == "" { // that a claimed verdict was not recorded, no fail mode excuses
		excused = append(excused, ExecutedWithoutVerdict)
	}
	for _, x := range c.takeRetractable(excused...) {
		back := findingFrom(c.firstEvent(), f.eventID).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).retracting(x.id)
		if x.rule == ExecutedWithoutVerdict {
			j.findings.reportRuleFinding(ruleWithoutVerdict, c, f, back)
			j.findings.reportRuleFinding(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), c.postEvent).withCase(caseFailOpen).withSeverity(events.SeverityInfo))
			continue
		}
		j.findings.emitFinding(checkRules[x.rule], c, f, back.withText("the fail mode had let it pass"))
	}
	j.findings.emitCall(c)
}
