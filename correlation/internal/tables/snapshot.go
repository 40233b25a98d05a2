package tables

// Pack returns the entries, the least recently used first.
func (l *LRU[K, V]) Pack() any {
	list := make([]Entry[K, V], 0, l.Len())
	for _, v := range l.All() {
		list = append(list, Entry[K, V]{v.ID(), v})
	}
	return &list
}

// Unpack restores what Pack returned.
func (l *LRU[K, V]) Unpack(form any) {
	*l = *NewLRU[K, V]()
	for _, p := range *form.(*[]Entry[K, V]) {
		l.Add(p.Value)
	}
}

// packedFIFO is the form of a FIFO in a snapshot.
type packedFIFO[K, V any] struct {
	Limit   int
	Entries []Entry[K, V]
}

// Pack returns the limit and the entries, the oldest first.
func (q *FIFO[K, V]) Pack() any { return &packedFIFO[K, V]{q.limit, q.All()} }

// Unpack restores what Pack returned.
func (q *FIFO[K, V]) Unpack(form any) {
	p := form.(*packedFIFO[K, V])
	*q = FIFO[K, V]{limit: p.Limit}
	for _, e := range p.Entries {
		q.Put(e.Key, e.Value)
	}
}

// packedShared is the form of a Shared in a snapshot.
type packedShared[K, V any] struct {
	Limit   int
	Tenants []packedTenant[K, V]
}

type packedTenant[K, V any] struct {
	Tenant  string
	Entries []Entry[K, V]
}

// Pack returns the limit and the entries: the tenants in the order of their names, of each the
// oldest entry first.
func (s *Shared[K, V]) Pack() any {
	p := &packedShared[K, V]{s.limit, make([]packedTenant[K, V], 0, len(s.tenants))}
	for _, tenant := range s.names() {
		p.Tenants = append(p.Tenants, packedTenant[K, V]{tenant, s.tenants[tenant].All()})
	}
	return p
}

// Unpack restores what Pack returned.
func (s *Shared[K, V]) Unpack(form any) {
	p := form.(*packedShared[K, V])
	*s = *NewShared[K, V](p.Limit)
	for _, t := range p.Tenants {
		for _, e := range t.Entries {
			s.Put(t.Tenant, e.Key, e.Value)
		}
	}
}
