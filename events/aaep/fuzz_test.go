package aaep_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// FuzzDecode checks that nothing panics, that errors are of the two kinds, that
// the document survives whole, and that every type makes a literal subject.
func FuzzDecode(f *testing.F) {
	for _, typ := range []string{"medai:x.y", "confirmation.reply", "clarification.reply", aaep.TypeSessionStarted, aaep.TypeSessionCompleted, aaep.TypeStateChanged,
		aaep.TypeToolInvoked, aaep.TypeToolCompleted, aaep.TypeOutputStreaming, aaep.TypeAwaitingConfirmation, aaep.TypeAwaitingClarification} {
		f.Add([]byte(event(typ, `,"tool":"t","tool_call_id":"call_1","progress":{"percent":1.5},"choices":[{"value":"v","label":"l"}],"response":1`)))
	}
	f.Add([]byte(`{"type":"clarification.reply","response":-0}`))
	f.Add([]byte(`{"type":"https://aaep-protocol.org/types/agent.tool.invoked","irreversible":null}`))
	f.Add([]byte(`{"extensions":{"a":1}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		e, err := aaep.Decode(doc, strictjson.DefaultLimits)
		var se *strictjson.Error
		if errors.As(err, &se) {
			if e != nil {
				t.Fatal("an event of no JSON")
			}
			return
		}
		var fe *aaep.FieldError
		if err != nil && (!errors.As(err, &fe) || fe.Path == "") {
			t.Fatalf("an error of another kind: %v", err)
		}
		canonical, cerr := strictjson.Canonical(e.Tree())
		want, werr := strictjson.CanonicalBytes(doc)
		if cerr != nil || werr != nil || !bytes.Equal(canonical, want) || !bytes.Equal(e.Raw, doc) {
			t.Fatalf("the document did not survive: %s, %v\n%s, %v", canonical, cerr, want, werr)
		}
		if _, err2 := aaep.Decode(canonical, strictjson.Limits{}); (err == nil) != (err2 == nil) {
			t.Fatalf("%v, but the canonical form gives %v", err, err2)
		}
		if aaep.NormaliseType(e.Type) != e.Type {
			t.Fatalf("type %q is not normalised", e.Type)
		}
		var s subject.Space
		if _, err := s.Parse(s.Event("t", "p", subject.ProtoAAEP, e.SessionID, e.SubjectType())); err != nil {
			t.Fatal(err)
		}
		e.IsTerminal()
		e.Tool()
		e.ToolCallID()
	})
}

func BenchmarkDecode(b *testing.B) {
	small := `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.tool.invoked","event_id":"evt_0001","session_id":"sess_bench0001",` +
		`"timestamp":"2026-11-20T08:15:30.125Z","producer":{"agent_id":"runtime-a","agent_version":"4.2.1"},"aaep_version":"1.0.0","sequence_number":17,` +
		`"localization_hints":{"primary_language":"en"},"summary_normal":"Writing the third quarter's report into the workspace.",` +
		`"tool":"write_file","tool_call_id":"call_0001","args_summary":"path /srv/reports/2026/q3.md, 2 lines","risk_level":"low","irreversible":false}`
	large := event(aaep.TypeToolInvoked, `,"tool":"write_file","tool_call_id":"call_0001","risk_level":"low","irreversible":false,"args_summary":"`+
		string(bytes.Repeat([]byte("Plain text that an agent may write about its own work. "), 16))+`"`)
	for name, doc := range map[string]string{"0.6kB": small, "1.8kB": large} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(doc)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := aaep.Decode(raw, strictjson.DefaultLimits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
