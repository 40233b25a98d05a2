package tables

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// number is a key.
type number uint64

// place is the key of a tenancy.
type place struct{ tenant, source, session string }

func (p place) holder() PublisherKey { return PublisherKey{p.tenant, p.source} }

// tenancy is an entry that a publisher holds.
type tenancy struct {
	key   place
	share *Share
}

func (s *tenancy) ID() place           { return s.key }
func (s *tenancy) Owner() PublisherKey { return s.key.holder() }
func (s *tenancy) Holds(h *Share)      { s.share = h }

// TestFullDoesNotGrow: a FIFO that drops as many entries as it adds takes no more room.
func TestFullDoesNotGrow(t *testing.T) {
	w := NewFIFO[number, int](NoLimit)
	for i := range 300 {
		if w.Len() == 64 {
			w.DropOldest(1)
		}
		w.Put(number(i), i)
	}
	if w.Len() != 64 || len(w.chunks) > 2 || w.peak != 64 {
		t.Errorf("%d entries in %d chunks, %d at the most", w.Len(), len(w.chunks), w.peak)
	}
	if w.DropOldest(60); w.peak != 4 {
		t.Errorf("4 entries are left of %d", w.peak)
	}
}

// TestFewEntriesTakeLittle: a FIFO with few entries has at most a chunk and a small one, wherever they lie.
func TestFewEntriesTakeLittle(t *testing.T) {
	w := NewFIFO[number, int](NoLimit)
	for i := range 4 * chunkSize {
		if w.Put(number(i), i); w.Len() > 65 {
			w.DropOldest(1)
		}
		places := len(w.spareChunk)
		for _, c := range w.chunks {
			places += len(c)
		}
		if places > chunkSize+chunkSize/2 {
			t.Fatalf("step %d: %d places for %d entries", i, places, w.Len())
		}
	}
}

// TestPack: what was packed and unpacked has the same entries in the same order.
func TestPack(t *testing.T) {
	w, l := NewFIFO[number, int](8), NewLRU[place, *tenancy]()
	for i := range 20 {
		w.Put(number(i), i)
		l.Add(&tenancy{key: place{"acme", "rt1", fmt.Sprint(i)}})
	}
	l.Get(place{"acme", "rt1", "3"})
	var again FIFO[number, int]
	again.Unpack(w.Pack())
	again.Put(100, 100)
	w.Put(100, 100)
	sameEntry := func(a, b Entry[number, int]) bool { return a.Key == b.Key && a.Value == b.Value }
	if !slices.EqualFunc(again.All(), w.All(), sameEntry) || again.Len() > 8 {
		t.Errorf("FIFO: %v, want %v", again.All(), w.All())
	}
	s := NewShared[number, int](8)
	for i := range 20 {
		s.Put(fmt.Sprint("t", i%3), number(i), i)
	}
	var same Shared[number, int]
	same.Unpack(s.Pack())
	same.Put("t1", 100, 100)
	s.Put("t1", 100, 100)
	if !slices.EqualFunc(same.All(), s.All(), sameEntry) || same.Len() != 8 {
		t.Errorf("Shared: %v, want %v", same.All(), s.All())
	}
	var other LRU[place, *tenancy]
	other.Unpack(l.Pack())
	if !slices.Equal(other.All(), l.All()) {
		t.Error("LRU: the order of use is another one")
	}
}

// TestFIFONumbers holds a FIFO against a list where chunks end and where numbers
// begin again.
func TestFIFONumbers(t *testing.T) {
	for _, limit := range []int{NoLimit, 1, 7, chunkSize, 3 * chunkSize} {
		for _, first := range []uint32{0, chunkSize - 1, 1<<32 - 1, 1<<32 - 700} {
			random := rand.New(rand.NewPCG(uint64(limit), uint64(first)))
			w := NewFIFO[number, int](limit)
			w.head = first
			var model []Entry[number, int]
			for step := range 6000 {
				if n := random.IntN(40); step%50 == 49 && n <= len(model) {
					w.DropOldest(n)
					model = model[n:]
				}
				k := number(random.Uint64N(2000))
				at := slices.IndexFunc(model, func(e Entry[number, int]) bool { return e.Key == k })
				if v, there := w.Get(k); there != (at >= 0) || there && v != model[at].Value {
					t.Fatalf("limit %d, first %d, step %d: %d, %v", limit, first, step, v, there)
				}
				if w.Put(k, step); at >= 0 {
					model[at].Value = step
					continue
				}
				if len(model) == limit && limit != NoLimit {
					model = model[EvictionBatch(limit):]
				}
				model = append(model, Entry[number, int]{Key: k, Value: step})
			}
			all := w.All()
			same := slices.EqualFunc(all, model, func(a, b Entry[number, int]) bool { return a.Key == b.Key && a.Value == b.Value })
			if !same || w.Len() != len(model) || len(w.chunks) > len(model)/chunkSize+2 {
				t.Errorf("limit %d, first %d: %d entries in %d chunks, want %d", limit, first, len(all), len(w.chunks), len(model))
			}
			for i := range model {
				if w.KeyAt(i) != model[i].Key {
					t.Fatalf("limit %d, first %d: the entry %d is another one", limit, first, i)
				}
			}
		}
	}
}

