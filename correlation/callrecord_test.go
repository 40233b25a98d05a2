package correlation

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// TestReuse: outputs that are encoded later, while the log goes on, and whose
// memory is used again are those that are encoded at once.
func TestReuse(t *testing.T) {
	logs := []*ledger{linked(t, 30)}
	for _, c := range corpusCases(t) {
		logs = append(logs, c.ledger(t))
	}
	reused := 0
	for i, l := range logs {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		core := New(l.opts)
		var got, waiting []Output
		encode := func(n int) {
			for k := range n {
				waiting[k].Encode()
				got = append(got, waiting[k])
				core.Reuse(&waiting[k])
			}
			waiting = append(waiting[:0], waiting[n:]...)
		}
		for _, m := range l.msgs {
			in := core.NewDecoder().Decode(m)
			waiting = append(waiting, core.Step(&in)...)
			encode(random.IntN(len(waiting) + 1))
		}
		encode(len(waiting))
		sameOutputs(t, fmt.Sprint("log ", i), got, l.run().outputs)
		reused += len(core.engine.findings.callViewPool.freeViews)
	}
	if reused == 0 {
		t.Error("nothing was used again")
	}
}

// TestEncodeCopies: copies of one output may be encoded at the same time.
func TestEncodeCopies(t *testing.T) {
	l := linked(t, 1)
	core := New(l.opts)
	for _, m := range l.msgs {
		in := core.NewDecoder().Decode(m)
		for _, o := range core.Step(&in) {
			copies := [4]Output{o, o, o, o}
			var wg sync.WaitGroup
			for i := range copies {
				wg.Go(copies[i].Encode)
			}
			wg.Wait()
			for _, c := range copies {
				if c.ID != copies[0].ID || c.Subject != copies[0].Subject || string(c.Body) != string(copies[0].Body) {
					t.Errorf("%s is not %s", c.Body, copies[0].Body)
				}
			}
		}
	}
}
