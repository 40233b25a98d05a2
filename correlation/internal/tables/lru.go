package tables

// LRU is a map ordered by the last use. The order depends on the calls only. The caller bounds
// the map: see Oldest and Surplus.
type LRU[K hashed, V identified[K]] struct {
	// entries[0] is the head of a ring in the order of use: its next is the most recent entry,
	// its prev the least recent one.
	entries    []lruEntry[K, V]
	freePlaces []int32 // free indexes of entries
	table      []uint64
	n          int
	held       shares // the shares of the publishers that own entries
}

// identified is a value that knows its key.
type identified[K hashed] interface{ ID() K }

type lruEntry[K hashed, V any] struct {
	key        K
	value      V
	hash       uint32
	prev, next int32

	share        *Share // nil if the entry has no owner
	newer, older int32  // the owner's entries in the order of use
}

// NewLRU makes an empty LRU.
func NewLRU[K hashed, V identified[K]]() *LRU[K, V] {
	return &LRU[K, V]{entries: make([]lruEntry[K, V], 1, minTableSize/2), table: make([]uint64, minTableSize)}
}

// Len is the number of entries.
func (l *LRU[K, V]) Len() int { return l.n }

// find returns the position of a key in the table. If the key is missing, it is the position
// to insert it.
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

// Get returns an entry and makes it the most recent one.
func (l *LRU[K, V]) Get(k K) (v V, ok bool) { return l.GetHashed(k, k.Hash()) }

// GetHashed is Get for a key with a known hash.
func (l *LRU[K, V]) GetHashed(k K, hash uint32) (v V, ok bool) {
	if e := &l.entries[l.entries[0].next]; e.hash == hash && e.key == k && l.n > 0 {
		return e.value, true // about half of the lookups are for the last entry
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

// Peek returns an entry and does not change the order.
func (l *LRU[K, V]) Peek(k K) (v V, ok bool) { return l.PeekHashed(k, k.Hash()) }

// PeekHashed is Peek for a key with a known hash.
func (l *LRU[K, V]) PeekHashed(k K, hash uint32) (v V, ok bool) {
	at, ok := l.find(k, hash)
	if ok {
		v = l.entries[uint32(l.table[at])].value
	}
	return v, ok
}

// Add adds an entry whose key is not in the map.
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
	insertPosition(l.table, hash, uint32(i))
	l.link(i)
}

func (l *LRU[K, V]) grow() {
	l.table = make([]uint64, 2*len(l.table))
	for i := l.entries[0].next; i != 0; i = l.entries[i].next {
		insertPosition(l.table, l.entries[i].hash, uint32(i))
	}
}

// Oldest is the least recently used entry.
func (l *LRU[K, V]) Oldest() (v V, ok bool) {
	i := l.entries[0].prev
	return l.entries[i].value, i != 0
}

// All returns the entries, the least recently used first.
func (l *LRU[K, V]) All() []V {
	list := make([]V, 0, l.n)
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
	if at, there := l.find(k, k.Hash()); there {
		l.drop(int32(uint32(l.table[at])))
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
