package verify_test

import (
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
)

func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{600, 1800} {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			f := evidencetest.New(b)
			for range 1000 {
				f.Log(evidencetest.EventSubject, nil, evidencetest.Sized(evidencetest.PlainEvent, evidencetest.CleanText, n))
			}
			rows, opts := f.Rows(), f.Options()
			b.ReportAllocs()
			for b.Loop() {
				if rep := evidencetest.VerifyRows(opts, rows); !rep.OK {
					b.Fatal(rep.Findings)
				}
			}
			b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "records/s")
		})
	}
	b.Run("decisions", func(b *testing.B) {
		f := evidencetest.New(b)
		for i := range 200 {
			f.Admit("s", fmt.Sprint("id-", i), events.Allow, "{}")
		}
		opts := f.Options()
		opts.ReceiptKeys = []events.KeyRecord{f.KeyRecord()}
		rows := f.Rows()
		for b.Loop() {
			if rep := evidencetest.VerifyRows(opts, rows); !rep.OK {
				b.Fatal(rep.Findings)
			}
		}
		b.ReportMetric(float64(b.N)*400/b.Elapsed().Seconds(), "records/s")
	})
}

// BenchmarkVerifyMix verifies what a busy log holds: requests, decisions of
// which sixteen share a signature, events, calls and cursors.
func BenchmarkVerifyMix(b *testing.B) {
	f := evidencetest.New(b)
	f.Log(subject.Space{}.Control("GOV", events.ControlKey), nil, f.Encode(f.KeyRecord()))
	call := events.Call{CallID: "c-1", Tenant: "acme", Source: "runtime-1", Protocol: "agenthook", Session: "sess-a", Occurrence: 1, State: events.CallCompleted,
		Timeline: []events.TimelineEntry{{Step: "requested", Seq: 3, At: events.At(evidencetest.Start)}, {Step: "decided", Seq: 4, At: events.At(evidencetest.Start)}}}
	for i := range 40 {
		f.Batch(16)
		for range 16 {
			f.Log(evidencetest.EventSubject, nil, evidencetest.Sized(evidencetest.PlainEvent, evidencetest.CleanText, 600))
			f.Log(evidencetest.EventSubject, nil, evidencetest.Sized(evidencetest.PlainEvent, evidencetest.CleanText, 500))
			f.Log(subject.Space{}.Call("acme", "open", "sess-a"), nil, f.Encode(call))
			f.Log(subject.Space{}.Call("acme", "completed", "sess-a"), nil, f.Encode(call))
			f.Log(subject.Space{}.Control("GOV", events.ControlCursor), nil, f.Encode(events.Cursor{Shard: evidencetest.Shard, Consumed: uint64(i), Writer: "w"}))
		}
	}
	rows, opts := f.Rows(), f.Options()
	b.ReportAllocs()
	for b.Loop() {
		if rep := evidencetest.VerifyRows(opts, rows); !rep.OK {
			b.Fatal(rep.Findings)
		}
	}
	b.ReportMetric(float64(b.N*len(rows))/b.Elapsed().Seconds(), "records/s")
}
