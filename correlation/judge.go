package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Statuses of an approval that matter here.
const (
	statusPending  = "pending"
	statusApproved = "approved"
	statusConsumed = "consumed"
)

// standing is the verdict that stands for a call, and where it comes from.
type standing struct {
	verdict   events.Verdict // "" if there is none
	ledger    *verdictRec    // the recorded decision; nil if the verdict is only claimed
	decidedAt time.Time      // of a claimed verdict, if it says so
	inherited bool           // from the call that this one tries again
}

// own is the verdict for this very call: the latest recorded decision counts.
// Without one, or against a later claim that the runtime's gates denied, what
// its events say counts: nobody claims a denial that was not (AH-C-075).
//
// A call that AAEP says was invoked runs on the allow that was recorded before: what
// is decided when it is asked about once more is no verdict on what runs already.
func (c *call) own() standing {
	d := c.lastDecision()
	if before := c.decidedBefore(c.invokedSeq); before != nil && before.verdict == events.Allow {
		d = before
	}
	if d == nil || (c.claim.verdict == events.Deny && c.claim.seq > d.seq) {
		return standing{verdict: c.claim.verdict, decidedAt: c.claim.decidedAt}
	}
	return standing{verdict: d.verdict, ledger: d}
}

// decidedBefore is the last decision before a place in the log, nil if there is none.
func (c *call) decidedBefore(seq uint64) *verdictRec {
	for i := len(c.decisions) - 1; i >= 0; i-- {
		if c.decisions[i].seq < seq {
			return &c.decisions[i]
		}
	}
	return nil
}

// standing follows the retries back where the call has no recorded verdict of
// its own: what was denied or put off stays so under another id, but an allow
// counts only for the same tool and arguments.
func (c *call) standing() standing { return c.standingWithin(maxChain) }

func (c *call) standingWithin(depth int) standing {
	own := c.own()
	if own.ledger != nil || c.previous == nil || depth == 0 {
		return own
	}
	before := c.previous.unfold().standingWithin(depth - 1)
	if before.verdict == "" || (own.verdict != "" && before.verdict.Strictness() < own.verdict.Strictness()) {
		return own
	}
	if before.verdict == events.Allow && (c.previous.tool != c.tool || compare(&c.previous.args, &c.args) == different) {
		return own
	}
	before.inherited = true
	return before
}

// judge holds an execution against the verdicts recorded before it.
func (m *machine) judge(c *call, f *fact) {
	if f.ran == ranNo {
		return
	}
	st := c.standing()
	before := m.reported
	switch {
	case st.verdict == "":
		m.judgeUnasked(c, f)
	case f.ran == ranMaybe && st.verdict == events.Deny:
		m.judgeDoubtful(c, f, st)
	case f.ran == ranMaybe && st.verdict != events.Allow:
	case st.verdict == events.Deny:
		m.report(ruleDespiteDeny, c, f, about(c.firstEvent(), f.eventID).proof(st))
	case st.verdict != events.Allow:
		m.judgeAsked(c, f, st)
	default:
		m.judgeAllowed(c, f, st)
	}
	if st.ledger == nil && st.verdict != "" && m.opts.RequireVerdict && m.reported == before {
		m.excusably(ruleWithoutVerdict, c, f, about(c.firstEvent(), f.eventID).detail(detailOnlyClaimed))
	}
	if st.verdict != events.Deny {
		m.compareInput(c, f, st)
	}
	m.judgeVerdictClaim(c, f)
	m.spend(c, f)
}

// judgeDoubtful judges the end of a denied call in a word that AAEP has for what
// failed and for what never began. A call that was invoked after its denial began
// nonetheless. One that was invoked before may only have been closed, but it did not
// wait.
func (m *machine) judgeDoubtful(c *call, f *fact, st standing) {
	denied := c.claim.seq
	if st.ledger != nil {
		denied = st.ledger.seq
	}
	switch {
	case c.invokedSeq == 0 || denied == 0 || c.ran == ranYes: // another protocol's event said that it ran
	case c.invokedSeq > denied:
		c.ran = ranYes
		m.report(ruleDespiteDeny, c, f, about(c.firstEvent(), f.eventID).proof(st).proven(c.invokedSeq))
	case st.ledger != nil:
		m.report(ruleBeforeVerdict, c, f, about(c.firstEvent(), f.eventID).proof(st).proven(c.invokedSeq).detail(detailInvokedFirst))
	}
}

