package correlation

import "slices"

// The slots of a session, and the calls that it finds by their decisions, are few
// as a rule: up to so many are looked through one by one, which takes less room
// than a table, and no more time.
const linearLimit = 12

// callGroup holds the occurrences of one tool call id.
type callGroup struct {
	key          callKey
	calls        []*call // open and remembered, in the order they were armed
	count        int     // occurrences so far
	invokedEvent string  // event id of the first AAEP invocation under this id
}

// newCallGroup makes a slot, with room for the usual one call.
func newCallGroup(k callKey, count int) *callGroup {
	made := &struct {
		callGroup
		usual [1]*call
	}{callGroup: callGroup{key: k, count: count}}
	made.calls = made.usual[:0]
	return &made.callGroup
}

func (s *callGroup) openCalls() []*call {
	var open []*call
	for _, c := range s.calls {
		if c.isOpen() {
			open = append(open, c)
		}
	}
	return open
}

func (s *callGroup) oldestOpen() *call {
	for _, c := range s.calls {
		if c.isOpen() {
			return c
		}
	}
	return nil
}

// oldestOpenOf is the oldest open call of a tool.
func (s *callGroup) oldestOpenOf(tool string) *call {
	for _, c := range s.calls {
		if c.isOpen() && c.tool == tool {
			return c
		}
	}
	return nil
}

// latestClosed is the youngest closed call that fits.
func (s *callGroup) latestClosed(fits func(*call) bool) *call {
	for i := len(s.calls) - 1; i >= 0; i-- {
		if c := s.calls[i]; !c.isOpen() && fits(c.expand()) {
			return c
		}
	}
	return nil
}

// latestClosedLike is latestClosed for what fits no call with other arguments than a
// fact's.
func (s *callGroup) latestClosedLike(f *fact, fits func(*call) bool) *call {
	for i := len(s.calls) - 1; i >= 0; i-- {
		if c := s.calls[i]; !c.isOpen() && !c.hasOtherArguments(f) && fits(c.expand()) {
			return c
		}
	}
	return nil
}

// callGroups are the slots of a session.
type callGroups struct {
	list   []*callGroup // in the order they were made
	hashes []uint32     // of their keys
	table  []uint64     // of places in list and one, once there are many
}

func (s *callGroups) len() int { return len(s.list) }

// get finds a slot by its key and the hash of that.
func (s *callGroups) get(k callKey, hash uint32) *callGroup {
	if s.table == nil {
		for i := len(s.hashes) - 1; i >= 0; i-- {
			if s.hashes[i] == hash && s.list[i].key == k {
				return s.list[i]
			}
		}
		return nil
	}
	mask := len(s.table) - 1
	for at := int(hash) & mask; s.table[at] != 0; at = (at + 1) & mask {
		if uint32(s.table[at]>>32) == hash {
			if sl := s.list[uint32(s.table[at])-1]; sl.key == k {
				return sl
			}
		}
	}
	return nil
}

func (s *callGroups) add(sl *callGroup, hash uint32) {
	s.list, s.hashes = append(s.list, sl), append(s.hashes, hash)
	switch n := len(s.list); {
	case n <= linearLimit:
	case 2*n > len(s.table):
		s.rebuildTable()
	default:
		insertPosition(s.table, hash, uint32(n))
	}
}

// rebuildTable makes the table anew.
func (s *callGroups) rebuildTable() {
	size := minTableSize
	for size < 4*len(s.list) {
		size *= 2
	}
	s.table = make([]uint64, size)
	for i, hash := range s.hashes {
		insertPosition(s.table, hash, uint32(i+1))
	}
}

// dropEmpty drops the oldest slot that no remembered call has, and gives it.
func (s *callGroups) dropEmpty() *callGroup {
	for i, sl := range s.list {
		if len(sl.calls) == 0 {
			s.list, s.hashes = slices.Delete(s.list, i, i+1), slices.Delete(s.hashes, i, i+1)
			if s.table != nil {
				s.rebuildTable()
			}
			return sl
		}
	}
	return nil
}

// decisionIndex are the calls of a session by the ids of their decisions.
type decisionIndex struct {
	list []decisionCall
	byID map[string]*call // once there are many; then the list is empty
}

type decisionCall struct {
	id   string
	call *call
}

func (v *decisionIndex) len() int { return len(v.list) + len(v.byID) }

func (v *decisionIndex) get(id string) *call {
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

// put notes a call under a decision under which none is noted.
func (v *decisionIndex) put(id string, c *call) {
	switch {
	case v.byID != nil:
		v.byID[id] = c
	case len(v.list) < linearLimit:
		v.list = append(v.list, decisionCall{id, c})
	default:
		v.byID = make(map[string]*call, 2*linearLimit)
		for _, d := range v.list {
			v.byID[d.id] = d.call
		}
		v.byID[id], v.list = c, nil
	}
}

func (v *decisionIndex) remove(id string) {
	delete(v.byID, id)
	v.list = slices.DeleteFunc(v.list, func(d decisionCall) bool { return d.id == id })
}
