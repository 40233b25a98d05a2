package correlation

import "github.com/countersign-dev/countersign/events"

// retryChain is a call's place among the attempts at the same thing.
type retryChain struct {
	from, to sum   // of the attempt before and of the last one after; zero if there is none
	attempt  int32 // from 2; zero for the first one
}

// findRetriedCall finds the call that a new one tries again: the one that it names
// (AgentHook's retry.previous_tool_call_id), or the last one under its id with the
// same arguments, unless that was allowed or nobody judged it.
func (s *session) findRetriedCall(f *fact) *call {
	if c := s.findNamedRetry(f); c != nil {
		return c
	}
	sl := s.findGroup(f)
	c := sl.latestClosedLike(f, func(c *call) bool { return c.state != events.CallOrphaned && c.compareFact(f) != argsDifferent })
	if c == nil || (f.callKey.id == "" && c.compareFact(f) != argsEqual) {
		return nil
	}
	if v := c.effectiveVerdict().verdict; v == "" || v == events.Allow {
		return nil
	}
	return c
}

// findNamedRetry is the last call under the id that a fact says it tries again.
func (s *session) findNamedRetry(f *fact) *call {
	if f.retriedKey == (callKey{}) || f.retriedKey == f.callKey {
		return nil
	}
	if sl := s.groups.get(f.retriedKey, f.retriedKey.hash()); sl != nil && len(sl.calls) > 0 {
		return sl.calls[len(sl.calls)-1].expand()
	}
	return nil
}

// linkRetry links a call with the attempt before it. That one is put out again if
// it is over.
func (cs *calls) linkRetry(c, before *call) {
	if before == c || c.retryChain.from != (sum{}) || before.order >= c.order {
		return
	}
	c.retryChain.from, c.retryChain.attempt = before.idSum(), max(before.retryChain.attempt, 1)+1
	before.retryChain.to = c.idSum()
	cs.findings.emitCall(before)
}

func callIDOf(s sum) string {
	if s.isZero() {
		return ""
	}
	return hexID(callIDPrefix, s)
}
