package correlation

// A table that the tenants of a shard have in common must not become the table of
// the one that sends most. Where it is full, an entry goes of the tenant that holds
// most of it, and there of the publisher that holds most of that: the one that was
// used least recently. A tenant that holds less than an equal share loses nothing to
// others. Among equals it is the one that wants room, then the first by name, so that
// what goes depends on what was applied and on nothing else.

// measure is what a table is full of.
type measure int

const (
	byPlaces measure = iota // entries
	byCalls                 // calls of sessions
	byIDs                   // tool call ids of sessions
	byWeight                // what sessions remember whose order is followed
	measures
)

// owned is an entry of a table of which a publisher holds it.
type owned interface {
	owner() sourceKey
	holds(h *share) // what the table counts for the publisher
}

// share is what a tenant, or one of its publishers, holds of a table.
type share struct {
	key    sourceKey // of a tenant without a publisher
	tenant *share    // nil of a tenant
	has    [measures]int
	rank   [measures]int // where it stands in the rankings

	publishers     [measures]ranking // of a tenant
	newest, oldest int32             // of a publisher: its entries in the order of use; 0 if there is none
}

// shares are all shares of a table. The zero value has none.
type shares struct {
	publishers map[sourceKey]*share
	tenants    map[string]*share
	ranked     [measures]ranking // the tenants
}

// of finds a publisher, or makes it.
func (s *shares) of(k sourceKey) *share {
	if h := s.publishers[k]; h != nil {
		return h
	}
	if s.publishers == nil {
		s.publishers, s.tenants = map[sourceKey]*share{}, map[string]*share{}
	}
	t := s.tenants[k.tenant]
	if t == nil {
		t = &share{key: sourceKey{tenant: k.tenant}}
		s.tenants[k.tenant] = t
		for by := range measures {
			s.ranked[by].add(by, t)
		}
	}
	h := &share{key: k, tenant: t}
	s.publishers[k] = h
	for by := range measures {
		t.publishers[by].add(by, h)
	}
	return h
}

// count notes that a publisher holds n more, or less. One that holds no entry any
// more is forgotten.
func (s *shares) count(h *share, by measure, n int) {
	t := h.tenant
	h.has[by], t.has[by] = h.has[by]+n, t.has[by]+n
	t.publishers[by].settle(by, h)
	s.ranked[by].settle(by, t)
	if by != byPlaces || h.has[byPlaces] > 0 {
		return
	}
	delete(s.publishers, h.key)
	for by := range measures {
		t.publishers[by].remove(by, h)
	}
	if t.has[byPlaces] > 0 {
		return
	}
	delete(s.tenants, t.key.tenant)
	for by := range measures {
		s.ranked[by].remove(by, t)
	}
}

// ranking is a heap: the one that holds most first, among equals the first by name.
// No two are equal in both.
type ranking []*share

func (h *share) above(by measure, o *share) bool {
	if h.has[by] != o.has[by] {
		return h.has[by] > o.has[by]
	}
	if h.key.tenant != o.key.tenant {
		return h.key.tenant < o.key.tenant
	}
	return h.key.source < o.key.source
}

func (r ranking) swap(by measure, i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].rank[by], r[j].rank[by] = i, j
}

// settle moves one to where it belongs.
func (r ranking) settle(by measure, h *share) {
	i := h.rank[by]
	for i > 0 && r[i].above(by, r[(i-1)/2]) {
		r.swap(by, i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		most := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r); child++ {
			if r[child].above(by, r[most]) {
				most = child
			}
		}
		if most == i {
			return
		}
		r.swap(by, i, most)
		i = most
	}
}

func (r *ranking) add(by measure, h *share) {
	h.rank[by] = len(*r)
	*r = append(*r, h)
	r.settle(by, h)
}

func (r *ranking) remove(by measure, h *share) {
	i, last := h.rank[by], len(*r)-1
	r.swap(by, i, last)
	(*r)[last] = nil
	*r = (*r)[:last]
	if i < last {
		r.settle(by, (*r)[i])
	}
}

// leading are the two that hold most; own comes first among equals. The second is
// nil if there is one only.
func (r ranking) leading(by measure, own *share) [2]*share {
	two := [2]*share{r[0], nil}
	for i := 1; i <= 2 && i < len(r); i++ {
		if two[1] == nil || r[i].above(by, two[1]) {
			two[1] = r[i]
		}
	}
	if own != nil && own != two[0] && own.has[by] == two[0].has[by] {
		two[0], two[1] = own, two[0]
	}
	return two
}

// surplus gives the entry that makes room where a table is full by a measure, for
// something of a publisher. The entry of the key stays, for it is worked on; ok is
// false if there is no other.
func (l *lru[K, V]) surplus(by measure, of sourceKey, stays K) (v V, ok bool) {
	if l.n == 0 {
		return v, false
	}
	for _, t := range l.held.ranked[by].leading(by, l.held.tenants[of.tenant]) {
		if t == nil {
			break
		}
		own := l.held.publishers[of]
		if own != nil && own.tenant != t {
			own = nil
		}
		for _, p := range t.publishers[by].leading(by, own) {
			if p == nil {
				break
			}
			if e := &l.entries[p.oldest]; e.key != stays {
				return e.value, true
			}
		}
	}
	return v, false
}

// count notes how much more of something an entry's publisher has, or less.
func (l *lru[K, V]) count(h *share, by measure, n int) {
	if h != nil && n != 0 {
		l.held.count(h, by, n)
	}
}

// linkOwn and unlinkOwn keep the order of use among the entries of one publisher.
func (l *lru[K, V]) linkOwn(i int32) {
	e := &l.entries[i]
	h := e.share
	if h == nil {
		return
	}
	e.newer, e.older = 0, h.newest
	if h.newest != 0 {
		l.entries[h.newest].newer = i
	} else {
		h.oldest = i
	}
	h.newest = i
}

func (l *lru[K, V]) unlinkOwn(i int32) {
	e := &l.entries[i]
	h := e.share
	if h == nil {
		return
	}
	if e.newer != 0 {
		l.entries[e.newer].older = e.older
	} else {
		h.newest = e.older
	}
	if e.older != 0 {
		l.entries[e.older].newer = e.newer
	} else {
		h.oldest = e.newer
	}
}
