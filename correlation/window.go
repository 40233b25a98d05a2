package correlation

import "hash/maphash"

// window is a map that forgets its oldest entries: when there are more than its
// limit, or when it is told to. They lie in a ring in the order in which they
// came; a table says where a key lies. It is smaller than a map, and an old entry
// gives way to a new one at the price of three looks into memory.
type window[K comparable, V any] struct {
	ring  []pair[K, V]
	head  int      // the oldest
	n     int      // how many there are
	table []uint64 // of what is hashed so: 32 bits of the hash, and the place in the ring and one
	limit int      // noLimit: there is none
}

const noLimit = 0

// windowSeed keeps whoever chooses keys from choosing where they lie. Nothing else
// depends on it.
var windowSeed = maphash.MakeSeed()

const smallestTable = 8

func newWindow[K comparable, V any](limit int) *window[K, V] {
	return &window[K, V]{limit: limit}
}

func (w *window[K, V]) len() int { return w.n }

func hashOf[K comparable](k K) uint32 { return uint32(maphash.Comparable(windowSeed, k) >> 32) }

// find gives the place of a key in the table; that is free if there is no entry.
func (w *window[K, V]) find(k K, hash uint32) (at int, there bool) {
	mask := len(w.table) - 1
	for at = int(hash) & mask; ; at = (at + 1) & mask {
		switch x := w.table[at]; {
		case x == 0:
			return at, false
		case uint32(x>>32) == hash && w.ring[uint32(x)-1].Key == k:
			return at, true
		}
	}
}

// at gives the value of a key, to be looked at or changed before the next put.
func (w *window[K, V]) at(k K) *V {
	if w.n == 0 {
		return nil
	}
	if at, there := w.find(k, hashOf(k)); there {
		return &w.ring[uint32(w.table[at])-1].Value
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
	if p := w.at(k); p != nil {
		*p = v
		return
	}
	if w.n == w.limit && w.limit != noLimit {
		w.drop()
	}
	if w.n == len(w.ring) {
		w.grow()
	}
	place := (w.head + w.n) % len(w.ring)
	w.ring[place] = pair[K, V]{k, v}
	w.n++
	w.lies(k, place)
}

// drop forgets the oldest entry. There must be one.
func (w *window[K, V]) drop() {
	w.free(w.ring[w.head].Key)
	w.ring[w.head] = pair[K, V]{}
	w.head = (w.head + 1) % len(w.ring)
	w.n--
}

// lies notes where a key lies that is not in the table yet.
func (w *window[K, V]) lies(k K, place int) {
	hash := hashOf(k)
	at, _ := w.find(k, hash)
	w.table[at] = uint64(hash)<<32 | uint64(place+1)
}

// all gives the entries, the oldest first.
func (w *window[K, V]) all() []pair[K, V] {
	list := make([]pair[K, V], 0, w.n)
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
	ring := make([]pair[K, V], size)
	copy(ring, w.all())
	w.ring, w.head = ring, 0
	places := smallestTable
	for places < 2*size {
		places *= 2
	}
	w.table = make([]uint64, places)
	for i := range w.n {
		w.lies(w.ring[i].Key, i)
	}
}

// free takes a key out of the table. What lies behind it moves up if it could not
// be found otherwise.
func (w *window[K, V]) free(k K) {
	hole, there := w.find(k, hashOf(k))
	if !there {
		return
	}
	mask := len(w.table) - 1
	for at := (hole + 1) & mask; w.table[at] != 0; at = (at + 1) & mask {
		if home := int(uint32(w.table[at]>>32)) & mask; (at-home)&mask >= (at-hole)&mask {
			w.table[hole] = w.table[at]
			hole = at
		}
	}
	w.table[hole] = 0
}
