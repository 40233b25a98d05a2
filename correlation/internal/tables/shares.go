package tables

// A table that the tenants of a shard have in common must not become the table of
// the one that sends most. Where it is full, an entry goes of the tenant that holds
// most of it, and there of the publisher that holds most of that: the one that was
// used least recently. A tenant that holds less than an equal share loses nothing to
// others. Among equals it is the one that wants room, then the first by name, so that
// what goes depends on what was applied and on nothing else.

// Measure is what a table is full of.
type Measure int

// The measures.
const (
	ByPlaces Measure = iota // entries
	ByCalls                 // calls of sessions
	ByIDs                   // tool call ids of sessions
	ByWeight                // what sessions remember that are followed in their order
	measures
)

// Holder is a publisher of a tenant, which holds entries of a table.
type Holder struct{ Tenant, Source string }

// owned is an entry of a table of which a publisher holds it.
type owned interface {
	Owner() Holder
	Holds(h *Share) // what the table counts for the publisher
}

// Share is what a tenant, or one of its publishers, holds of a table.
type Share struct {
	key    Holder // of a tenant without a publisher
	tenant *Share // nil of a tenant
	has    [measures]int
	rank   [measures]int // where it stands in the rankings

	publishers     [measures]ranking // of a tenant
	newest, oldest int32             // of a publisher: its entries in the order of use; 0 if there is none
}

// shares are all shares of a table. The zero value has none.
type shares struct {
	publishers map[Holder]*Share
	tenants    map[string]*Share
	ranked     [measures]ranking // the tenants
}

// of finds a publisher, or makes it.
func (s *shares) of(k Holder) *Share {
	if h := s.publishers[k]; h != nil {
		return h
	}
	if s.publishers == nil {
		s.publishers, s.tenants = map[Holder]*Share{}, map[string]*Share{}
	}
	t := s.tenants[k.Tenant]
	if t == nil {
		t = &Share{key: Holder{Tenant: k.Tenant}}
		s.tenants[k.Tenant] = t
		for by := range measures {
			s.ranked[by].add(by, t)
		}
	}
	h := &Share{key: k, tenant: t}
	s.publishers[k] = h
	for by := range measures {
		t.publishers[by].add(by, h)
	}
	return h
}

// count notes that a publisher holds n more, or less. One that holds no entry any
// more is forgotten.
func (s *shares) count(h *Share, by Measure, n int) {
	t := h.tenant
	h.has[by], t.has[by] = h.has[by]+n, t.has[by]+n
	t.publishers[by].settle(by, h)
	s.ranked[by].settle(by, t)
	if by != ByPlaces || h.has[ByPlaces] > 0 {
		return
	}
	delete(s.publishers, h.key)
	for by := range measures {
		t.publishers[by].remove(by, h)
	}
	if t.has[ByPlaces] > 0 {
		return
	}
	delete(s.tenants, t.key.Tenant)
	for by := range measures {
		s.ranked[by].remove(by, t)
	}
}

// ranking is a heap: the one that holds most first, among equals the first by name.
// No two are equal in both.
type ranking []*Share

func (h *Share) above(by Measure, o *Share) bool {
	if h.has[by] != o.has[by] {
		return h.has[by] > o.has[by]
	}
	if h.key.Tenant != o.key.Tenant {
		return h.key.Tenant < o.key.Tenant
	}
	return h.key.Source < o.key.Source
}

func (r ranking) swap(by Measure, i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].rank[by], r[j].rank[by] = i, j
}

// settle moves one to where it belongs.
func (r ranking) settle(by Measure, h *Share) {
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

func (r *ranking) add(by Measure, h *Share) {
	h.rank[by] = len(*r)
	*r = append(*r, h)
	r.settle(by, h)
}

func (r *ranking) remove(by Measure, h *Share) {
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
func (r ranking) leading(by Measure, own *Share) [2]*Share {
	two := [2]*Share{r[0], nil}
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

// Surplus gives the entry that makes room where a table is full by a measure, for
// something of a publisher. The entry of the key stays, for it is worked on; ok is
// false if there is no other.
func (l *LRU[K, V]) Surplus(by Measure, of Holder, stays K) (v V, ok bool) {
	if l.n == 0 {
		return v, false
	}
	for _, t := range l.held.ranked[by].leading(by, l.held.tenants[of.Tenant]) {
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

// Count notes how much more of something an entry's publisher has, or less.
func (l *LRU[K, V]) Count(h *Share, by Measure, n int) {
	if h != nil && n != 0 {
		l.held.count(h, by, n)
	}
}

// linkOwn and unlinkOwn keep the order of use among the entries of one publisher.
func (l *LRU[K, V]) linkOwn(i int32) {
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

func (l *LRU[K, V]) unlinkOwn(i int32) {
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
