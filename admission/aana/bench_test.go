package aana

import (
	"testing"

	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aana"
)

func BenchmarkRead(b *testing.B) {
	for name, in := range map[string]doc{
		"public read": event(wire.PublicRead, wire.None, doc{"evidence_refs": refs()}),
		"write":       event(wire.Write, wire.Confirmed),
	} {
		r := request(b, hard, in)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(r.Body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, o := (Evaluator{}).Read(r); o.Verdict != events.Allow {
					b.Fatal(o.Verdict)
				}
			}
		})
		b.Run(name+", reply", func(b *testing.B) {
			c, o := Evaluator{}.Read(r)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := (Evaluator{}).Reply(c, events.Decision{Verdict: o.Verdict}, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
