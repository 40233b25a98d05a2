package correlation

import (
	"bytes"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
)

// aaepLog is AAEP sessions from start to end.
func aaepLog(t testing.TB) *ledger {
	l := newLedger(t)
	l.opts.RequireVerdict = false
	n := 0
	for i := range 400 {
		session := "sess_" + strconv.Itoa(i)
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
			id := "call_" + strconv.Itoa(n)
			put("tool.invoked", tree{"tool": "lookup", "tool_call_id": id})
			put("tool.completed", tree{"tool": "lookup", "tool_call_id": id, "status": "success"})
		}
		put("session.completed", nil)
	}
	return l
}

// hookLog is admitted, announced and completed calls of AgentHook, whose
// decisions were committed in groups.
func hookLog(t testing.TB) *ledger {
	l := newLedger(t)
	l.opts.SessionKey = func(_, session string) (*digest.Session, bool) {
		return digest.NewSession(append(make([]byte, digest.KeySize-4), (session + "....")[:4]...)), true
	}
	const calls, group = 2000, 50
	var bodies [][]byte
	var at []int
	for i := range calls {
		before := set(set(pre(2*i), "session_id", "s"+strconv.Itoa(i%200)), "metadata.tool_call_id", "c"+strconv.Itoa(i))
		l.request(before, "d"+strconv.Itoa(i))
		body, err := events.Encode(decisionOn(before, "d"+strconv.Itoa(i), events.Allow, l.now))
		if err != nil {
			t.Fatal(err)
		}
		bodies, at = append(bodies, body), append(at, len(l.msgs))
		l.put(space.Decision("acme", "allow", "s"+strconv.Itoa(i%200)), nil, body)
		l.event(before)
		now := l.now.Sub(epoch).Seconds()
		after := set(set(post(2*i+1), "session_id", "s"+strconv.Itoa(i%200)), "metadata.tool_call_id", "c"+strconv.Itoa(i))
		after = set(set(after, "timestamp", stamp(now)), "metadata.execution.started_at", stamp(now))
		l.event(set(set(after, "metadata.execution.completed_at", stamp(now)), "correlation_id", uuid(2*i)))
	}
	for i := 0; i < calls; i += group {
		values, err := signer.SignRecords(bodies[i : i+group])
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range values {
			l.msgs[at[i+k]].Header = map[string][]string{events.HeaderSignature: {v}}
		}
	}
	return l
}

var benchLogs = []struct {
	name string
	log  func(testing.TB) *ledger
}{{"aaep", aaepLog}, {"agenthook", hookLog}, {"governed", governedLog}}

// bench reports what one message costs.
func bench(b *testing.B, messages int, once func()) {
	b.ReportAllocs()
	before := processorTime()
	for b.Loop() {
		once()
	}
	n := float64(b.N * messages)
	b.ReportMetric(float64(processorTime()-before)/n/1000, "cpu-us/msg")
	b.ReportMetric(n/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(messages), "msg/op")
}

// processorTime is what this process has used, its garbage collector included.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkApply is everything, one after the other.
func BenchmarkApply(b *testing.B) {
	for _, c := range benchLogs {
		b.Run(c.name, func(b *testing.B) {
			l := c.log(b)
			bench(b, len(l.msgs), func() {
				core := New(l.opts)
				for _, m := range l.msgs {
					core.Apply(m)
				}
			})
		})
	}
}

// BenchmarkDecode is the part that needs no state.
func BenchmarkDecode(b *testing.B) {
	for _, c := range benchLogs {
		b.Run(c.name, func(b *testing.B) {
			l := c.log(b)
			core := l.run().core
			bench(b, len(l.msgs), func() {
				d := core.NewDecoder()
				for _, m := range l.msgs {
					d.Decode(m)
				}
			})
		})
	}
}

// BenchmarkStep is the pure core, on decoded messages.
func BenchmarkStep(b *testing.B) {
	for _, c := range benchLogs {
		b.Run(c.name, func(b *testing.B) {
			l := c.log(b)
			d := l.run().core.NewDecoder()
			inputs := make([]fact.Input, len(l.msgs))
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for i, m := range l.msgs {
					inputs[i] = d.Decode(m)
				}
				core := New(l.opts)
				b.StartTimer()
				core.Prefetch(inputs)
				for i := range inputs {
					core.Step(&inputs[i])
				}
			}
			n := float64(b.N * len(l.msgs))
			b.ReportMetric(n/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(len(l.msgs)), "msg/op")
		})
	}
}

// BenchmarkEncode is the writing of the outputs.
func BenchmarkEncode(b *testing.B) {
	for _, c := range benchLogs {
		b.Run(c.name, func(b *testing.B) {
			outs := c.log(b).run().outputs
			bench(b, len(outs), func() {
				for _, o := range outs {
					o.Body = nil
					o.Encode()
				}
			})
		})
	}
}

// TestDecodeAhead: however far ahead and by whichever decoder messages are read,
// the outputs are those of Apply, before and after keys change.
func TestDecodeAhead(t *testing.T) {
	l := scenario(t, 40)
	l.key(stranger, "ok")
	l.admit(set(pre(9001), "metadata.tool_call_id", "late"), "late", events.Deny)
	l.signed(decisionOn(pre(9002), "other-key", events.Allow, l.now), stranger)
	forged := decisionOn(pre(9003), "forged", events.Allow, l.now)
	body, _ := events.Encode(forged)
	sig, _ := mustKey(3).SignDetached(signing.TypeRecord, body)
	l.put(space.Decision("acme", "allow", forged.Session), map[string][]string{events.HeaderSignature: {sig}}, body)
	want := l.run()
	for _, ahead := range []int{1, 7, len(l.msgs)} {
		core := New(l.opts)
		decoders := []*fact.Decoder{core.NewDecoder(), core.NewDecoder()}
		var inputs []fact.Input
		var got []Output
		for i, m := range l.msgs {
			inputs = append(inputs, decoders[i%2].Decode(m))
			if len(inputs) == ahead || i == len(l.msgs)-1 {
				before := core.Snapshot()
				if core.Prefetch(inputs); !bytes.Equal(core.Snapshot(), before) {
					t.Fatal("looking ahead has changed the state")
				}
				for i := range inputs {
					got = append(got, core.Step(&inputs[i])...)
				}
				inputs = nil
			}
		}
		if len(got) != len(want.outputs) {
			t.Fatalf("%d ahead: %d outputs, want %d", ahead, len(got), len(want.outputs))
		}
		for i := range got {
			got[i].Encode()
			if w := want.outputs[i]; got[i].ID != w.ID || got[i].Subject != w.Subject || !bytes.Equal(got[i].Body, w.Body) {
				t.Fatalf("%d ahead: output %d is\n%s\nwant\n%s", ahead, i, fmt.Sprint(got[i].ID, string(got[i].Body)), fmt.Sprint(w.ID, string(w.Body)))
			}
		}
	}
}

// TestSealOfAnUnknownKey: that a decoder has verified a signature means nothing to
// a correlator that does not know its key.
func TestSealOfAnUnknownKey(t *testing.T) {
	l := newLedger(t)
	l.decide(pre(1), "d1", events.Allow)
	knows, does := l.run().core.NewDecoder(), New(l.opts)
	in := knows.Decode(l.msgs[1])
	if in.Decision.Signature.Key == nil {
		t.Fatal("the decoder has verified nothing")
	}
	outs := does.Step(&in)
	if len(outs) != 1 || outs[0].Finding.Rule != ForgedRecord {
		t.Errorf("outputs %+v", outs)
	}
}
