package admission

import (
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// FuzzDecideEveryProtocol: whatever the body and the headers are, in whatever
// protocol, under policies that allow everything.
func FuzzDecideEveryProtocol(f *testing.F) {
	m := courierMandate(f)
	all := proposals(m)
	for i, p := range all {
		f.Add(uint8(i), p.body, events.HeaderSession, "s1")
		f.Add(uint8(i), p.body, events.HeaderSession, "\xff")
		f.Add(uint8(i), p.body, "Aump-Mandate-Hash", m.Hash)
		f.Add(uint8(i), p.body[:len(p.body)/2], "traceparent", "00")
		f.Add(uint8(i), "null", "", "")
	}
	open, set := anything(f), desk(f)
	f.Fuzz(func(t *testing.T, which uint8, body, header, value string) {
		p := all[int(which)%len(all)]
		r, in := request(p.protocol, body), inputs()
		in.Mandates.Mandates, in.Publishers, in.Approvals = known{m}, set, newShelf()
		if header != "" {
			r.Header = map[string][]string{header: {value}}
		}
		out := Decide(r, open, in)
		for _, reason := range out.Decision.Reasons {
			if reason.Code == CodeInternal {
				t.Fatalf("an evaluator panicked on %q", body)
			}
		}
		if _, err := strictjson.ParseObject(r.Body, strictjson.DefaultLimits); err != nil && out.Decision.Verdict != events.Deny {
			t.Fatalf("%s for what cannot be read: %q", out.Decision.Verdict, r.Body)
		}
		record, err := events.Encode(out.Decision)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.DecodeRecord[events.Decision](record); err != nil {
			t.Fatalf("%v: %s", err, record)
		}
		if _, err := out.Reply(); err != nil {
			t.Fatal(err)
		}
		if s := out.Consumption.Spend; s != nil && (s.Amount <= 0 || s.Amount > s.Budget || out.Decision.Verdict != events.Allow) {
			t.Fatalf("%s takes %+v", out.Decision.Verdict, s)
		}
		if step := out.Consumption.Approval; step != nil && step.Consumes {
			t.Fatal("used an approval that nobody gave")
		}
	})
}
