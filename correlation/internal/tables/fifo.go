// Package tables has the bounded tables of a correlator. FIFO forgets the oldest entries, LRU
// the least recently used ones. What the tenants of a shard hold together is in a Shared, a
// FIFO with shares of tenants, or in an LRU that counts what each publisher holds: the one that
// holds most makes room. All depend only on the calls made, and can be written in a snapshot.
package tables

import "maps"

// FIFO is a map that forgets its oldest entries: beyond its limit, or by DropOldest. Entries
// are numbered in the order in which they were added, and lie in chunks, so that no entry
// moves when the map grows.
type FIFO[K comparable, V any] struct {
	chunks     [][]Entry[K, V] // the first chunk has the oldest entry
	spareChunk []Entry[K, V]   // an empty chunk for the next use, or nil
	head       uint32          // the number of the oldest entry; numbers wrap around
	n          int             // the number of entries
	numbers    map[K]uint32    // of each key
	peak       int             // the most entries since numbers was made
	limit      int             // NoLimit: only DropOldest removes entries
}

// Entry is a key and its value.
type Entry[K, V any] struct {
	Key   K
	Value V
}

// NoLimit is the limit of a FIFO that only DropOldest makes smaller.
const NoLimit = 0

// chunkSize is the number of entries in a chunk. The chunks of a FIFO with fewer entries start
// smaller, and it keeps no spare one: a shard may have a FIFO for each of a thousand tenants.
const (
	chunkBits = 8
	chunkSize = 1 << chunkBits
	minChunk  = 4
)

// NewFIFO makes an empty FIFO that holds at most limit entries.
func NewFIFO[K comparable, V any](limit int) *FIFO[K, V] {
	return &FIFO[K, V]{limit: limit}
}

// Len is how many entries there are.
func (q *FIFO[K, V]) Len() int { return q.n }

// chunkOf is the index of an entry's chunk.
func (q *FIFO[K, V]) chunkOf(number uint32) int {
	return int((number>>chunkBits - q.head>>chunkBits) & (1<<(32-chunkBits) - 1))
}

func (q *FIFO[K, V]) entry(number uint32) *Entry[K, V] {
	return &q.chunks[q.chunkOf(number)][number%chunkSize]
}

// Lookup returns the value of a key, nil if there is none. The value is valid until the next Put or
// Add.
func (q *FIFO[K, V]) Lookup(k K) *V {
	if number, known := q.numbers[k]; known {
		return &q.entry(number).Value
	}
	return nil
}

// Get returns a copy of a key's value.
func (q *FIFO[K, V]) Get(k K) (v V, ok bool) {
	if p := q.Lookup(k); p != nil {
		return *p, true
	}
	return v, false
}

// Put adds or replaces an entry. A replaced entry keeps its age.
func (q *FIFO[K, V]) Put(k K, v V) {
	if p := q.Lookup(k); p != nil {
		*p = v
		return
	}
	*q.Add(k) = v
}

// Add adds a key that is not in the map, and returns its value, which the caller fills before
// the next call.
func (q *FIFO[K, V]) Add(k K) *V {
	if q.n == q.limit && q.limit != NoLimit {
		q.DropOldest(EvictionBatch(q.limit))
	}
	if q.numbers == nil {
		q.numbers = map[K]uint32{}
	}
	number := q.head + uint32(q.n)
	q.n++
	q.peak = max(q.peak, q.n)
	e := q.appendEntry(number)
	e.Key, q.numbers[k] = k, number
	return &e.Value
}

// appendEntry allocates the entry with the next number.
func (q *FIFO[K, V]) appendEntry(number uint32) *Entry[K, V] {
	at, within := q.chunkOf(number), int(number%chunkSize)
	switch {
	case at < len(q.chunks):
	case q.spareChunk != nil:
		q.chunks, q.spareChunk = append(q.chunks, q.spareChunk), nil
	case q.n > chunkSize:
		q.chunks = append(q.chunks, make([]Entry[K, V], chunkSize))
	default:
		q.chunks = append(q.chunks, nil)
	}
	if c := q.chunks[at]; within >= len(c) {
		q.chunks[at] = make([]Entry[K, V], min(max(2*within, minChunk), chunkSize))
		copy(q.chunks[at], c)
	}
	return &q.chunks[at][within]
}

// EvictionBatch is how many entries a full map forgets at once. A batch costs less than single
// evictions, because the processor waits for several memory accesses at the same time.
func EvictionBatch(limit int) int { return 1 + limit/1024 }

// KeyAt is the key of entry i, counted from the oldest.
func (q *FIFO[K, V]) KeyAt(i int) K { return q.entry(q.head + uint32(i)).Key }

// DropOldest forgets the n oldest entries, and makes a map small that is mostly free. n MUST
// NOT exceed Len.
func (q *FIFO[K, V]) DropOldest(n int) {
	for range n {
		e := q.entry(q.head)
		delete(q.numbers, e.Key)
		*e = Entry[K, V]{}
		q.n--
		if q.head++; q.head%chunkSize == 0 {
			q.spareChunk, q.chunks[0] = q.chunks[0], nil
			q.chunks = q.chunks[1:]
		}
	}
	if q.n < chunkSize {
		q.spareChunk = nil
	}
	if 8*q.n < q.peak { // a Go map does not get smaller
		q.numbers, q.peak = maps.Collect(maps.All(q.numbers)), q.n
	}
}

// All returns the entries, the oldest first.
func (q *FIFO[K, V]) All() []Entry[K, V] {
	list := make([]Entry[K, V], 0, q.n)
	for i := range q.n {
		list = append(list, *q.entry(q.head + uint32(i)))
	}
	return list
}
