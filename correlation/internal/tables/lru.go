package tables

// LRU is a map that knows which entry was used least recently. Its order depends on
// nothing but the calls made. The caller bounds it: see Oldest and Surplus.
type LRU[K hashed, V identified[K]] struct {
	// entries lie where there was room; each names its neighbours in the order of
	// use. The first is none: after it comes the most, before it the least recent.
	entries    []lruEntry[K, V]
	freePlaces []int32 // places in entries
	table      []uint64
	n          int
	held       shares // of entries that are owned
}

// identified knows its own key.
type identified[K hashed] interface{ ID() K }

type lruEntry[K hashed, V any] struct {
	key        K
	value      V
	hash       uint32
	prev, next int32

	share        *Share // nil if the entry is not owned
	newer, older int32  // neighbours in the order of use among those of the share
}

// NewLRU makes an empty LRU.
func NewLRU[K hashed, V identified[K]]() *LRU[K, V] {
	return &LRU[K, V]{entries: make([]lruEntry[K, V], 1, MinTableSize/2), table: make([]uint64, MinTableSize)}
}

// Len is how many entries there are.
func (l *LRU[K, V]) Len() int { return l.n }

// find gives the place of a key in the table; that is free if there is no entry.
func (l *LRU[K, V]) find(k K, hash uint32) (at int, there bool) {
	mask := len(l.table) - 1
	for at = int(hash) & mask; ; at = (at + 1) & mask {
		switch x := l.table[at]; {
		case x == 0:
			return at, false
		case uint32(x>>32) == hash && l.entries[uint32(x)].key == k:
			return at, true
		}
	}
}

// Get finds an entry and makes it the most recent one.
func (l *LRU[K, V]) Get(k K) (v V, ok bool) { return l.GetHashed(k, k.Hash()) }

// GetHashed is Get for a key with a known hash.
func (l *LRU[K, V]) GetHashed(k K, hash uint32) (v V, ok bool) {
	if e := &l.entries[l.entries[0].next]; e.hash == hash && e.key == k && l.n > 0 {
		return e.value, true // as often as not it was the last one, too
	}
	at, ok := l.find(k, hash)
	if !ok {
		return v, false
	}
	i := int32(uint32(l.table[at]))
	l.unlink(i)
	l.link(i)
	return l.entries[i].value, true
}

// Peek finds an entry and leaves it where it is.
func (l *LRU[K, V]) Peek(k K) (v V, ok bool) { return l.PeekHashed(k, k.Hash()) }

// PeekHashed is Peek for a key with a known hash.
func (l *LRU[K, V]) PeekHashed(k K, hash uint32) (v V, ok bool) {
	at, ok := l.find(k, hash)
	if ok {
		v = l.entries[uint32(l.table[at])].value
	}
	return v, ok
}

// Add adds an entry that is not there.
func (l *LRU[K, V]) Add(v V) {
	if l.n++; 2*l.n > len(l.table) {
		l.grow()
	}
	i := int32(len(l.entries))
	if last := len(l.freePlaces) - 1; last >= 0 {
		i = l.freePlaces[last]
		l.freePlaces = l.freePlaces[:last]
	} else {
		l.entries = append(l.entries, lruEntry[K, V]{})
	}
	k := v.ID()
	hash := k.Hash()
	l.entries[i].key, l.entries[i].value, l.entries[i].hash = k, v, hash
	if o, is := any(v).(owned); is {
		h := l.held.of(o.Owner())
		l.entries[i].share = h
		l.held.count(h, ByPlaces, 1)
		o.Holds(h)
	}
	InsertPosition(l.table, hash, uint32(i))
	l.link(i)
}

func (l *LRU[K, V]) grow() {
	l.table = make([]uint64, 2*len(l.table))
	for i := l.entries[0].next; i != 0; i = l.entries[i].next {
		InsertPosition(l.table, l.entries[i].hash, uint32(i))
	}
}

// Oldest is the least recently used entry.
func (l *LRU[K, V]) Oldest() (v V, ok bool) {
	i := l.entries[0].prev
	return l.entries[i].value, i != 0
}

// All gives the entries, the least recent first.
func (l *LRU[K, V]) All() []V {
	list := make([]V, 0, l.n)
	if len(l.entries) == 0 { // nothing was ever made of it
		return list
	}
	for i := l.entries[0].prev; i != 0; i = l.entries[i].prev {
		list = append(list, l.entries[i].value)
	}
	return list
}

// Remove forgets an entry, if it is there.
func (l *LRU[K, V]) Remove(k K) {
	if at, there := l.find(k, k.Hash()); there {
		l.drop(int32(uint32(l.table[at])))
	}
}

// RemoveOldest forgets the least recently used entry, if there is one.
func (l *LRU[K, V]) RemoveOldest() {
	if i := l.entries[0].prev; i != 0 {
		l.drop(i)
	}
}

func (l *LRU[K, V]) drop(i int32) {
	removePosition(l.table, l.entries[i].hash, uint32(i))
	l.unlink(i)
	if h := l.entries[i].share; h != nil {
		l.held.count(h, ByPlaces, -1)
	}
	l.entries[i] = lruEntry[K, V]{}
	l.freePlaces = append(l.freePlaces, i)
	l.n--
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
