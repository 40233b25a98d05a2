package correlation

import "testing"

// BenchmarkApplyAAEP replays AAEP sessions from start to end.
func BenchmarkApplyAAEP(b *testing.B) {
	l := newLedger(b)
	l.opts.RequireVerdict = false
	n := 0
	for i := range 400 {
		session := "sess_" + itoa(i)
		put := func(typ string, members tree) {
			n++
			e := wire(n, typ, float64(n)/100, tree{"session_id": session, "localization_hints": tree{"primary_language": "en"}})
			for k, v := range members {
				e[k] = v
			}
			l.event(e)
		}
		put("session.started", nil)
		put("state.changed", tree{"from_state": "idle", "to_state": "thinking"})
		for range 3 {
			id := "call_" + itoa(n)
			put("tool.invoked", tree{"tool": "lookup", "tool_call_id": id})
			put("tool.completed", tree{"tool": "lookup", "tool_call_id": id, "status": "success"})
		}
		put("session.completed", nil)
	}
	b.ReportAllocs()
	b.ResetTimer()
	events := 0
	for range b.N {
		core := New(l.opts)
		for _, m := range l.msgs {
			core.Apply(m)
			events++
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(len(l.msgs)), "events/op")
}
