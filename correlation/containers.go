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

// lru is a bounded map that knows which entry was used least recently. Its
// order depends on nothing but the calls made.
type lru[K hashed, V identified[K]] struct {
	// entries lie where there was room; each names its neighbours in the order of
	// use. The first is none: after it comes the most, before it the least recent.
	entries    []lruEntry[K, V]
	freePlaces []int32 // places in entries
	table      []uint64
	n          int
	held       shares // of entries that are owned
}

// identified knows its own key.
type identified[K hashed] interface{ id() K }

type lruEntry[K hashed, V any] struct {
	key        K
	value      V
	hash       uint32
	prev, next int32

	share        *share // nil if the entry is not owned
	newer, older int32  // neighbours in the order of use among those of the share
}

func newLRU[K hashed, V identified[K]]() *lru[K, V] {
	return &lru[K, V]{entries: make([]lruEntry[K, V], 1, minTableSize/2), table: make([]uint64, minTableSize)}
}

func (l *lru[K, V]) len() int { return l.n }

// find gives the place of a key in the table; that is free if there is no entry.
func (l *lru[K, V]) find(k K, hash uint32) (at int, there bool) {
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

// get finds an entry and makes it the most recent one.
func (l *lru[K, V]) get(k K) (v V, ok bool) { return l.getHashed(k, k.hash()) }

// getHashed is get for a key whose hash is known.
func (l *lru[K, V]) getHashed(k K, hash uint32) (v V, ok bool) {
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

// peek finds an entry and leaves it where it is.
func (l *lru[K, V]) peek(k K) (v V, ok bool) { return l.peekHashed(k, k.hash()) }

// peekHashed is peek for a key whose hash is known.
func (l *lru[K, V]) peekHashed(k K, hash uint32) (v V, ok bool) {
	at, ok := l.find(k, hash)
	if ok {
		v = l.entries[uint32(l.table[at])].value
	}
	return v, ok
}

// add adds an entry that is not there.
func (l *lru[K, V]) add(v V) {
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
	k := v.id()
	hash := k.hash()
	l.entries[i].key, l.entries[i].value, l.entries[i].hash = k, v, hash
	if o, is := any(v).(owned); is {
		h := l.held.of(o.owner())
		l.entries[i].share = h
		l.held.count(h, byPlaces, 1)
		o.holds(h)
	}
	insertPosition(l.table, hash, uint32(i))
	l.link(i)
}

func (l *lru[K, V]) grow() {
	l.table = make([]uint64, 2*len(l.table))
	for i := l.entries[0].next; i != 0; i = l.entries[i].next {
		insertPosition(l.table, l.entries[i].hash, uint32(i))
	}
}

// oldest is the least recently used entry.
func (l *lru[K, V]) oldest() (v V, ok bool) {
	i := l.entries[0].prev
	return l.entries[i].value, i != 0
}

// all gives the entries, the least recent first.
func (l *lru[K, V]) all() []V {
	list := make([]V, 0, l.n)
	if len(l.entries) == 0 { // nothing was ever made of it
		return list
	}
	for i := l.entries[0].prev; i != 0; i = l.entries[i].prev {
		list = append(list, l.entries[i].value)
	}
	return list
}

func (l *lru[K, V]) remove(k K) {
	if at, there := l.find(k, k.hash()); there {
		l.drop(int32(uint32(l.table[at])))
	}
}

func (l *lru[K, V]) removeOldest() {
	if i := l.entries[0].prev; i != 0 {
		l.drop(i)
	}
}

func (l *lru[K, V]) drop(i int32) {
	removePosition(l.table, l.entries[i].hash, uint32(i))
	l.unlink(i)
	if h := l.entries[i].share; h != nil {
		l.held.count(h, byPlaces, -1)
	}
	l.entries[i] = lruEntry[K, V]{}
	l.freePlaces = append(l.freePlaces, i)
	l.n--
}

func (l *lru[K, V]) link(i int32) {
	first := l.entries[0].next
	l.entries[i].prev, l.entries[i].next = 0, first
	l.entries[0].next, l.entries[first].prev = i, i
	l.linkOwn(i)
}

func (l *lru[K, V]) unlink(i int32) {
	e := &l.entries[i]
	l.entries[e.prev].next, l.entries[e.next].prev = e.next, e.prev
	l.unlinkOwn(i)
}

// A table that the tenants of a shard have in common must not become the table of
// the one that sends most. Where it is full, an entry goes of the tenant that holds
// most of it, and there of the publisher that holds most of that: the one that was
// used least recently. A tenant that holds less than an equal share loses nothing to
// others. Among equals it is the one that wants room, then the first by name, so that
// what goes depends on what was applied and on nothing else.

// measure is what a table is full of.
type measure int

const (
	byPlaces measure = iota // entries
	byCalls                 // calls of sessions
	byIDs                   // tool call ids of sessions
	byWeight                // what sessions remember whose order is followed
	measures
)

// owned is an entry of a table of which a publisher holds it.
type owned interface {
	owner() sourceKey
	holds(h *share) // what the table counts for the publisher
}

// share is what a tenant, or one of its publishers, holds of a table.
type share struct {
	key    sourceKey // of a tenant without a publisher
	tenant *share    // nil of a tenant
	has    [measures]int
	rank   [measures]int // where it stands in the rankings

	publishers     [measures]ranking // of a tenant
	newest, oldest int32             // of a publisher: its entries in the order of use; 0 if there is none
}

// shares are all shares of a table. The zero value has none.
type shares struct {
	publishers map[sourceKey]*share
	tenants    map[string]*share
	ranked     [measures]ranking // the tenants
}

// of finds a publisher, or makes it.
func (s *shares) of(k sourceKey) *share {
	if h := s.publishers[k]; h != nil {
		return h
	}
	if s.publishers == nil {
		s.publishers, s.tenants = map[sourceKey]*share{}, map[string]*share{}
	}
	t := s.tenants[k.tenant]
	if t == nil {
		t = &share{key: sourceKey{tenant: k.tenant}}
		s.tenants[k.tenant] = t
		for by := range measures {
			s.ranked[by].add(by, t)
		}
	}
	h := &share{key: k, tenant: t}
	s.publishers[k] = h
	for by := range measures {
		t.publishers[by].add(by, h)
	}
	return h
}

// count notes that a publisher holds n more, or less. One that holds no entry any
// more is forgotten.
func (s *shares) count(h *share, by measure, n int) {
	t := h.tenant
	h.has[by], t.has[by] = h.has[by]+n, t.has[by]+n
	t.publishers[by].settle(by, h)
	s.ranked[by].settle(by, t)
	if by != byPlaces || h.has[byPlaces] > 0 {
		return
	}
	delete(s.publishers, h.key)
	for by := range measures {
		t.publishers[by].remove(by, h)
	}
	if t.has[byPlaces] > 0 {
		return
	}
	delete(s.tenants, t.key.tenant)
	for by := range measures {
		s.ranked[by].remove(by, t)
	}
}

// ranking is a heap: the one that holds most first, among equals the first by name.
// No two are equal in both.
type ranking []*share

func (h *share) above(by measure, o *share) bool {
	if h.has[by] != o.has[by] {
		return h.has[by] > o.has[by]
	}
	if h.key.tenant != o.key.tenant {
		return h.key.tenant < o.key.tenant
	}
	return h.key.source < o.key.source
}

func (r ranking) swap(by measure, i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].rank[by], r[j].rank[by] = i, j
}

// settle moves one to where it belongs.
func (r ranking) settle(by measure, h *share) {
	i := h.rank[by]
	for i > 0 && r[i].above(by, r[(i-1)/2]) {
		r.swap(by, i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		most := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r); child++ {
			if r[child].above(by, r[most]) {
				most = child
			}
		}
		if most == i {
			return
		}
		r.swap(by, i, most)
		i = most
	}
}

func (r *ranking) add(by measure, h *share) {
	h.rank[by] = len(*r)
	*r = append(*r, h)
	r.settle(by, h)
}

func (r *ranking) remove(by measure, h *share) {
	i, last := h.rank[by], len(*r)-1
	r.swap(by, i, last)
	(*r)[last] = nil
	*r = (*r)[:last]
	if i < last {
		r.settle(by, (*r)[i])
	}
}

// leading are the two that hold most; own comes first among equals. The second is
// nil if there is one only.
func (r ranking) leading(by measure, own *share) [2]*share {
	two := [2]*share{r[0], nil}
	for i := 1; i <= 2 && i < len(r); i++ {
		if two[1] == nil || r[i].above(by, two[1]) {
			two[1] = r[i]
		}
	}
	if own != nil && own != two[0] && own.has[by] == two[0].has[by] {
		two[0], two[1] = own, two[0]
	}
	return two
}

// surplus gives the entry that makes room where a table is full by a measure, for
// something of a publisher. The entry of the key stays, for it is worked on; ok is
// false if there is no other.
func (l *lru[K, V]) surplus(by measure, of sourceKey, stays K) (v V, ok bool) {
	if l.n == 0 {
		return v, false
	}
	for _, t := range l.held.ranked[by].leading(by, l.held.tenants[of.tenant]) {
		if t == nil {
			break
		}
		own := l.held.publishers[of]
		if own != nil && own.tenant != t {
			own = nil
		}
		for _, p := range t.publishers[by].leading(by, own) {
			if p == nil {
				break
			}
			if e := &l.entries[p.oldest]; e.key != stays {
				return e.value, true
			}
		}
	}
	return v, false
}

// count notes how much more of something an entry's publisher has, or less.
func (l *lru[K, V]) count(h *share, by measure, n int) {
	if h != nil && n != 0 {
		l.held.count(h, by, n)
	}
}

// linkOwn and unlinkOwn keep the order of use among the entries of one publisher.
func (l *lru[K, V]) linkOwn(i int32) {
	e := &l.entries[i]
	h := e.share
	if h == nil {
		return
	}
	e.newer, e.older = 0, h.newest
	if h.newest != 0 {
		l.entries[h.newest].newer = i
	} else {
		h.oldest = i
	}
	h.newest = i
}

func (l *lru[K, V]) unlinkOwn(i int32) {
	e := &l.entries[i]
	h := e.share
	if h == nil {
		return
	}
	if e.newer != 0 {
		l.entries[e.newer].older = e.older
	} else {
		h.newest = e.older
	}
	if e.older != 0 {
		l.entries[e.older].newer = e.newer
	} else {
		h.oldest = e.newer
	}
}
