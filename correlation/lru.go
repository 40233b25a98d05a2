package correlation

// lru is a bounded map that knows which entry was used least recently. Its
// order depends on nothing but the calls made.
type lru[K comparable, V any] struct {
	entries map[K]*lruEntry[K, V]
	root    lruEntry[K, V] // root.next is the most, root.prev the least recent
}

type lruEntry[K comparable, V any] struct {
	key        K
	value      V
	prev, next *lruEntry[K, V]
}

func newLRU[K comparable, V any]() *lru[K, V] {
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

func (l *lru[K, V]) add(k K, v V) {
	e := &lruEntry[K, V]{key: k, value: v}
	l.entries[k] = e
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
		l.remove(e.key)
	}
}

func (l *lru[K, V]) link(e *lruEntry[K, V]) {
	e.prev, e.next = &l.root, l.root.next
	e.prev.next, e.next.prev = e, e
}

func (l *lru[K, V]) unlink(e *lruEntry[K, V]) {
	e.prev.next, e.next.prev = e.next, e.prev
}

// window is a map that forgets its oldest entries.
type window[K comparable, V any] struct {
	entries map[K]V
	order   []K
	head    int // of the ring, once it is full
	limit   int
}

func newWindow[K comparable, V any](limit int) *window[K, V] {
	return &window[K, V]{entries: map[K]V{}, limit: limit}
}

func (w *window[K, V]) get(k K) (V, bool) {
	v, ok := w.entries[k]
	return v, ok
}

// put adds or replaces an entry; replacing does not make it younger.
func (w *window[K, V]) put(k K, v V) {
	if _, there := w.entries[k]; !there {
		if len(w.order) < w.limit {
			w.order = append(w.order, k)
		} else {
			delete(w.entries, w.order[w.head])
			w.order[w.head] = k
			w.head = (w.head + 1) % w.limit
		}
	}
	w.entries[k] = v
}
