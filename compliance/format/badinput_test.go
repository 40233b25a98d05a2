package format_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
)

func TestBadInput(t *testing.T) {
	if _, err := format.New("csv", encode.Options{}, nil); !errors.Is(err, format.ErrFormat) {
		t.Errorf("an unknown format: %v", err)
	}
	items := everything(t)
	enc, err := format.New(format.CEF, encode.Options{Tenant: "other"}, func([]byte) error { return nil })
	ok(t, err)
	if err := enc.Add(items[0]); !errors.Is(err, format.ErrTenant) {
		t.Errorf("a record of another tenant: %v", err)
	}
	enc, _ = format.New(format.CEF, encode.Options{Tenant: tenant}, func([]byte) error { return nil })
	ok(t, enc.Add(items[1]))
	if err := enc.Add(items[0]); !errors.Is(err, format.ErrOrder) {
		t.Errorf("out of order: %v", err)
	}
	full := errors.New("disk full")
	enc, _ = format.New(format.CEF, encode.Options{Tenant: tenant}, func([]byte) error { return full })
	if err := enc.Add(items[1]); !errors.Is(err, full) {
		t.Errorf("the sink's error: %v", err)
	}
	for _, name := range format.Names() {
		w := newWorld(t)
		w.decided("s", `not JSON`, events.Decision{Protocol: "agenthook", Verdict: events.Deny})
		w.decided("s", `[]`, events.Decision{Protocol: "tool", Verdict: events.Deny})
		w.decided("s", `{"mandate_ref":7}`, events.Decision{Protocol: "aump", Verdict: events.Deny})
		w.decided("s", `{"proposed_arguments":[],"evidence_refs":{}}`, events.Decision{Protocol: "aana", Verdict: "maybe"})
		w.log("gov.decisions.acme.deny.s", nil, []byte(`{"verdict":"deny","unknown":1}`))
		w.log("gov.findings.acme.high.s", nil, []byte(`nonsense`))
		lines, sum := written(t, name, w.items, nil)
		for _, line := range lines {
			judge(t, name, line)
		}
		if len(sum.Skipped) == 0 {
			t.Errorf("%s says nothing of what it left out: %+v", name, sum)
		}
	}
}

// A verdict that policies were only observed for is not shown as theirs.
func TestObservedDecisions(t *testing.T) {
	w := newWorld(t)
	w.decided("s-aana", aanaRequest(`{}`), events.Decision{Protocol: "aana", Verdict: events.Allow, NativeVerdict: "accept", Tool: "send_email", Mode: events.ModeObserve, Would: events.Deny})
	w.decided("s-aana", aanaRequest(`{}`), events.Decision{Protocol: "aana", Verdict: events.Deny, NativeVerdict: "refuse", Tool: "send_email", Mode: events.ModeObserve, Would: events.Allow})
	for name, says := range map[string][2]string{
		format.AANAAuditRecords: {`"mode":"shadow"`, `"mode":"enforce"`}, format.OCSF: {`"enforced_verdict":"deny"`, `"mode":"observe"`}, format.CEF: {"cs6Label=verdict if enforced cs6=deny", "act=deny"},
	} {
		lines, _ := written(t, name, w.items, nil)
		if len(lines) != 2 || !bytes.Contains(lines[0], []byte(says[0])) || !bytes.Contains(lines[1], []byte(says[1])) || bytes.Contains(lines[1], []byte(says[0])) {
			t.Errorf("%s: %s", name, bytes.Join(lines, []byte("\n")))
		}
		for _, line := range lines {
			judge(t, name, line)
		}
	}
}

// FuzzFormats: whatever a body is, no format fails, and its lines satisfy their
// schemas.
func FuzzFormats(f *testing.F) {
	for _, i := range everything(f)[:30] {
		f.Add(i.Record.Subject, string(i.Record.Body))
	}
	f.Add("gov.decisions.acme.0.0", `{"protocol":"aana"}`)
	f.Add("gov.findings.acme.high.s", `{"finding_id":"x|y","rule":"a=b","severity":"odd","event_ids":[],"explanation":"\u2028\\=|"}`)
	f.Fuzz(func(t *testing.T, subject, body string) {
		w := newWorld(t)
		d := w.decided("s", body, events.Decision{Protocol: "agenthook", Verdict: events.Deny})
		w.log(subject, map[string][]string{events.HeaderDecisionID: {d.DecisionID}}, []byte(body))
		items := slices.DeleteFunc(w.items, func(i encode.Item) bool { return i.Record.Tenant != tenant })
		for _, name := range format.Names() {
			lines, _ := written(t, name, items, nil)
			for _, line := range lines {
				judge(t, name, line)
			}
		}
	})
}
