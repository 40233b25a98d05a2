package correlation

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// FuzzApply: whatever stands in the log, the correlator goes on, puts out
// records in order, and says the same again.
func FuzzApply(f *testing.F) {
	l := scenario(f, 8)
	for _, m := range l.msgs {
		f.Add(m.Subject, m.HeaderValue(events.HeaderSignature), m.Body)
	}
	f.Add("gov.events.acme.rt1.agenthook.~.x", "", []byte(`{"metadata":{"retry":{"previous_tool_call_id":"c1"}},"event_type":"PostToolUse"}`))
	f.Add("gov.events", "", []byte(nil))
	f.Add("gov.events.~", "", []byte("[]"))
	f.Add("gov.control.GOV.key", "", []byte(`{"kid":"x"}`))
	f.Add("gov.approvals.acme.pending.w", "", []byte(`{}`))
	f.Add("elsewhere", "", []byte(`{}`))
	f.Fuzz(func(t *testing.T, subj, header string, body []byte) {
		m := events.LogMessage{Subject: subj, Time: epoch.Add(time.Hour), Body: slices.Clone(body), Header: map[string][]string{
			events.HeaderSignature: {header}, events.HeaderDecisionID: {header}, events.HeaderSession: {header}, "content-type": {header},
		}}
		play := func() []Output {
			core := New(l.opts)
			for _, m := range l.msgs[:20] {
				core.Apply(m)
			}
			var outs []Output
			for i := range uint64(2) {
				m.Seq = 100 + i
				outs = append(outs, core.Apply(m)...)
			}
			for i := range uint64(100) {
				at := epoch.Add(time.Duration(i+1) * 10 * time.Hour)
				outs = append(outs, core.Apply(events.LogMessage{Seq: 200 + i, Subject: "gov.control.GOV.tick", Time: at})...)
			}
			if core.Stats().Open != 0 || core.Stats().ArgsBytes != 0 {
				t.Errorf("left over: %+v", core.Stats())
			}
			return outs
		}
		outs := play()
		for _, o := range outs {
			p, err := space.Parse(o.Subject)
			if err != nil || (p.Class != subject.Calls && p.Class != subject.Findings) {
				t.Fatalf("output on %q: %v", o.Subject, err)
			}
			canonical, err := strictjson.CanonicalBytes(o.Body)
			if err != nil || !bytes.Equal(canonical, o.Body) {
				t.Fatalf("output %s is not canonical: %v", o.Body, err)
			}
		}
		if !slices.Equal(printed(outs), printed(play())) {
			t.Fatal("not the same again")
		}
		if !bytes.Equal(m.Body, body) {
			t.Fatal("the body was changed")
		}
	})
}

// FuzzCheck: no recording stops the check.
func FuzzCheck(f *testing.F) {
	before, after := golden()
	f.Add(subject.ProtoAgentHook, encode([]any{before, after, ledgerLine(tree{"verdict": "deny", "event_id": uuid(1)})}))
	f.Add(subject.ProtoAgentHook, append(encode(before), append([]byte("\n"), encode(tree{"event_id": uuid(1), "decision": "ask", "reason": ""})...)...))
	f.Add(subject.ProtoAAEP, encode([]any{invoked(1, "call_1"), completed(2, "", "error"), wire(3, "session.completed", 1, nil)}))
	f.Add(subject.ProtoAAEP, []byte(`{"decision":{"decided_at":"x"}}`))
	f.Add(subject.ProtoAgentHook, []byte("[{]"))
	f.Fuzz(func(t *testing.T, protocol string, file []byte) {
		lines, err := ParseRecording(file)
		if err != nil {
			return
		}
		for _, p := range []string{protocol, subject.ProtoAAEP, subject.ProtoAgentHook} {
			found, err := Check(p, lines, CheckOptions{Now: epoch.Add(time.Hour)})
			if err != nil {
				continue
			}
			for _, one := range found {
				if one.Rule == "" || one.Severity == "" || one.EventIDs == nil || one.Explanation == "" || !json.Valid(encode(one)) {
					t.Fatalf("finding %+v", one)
				}
			}
		}
	})
}

// FuzzMask: masking takes any path, and what it hides can make two arguments
// inconclusive, never equal.
func FuzzMask(f *testing.F) {
	f.Add(`{"a":[{"b":1},2]}`, "tool_input.a[0].b")
	f.Add(`{"a":{"b/c":1}}`, "/tool_input/a/b~1c")
	f.Add(`{"a":1}`, "$.a")
	f.Add(`{}`, "")
	f.Fuzz(func(t *testing.T, document, path string) {
		parsed, err := strictjson.ParseObject([]byte(document), strictjson.DefaultLimits)
		if err != nil {
			return
		}
		canonical, err := strictjson.Canonical(parsed)
		if err != nil {
			return
		}
		a := fact.NewArguments(canonical, fact.DigestKeyers{}, []string{path})
		b := fact.NewArguments([]byte(`{"other":true}`), fact.DigestKeyers{}, nil)
		if fact.CompareArguments(&a, &b) == fact.ArgsEqual && a.PlainSum != b.PlainSum {
			t.Fatal("a redaction made different arguments equal")
		}
		if fact.CompareArguments(&a, &a) != fact.ArgsEqual {
			t.Fatal("not equal to itself")
		}
	})
}