func (m *machine) judgeUnasked(c *call, f *fact) {
	m.unanswered(c, f)
	m.ranDenied(c, f)
	switch {
	case !m.opts.RequireVerdict:
	case c.failedOpen():
		m.report(ruleWithoutVerdict, c, f, about(c.firstEvent(), f.eventID).detail(detailFailOpen).grade(events.SeverityInfo))
	case c.failOpen:
		m.excusably(ruleWithoutVerdict, c, f, about(c.firstEvent(), f.eventID).detail(detailFailOpenClaimed))
		m.outsideGate(c, f)
	default:
		m.excusably(ruleWithoutVerdict, c, f, about(c.firstEvent(), f.eventID))
		m.outsideGate(c, f)
	}
}

// judgeAsked: ask and defer let a call run only once it was approved. Of a
// recorded ask, only a new decision says that it was (AH-C-105); for a verdict
// that is only claimed, what the events say counts.
func (m *machine) judgeAsked(c *call, f *fact, st standing) {
	granted := f.approval.value()
	if granted.status != statusApproved {
		granted = c.granted.value()
	}
	if st.ledger != nil || !c.approvedBy(granted) {
		detail := approvalDetail(c, f, granted)
		c.stated.reportedIf(detail != "", reportedApproval)
		m.report(rulePending, c, f, about(c.firstEvent(), f.eventID).proof(st).detail(detail))
		return
	}
	if !f.startedAt.IsZero() && f.startedAt.Add(m.opts.ClockSkew).Before(granted.decidedAt) {
		m.report(rulePending, c, f, about(c.firstEvent(), f.eventID).proof(st))
		return
	}
	until := c.awaited().expiresAt
	if until.IsZero() {
		until = granted.expiresAt
	}
	if start := c.start(f); !until.IsZero() && start.After(until) {
		m.report(ruleExpired, c, f, about(c.firstEvent(), f.eventID).proof(st).detail(detailApprovalExpired))
	}
}

// awaited is the approval that the call waits for.
func (c *call) awaited() approval {
	if d := c.lastDecision(); d != nil && d.pending != nil {
		return *d.pending
	}
	return c.pending.value()
}

// approvedBy tells whether an approval is for what the call waits for
// (AH-C-104) and was given in time (AH-C-103).
func (c *call) approvedBy(a approval) bool {
	want := c.awaited()
	inTime := want.expiresAt.IsZero() || a.decidedAt.IsZero() || !a.decidedAt.After(want.expiresAt)
	return a.status == statusApproved && inTime &&
		agree(a.workflow, want.workflow) && agree(a.action, want.action)
}

func agree(a, b string) bool { return a == "" || b == "" || a == b }

// start is when the execution began, as far as can be said: the producer's
// claim if it is not after its report, the AAEP invocation, or the report.
func (c *call) start(f *fact) time.Time {
	switch {
	case !f.startedAt.IsZero() && !f.startedAt.After(f.at):
		return f.startedAt
	case f.protocol == protoAAEP && c.hasPre && c.preProtocol == protoAAEP:
		return c.preAt
	}
	return f.at
}

func (m *machine) judgeAllowed(c *call, f *fact, st standing) {
	m.unnamedApproval(c, f)
	m.unapproved(c, f, st)
	decided := st.decidedAt
	if st.ledger != nil {
		decided = st.ledger.at
		if !st.ledger.expires.IsZero() && c.start(f).After(st.ledger.expires) {
			m.report(ruleExpired, c, f, about(c.firstEvent(), f.eventID).proof(st))
		}
	}
	if !f.startedAt.IsZero() && !decided.IsZero() && f.startedAt.Add(m.opts.ClockSkew).Before(decided) {
		m.report(ruleBeforeVerdict, c, f, about(c.firstEvent(), f.eventID).proof(st))
	}
}

