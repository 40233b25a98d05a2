package tables

// keyValue is an entry in a snapshot.
type keyValue[K, V any] struct {
	Key   K
	Value V
}

// Pack returns the entries, the least recently used first.
func (l *LRU[K, V]) Pack() any {
	list := make([]keyValue[K, V], 0, l.n)
	for _, v := range l.All() {
		list = append(list, keyValue[K, V]{v.ID(), v})
	}
	return &list
}

// Unpack restores what Pack returned.
func (l *LRU[K, V]) Unpack(form any) {
	*l = *NewLRU[K, V]()
	for _, p := range *form.(*[]keyValue[K, V]) {
		l.Add(p.Value)
	}
}

// packedFIFO is the form of a FIFO in a snapshot.
type packedFIFO[K, V any] struct {
	Limit   int
	Entries []keyValue[K, V]
}

// Pack returns the limit and the entries, the oldest first.
func (q *FIFO[K, V]) Pack() any {
	p := &packedFIFO[K, V]{q.limit, make([]keyValue[K, V], 0, q.n)}
	for _, e := range q.All() {
		p.Entries = append(p.Entries, keyValue[K, V]{e.Key, e.Value})
	}
	return p
}

// Unpack restores what Pack returned.
func (q *FIFO[K, V]) Unpack(form any) {
	p := form.(*packedFIFO[K, V])
	*q = FIFO[K, V]{limit: p.Limit}
	for _, e := range p.Entries {
		q.Put(e.Key, e.Value)
	}
}
