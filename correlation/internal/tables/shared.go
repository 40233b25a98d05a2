package tables

import (
	"container/heap"
	"maps"
	"slices"
)

// Shared is a FIFO for each tenant of a shard, under one limit for all of them. A full one
// forgets the oldest entries of the tenant that holds most: see shares.go. A tenant does not
// find the keys of another one.
type Shared[K comparable, V any] struct {
	limit   int
	n       int // the entries of all tenants
	tenants map[string]*tenantFIFO[K, V]
	ranked  ranking // the tenants by their number of entries
}

// tenantFIFO is what one tenant holds of a table.
type tenantFIFO[K comparable, V any] struct {
	FIFO[K, V]
	share Share
}

// NewShared makes an empty table that holds at most limit entries.
func NewShared[K comparable, V any](limit int) *Shared[K, V] {
	return &Shared[K, V]{limit: limit, tenants: map[string]*tenantFIFO[K, V]{}}
}

// Len is how many entries all tenants have.
func (s *Shared[K, V]) Len() int { return s.n }

// Lookup returns the value of a tenant's key, nil if there is none. The value is valid until the next
// Put or Add.
func (s *Shared[K, V]) Lookup(tenant string, k K) *V {
	if t := s.tenants[tenant]; t != nil {
		return t.Lookup(k)
	}
	return nil
}

// Get returns a copy of the value of a tenant's key.
func (s *Shared[K, V]) Get(tenant string, k K) (v V, ok bool) {
	if p := s.Lookup(tenant, k); p != nil {
		return *p, true
	}
	return v, false
}

// Put adds or replaces an entry of a tenant. A replaced entry keeps its age.
func (s *Shared[K, V]) Put(tenant string, k K, v V) {
	if p := s.Lookup(tenant, k); p != nil {
		*p = v
		return
	}
	*s.Add(tenant, k) = v
}

// Add adds a key that the tenant does not have, and returns its value, which the caller fills
// before the next call.
func (s *Shared[K, V]) Add(tenant string, k K) *V {
	t := s.tenants[tenant]
	if s.n == s.limit {
		s.makeRoom(t)
	}
	if t == nil {
		t = &tenantFIFO[K, V]{share: Share{key: PublisherKey{Tenant: tenant}}}
		s.tenants[tenant] = t
		heap.Push(&s.ranked, &t.share)
	}
	v := t.Add(k)
	s.settle(t, 1)
	return v
}

// makeRoom forgets the oldest entries of the tenant that holds most: a batch of them, or half of
// what it has more than the next tenant, so that it keeps an equal share. of is the tenant that
// needs room, nil if it has no entry.
func (s *Shared[K, V]) makeRoom(of *tenantFIFO[K, V]) {
	var own *Share
	if of != nil {
		own = &of.share
	}
	two := s.ranked.leading(own)
	most, n := s.tenants[two[0].key.Tenant], EvictionBatch(s.limit)
	if two[1] != nil {
		n = min(n, max(1, (most.Len()-two[1].has[ByPlaces])/2))
	}
	most.DropOldest(n)
	s.settle(most, -n)
	if most.Len() == 0 && most != of {
		heap.Remove(&s.ranked, most.share.rank[ByPlaces])
		delete(s.tenants, most.share.key.Tenant)
	}
}

// settle counts n more entries of a tenant.
func (s *Shared[K, V]) settle(t *tenantFIFO[K, V], n int) {
	s.n += n
	t.share.has[ByPlaces] = t.Len()
	heap.Fix(&s.ranked, t.share.rank[ByPlaces])
}

// All returns the entries: the tenants in the order of their names, of each the oldest first.
func (s *Shared[K, V]) All() (list []Entry[K, V]) {
	for _, tenant := range s.names() {
		list = append(list, s.tenants[tenant].All()...)
	}
	return list
}

// names are the tenants with entries, in order.
func (s *Shared[K, V]) names() []string { return slices.Sorted(maps.Keys(s.tenants)) }
