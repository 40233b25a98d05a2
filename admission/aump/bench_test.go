package aump

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// BenchmarkRead is one decision and its reply, without package admission's share.
func BenchmarkRead(b *testing.B) {
	for _, bench := range []struct{ name, mandate, action, context string }{
		{"minimal", courier, book, ""},
		{"everything", flat, `{"type":"accept_deal","summary":"s","counterparty":"agency-1","amount":{"currency":"EUR","total_minor":120000},"commitment":true,` +
			`"disclosures":[{"field":"purpose.summary","content":"We look for a flat."}],"attributes":{"bedrooms":3,"kind":"flat"},` +
			`"terms":{"guarantor_fee":false,"notice":{"months":3}},"decision_factors":["rent","distance"]}`, `{"conditions":["contract_ready"],"confidence":0.9}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			m := compiled(b, bench.mandate)
			r := request(holding(m), envelope(m, bench.action, bench.context), m.IssuedAt.Add(time.Hour))
			b.ReportAllocs()
			for b.Loop() {
				c, o := Evaluator{}.Read(r)
				if _, err := (Evaluator{}).Reply(c, events.Decision{Verdict: o.Verdict, Reasons: o.Reasons}, o.DecidingCode); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
