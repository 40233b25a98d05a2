package correlation

import (
	"runtime"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// TestMemoryOfWhatIsOver measures, and prints, what a closed call and a closed
// session take, their ids and indexes included. The bounds of Options are to be
// multiplied with these.
func TestMemoryOfWhatIsOver(t *testing.T) {
	const calls, mostCall, mostSession = 1500, 1024, 1280
	perCall := usedFor(t, calls, 100) / calls
	perSession := (usedFor(t, calls, 1) - usedFor(t, calls, 100)) / (calls - calls/100)
	t.Logf("%d bytes a closed call, %d bytes a session more", perCall, perSession)
	if perCall > mostCall || perSession > mostSession {
		t.Errorf("want at most %d and %d bytes", mostCall, mostSession)
	}
}

// usedFor is the heap that a correlator takes after so many calls that were
// admitted, announced and completed.
func usedFor(t *testing.T, calls, perSession int) int {
	l := newLedger(t)
	// What is bounded however many calls there are is full before it is measured.
	l.opts.MaxEvents, l.opts.MaxEventsPerSource = 256, 256
	core := New(l.opts)
	core.engine.lineage.linkTargets.limit, core.engine.receipts.holders.limit = 512, 512
	seq := uint64(0)
	apply := func() {
		for _, m := range l.msgs {
			seq++
			m.Seq = seq
			core.Apply(m)
		}
		l.msgs = l.msgs[:0]
	}
	apply()
	play := func(from, to int) {
		for i := from; i < to; i++ {
			at := func(e tree) tree {
				return set(set(e, "session_id", "session-"+itoa(1000+i/perSession)), "metadata.tool_call_id", "call-"+itoa(100_000+i))
			}
			l.admit(at(pre(2*i)), "decision-"+itoa(100_000+i), events.Allow)
			l.event(at(pre(2 * i)))
			l.event(at(post(2*i + 1)))
			apply()
		}
	}
	play(0, 300)
	before := heapInUse()
	play(300, 300+calls)
	used := heapInUse() - before
	if st := core.Stats(); st.Open != 0 || st.Calls != 300+calls {
		t.Fatalf("%+v", st)
	}
	return used
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
