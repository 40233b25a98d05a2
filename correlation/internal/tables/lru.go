package tables

// LRU is a map ordered by the last use. The order depends on the calls only. The caller bounds
// the map: see Oldest and Surplus.
type LRU[K comparable, V identified[K]] struct {
	// entries[0] is the head of a ring in the order of use: its next is the most recent entry,
	// its prev the least recent one.
	entries    []lruEntry[V]
	freePlaces []int32 // free indexes of entries
	indexes    map[K]int32
	held       shares // the shares of the publishers that own entries
}

// identified is a value that knows its key.
type identified[K comparable] interface{ ID() K }

type lruEntry[V any] struct {
	value      V
	prev, next int32

	share        *Share // nil if the entry has no owner
	newer, older int32  // the owner's entries in the order of use
}

// NewLRU makes an empty LRU.
func NewLRU[K comparable, V identified[K]]() *LRU[K, V] {
	return &LRU[K, V]{entries: make([]lruEntry[V], 1), indexes: map[K]int32{}}
}

// Len is the number of entries.
func (l *LRU[K, V]) Len() int { return len(l.indexes) }

// Get returns an entry and makes it the most recent one.
func (l *LRU[K, V]) Get(k K) (v V, ok bool) {
	if newest := l.entries[l.entries[0].next].value; l.Len() > 0 && newest.ID() == k {
		return newest, true // about half of the lookups are for the last entry
	}
	i, ok := l.indexes[k]
	if !ok {
		return v, false
	}
	l.unlink(i)
	l.link(i)
	return l.entries[i].value, true
}

// Peek returns an entry and does not change the order.
func (l *LRU[K, V]) Peek(k K) (v V, ok bool) {
	i, ok := l.indexes[k]
	if ok {
		v = l.entries[i].value
	}
	return v, ok
}

// Add adds an entry whose key is not in the map.
func (l *LRU[K, V]) Add(v V) {
	i := int32(len(l.entries))
	if last := len(l.freePlaces) - 1; last >= 0 {
		i = l.freePlaces[last]
		l.freePlaces = l.freePlaces[:last]
	} else {
		l.entries = append(l.entries, lruEntry[V]{})
	}
	k := v.ID()
	l.entries[i].value = v
	if o, is := any(v).(owned); is {
		h := l.held.of(o.Owner())
		l.entries[i].share = h
		l.held.count(h, ByPlaces, 1)
		o.Holds(h)
	}
	l.indexes[k] = i
	l.link(i)
}

// Oldest is the least recently used entry.
func (l *LRU[K, V]) Oldest() (v V, ok bool) {
	i := l.entries[0].prev
	return l.entries[i].value, i != 0
}

// All returns the entries, the least recently used first.
func (l *LRU[K, V]) All() []V {
	list := make([]V, 0, l.Len())
	if len(l.entries) == 0 { // the zero value
		return list
	}
	for i := l.entries[0].prev; i != 0; i = l.entries[i].prev {
		list = append(list, l.entries[i].value)
	}
	return list
}

// Remove removes an entry, if it is there.
func (l *LRU[K, V]) Remove(k K) {
	if i, there := l.indexes[k]; there {
		l.drop(i)
	}
}

func (l *LRU[K, V]) drop(i int32) {
	delete(l.indexes, l.entries[i].value.ID())
	l.unlink(i)
	if h := l.entries[i].share; h != nil {
		l.held.count(h, ByPlaces, -1)
	}
	l.entries[i] = lruEntry[V]{}
	l.freePlaces = append(l.freePlaces, i)
}

func (l *LRU[K, V]) link(i int32) {
	first := l.entries[0].next
	l.entries[i].prev, l.entries[i].next = 0, first
	l.entries[0].next, l.entries[first].prev = i, i
	l.linkOwn(i)
}

func (l *LRU[K, V]) unlink(i int32) {
	e := &l.entries[i]
	l.entries[e.prev].next, l.entries[e.next].prev = e.next, e.prev
	l.unlinkOwn(i)
}
