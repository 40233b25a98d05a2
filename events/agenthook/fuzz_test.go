package agenthook_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// FuzzDecode checks that nothing panics, that errors are of the two kinds, that
// the document survives whole, and that argument digests do not depend on how
// the document was spelt.
func FuzzDecode(f *testing.F) {
	for _, doc := range []string{
		full, `{}`, `[]`, `{"event_type":"PostToolUse","tool_input":{"a":[1,-0,"\ud83d\ude00"]}}`,
		`{"resource":{"a":null}}`, `{"metadata":{"redaction":{"applied":true,"fields":["a",1]}}}`,
		`{"metadata":{"approval":"x"}}`, `{"event_id":"0B9E7A60-0B1C-4C5E-9D55-0D8A3C7BE001"}`,
		`{"metadata":{"fail_mode_triggered":true,"outcome":"deny"}}`, `{"a":1,"A":1}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		e, err := agenthook.Decode(doc, strictjson.DefaultLimits)
		var se *strictjson.Error
		if errors.As(err, &se) {
			if e != nil {
				t.Fatal("an event of no JSON")
			}
			return
		}
		var fe *agenthook.FieldError
		if err != nil && (!errors.As(err, &fe) || fe.Path == "") {
			t.Fatalf("an error of another kind: %v", err)
		}
		canonical, cerr := strictjson.Canonical(e.Tree())
		want, werr := strictjson.CanonicalBytes(doc)
		if cerr != nil || werr != nil || !bytes.Equal(canonical, want) || !bytes.Equal(e.Raw, doc) {
			t.Fatalf("the document did not survive: %s, %v\n%s, %v", canonical, cerr, want, werr)
		}
		again, err2 := agenthook.Decode(canonical, strictjson.Limits{})
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%v, but the canonical form gives %v", err, err2)
		}
		if events.NormaliseID(e.EventID) != e.EventID {
			t.Fatalf("event id %q is not normalised", e.EventID)
		}
		if a, b := e.InputCanonical(), again.InputCanonical(); !bytes.Equal(a, b) {
			t.Fatalf("arguments %s and %s", a, b)
		}
		e.ClosesCall()
		e.RedactedFields()
		e.DurationMS()
	})
}

func FuzzParseReply(f *testing.F) {
	for _, doc := range []string{
		`{"event_id":"e","decision":"ask","reason":"r","metadata":{"approval":{"required":true,"status":"pending"}}}`,
		`{"verdict":"deny"}`, `{"decision":"allow","verdict":"deny"}`, `{"metadata":1}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := agenthook.ParseReply(doc)
		if err != nil && (r.Decision != "" || r.EventID != "") {
			t.Fatalf("%+v beside %v", r, err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	small := []byte(`{"schema_version":1,"event_id":"0b9e7a60-0b1c-4c5e-9d55-0d8a3c7be001","event_type":"PreToolUse",` +
		`"timestamp":"2026-11-20T08:15:30.125Z","source":"runtime-a","session_id":"sess-bench-0001","evidence_phase":"pre_commit",` +
		`"tool_name":"write_file","tool_input":{"path":"/srv/reports/2026/q3.md","mode":420,"overwrite":false,"lines":["one","two"]},` +
		`"action":"write","resource_kind":"file","resource":"/srv/reports/2026/q3.md","resource_scope":"workspace","operation_risk":"write",` +
		`"metadata":{"tool_call_id":"call-0001"}}`)
	for name, doc := range map[string][]byte{"0.6kB": small, "1.8kB": compact(b, full)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := agenthook.Decode(doc, strictjson.DefaultLimits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func compact(b *testing.B, doc string) []byte {
	c, err := strictjson.CanonicalBytes([]byte(doc))
	if err != nil {
		b.Fatal(err)
	}
	return c
}
