package correlation

import "github.com/countersign-dev/countersign/events"

// chain is a call's place among the attempts at the same thing.
type chain struct {
	from, to sum   // of the attempt before and of the last one after; zero if there is none
	attempt  int32 // from 2; zero for the first one
}

// predecessor finds the call that a new one tries again: the one that it names
// (AgentHook's retry.previous_tool_call_id), or the last one under its id with the
// same arguments, unless that was allowed or nobody judged it.
func (s *session) predecessor(f *fact) *call {
	if c := s.named(f); c != nil {
		return c
	}
	sl := s.slotOf(f)
	c := sl.latestLike(f, func(c *call) bool { return c.state != events.CallOrphaned && c.same(f) != different })
	if c == nil || (f.slot.id == "" && c.same(f) != equal) {
		return nil
	}
	if v := c.standing().verdict; v == "" || v == events.Allow {
		return nil
	}
	return c
}

// named is the last call under the id that a fact says it tries again.
func (s *session) named(f *fact) *call {
	if f.previous == (slotKey{}) || f.previous == f.slot {
		return nil
	}
	if sl := s.slots.get(f.previous, f.previous.hash()); sl != nil && len(sl.calls) > 0 {
		return sl.calls[len(sl.calls)-1].unfold()
	}
	return nil
}

// follows links a call with the attempt before it. That one is put out again if
// it is over.
func (m *machine) follows(c, before *call) {
	if before == c || c.chain.from != (sum{}) || before.order >= c.order {
		return
	}
	c.chain.from, c.chain.attempt = before.sum(), max(before.chain.attempt, 1)+1
	before.chain.to = c.sum()
	m.emit(before)
}

func callIDOf(s sum) string {
	if s.none() {
		return ""
	}
	return hexID(callIDPrefix, s)
}
