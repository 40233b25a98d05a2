package build_test

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// sameRecord builds a record, with and without the check for clean bodies.
func sameRecord(t *testing.T, b *build.Builder, m events.LogMessage) build.Built {
	t.Helper()
	redacting := *b
	redacting.SetDocument(redact.Document)
	keys := &evidencetest.TestKeys{}
	want, wantErr := redacting.Build(m, evidence.Head{Index: 3}, keys)
	got, err := b.Build(m, evidence.Head{Index: 3}, keys)
	if (err == nil) != (wantErr == nil) || !bytes.Equal(got.Canonical, want.Canonical) || got.Hash != want.Hash {
		t.Fatalf("checked  %s, %v\nredacted %s, %v", got.Canonical, err, want.Canonical, wantErr)
	}
	if err == nil && got.Hash != evidence.HashRecord(got.Canonical) {
		t.Fatal("the hash is not of the text")
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(evidence.Record{})); d != "" {
		t.Fatal(d)
	}
	return got
}

func sampleMessages(f *evidencetest.Fixture) (list []events.LogMessage) {
	s := subject.Space{}
	call := events.Call{CallID: "c-1", Tenant: "acme", Source: "runtime-1", Protocol: "agenthook", Session: "sess-a", Occurrence: 1, State: events.CallCompleted,
		Timeline: []events.TimelineEntry{{Step: "requested", Seq: 3, At: events.At(evidencetest.Start)}}, Claimed: &events.CallClaim{}}
	signed := map[string][]string{events.HeaderSignature: {"eyJh..abc_-9"}, "Nats-Batch-Id": {"x"}, "ce-id": {"1"}}
	for _, m := range []events.LogMessage{
		{Subject: evidencetest.EventSubject, Body: []byte(evidencetest.PlainEvent), Header: map[string][]string{"ce-id": {"1"}, "ce-type": {"x", "y"}}},
		{Subject: evidencetest.EventSubject, Body: []byte(evidencetest.SecretEvent), Header: map[string][]string{"Authorization": {"Bearer aB3dE5gH7jK9mN1pQ3sT5"}}},
		{Subject: evidencetest.EventSubject, Body: []byte(evidencetest.PlainEvent), Header: map[string][]string{"X-Note": {"dana@acme.example"}, "~odd": {"\xff"}}},
		{Subject: evidencetest.EventSubject, Body: []byte(`{"note":"Tr0ub4dor&3 again"}`), Header: map[string][]string{"X-Password": {"Tr0ub4dor&3"}}},
		{Subject: evidencetest.EventSubject, Body: []byte(`{"metadata":{"redaction":{"fields":[]},"tool_call_id":"c"},"tool_input":{"to":"dana@acme.example","n":1},"z":"ü\n","cc":"x@newspaper.example"}`)},
		{Subject: evidencetest.EventSubject, Body: []byte(`{"a":{"password":"Tr0ub4dor&3"},"b":"it is Tr0ub4dor&3","to":"dana@acme.example"}`)},
		{Subject: evidencetest.EventSubject, Body: []byte(`{"specversion":"1.0","id":"1","source":"x","type":"y"}`), Header: map[string][]string{"Content-Type": {"application/cloudevents+json"}}},
		{Subject: evidencetest.EventSubject, Body: []byte(`not JSON`)},
		{Subject: "gov.events.acme.r.aana.s.x", Body: []byte(`{"id":"customer_4f8a2e7d9b"}`), Header: map[string][]string{"X-Ref": {"customer_4f8a2e7d9b"}}},
		{Subject: "gov.events.acme.r.aana.s.x", Body: []byte(`{"id":"x"}`), Header: map[string][]string{"X-Ref": {"customer_4f8a2e7d9b"}}},
		{Subject: "elsewhere", Body: []byte(`{}`)},
		{Subject: s.Call("acme", "open", "sess-a"), Body: f.Encode(call), Header: signed},
		{Subject: s.Call("acme", "open", "sess-a"), Body: append([]byte(" "), f.Encode(call)...)},
		{Subject: s.Call("acme", "open", "sess-a"), Body: []byte(`{"call_id":"x","note":"dana@acme.example"}`)},
		{Subject: s.Call("acme", "open", "sess-a"), Body: []byte(`{"agent":"dana@acme.example","call_id":"x"}`)},
		{Subject: s.Control("GOV", events.ControlCursor), Body: f.Encode(events.Cursor{Shard: evidencetest.Shard, Consumed: 7, Writer: "w"})},
		{Subject: s.Control("GOV", events.ControlTick), Body: f.Encode(events.Tick{Shard: evidencetest.Shard, Due: events.At(evidencetest.Start)})},
		{Subject: s.Control("GOV", events.ControlCursor), Body: []byte(`{"shard":1}`)},
		{Subject: s.Finding("acme", "high", "sess-a"), Body: f.Encode(events.Finding{FindingID: "f", Rule: "x", Explanation: "mail to dana@acme.example"})},
		{Subject: s.Decision("acme", "allow", "sess-a"), Body: f.Encode(events.Decision{DecisionID: "d", Tenant: "acme", Reasons: []events.Reason{}}), Header: signed},
		{Subject: s.Decision("acme", "allow", "sess-a"), Body: []byte(`[]`), Header: signed},
	} {
		m.Seq, m.Time = 7, evidencetest.Start
		list = append(list, m)
	}
	return list
}

