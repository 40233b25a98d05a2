package build_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// Made-up credentials, one for each place of a name.
func plantedToken(n int) string {
	return "ghp_" + strings.Repeat("Ab3", 11) + string(rune('a'+n%26)) + string(rune('A'+n/26)) + "9"
}

type planted struct {
	f    *evidencetest.Fixture
	list []string
}

func (p *planted) token() string {
	s := plantedToken(len(p.list))
	p.list = append(p.list, s)
	return s
}

func (p *planted) found(text string) (list []string) {
	for _, s := range p.list {
		if strings.Contains(text, s) {
			list = append(list, s)
		}
	}
	return list
}

// plantNames logs a call in which every name that a producer chooses is a credential.
func plantNames(f *evidencetest.Fixture) *planted {
	p := &planted{f: f}
	s := subject.Space{}
	session, call, event, agent, tool := p.token(), p.token(), p.token(), p.token(), p.token()
	f.Log(s.Control("GOV", events.ControlKey), nil, f.Encode(f.KeyRecord()))
	body := []byte(`{"event_id":"` + event + `","session_id":"` + session + `","tool_call_id":"` + call + `","tool_name":"` + tool + `","agent_id":"` + agent + `"}`)
	request := f.Log(s.Request("acme", "rt", "agenthook", session), map[string][]string{events.HeaderDecisionID: {"d-1"}, events.HeaderSession: {session}}, body)
	d := events.Decision{DecisionID: "d-1", EventID: event, Tenant: "acme", Protocol: "agenthook", Source: "rt", Agent: agent, Session: session, ToolCallID: call,
		Tool: tool, Action: p.token(), ResourceKind: p.token(), RequestDigest: evidencetest.DigestOf(session, string(body)), Verdict: events.Allow,
		Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule", Path: "/tool_input/" + p.token()}}, DecidedAt: events.At(evidencetest.Start), ReceiptHash: "sha256:" + strings.Repeat("0", 64)}
	raw := f.Encode(d)
	signed, err := f.Receipt.SignRecords([][]byte{raw})
	evidencetest.Must(f.T, err)
	f.Log(s.Decision("acme", "allow", session), map[string][]string{events.HeaderSignature: {signed[0]}}, raw)
	f.Log(s.Event("acme", "rt", "agenthook", session, p.token()), nil, body)
	f.Log(s.Call("acme", "completed", session), nil, f.Encode(events.Call{CallID: "acme/rt/" + session + "/" + call + "/1", Tenant: "acme", Source: "rt", Protocol: "agenthook",
		Agent: agent, Session: session, ToolCallID: call, Occurrence: 1, Tool: tool, State: events.CallCompleted, Outcome: p.token(), Traceparent: p.token(),
		Timeline:    []events.TimelineEntry{{Step: "requested", Seq: request.Record.Seq, At: events.At(evidencetest.Start), EventID: event}},
		Differences: []events.Difference{{Pointer: "/" + p.token(), Kind: events.DifferenceChanged}}, Parent: &events.CallParent{Source: "rt", Session: p.token(), By: events.LinkGoal}}))
	f.Log(s.Finding("acme", "high", session), nil, f.Encode(events.Finding{FindingID: "f-1", Rule: "input_drift", Severity: events.SeverityHigh, Tenant: "acme", Session: session,
		ToolCallID: call, CallID: "acme/rt/" + session + "/" + call + "/1", EventIDs: []string{event, p.token()}, Explanation: "call " + call + " ran", DetectedAt: events.At(evidencetest.Start)}))
	raw = f.Encode(events.Approval{WorkflowID: "w-1", Tenant: "acme", Status: "pending", ActionDigest: "sha256:" + strings.Repeat("0", 64), Session: session, ToolCallID: call,
		Tool: tool, Calls: []string{call}, RequestedAt: events.At(evidencetest.Start)})
	signed, err = f.Receipt.SignRecords([][]byte{raw})
	evidencetest.Must(f.T, err)
	f.Log(s.Approval("acme", "pending", "w-1"), map[string][]string{events.HeaderSignature: {signed[0]}}, raw)
	f.Log("gov.nothing."+p.token(), nil, []byte(`{}`))
	return p
}

// verify verifies all records, and compares them with messages of the log.
func (p *planted) verify(msgs []events.LogMessage) verify.Report {
	opts := p.f.Options()
	opts.KeyHints = []events.KeyRecord{p.f.KeyRecord()}
	v := verify.NewVerifier(opts)
	e := v.Examiner()
	for i, r := range p.f.Rows() {
		var x verify.Examined
		if e.Examine(&r, &x); i < len(msgs) {
			x.CompareLog(r, msgs[i])
		}
		v.Add(&x)
	}
	return v.Finish()
}

// No name that a producer chooses brings a credential into the evidence, and what
// belongs together stays together.
func TestNamesHoldNoCredential(t *testing.T) {
	f := evidencetest.New(t)
	p := plantNames(f)
	for _, b := range f.Built {
		r := b.Row()
		if found := p.found(string(b.Canonical) + r.Session + r.Subject + r.Tenant); len(found) > 0 {
			t.Errorf("record %d (%s) holds %q: %s", r.Seq, r.Kind, found, b.Canonical)
		}
	}
	session := f.Built[1].Record.Session
	for i, b := range f.Built[1:7] {
		if b.Record.Session != session || session == "" || *b.Record.SessionIndex != uint64(i+1) {
			t.Errorf("record %d is number %d of session %q, want %d of %q", b.Record.Seq, *b.Record.SessionIndex, b.Record.Session, i+1, session)
		}
	}
	decision, err := events.DecodeRecord[events.Decision](f.Built[2].Record.Body)
	evidencetest.Must(t, err)
	call, err := events.DecodeRecord[events.Call](f.Built[4].Record.Body)
	evidencetest.Must(t, err)
	finding, err := events.DecodeRecord[events.Finding](f.Built[5].Record.Body)
	evidencetest.Must(t, err)
	if decision.ToolCallID != call.ToolCallID || call.ToolCallID != finding.ToolCallID || decision.Agent != call.Agent || decision.EventID != finding.EventIDs[0] ||
		decision.ToolCallID == decision.Agent || decision.Session != call.Session || finding.CallID != call.CallID {
		t.Errorf("names are no longer equal where they were:\n%+v\n%+v\n%+v", decision, call, finding)
	}
}

// Evidence with such names verifies, and against the log it verifies whole.
func TestMaskedNamesVerify(t *testing.T) {
	f := evidencetest.New(t)
	p := plantNames(f)
	rep := p.verify(nil)
	if !rep.OK || rep.SignaturesUnchecked != 2 {
		t.Fatalf("%+v", rep)
	}
	if rep = p.verify(f.Messages); !rep.OK || rep.SignaturesUnchecked != 0 {
		t.Fatalf("against the log: %+v", rep)
	}
	for name, change := range map[string]func(m *events.LogMessage){
		"another verdict":      func(m *events.LogMessage) { m.Body = bytes.Replace(m.Body, []byte(`"allow"`), []byte(`"deny"`), 1) },
		"another word in it":   func(m *events.LogMessage) { m.Body = bytes.Replace(m.Body, []byte(`"rule"`), []byte(`"role"`), 1) },
		"another token":        func(m *events.LogMessage) { m.Body = bytes.Replace(m.Body, []byte("Ab3"), []byte("Ab4"), 1) },
		"another subject":      func(m *events.LogMessage) { m.Subject = strings.Replace(m.Subject, "allow", "deny", 1) },
		"a session in clear":   func(m *events.LogMessage) { m.Subject = subject.Space{}.Decision("acme", "allow", "sess-1") },
		"the tenant's subject": func(m *events.LogMessage) { m.Subject = strings.Replace(m.Subject, "acme", "umbrella", 1) },
	} {
		msgs := append([]events.LogMessage{}, f.Messages...)
		change(&msgs[2])
		if rep := p.verify(msgs); rep.OK {
			t.Errorf("%s on the log: verifies", name)
		}
	}
}

// A producer cannot have its decision's own words taken out by naming them as
// secrets.
func TestOwnWordsStay(t *testing.T) {
	f := evidencetest.New(t)
	f.Log(subject.Space{}.Control("GOV", events.ControlKey), nil, f.Encode(f.KeyRecord()))
	for i, word := range []string{"agenthook", "decision_id", "dev.countersign.decision.v1", "tool_policy", "sess-12345"} {
		raw := f.Encode(events.Decision{DecisionID: "d-1", Tenant: "acme", Protocol: "agenthook", Source: "rt", Session: "sess-12345", Tool: `password="` + word + `"`,
			Agent: word, RequestDigest: evidencetest.DigestOf("sess-12345", "x"), Verdict: events.Allow, Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule"}}, DecidedAt: events.At(evidencetest.Start)})
		signed, err := f.Receipt.SignRecords([][]byte{raw})
		evidencetest.Must(t, err)
		b := f.Log(subject.Space{}.Decision("acme", "allow", "sess-12345"), map[string][]string{events.HeaderSignature: {signed[0]}, "Ce-Type": {"dev.countersign.decision.v1"}}, raw)
		d, err := events.DecodeRecord[events.Decision](b.Record.Body)
		if err != nil || d.Protocol != "agenthook" || d.DecisionID != "d-1" || d.Session != "sess-12345" || d.Reasons[0].Evaluator != "tool_policy" {
			t.Errorf("%d, %s: %v %s", i, word, err, b.Canonical)
		}
		if strings.Contains(d.Tool+d.Agent, word) {
			t.Errorf("%s stands in %q, %q", word, d.Tool, d.Agent)
		}
	}
}

// Members are named by JSON pointers, and in sentences, quoted: a credential in the
// name of an argument is found in all of these.
func TestArgumentNamesInPointers(t *testing.T) {
	const secret = "Blue9horse"
	base64Of := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, name := range []string{"postgres://u:" + secret + "@db/x", "https://u:" + secret + "~x@db/x", "amqp://u:" + secret + "%23@mq/", `password="` + secret + `"`, `{"password":["` + secret + `"]}`,
		"pass\u200bword=" + secret, base64Of("the password=" + secret + " it is")} {
		f := evidencetest.New(t)
		s := subject.Space{}
		f.Log(s.Control("GOV", events.ControlKey), nil, f.Encode(f.KeyRecord()))
		pointer := "/tool_input/" + strictjson.EscapePointer(name) + "/0"
		args, err := json.Marshal(map[string]any{name: []string{"dana@acme.example"}})
		evidencetest.Must(t, err)
		body := []byte(`{"event_id":"e-1","session_id":"sess-1","tool_call_id":"c-1","tool_name":"t","agent_id":"a","tool_input":` + string(args) + `,"metadata":{"redaction":{"fields":["` + strings.ReplaceAll(strings.ReplaceAll(pointer, `\`, `\\`), `"`, `\"`) + `"]}}}`)
		request := f.Log(s.Request("acme", "rt", "agenthook", "sess-1"), map[string][]string{events.HeaderDecisionID: {"d-1"}, events.HeaderSession: {"sess-1"}}, body)
		raw := f.Encode(events.Decision{DecisionID: "d-1", Tenant: "acme", Protocol: "agenthook", Source: "rt", Session: "sess-1", RequestDigest: evidencetest.DigestOf("sess-1", string(body)), Verdict: events.Deny,
			Reasons: []events.Reason{{Evaluator: "agenthook", Code: "duplicate_key", Path: pointer}}, DecidedAt: events.At(evidencetest.Start), ReceiptHash: "sha256:" + strings.Repeat("0", 64)})
		signed, err := f.Receipt.SignRecords([][]byte{raw})
		evidencetest.Must(t, err)
		f.Log(s.Decision("acme", "deny", "sess-1"), map[string][]string{events.HeaderSignature: {signed[0]}}, raw)
		f.Log(s.Call("acme", "denied", "sess-1"), nil, f.Encode(events.Call{CallID: "acme/rt/sess-1/c-1/1", Tenant: "acme", Source: "rt", Protocol: "agenthook", Session: "sess-1", ToolCallID: "c-1", Occurrence: 1, Tool: "t",
			State: events.CallDenied, Timeline: []events.TimelineEntry{{Step: "requested", Seq: request.Record.Seq, At: events.At(evidencetest.Start), EventID: "e-1"}}, Differences: []events.Difference{{Pointer: pointer, Kind: events.DifferenceChanged}}}))
		f.Log(s.Finding("acme", "high", "sess-1"), nil, f.Encode(events.Finding{FindingID: "f-1", Rule: "input_drift", Severity: events.SeverityHigh, Tenant: "acme", Session: "sess-1", ToolCallID: "c-1",
			Explanation: "additionalProperties at " + strings.Trim(strconv.QuoteToGraphic(pointer), `"`) + ", argument " + strconv.Quote(name), DetectedAt: events.At(evidencetest.Start)}))
		for _, b := range f.Built {
			if text := string(b.Canonical); strings.Contains(text, secret) || strings.Contains(text, base64Of("the password=" + secret)[:24]) {
				t.Errorf("%s: record %d (%s) holds it: %s", name, b.Record.Seq, b.Record.Kind, text)
			}
		}
		p := planted{f: f}
		if rep := p.verify(f.Messages); !rep.OK {
			t.Errorf("%s: does not verify: %+v", name, rep.Findings)
		}
	}
}
