package tables

import "container/heap"

// The tenants of a shard share a table, and none of them may take it over. A full table
// forgets an entry of the tenant that holds most, of that tenant's publisher that holds most,
// and there the least recently used entry. A tenant with less than an equal share loses
// nothing to others. Among equal tenants the one that needs room loses an entry, then that of
// the table's least recently used entry, then the first by name; among equal publishers the one
// that needs room, then the first by name. So the choice depends on the applied messages only.

// Measure is a quantity by which shares are compared.
type Measure int

// The measures.
const (
	ByPlaces      Measure = iota // entries
	ByCalls                      // calls of sessions
	ByIDs                        // tool call ids of sessions
	ByStoredItems                // items stored by tracked sessions
	ByArgsBytes                  // bytes of kept arguments and differences of sessions
	measures
)

// PublisherKey identifies a publisher that holds entries of a table.
type PublisherKey struct{ Tenant, Source string }

// owned is an entry that belongs to a publisher.
type owned interface {
	Owner() PublisherKey
	Holds(h *Share) // called with the share of the owner
}

// Share is what a tenant, or a publisher of it, holds of a table.
type Share struct {
	key    PublisherKey // a tenant's has no Source
	tenant *Share       // the publisher's tenant; nil for a tenant
	has    [measures]int
	rank   [measures]int // the index in each ranking

	publishers     [measures]ranking // of a tenant: its publishers
	newest, oldest int32             // of a publisher: its entries in the order of use; 0 if it has none
}

// shares are all shares of a table.
type shares struct {
	publishers map[PublisherKey]*Share
	tenants    map[string]*Share
	ranked     [measures]ranking // of the tenants
}

// of returns the share of a publisher, and adds it if it is missing.
func (s *shares) of(k PublisherKey) *Share {
	if h := s.publishers[k]; h != nil {
		return h
	}
	if s.publishers == nil {
		s.publishers, s.tenants = map[PublisherKey]*Share{}, map[string]*Share{}
	}
	t := s.tenants[k.Tenant]
	if t == nil {
		t = &Share{key: PublisherKey{Tenant: k.Tenant}}
		s.tenants[k.Tenant] = t
		for by := range measures {
			s.ranked[by].by = by
			heap.Push(&s.ranked[by], t)
		}
	}
	h := &Share{key: k, tenant: t}
	s.publishers[k] = h
	for by := range measures {
		t.publishers[by].by = by
		heap.Push(&t.publishers[by], h)
	}
	return h
}

// count adds n to what a publisher holds. A publisher without entries is forgotten.
func (s *shares) count(h *Share, by Measure, n int) {
	t := h.tenant
	h.has[by], t.has[by] = h.has[by]+n, t.has[by]+n
	heap.Fix(&t.publishers[by], h.rank[by])
	heap.Fix(&s.ranked[by], t.rank[by])
	if by != ByPlaces || h.has[ByPlaces] > 0 {
		return
	}
	delete(s.publishers, h.key)
	for by := range measures {
		heap.Remove(&t.publishers[by], h.rank[by])
	}
	if t.has[ByPlaces] > 0 {
		return
	}
	delete(s.tenants, t.key.Tenant)
	for by := range measures {
		heap.Remove(&s.ranked[by], t.rank[by])
	}
}

// ranking is a heap: the share that holds most first, then by name. No two shares are equal.
type ranking struct {
	by     Measure
	shares []*Share
}

func (h *Share) above(by Measure, o *Share) bool {
	if h.has[by] != o.has[by] {
		return h.has[by] > o.has[by]
	}
	if h.key.Tenant != o.key.Tenant {
		return h.key.Tenant < o.key.Tenant
	}
	return h.key.Source < o.key.Source
}

func (r *ranking) Len() int           { return len(r.shares) }
func (r *ranking) Less(i, j int) bool { return r.shares[i].above(r.by, r.shares[j]) }
func (r *ranking) Swap(i, j int) {
	r.shares[i], r.shares[j] = r.shares[j], r.shares[i]
	r.shares[i].rank[r.by], r.shares[j].rank[r.by] = i, j
}

func (r *ranking) Push(x any) {
	h := x.(*Share)
	h.rank[r.by] = len(r.shares)
	r.shares = append(r.shares, h)
}

func (r *ranking) Pop() any {
	last := len(r.shares) - 1
	removed := r.shares[last]
	r.shares[last] = nil
	r.shares = r.shares[:last]
	return removed
}

// leading returns the two shares that hold most; first comes first among equals. The second is
// nil if there is only one.
func (r *ranking) leading(first *Share) [2]*Share {
	two := [2]*Share{r.shares[0], nil}
	for i := 1; i <= 2 && i < len(r.shares); i++ {
		if two[1] == nil || r.shares[i].above(r.by, two[1]) {
			two[1] = r.shares[i]
		}
	}
	if first != nil && first != two[0] && first.has[r.by] == two[0].has[r.by] {
		two[0], two[1] = first, two[0]
	}
	return two
}

// Surplus returns the entry to forget when the table is full by a measure and publisher of
// needs room. The entry with key stays is never returned; ok is false if there is no other.
func (l *LRU[K, V]) Surplus(by Measure, of PublisherKey, stays K) (v V, ok bool) {
	if l.Len() == 0 {
		return v, false
	}
	first := l.held.tenants[of.Tenant]
	if silent := l.entries[l.entries[0].prev].share; first == nil || first.has[by] < l.held.ranked[by].shares[0].has[by] {
		first = silent.tenant
	}
	for _, t := range l.held.ranked[by].leading(first) {
		if t == nil {
			break
		}
		own := l.held.publishers[of]
		if own != nil && own.tenant != t {
			own = nil
		}
		for _, p := range t.publishers[by].leading(own) {
			if p == nil {
				break
			}
			if e := &l.entries[p.oldest]; e.value.ID() != stays {
				return e.value, true
			}
		}
	}
	return v, false
}

// Count adds n to what the owner of an entry holds.
func (l *LRU[K, V]) Count(h *Share, by Measure, n int) {
	if h != nil && n != 0 {
		l.held.count(h, by, n)
	}
}

// OfTenant is what the tenant of a publisher holds in all.
func (h *Share) OfTenant(by Measure) int { return h.tenant.has[by] }

// linkOwn and unlinkOwn keep the order of use among one publisher's entries.
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
