package correlation

import "github.com/countersign-dev/countersign/events"

// An approval may be used by another call than the one that waits for it: a retry
// under an id of its own, as docs/approvals.md permits. The call that waited then
// never runs, and no completion of it is missing. Whether the other call may use the
// approval is judged elsewhere (AH-C-104, AH-C-106).

// replaceWaitingCalls notes the calls that an allowed call replaces: those that it tries again,
// and those that wait for its approval.
func (j *judge) replaceWaitingCalls(s *session, c *call, f *fact) {
	if c.directVerdict().verdict != events.Allow {
		return
	}
	before := c.retriedCall
	for range maxRetryChain {
		if before == nil {
			break
		}
		j.replaceCall(before.expand(), c, f)
		before = before.retriedCall
	}
	workflow := firstNonEmpty(c.awaitedApproval().workflow, c.eventApproval.valueOrZero().workflow)
	if workflow == "" {
		return
	}
	s.findNamed(workflow, func(o *call) bool {
		if o.awaitedApproval().workflow == workflow {
			j.replaceCall(o, c, f)
		}
		return false // every call that waits for it
	})
}

// replaceCall notes that a call waited for an approval that another one uses. What AAEP
// says was invoked has to be completed all the same (AAEP-C-081).
func (j *judge) replaceCall(o, by *call, f *fact) {
	v := o.directVerdict().verdict
	waits := (v == events.Ask || v == events.Defer) && !o.hasPost && o.invokedEvent == ""
	if o == by || o.replaced || !waits {
		return
	}
	o.replaced = true
	if o.missingFinding != "" {
		j.retractMissingFinding(o, f, caseReplaced, "another call uses its approval")
		j.findings.emitCall(o)
	}
}
