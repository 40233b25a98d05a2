package admission

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func FuzzDecide(f *testing.F) {
	for _, body := range []string{preToolUse, toolInvoked, awaiting, "", "{}", "[]", `{"event_type":"PostToolUse"}`, `{"tool_name":"a","Tool_Name":"b"}`, "{\"a\":\"\xff\"}"} {
		f.Add(body, "s", true)
		f.Add(body, "", false)
	}
	snap := rules(f, "allow ok: true", `ask a: has(args.to) && args.to == "x"`)
	k, _ := signingKeys(f)
	f.Fuzz(func(t *testing.T, body, session string, hook bool) {
		protocol := aaep.Name
		if hook {
			protocol = agenthook.Name
		}
		req := request(protocol, body)
		if session != "" {
			req.Header = map[string][]string{events.HeaderSession: {session}}
		}
		out := Decide(req, snap, inputs())
		d := out.Decision
		if !d.Verdict.Valid() || d.Verdict == "" || len(d.Reasons) == 0 {
			t.Fatalf("%+v", d)
		}
		for _, r := range d.Reasons {
			if r.Code == CodeInternal {
				t.Fatal("an evaluator panicked")
			}
		}
		if _, err := strictjson.ParseObject(req.Body, strictjson.DefaultLimits); err != nil && d.Verdict != events.Deny {
			t.Fatalf("%s for what cannot be parsed", d.Verdict)
		}
		reply, err := out.Reply()
		if err != nil || !json.Valid(reply) {
			t.Fatalf("%v: %s", err, reply)
		}
		record, err := events.Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.DecodeRecord[events.Decision](record); err != nil {
			t.Fatal(err)
		}
		if !out.NoReceipt {
			if _, _, err := receipt.Issue(k, out.Claims); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzEvaluateLine(f *testing.F) {
	f.Add([]byte(preToolUse))
	f.Add([]byte(`{"request":{},"now":"2026-01-01T00:00:00Z","headers":{"a":["b"]}}`))
	f.Add([]byte(`{"request":`))
	snap := EvaluatorsOnly()
	f.Fuzz(func(t *testing.T, line []byte) {
		got := EvaluateLine(line, Offline{Protocol: agenthook.Name, Now: noon, Config: snap})
		var v OfflineResult
		if err := json.Unmarshal(got, &v); err != nil || !v.Verdict.Valid() {
			t.Fatalf("%v: %s", err, got)
		}
	})
}

// FuzzCarried: whatever an event brings along for other evaluators, it is judged,
// and a catalogue makes nothing looser.
func FuzzCarried(f *testing.F) {
	m := courierMandate(f)
	member := func(text string) string { return "{" + text + "}" }
	f.Add(member(under(m.Hash)))
	f.Add(member(under(m.Hash, "1500", "1e3", `"summary"`, `"commitment":true,"summary"`)))
	f.Add(member(carrying("send_mail", `{"to":"a@example.com"}`)))
	f.Add(member(under(m.Hash) + "," + carrying("x", `{}`)))
	f.Add(`{"aump":null,"aana":{"contract":null}}`)
	f.Add(`{"aump":{"aump":{},"mandate_ref":{},"proposed_action":{"amount":{"total_minor":-1}}},"aana":{"contract":{"proposed_arguments":{"__raw":"x"}}}}`)
	f.Add(`{"tool_identity":{"canonical_name":"courier.book"},"aana":[]}`)
	set, snap := desk(f), allowAll(f)
	f.Fuzz(func(t *testing.T, metadata string) {
		body := edit(t, preToolUse, `"metadata":{"tool_call_id":"c1"}`, `"metadata":`+metadata, "send_mail", "book")
		in := inputs()
		in.Mandates.Mandates, in.Publishers = known{m}, set
		out := Decide(request(agenthook.Name, body), snap, in)
		if strings.Contains(codes(out), CodeInternal) {
			t.Fatalf("%s for %s", codes(out), metadata)
		}
		if _, err := out.Reply(); err != nil {
			t.Fatal(err)
		}
		bare := in
		bare.Publishers = nil
		if free := Decide(request(agenthook.Name, body), snap, bare); out.Decision.Verdict.Strictness() < free.Decision.Verdict.Strictness() {
			t.Fatalf("%s with a catalogue, %s without", codes(out), codes(free))
		}
		if out.Decision.Verdict == events.Allow && out.Decision.Mandate == nil {
			t.Fatalf("allowed without the mandate that the tool requires: %s", metadata)
		}
	})
}
