package correlation

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

// ways are two decoders of one correlator, one of which always goes the long way.
func ways(c *Correlator) (short, long *Decoder) {
	short, long = c.NewDecoder(), c.NewDecoder()
	long.treesOnly = true
	return short, long
}

var everything = cmp.Exporter(func(reflect.Type) bool { return true })

// holdFlat fails if a message is read otherwise by the short way than by the long
// one.
func holdFlat(t *testing.T, short, long *Decoder, m events.LogMessage) {
	t.Helper()
	got, want := short.Decode(m), long.Decode(m)
	if reflect.DeepEqual(got, want) {
		return
	}
	if d := cmp.Diff(want, got, everything); d != "" {
		t.Errorf("%s %s\nlong - short +\n%s", m.Subject, m.Body, d)
	}
}

// TestFlatFacts: what is read by the short way is read the same by the long one,
// and most of what breaks no rule is.
func TestFlatFacts(t *testing.T) {
	logs := map[string]*ledger{"scenario": scenario(t, 40), "aaep": aaepLog(t), "agenthook": hookLog(t), "governed": governedLog(t)}
	for _, c := range corpusCases(t) {
		logs[c.protocol+" "+c.name] = c.ledger(t)
	}
	for name, l := range logs {
		short, long := ways(l.run().core)
		for _, m := range l.msgs {
			holdFlat(t, short, long, m)
		}
		if (name == "aaep" || name == "agenthook" || name == "governed") && short.flatReads < len(l.msgs)*3/4-1 {
			t.Errorf("%s: %d of %d messages are read flat", name, short.flatReads, len(l.msgs))
		}
	}
}

func FuzzFlatFacts(f *testing.F) {
	l := scenario(f, 8)
	for _, m := range l.msgs {
		f.Add(m.Subject, m.HeaderValue(events.HeaderSignature), m.Body)
	}
	for _, log := range []*ledger{aaepLog(f), hookLog(f), governedLog(f)} {
		for _, m := range log.msgs[:20] {
			f.Add(m.Subject, m.HeaderValue(events.HeaderSignature), m.Body)
		}
	}
	short, long := ways(l.run().core)
	f.Fuzz(func(t *testing.T, subj, header string, body []byte) {
		holdFlat(t, short, long, events.LogMessage{Seq: 7, Subject: subj, Time: epoch, Body: body, Header: map[string][]string{
			events.HeaderSignature: {header}, events.HeaderDecisionID: {header}, events.HeaderSession: {header},
		}})
	})
}