// detectorPolicy names no fields, so that bodies are checked under it.
const detectorPolicy = `version: 1
name: mail
rules:
  - {name: own-mail, detectors: [email], values: ["*@acme.example"], action: tokenise}
  - {name: mail, detectors: [email], action: drop}
`

func TestCleanBodyMakesTheSameRecord(t *testing.T) {
	f, strict, mail := evidencetest.New(t), evidencetest.NewWithPolicy(t, evidencetest.SamplePolicy), evidencetest.NewWithPolicy(t, detectorPolicy)
	for _, m := range sampleMessages(f) {
		sameRecord(t, f.Builder, m)
		sameRecord(t, strict.Builder, m)
		sameRecord(t, mail.Builder, m)
	}
	again := sampleMessages(f)[0] // a record does not change when the next one is made
	first := sameRecord(t, f.Builder, again)
	text := string(first.Canonical)
	again.Body = bytes.ReplaceAll(again.Body, []byte("a"), []byte("b"))
	sameRecord(t, f.Builder, again)
	if string(first.Canonical) != text || !bytes.Contains(first.Canonical, first.Record.Body) {
		t.Error("a record shares memory with another")
	}
}

// The usual bodies are found clean: that is all that the check is for.
func TestUsualBodiesAreClean(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	for _, m := range f.Messages {
		if b := sameRecord(t, f.Builder, m); len(b.Record.Redactions) == 0 && b.Record.Reason == "" && !f.Builder.IsClean(m) {
			t.Errorf("%s is redacted for nothing:\n%s", m.Subject, m.Body)
		}
	}
}

func FuzzCleanBody(f *testing.F) {
	fx, loose, mail := evidencetest.New(f), evidencetest.NewWithPolicy(f, evidencetest.SamplePolicy), evidencetest.NewWithPolicy(f, detectorPolicy)
	for _, m := range sampleMessages(fx) {
		f.Add(m.Subject, m.Body, "X-Note", "x")
	}
	f.Fuzz(func(t *testing.T, subj string, body []byte, name, value string) {
		m := events.LogMessage{Seq: 7, Time: evidencetest.Start, Subject: subj, Body: body, Header: map[string][]string{name: {value}}}
		sameRecord(t, fx.Builder, m)
		sameRecord(t, loose.Builder, m)
		sameRecord(t, mail.Builder, m)
	})
}

func TestRecordSignatureForm(t *testing.T) {
	form := regexp.MustCompile(`^[A-Za-z0-9_-]+\.\.[A-Za-z0-9_-]+(~[0-9]+~[0-9]+~[A-Za-z0-9_-]+)?$`)
	for _, s := range []string{"", "..", "a..b", "a..", "..b", "a.b", "a...b", "a..b..c", "a..b~1~2~c", "a..b~1~2", "a..b~1~2~", "a..b~~2~c", "a..b~1~x~c", "a..b~1~2~c~d", "a..b\n", "a..b c", "~", "a~..b", "a..b~1"} {
		if got, want := build.IsRecordSignature(s), form.MatchString(s); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}
