package correlation

import "slices"

// The slots of a session, and the calls that it finds by their decisions, are few
// as a rule: up to so many are looked through one by one, which takes less room
// than a table, and no more time.
const fewEnough = 12

// slot holds the occurrences of one tool call id.
type slot struct {
	key     slotKey
	calls   []*call // open and remembered, in the order they were armed
	count   int     // occurrences so far
	invoked string  // event id of the first AAEP invocation under this id
}

// newSlot makes a slot, with room for the usual one call.
func newSlot(k slotKey, count int) *slot {
	made := &struct {
		slot
		usual [1]*call
	}{slot: slot{key: k, count: count}}
	made.calls = made.usual[:0]
	return &made.slot
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

// oldestOpenOf is the oldest open call of a tool.
func (s *slot) oldestOpenOf(tool string) *call {
	for _, c := range s.calls {
		if c.open() && c.tool == tool {
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
	list   []*slot  // in the order they were made
	hashes []uint32 // of their keys
	table  []uint64 // of places in list and one, once there are many
}

func (s *slots) len() int { return len(s.list) }

// get finds a slot by its key and the hash of that.
func (s *slots) get(k slotKey, hash uint32) *slot {
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

func (s *slots) add(sl *slot, hash uint32) {
	s.list, s.hashes = append(s.list, sl), append(s.hashes, hash)
	switch n := len(s.list); {
	case n <= fewEnough:
	case 2*n > len(s.table):
		s.index()
	default:
		lies(s.table, hash, uint32(n))
	}
}

// index makes the table anew.
func (s *slots) index() {
	size := smallestTable
	for size < 4*len(s.list) {
		size *= 2
	}
	s.table = make([]uint64, size)
	for i, hash := range s.hashes {
		lies(s.table, hash, uint32(i+1))
	}
}

// dropEmpty drops the oldest slot that no remembered call has, and gives it.
func (s *slots) dropEmpty() *slot {
	for i, sl := range s.list {
		if len(sl.calls) == 0 {
			s.list, s.hashes = slices.Delete(s.list, i, i+1), slices.Delete(s.hashes, i, i+1)
			if s.table != nil {
				s.index()
			}
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

// put notes a call under a decision under which none is noted.
func (v *verdicts) put(id string, c *call) {
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