// TestSharedTakesFromTheLargest: a tenant that floods a full table takes nothing from one that
// holds less than an equal share, and keeps what it added last.
func TestSharedTakesFromTheLargest(t *testing.T) {
	for name, tc := range map[string]struct {
		limit int
		held  map[string]int // what each tenant adds before the flood
		want  map[string]int // what it has after it
	}{
		"alone":                     {64, nil, map[string]int{"acme": 64}},
		"one has little":            {64, map[string]int{"globex": 10}, map[string]int{"globex": 10, "acme": 54}},
		"one has an equal share":    {64, map[string]int{"globex": 32}, map[string]int{"globex": 32, "acme": 32}},
		"one has all":               {64, map[string]int{"globex": 64}, map[string]int{"globex": 32, "acme": 32}},
		"one has all of many":       {4096, map[string]int{"globex": 4096}, map[string]int{"globex": 2048, "acme": 2048}},
		"two have little":           {64, map[string]int{"globex": 5, "initech": 20}, map[string]int{"globex": 5, "initech": 20, "acme": 39}},
		"more tenants than entries": {1, map[string]int{"globex": 1}, map[string]int{"globex": 0, "acme": 1}},
	} {
		s, n := NewShared[number, int](tc.limit), 0
		for _, tenant := range slices.Sorted(maps.Keys(tc.held)) {
			for range tc.held[tenant] {
				n++
				s.Put(tenant, number(n), n)
			}
		}
		for range 20 * tc.limit {
			n++
			s.Put("acme", number(n), n)
		}
		for tenant, want := range tc.want {
			got := 0
			for i := range n + 1 {
				if _, there := s.Get(tenant, number(i)); there {
					got++
				}
			}
			batch := EvictionBatch(tc.limit) - 1 // the last one may just have gone
			if got > want || got < want-batch || tenant != "acme" && got != want {
				t.Errorf("%s: %s has %d, want %d", name, tenant, got, want)
			}
		}
		if _, there := s.Get("acme", number(n)); !there || s.Len() > tc.limit {
			t.Errorf("%s: %d entries, the last one is there: %v", name, s.Len(), there)
		}
	}
}

// TestSharedAgrees holds a Shared against a plain search: whatever the order of the entries, the
// oldest of the tenant that holds most goes.
func TestSharedAgrees(t *testing.T) {
	type entry struct {
		tenant string
		key    number
	}
	random, s, values, order := rand.New(rand.NewPCG(1, 2)), NewShared[number, int](40), map[entry]int{}, []entry{}
	for step := range 20_000 {
		// Now one tenant has most, now another one.
		e := entry{fmt.Sprint("t", min(random.IntN(6), random.IntN(1+step/100%6))), number(random.IntN(60))}
		if _, there := values[e]; !there {
			if len(order) == 40 {
				held := map[string]int{}
				for _, o := range order {
					held[o.tenant]++
				}
				most := e.tenant
				for _, o := range order {
					if n := held[o.tenant] - held[most]; n > 0 || n == 0 && most != e.tenant && o.tenant < most {
						most = o.tenant
					}
				}
				oldest := slices.IndexFunc(order, func(o entry) bool { return o.tenant == most })
				delete(values, order[oldest])
				order = slices.Delete(order, oldest, oldest+1)
			}
			order = append(order, e)
		}
		values[e] = step
		s.Put(e.tenant, e.key, step)
		o := entry{fmt.Sprint("t", random.IntN(6)), number(random.IntN(60))}
		want, there := values[o]
		if got, is := s.Get(o.tenant, o.key); got != want || is != there || s.Len() != len(order) || len(s.tenants) != s.ranked.Len() {
			t.Fatalf("step %d: %v is %d, %v; want %d, %v", step, o, got, is, want, there)
		}
	}
}

// TestSharesAgree: whatever the order in which sessions come, speak and go, what goes
// is what a plain search finds, and what is counted is there.
func TestSharesAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table := NewLRU[place, *tenancy]()
	counted := map[PublisherKey]int{}
	for range 5000 {
		k := place{fmt.Sprint("t", random.IntN(4)), fmt.Sprint("p", random.IntN(3)), fmt.Sprint("s", random.IntN(30))}
		if s, there := table.Get(k); there {
			if random.IntN(3) == 0 {
				table.Count(s.share, ByCalls, 1)
				counted[k.holder()]++
			}
		} else {
			table.Add(&tenancy{key: k})
		}
		if random.IntN(4) == 0 {
			old, _ := table.Surplus(ByPlaces, k.holder(), k)
			if want := surplusOf(table, k); old.key != want {
				t.Fatalf("%v goes, want %v", old.key, want)
			}
			if table.Len() > 40 {
				table.Remove(old.key)
			}
		}
	}
	for k, n := range counted {
		if h := table.held.publishers[k]; h != nil && h.has[ByCalls] > n {
			t.Errorf("%v has %d calls, and was given %d", k, h.has[ByCalls], n)
		}
	}
	for _, s := range table.All() {
		table.Remove(s.key)
	}
	if len(table.held.publishers)+len(table.held.tenants)+table.held.ranked[ByPlaces].Len()+table.held.ranked[ByCalls].Len() != 0 {
		t.Errorf("shares of nothing are left: %+v", table.held)
	}
}

// surplusOf is surplus by places, found by looking at every entry.
func surplusOf(l *LRU[place, *tenancy], k place) place {
	most := func(of func(place) (string, bool), preferred ...string) string {
		n := map[string]int{}
		for _, s := range l.All() {
			if name, counts := of(s.key); counts {
				n[name]++
			}
		}
		largest := slices.Max(slices.Collect(maps.Values(n)))
		for _, name := range append(preferred, slices.Sorted(maps.Keys(n))...) {
			if n[name] == largest {
				return name
			}
		}
		return ""
	}
	tenant := most(func(o place) (string, bool) { return o.tenant, true }, k.tenant, l.All()[0].key.tenant)
	source := most(func(o place) (string, bool) { return o.source, o.tenant == tenant }, k.source)
	if tenant != k.tenant {
		source = most(func(o place) (string, bool) { return o.source, o.tenant == tenant })
	}
	for _, s := range l.All() {
		if s.key.holder() == (PublisherKey{tenant, source}) {
			return s.key
		}
	}
	return place{}
}
