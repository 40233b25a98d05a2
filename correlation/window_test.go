package correlation

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

func key(n uint64) (s sum) {
	binary.BigEndian.PutUint64(s[:], n)
	return s
}

// TestWindowNumbers holds a window against a list where chunks end and where numbers
// begin again.
func TestWindowNumbers(t *testing.T) {
	for _, limit := range []int{noLimit, 1, 7, chunkSize, 3 * chunkSize} {
		for _, first := range []uint32{0, chunkSize - 1, 1<<32 - 1, 1<<32 - 700} {
			random := rand.New(rand.NewPCG(uint64(limit), uint64(first)))
			w := newFIFOMap[sum, int](limit)
			w.head = first
			var model []fifoEntry[sum, int]
			for step := range 6000 {
				if n := random.IntN(40); step%50 == 49 && n <= len(model) {
					w.dropOldest(n)
					model = model[n:]
				}
				k := key(random.Uint64N(2000))
				at := slices.IndexFunc(model, func(e fifoEntry[sum, int]) bool { return e.key == k })
				if v, there := w.get(k); there != (at >= 0) || there && v != model[at].value {
					t.Fatalf("limit %d, first %d, step %d: %d, %v", limit, first, step, v, there)
				}
				if w.put(k, step); at >= 0 {
					model[at].value = step
					continue
				}
				if len(model) == limit && limit != noLimit {
					model = model[evictionBatch(limit):]
				}
				model = append(model, fifoEntry[sum, int]{key: k, value: step})
			}
			all := w.all()
			same := slices.EqualFunc(all, model, func(a, b fifoEntry[sum, int]) bool { return a.key == b.key && a.value == b.value })
			if !same || w.len() != len(model) || len(w.chunks) > len(model)/chunkSize+2 {
				t.Errorf("limit %d, first %d: %d entries in %d chunks, want %d", limit, first, len(all), len(w.chunks), len(model))
			}
			for i := range model {
				if w.keyAt(i) != model[i].key {
					t.Fatalf("limit %d, first %d: the entry %d is another one", limit, first, i)
				}
			}
		}
	}
}
