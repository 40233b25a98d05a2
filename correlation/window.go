package correlation

// fifoMap is a map that forgets its oldest entries: when there are more than its
// limit, or when it is told to. They are numbered in the order in which they came
// and lie in chunks, so that none has to move when there are more; a table says
// which number a key has. It is smaller than a map, and an old entry gives way to
// a new one at the price of few looks into memory.
type fifoMap[K hashed, V any] struct {
	chunks     [][]fifoEntry[K, V] // the first has the oldest entry
	spareChunk []fifoEntry[K, V]   // a chunk to be used next; nil if there is none
	head       uint32              // the number of the oldest; after the highest comes 0
	n          int                 // how many there are
	table      []uint64            // of numbers
	limit      int                 // noLimit: there is none
}

type fifoEntry[K, V any] struct {
	key   K
	value V
	hash  uint32
}

const noLimit = 0

// chunkSize is how many entries a chunk has; only the first one begins with less.
const (
	chunkBits = 8
	chunkSize = 1 << chunkBits
)

func newFIFOMap[K hashed, V any](limit int) *fifoMap[K, V] {
	return &fifoMap[K, V]{limit: limit}
}

func (w *fifoMap[K, V]) len() int { return w.n }

// chunkOf is where the chunk of an entry lies.
func (w *fifoMap[K, V]) chunkOf(number uint32) int {
	return int((number>>chunkBits - w.head>>chunkBits) & (1<<(32-chunkBits) - 1))
}

func (w *fifoMap[K, V]) entry(number uint32) *fifoEntry[K, V] {
	return &w.chunks[w.chunkOf(number)][number%chunkSize]
}

// tableHash is a hash as it is in the table, where 0 means that nothing is there and a
// number may be 0.
func tableHash(hash uint32) uint32 { return hash | 1<<31 }

// lookupHashed gives the value of a key whose hash is known, to be looked at or changed
// before the next put.
func (w *fifoMap[K, V]) lookupHashed(k K, hash uint32) *V {
	if w.n == 0 {
		return nil
	}
	hash = tableHash(hash)
	mask := len(w.table) - 1
	for at := int(hash) & mask; w.table[at] != 0; at = (at + 1) & mask {
		if x := w.table[at]; uint32(x>>32) == hash {
			if e := w.entry(uint32(x)); e.key == k {
				return &e.value
			}
		}
	}
	return nil
}

// prefetch reads the first place in the table at which a key with a hash is looked for.
func (w *fifoMap[K, V]) prefetch(hash uint32) uint64 {
	if w.n == 0 {
		return 0
	}
	return w.table[int(tableHash(hash))&(len(w.table)-1)]
}

// lookup is atHashed for a key whose hash is not known.
func (w *fifoMap[K, V]) lookup(k K) *V {
	if w.n == 0 {
		return nil
	}
	return w.lookupHashed(k, k.hash())
}

func (w *fifoMap[K, V]) get(k K) (v V, ok bool) {
	if p := w.lookup(k); p != nil {
		return *p, true
	}
	return v, false
}

// put adds or replaces an entry; replacing does not make it younger.
func (w *fifoMap[K, V]) put(k K, v V) {
	hash := k.hash()
	if p := w.lookupHashed(k, hash); p != nil {
		*p = v
		return
	}
	*w.add(k, hash) = v
}

// add gives room for the value of a key that is not there, to be filled before the
// next call.
func (w *fifoMap[K, V]) add(k K, hash uint32) *V {
	if w.n == w.limit && w.limit != noLimit {
		w.dropOldest(evictionBatch(w.limit))
	}
	if 2*(w.n+1) > len(w.table) {
		w.grow()
	}
	number := w.head + uint32(w.n)
	w.n++
	e := w.appendEntry(number)
	e.key, e.hash = k, tableHash(hash)
	insertPosition(w.table, e.hash, number)
	return &e.value
}

// appendEntry makes room for an entry that comes after all others.
func (w *fifoMap[K, V]) appendEntry(number uint32) *fifoEntry[K, V] {
	at, within := w.chunkOf(number), int(number%chunkSize)
	switch {
	case at < len(w.chunks):
	case w.spareChunk != nil:
		w.chunks, w.spareChunk = append(w.chunks, w.spareChunk), nil
	case at > 0:
		w.chunks = append(w.chunks, make([]fifoEntry[K, V], chunkSize))
	default:
		w.chunks = append(w.chunks, nil)
	}
	if c := w.chunks[at]; within >= len(c) {
		w.chunks[at] = make([]fifoEntry[K, V], min(max(2*within, minTableSize/2), chunkSize))
		copy(w.chunks[at], c)
	}
	return &w.chunks[at][within]
}

// evictionBatch is how many entries make room where so many may be. Many at once cost
// less than one after the other, as a processor can wait for several places of a
// large table at the same time.
func evictionBatch(limit int) int { return 1 + limit/1024 }

// keyAt is the key of an entry, the oldest first.
func (w *fifoMap[K, V]) keyAt(i int) K { return w.entry(w.head + uint32(i)).key }

// dropOldest forgets the n oldest entries. There must be so many.
func (w *fifoMap[K, V]) dropOldest(n int) {
	for range n {
		e := w.entry(w.head)
		removePosition(w.table, e.hash, w.head)
		*e = fifoEntry[K, V]{}
		w.n--
		if w.head++; w.head%chunkSize == 0 {
			w.spareChunk, w.chunks[0] = w.chunks[0], nil
			w.chunks = w.chunks[1:]
		}
	}
}

// all gives the entries, the oldest first.
func (w *fifoMap[K, V]) all() []fifoEntry[K, V] {
	list := make([]fifoEntry[K, V], 0, w.n)
	for i := range w.n {
		list = append(list, *w.entry(w.head + uint32(i)))
	}
	return list
}

// grow makes the table twice as large.
func (w *fifoMap[K, V]) grow() {
	w.table = make([]uint64, max(2*len(w.table), minTableSize))
	for i := range w.n {
		number := w.head + uint32(i)
		insertPosition(w.table, w.entry(number).hash, number)
	}
}
