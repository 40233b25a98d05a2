package correlation

import "github.com/countersign-dev/countersign/events"

// An approval may be used by another call than the one that waits for it: a retry
// under an id of its own, as docs/approvals.md permits. The call that waited then
// never runs, and no completion of it is missing. Whether the other call may use the
// approval is judged elsewhere (AH-C-104, AH-C-106).

// takesOver notes the calls that an allowed call replaces: those that it tries again,
// and those that wait for its approval.
func (m *machine) takesOver(s *session, c *call, f *fact) {
	if c.own().verdict != events.Allow {
		return
	}
	before := c.previous
	for range maxChain {
		if before == nil {
			break
		}
		m.replace(before.unfold(), c, f)
		before = before.previous
	}
	workflow := first(c.awaited().workflow, c.granted.value().workflow)
	if workflow == "" {
		return
	}
	s.findNamed(workflow, func(o *call) bool {
		if o.awaited().workflow == workflow {
			m.replace(o, c, f)
		}
		return false // every call that waits for it
	})
}

// replace notes that a call waited for an approval that another one uses. What AAEP
// says was invoked has to be completed all the same (AAEP-C-081).
func (m *machine) replace(o, by *call, f *fact) {
	v := o.own().verdict
	waits := (v == events.Ask || v == events.Defer) && !o.hasPost && o.invokedBy == ""
	if o == by || o.replaced || !waits {
		return
	}
	o.replaced = true
	if o.missing != "" {
		m.retractMissing(o, f, detailReplaced, "another call uses its approval")
		m.emit(o)
	}
}
