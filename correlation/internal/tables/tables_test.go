package tables

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// number is a key.
type number uint64

func (n number) Hash() uint32 { return uint32(n * 0x9e3779b97f4a7c15 >> 32) }

// place is the key of a tenancy.
type place struct{ tenant, source, session string }

func (p place) holder() PublisherKey { return PublisherKey{p.tenant, p.source} }

func (p place) Hash() (h uint32) {
	for _, c := range []byte(p.tenant + " " + p.source + " " + p.session) {
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

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
	if w.Len() != 64 || len(w.chunks) > 2 || len(w.table) != 128 {
		t.Errorf("%d entries in %d chunks and a table of %d", w.Len(), len(w.chunks), len(w.table))
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
	if len(table.held.publishers)+len(table.held.tenants)+len(table.held.ranked[ByPlaces])+len(table.held.ranked[ByCalls]) != 0 {
		t.Errorf("shares of nothing are left: %+v", table.held)
	}
}

// surplusOf is surplus by places, found by looking at every entry.
func surplusOf(l *LRU[place, *tenancy], k place) place {
	most := func(of func(place) (string, bool), own string) (best string) {
		n := map[string]int{}
		for _, s := range l.All() {
			if name, counts := of(s.key); counts {
				n[name]++
			}
		}
		for name, held := range n {
			if best == "" || held > n[best] || held == n[best] && best != own && (name == own || name < best) {
				best = name
			}
		}
		return best
	}
	tenant := most(func(o place) (string, bool) { return o.tenant, true }, k.tenant)
	source := most(func(o place) (string, bool) { return o.source, o.tenant == tenant }, k.source)
	if tenant != k.tenant {
		source = most(func(o place) (string, bool) { return o.source, o.tenant == tenant }, "")
	}
	for _, s := range l.All() {
		if s.key.holder() == (PublisherKey{tenant, source}) {
			return s.key
		}
	}
	return place{}
}
