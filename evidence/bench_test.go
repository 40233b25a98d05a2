package evidence

import (
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// sized pads an event's text argument to a body of about n bytes.
func sized(event, filler string, n int) []byte {
	pad := strings.Repeat(filler, n/len(filler)+1)[:max(n-len(event), 1)]
	return []byte(strings.Replace(event, `"metadata"`, `"note":"`+strings.TrimRight(pad, " ")+`","metadata"`, 1))
}

const cleanText = "looked at 17 pages and wrote a short summary for the user. "

func BenchmarkBuild(b *testing.B) {
	const sprinkled = "AKIA sk- ghp_ xoxb- eyJ password token secret api_key bearer of basic x -----BEGIN x ://a key=1 "
	for _, bc := range []struct {
		name string
		body []byte
	}{
		{"600B", sized(plainEvent, cleanText, 600)},
		{"1800B", sized(plainEvent, cleanText, 1800)},
		{"1800B_sprinkled", sized(plainEvent, sprinkled, 1800)},
		{"64K", sized(plainEvent, cleanText, 64<<10)},
		{"64K_sprinkled", sized(plainEvent, sprinkled, 64<<10)},
		{"64K_hostile", sized(plainEvent, "keY=keY=pw:key=", 64<<10)},
		{"600B_redacted", sized(secretEvent, cleanText, 600)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			f := newFixture(b)
			m := events.LogMessage{Seq: 7, Time: testStart, Subject: eventSubject, Body: bc.body, Header: map[string][]string{"ce-id": {"1"}, "ce-type": {"x"}}}
			b.SetBytes(int64(len(bc.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.builder.Build(m, Head{Index: 3}, f.keys); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// What it costs to look for credentials in our own records.
func BenchmarkBuildDecision(b *testing.B) {
	f := newFixture(b)
	body := f.encode(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000001", EventID: "evt_b8c4e9a2f5d1a8c4", Tenant: "acme", Protocol: "agenthook", Source: "runtime-1",
		Agent: "agent-7", Session: "sess-a", ToolCallID: "call_3f8d", Tool: "write_file", Action: "write", ResourceKind: "file", ArgsDigest: digestOf("sess-a", "a"),
		RequestDigest: digestOf("sess-a", "r"), Verdict: events.Allow, NativeVerdict: "allow", Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule", Policy: "files/workspace"}},
		Policy: &events.PolicyRef{Name: "files", Revision: 7, Digest: "sha256:" + strings.Repeat("ab", 32)}, DecidedAt: events.At(testStart), ReceivedAt: events.At(testStart),
		ReceiptHash: "sha256:" + strings.Repeat("0c", 32), Durability: "fsync"})
	signed, err := f.receipt.SignRecords([][]byte{body})
	must(b, err)
	m := events.LogMessage{Seq: 7, Time: testStart, Subject: "gov.decisions.acme.allow.sess-a", Body: body, Header: map[string][]string{events.HeaderSignature: {signed[0]}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.builder.Build(m, Head{Index: 3}, f.keys); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{600, 1800} {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			f := newFixture(b)
			for range 1000 {
				f.log(eventSubject, nil, sized(plainEvent, cleanText, n))
			}
			rows, opts := f.rows(), f.options()
			b.ReportAllocs()
			for b.Loop() {
				if rep := verifyRows(opts, rows); !rep.OK {
					b.Fatal(rep.Findings)
				}
			}
			b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "records/s")
		})
	}
	b.Run("decisions", func(b *testing.B) {
		f := newFixture(b)
		for i := range 200 {
			f.admit("s", fmt.Sprint("id-", i), events.Allow, "{}")
		}
		opts := f.options()
		opts.ReceiptKeys = []events.KeyRecord{f.keyRecord()}
		rows := f.rows()
		for b.Loop() {
			if rep := verifyRows(opts, rows); !rep.OK {
				b.Fatal(rep.Findings)
			}
		}
		b.ReportMetric(float64(b.N)*400/b.Elapsed().Seconds(), "records/s")
	})
}

func BenchmarkTreeAppend(b *testing.B) {
	var t tree.Tree
	for b.Loop() {
		t.Append([32]byte{})
	}
}

// BenchmarkVerifyMix verifies what a busy log holds: requests, decisions of
// which sixteen share a signature, events, calls and cursors.
func BenchmarkVerifyMix(b *testing.B) {
	f := newFixture(b)
	f.log(subject.Space{}.Control("GOV", events.ControlKey), nil, f.encode(f.keyRecord()))
	call := events.Call{CallID: "c-1", Tenant: "acme", Source: "runtime-1", Protocol: "agenthook", Session: "sess-a", Occurrence: 1, State: events.CallCompleted,
		Timeline: []events.TimelineEntry{{Step: "requested", Seq: 3, At: events.At(testStart)}, {Step: "decided", Seq: 4, At: events.At(testStart)}}}
	for i := range 40 {
		f.batch(16)
		for range 16 {
			f.log(eventSubject, nil, sized(plainEvent, cleanText, 600))
			f.log(eventSubject, nil, sized(plainEvent, cleanText, 500))
			f.log(subject.Space{}.Call("acme", "open", "sess-a"), nil, f.encode(call))
			f.log(subject.Space{}.Call("acme", "completed", "sess-a"), nil, f.encode(call))
			f.log(subject.Space{}.Control("GOV", events.ControlCursor), nil, f.encode(events.Cursor{Shard: testShard, Consumed: uint64(i), Writer: "w"}))
		}
	}
	rows, opts := f.rows(), f.options()
	b.ReportAllocs()
	for b.Loop() {
		if rep := verifyRows(opts, rows); !rep.OK {
			b.Fatal(rep.Findings)
		}
	}
	b.ReportMetric(float64(b.N*len(rows))/b.Elapsed().Seconds(), "records/s")
}
