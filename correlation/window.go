package correlation

// window is a map that forgets its oldest entries: when there are more than its
// limit, or when it is told to. They lie in a ring in the order in which they
// came; a table says where a key lies. It is smaller than a map, and an old entry
// gives way to a new one at the price of few looks into memory.
type window[K hashed, V any] struct {
	ring  []entry[K, V]
	head  int      // the oldest
	n     int      // how many there are
	table []uint64 // of places in the ring and one
	limit int      // noLimit: there is none
}

type entry[K, V any] struct {
	key   K
	value V
	hash  uint32
}

const noLimit = 0

func newWindow[K hashed, V any](limit int) *window[K, V] {
	return &window[K, V]{limit: limit}
}

func (w *window[K, V]) len() int { return w.n }

// find gives the place of a key in the table; that is free if there is no entry.
func (w *window[K, V]) find(k K, hash uint32) (at int, there bool) {
	mask := len(w.table) - 1
	for at = int(hash) & mask; ; at = (at + 1) & mask {
		switch x := w.table[at]; {
		case x == 0:
			return at, false
		case uint32(x>>32) == hash && w.ring[uint32(x)-1].key == k:
			return at, true
		}
	}
}

// at gives the value of a key, to be looked at or changed before the next put.
func (w *window[K, V]) at(k K) *V {
	if w.n == 0 {
		return nil
	}
	return w.atHashed(k, k.hash())
}

// atHashed is at for a key whose hash is known.
func (w *window[K, V]) atHashed(k K, hash uint32) *V {
	if w.n == 0 {
		return nil
	}
	if at, there := w.find(k, hash); there {
		return &w.ring[uint32(w.table[at])-1].value
	}
	return nil
}

func (w *window[K, V]) get(k K) (v V, ok bool) {
	if p := w.at(k); p != nil {
		return *p, true
	}
	return v, false
}

// put adds or replaces an entry; replacing does not make it younger.
func (w *window[K, V]) put(k K, v V) {
	p, _ := w.place(k)
	*p = v
}

// place gives room for the value of a key, to be filled before the next call, and
// whether there is one already.
func (w *window[K, V]) place(k K) (v *V, there bool) {
	hash := k.hash()
	if w.n > 0 {
		if at, there := w.find(k, hash); there {
			return &w.ring[uint32(w.table[at])-1].value, true
		}
	}
	return w.add(k, hash), false
}

// add gives room for the value of a key that is not there.
func (w *window[K, V]) add(k K, hash uint32) *V {
	if w.n == w.limit && w.limit != noLimit {
		w.drop(atOnce(w.limit))
	}
	if w.n == len(w.ring) {
		w.grow()
	}
	place := w.head + w.n
	if place >= len(w.ring) {
		place -= len(w.ring)
	}
	w.n++
	e := &w.ring[place]
	e.key, e.hash = k, hash
	lies(w.table, hash, uint32(place+1))
	return &e.value
}

// atOnce is how many entries make room where so many may be. Many at once cost
// less than one after the other, as a processor can wait for several places of a
// large table at the same time.
func atOnce(limit int) int { return 1 + limit/1024 }

// nth is the key of an entry, the oldest first.
func (w *window[K, V]) nth(i int) K { return w.ring[(w.head+i)%len(w.ring)].key }

// drop forgets the n oldest entries. There must be so many.
func (w *window[K, V]) drop(n int) {
	for range n {
		free(w.table, w.ring[w.head].hash, uint32(w.head+1))
		w.ring[w.head] = entry[K, V]{}
		if w.head++; w.head == len(w.ring) {
			w.head = 0
		}
		w.n--
	}
}

// all gives the entries, the oldest first.
func (w *window[K, V]) all() []entry[K, V] {
	list := make([]entry[K, V], 0, w.n)
	for i := range w.n {
		list = append(list, w.ring[(w.head+i)%len(w.ring)])
	}
	return list
}

// grow makes room for as many entries again, within the limit.
func (w *window[K, V]) grow() {
	size := max(2*len(w.ring), smallestTable/2)
	if w.limit != noLimit {
		size = min(size, w.limit)
	}
	ring := make([]entry[K, V], size)
	copy(ring, w.all())
	w.ring, w.head = ring, 0
	places := smallestTable
	for places < 2*size {
		places *= 2
	}
	w.table = make([]uint64, places)
	for i := range w.n {
		lies(w.table, w.ring[i].hash, uint32(i+1))
	}
}
