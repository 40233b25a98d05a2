package correlation

import "slices"

// The slots of a session, and the calls that it finds by their decisions, are few
// as a rule: up to so many are looked through one by one, which takes less room
// than a map, and no more time.
const fewEnough = 12

// slot holds the occurrences of one tool call id.
type slot struct {
	key     slotKey
	calls   []*call // open and remembered, in the order they were armed
	count   int     // occurrences so far
	invoked string  // event id of the first AAEP invocation under this id
}

func (s *slot) openCalls() []*call {
	var open []*call
	for _, c := range s.calls {
		if c.open() {
			open = append(open, c)
		}
	}
	return open
}

func (s *slot) oldestOpen() *call {
	for _, c := range s.calls {
		if c.open() {
			return c
		}
	}
	return nil
}

// latestClosed is the youngest closed call that fits.
func (s *slot) latestClosed(fits func(*call) bool) *call {
	for i := len(s.calls) - 1; i >= 0; i-- {
		if c := s.calls[i]; !c.open() && fits(c.unfold()) {
			return c
		}
	}
	return nil
}

// latestLike is latestClosed for what fits no call with other arguments than a
// fact's.
func (s *slot) latestLike(f *fact, fits func(*call) bool) *call {
	for i := len(s.calls) - 1; i >= 0; i-- {
		if c := s.calls[i]; !c.open() && !c.differs(f) && fits(c.unfold()) {
			return c
		}
	}
	return nil
}

// slots are the slots of a session.
type slots struct {
	list  []*slot           // in the order they were made
	byKey map[slotKey]*slot // once there are many
}

func (s *slots) len() int { return len(s.list) }

func (s *slots) get(k slotKey) *slot {
	if s.byKey != nil {
		return s.byKey[k]
	}
	for i := len(s.list) - 1; i >= 0; i-- {
		if s.list[i].key == k {
			return s.list[i]
		}
	}
	return nil
}

func (s *slots) add(sl *slot) {
	s.list = append(s.list, sl)
	switch {
	case s.byKey != nil:
		s.byKey[sl.key] = sl
	case len(s.list) > fewEnough:
		s.byKey = make(map[slotKey]*slot, 2*len(s.list))
		for _, sl := range s.list {
			s.byKey[sl.key] = sl
		}
	}
}

// dropEmpty drops the oldest slot that no remembered call has, and gives it.
func (s *slots) dropEmpty() *slot {
	for i, sl := range s.list {
		if len(sl.calls) == 0 {
			delete(s.byKey, sl.key)
			s.list = slices.Delete(s.list, i, i+1)
			return sl
		}
	}
	return nil
}

// verdicts are the calls of a session by the ids of their decisions.
type verdicts struct {
	list []ruling
	byID map[string]*call // once there are many; then the list is empty
}

type ruling struct {
	id   string
	call *call
}

func (v *verdicts) len() int { return len(v.list) + len(v.byID) }

func (v *verdicts) get(id string) *call {
	if v.byID != nil {
		return v.byID[id]
	}
	for i := len(v.list) - 1; i >= 0; i-- {
		if v.list[i].id == id {
			return v.list[i].call
		}
	}
	return nil
}

func (v *verdicts) put(id string, c *call) {
	v.remove(id)
	switch {
	case v.byID != nil:
		v.byID[id] = c
	case len(v.list) < fewEnough:
		v.list = append(v.list, ruling{id, c})
	default:
		v.byID = make(map[string]*call, 2*fewEnough)
		for _, d := range v.list {
			v.byID[d.id] = d.call
		}
		v.byID[id], v.list = c, nil
	}
}

func (v *verdicts) remove(id string) {
	delete(v.byID, id)
	v.list = slices.DeleteFunc(v.list, func(d ruling) bool { return d.id == id })
}
