package correlation

// lru is a bounded map that knows which entry was used least recently. Its
// order depends on nothing but the calls made.
type lru[K comparable, V identified[K]] struct {
	entries map[K]*lruEntry[K, V]
	root    lruEntry[K, V] // root.next is the most, root.prev the least recent
}

// identified knows its own key.
type identified[K comparable] interface{ id() K }

type lruEntry[K comparable, V identified[K]] struct {
	value      V
	prev, next *lruEntry[K, V]
}

func newLRU[K comparable, V identified[K]]() *lru[K, V] {
	l := &lru[K, V]{entries: map[K]*lruEntry[K, V]{}}
	l.root.prev, l.root.next = &l.root, &l.root
	return l
}

func (l *lru[K, V]) len() int { return len(l.entries) }

// get finds an entry and makes it the most recent one.
func (l *lru[K, V]) get(k K) (v V, ok bool) {
	e, ok := l.entries[k]
	if !ok {
		return v, false
	}
	l.unlink(e)
	l.link(e)
	return e.value, true
}

func (l *lru[K, V]) add(v V) {
	e := &lruEntry[K, V]{value: v}
	l.entries[v.id()] = e
	l.link(e)
}

// oldest is the least recently used entry.
func (l *lru[K, V]) oldest() (v V, ok bool) {
	if l.root.prev == &l.root {
		return v, false
	}
	return l.root.prev.value, true
}

func (l *lru[K, V]) remove(k K) {
	if e, ok := l.entries[k]; ok {
		l.unlink(e)
		delete(l.entries, k)
	}
}

func (l *lru[K, V]) removeOldest() {
	if e := l.root.prev; e != &l.root {
		l.remove(e.value.id())
	}
}

func (l *lru[K, V]) link(e *lruEntry[K, V]) {
	e.prev, e.next = &l.root, l.root.next
	e.prev.next, e.next.prev = e, e
}

func (l *lru[K, V]) unlink(e *lruEntry[K, V]) {
	e.prev.next, e.next.prev = e.next, e.prev
}