// lateVerdict judges a first verdict that was recorded after the execution.
func (m *machine) lateVerdict(c *call, f *fact) {
	if c.execSeq == 0 {
		return
	}
	late := about(c.firstEvent(), c.postEvent).detail(detailRecordedLate)
	if f.decision.verdict == events.Deny {
		late.detail(detailDeniedLate)
	}
	if m.opts.RequireVerdict && !c.failedOpen() {
		late.grade(ruleWithoutVerdict.Severity) // a verdict afterwards makes it no better
	}
	var wrong []madeFinding
	if c.claim.verdict == "" || c.claim.verdict.Strictness() >= native(f.decision.verdict).Strictness() {
		wrong = c.taken(ExecutedWithoutVerdict, "AH-C-073", "AH-C-082")
	}
	for _, made := range wrong {
		back := about(c.firstEvent(), f.eventID).proven(f.seq).detail(detailRecordedLate).grade(events.SeverityInfo).withdrawing(made.id)
		if made.rule == ExecutedWithoutVerdict {
			m.report(ruleWithoutVerdict, c, f, back)
			continue
		}
		m.finding(checkRules[made.rule], c, f, back.saying("the verdict was recorded later"))
	}
	m.report(ruleBeforeVerdict, c, f, late)
}

// decisionFor is the decision that an event of the given sequence could know:
// the last one before it, else the first.
func (c *call) decisionFor(seq uint64) *verdictRec {
	for i := len(c.decisions) - 1; i >= 0; i-- {
		if c.decisions[i].seq < seq {
			return &c.decisions[i]
		}
	}
	if len(c.decisions) > 0 {
		return &c.decisions[0]
	}
	return nil
}

// native is a verdict as AgentHook can say it.
func native(v events.Verdict) events.Verdict {
	if v == events.Defer {
		return events.Ask
	}
	return v
}

// drift reports that a call ran as something else than what its verdict, request or
// announcement says. A recorded reason is the publisher's own claim: it lowers the
// grade and excuses nothing.
func (m *machine) drift(c *call, f *fact, st standing, reason bool, detail string) {
	grade := events.SeverityHigh
	switch {
	case reason:
		grade = events.SeverityMedium
	case st.ledger != nil && st.ledger.receipt:
		grade = events.SeverityCritical
	}
	m.report(ruleDrift, c, f, about(c.firstEvent(), f.eventID).proof(st).detail(detail).grade(grade).saying(c.standingFor(st)))
}

// standingFor says what is known of a call before it ran: only what a recorded allow
// is about was admitted.
func (c *call) standingFor(st standing) string {
	switch {
	case st.ledger != nil && st.verdict == events.Allow:
		return "admitted"
	case st.ledger != nil || c.hasRequest:
		return "requested"
	}
	return "announced"
}

// missing reports a call that nobody completed. A deny is no missing
// completion, and what was only asked for must be completed in AgentHook, where
// asking is the pre event, but not in AAEP.
func (m *machine) missing(c *call, f *fact) {
	grade, due := events.SeverityMedium, c.hasPre || c.hasRequest
	if first(c.preProtocol, c.protocol) == protoAAEP {
		grade, due = events.SeverityHigh, c.hasPre
	}
	if !due || c.replaced {
		return
	}
	detail := detailDeadline
	if c.closing == bySessionEnd {
		detail = detailSessionEnd
	}
	v := about(c.firstEvent()).detail(detail).grade(grade)
	c.missing = m.report(ruleMissing, c, f, v)
	c.missingCheck = m.finding(c.missingRule(), c, f, v.as(ruleMissing))
}

// withdraw takes a missing completion back that a late event proved wrong. In
// AAEP the completion must come before the session's end (AAEP-C-081), so there
// it stands.
func (m *machine) withdraw(c *call, f *fact) {
	if c.missing == "" || (c.closing == bySessionEnd && first(c.preProtocol, c.protocol) == protoAAEP) {
		return
	}
	m.retractMissing(c, f, detailWithdrawn, "the completion has arrived after all")
}

// retractMissing takes the finding of a missing completion back, and says why.
func (m *machine) retractMissing(c *call, f *fact, detail, why string) {
	back := about(c.firstEvent(), f.eventID).detail(detail).grade(events.SeverityInfo).withdrawing(c.missing)
	m.report(ruleMissing, c, f, back)
	check := about(c.firstEvent(), f.eventID).detail(detail).withdrawing(c.missingCheck)
	m.finding(c.missingRule(), c, f, check.saying(why).grade(events.SeverityInfo))
	c.missing, c.missingCheck = "", ""
}
