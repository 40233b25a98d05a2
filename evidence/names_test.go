package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Made-up credentials, one for each place of a name.
func plantedToken(n int) string {
	return "ghp_" + strings.Repeat("Ab3", 11) + string(rune('a'+n%26)) + string(rune('A'+n/26)) + "9"
}

type planted struct {
	f    *fixture
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

// plantNames logs a call whose every name that a producer chooses is a credential.
func plantNames(f *fixture) *planted {
	p := &planted{f: f}
	s := subject.Space{}
	session, call, event, agent, tool := p.token(), p.token(), p.token(), p.token(), p.token()
	f.log(s.Control("GOV", events.ControlKey), nil, f.encode(f.keyRecord()))
	body := []byte(`{"event_id":"` + event + `","session_id":"` + session + `","tool_call_id":"` + call + `","tool_name":"` + tool + `","agent_id":"` + agent + `"}`)
	request := f.log(s.Request("acme", "rt", "agenthook", session), map[string][]string{events.HeaderDecisionID: {"d-1"}, events.HeaderSession: {session}}, body)
	d := events.Decision{DecisionID: "d-1", EventID: event, Tenant: "acme", Protocol: "agenthook", Source: "rt", Agent: agent, Session: session, ToolCallID: call,
		Tool: tool, Action: p.token(), ResourceKind: p.token(), RequestDigest: digestOf(session, string(body)), Verdict: events.Allow,
		Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule", Path: "/tool_input/" + p.token()}}, DecidedAt: events.At(testStart), ReceiptHash: "sha256:" + strings.Repeat("0", 64)}
	raw := f.encode(d)
	signed, err := f.receipt.SignRecords([][]byte{raw})
	must(f.t, err)
	f.log(s.Decision("acme", "allow", session), map[string][]string{events.HeaderSignature: {signed[0]}}, raw)
	f.log(s.Event("acme", "rt", "agenthook", session, p.token()), nil, body)
	f.log(s.Call("acme", "completed", session), nil, f.encode(events.Call{CallID: "acme/rt/" + session + "/" + call + "/1", Tenant: "acme", Source: "rt", Protocol: "agenthook",
		Agent: agent, Session: session, ToolCallID: call, Occurrence: 1, Tool: tool, State: events.CallCompleted, Outcome: p.token(), Trace: p.token(),
		Timeline:    []events.TimelineEntry{{Step: "requested", Seq: request.Record.Seq, At: events.At(testStart), EventID: event}},
		Differences: []events.Difference{{Pointer: "/" + p.token(), Kind: events.DifferenceChanged}}, Parent: &events.CallParent{Source: "rt", Session: p.token(), By: events.LinkGoal}}))
	f.log(s.Finding("acme", "high", session), nil, f.encode(events.Finding{FindingID: "f-1", Rule: "input_drift", Severity: events.SeverityHigh, Tenant: "acme", Session: session,
		ToolCallID: call, CallID: "acme/rt/" + session + "/" + call + "/1", EventIDs: []string{event, p.token()}, Explanation: "call " + call + " ran", DetectedAt: events.At(testStart)}))
	raw = f.encode(events.Approval{WorkflowID: "w-1", Tenant: "acme", Status: "pending", ActionDigest: "sha256:" + strings.Repeat("0", 64), Session: session, ToolCallID: call,
		Tool: tool, Calls: []string{call}, RequestedAt: events.At(testStart)})
	signed, err = f.receipt.SignRecords([][]byte{raw})
	must(f.t, err)
	f.log(s.Approval("acme", "pending", "w-1"), map[string][]string{events.HeaderSignature: {signed[0]}}, raw)
	f.log("gov.nothing."+p.token(), nil, []byte(`{}`))
	return p
}

// verify verifies all records, and compares them with messages of the log.
func (p *planted) verify(msgs []events.LogMessage) Report {
	opts := p.f.options()
	opts.KeyHints = []events.KeyRecord{p.f.keyRecord()}
	v := NewVerifier(opts)
	e := v.Examiner()
	for i, r := range p.f.rows() {
		var x Examined
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
	f := newFixture(t)
	p := plantNames(f)
	for _, b := range f.built {
		r := b.Row()
		if found := p.found(string(b.Canonical) + r.Session + r.Subject + r.Tenant); len(found) > 0 {
			t.Errorf("record %d (%s) holds %q: %s", r.Seq, r.Kind, found, b.Canonical)
		}
	}
	session := f.built[1].Record.Session
	for i, b := range f.built[1:7] {
		if b.Record.Session != session || session == "" || *b.Record.SessionIndex != uint64(i+1) {
			t.Errorf("record %d is number %d of session %q, want %d of %q", b.Record.Seq, *b.Record.SessionIndex, b.Record.Session, i+1, session)
		}
	}
	decision, err := events.DecodeRecord[events.Decision](f.built[2].Record.Body)
	must(t, err)
	call, err := events.DecodeRecord[events.Call](f.built[4].Record.Body)
	must(t, err)
	finding, err := events.DecodeRecord[events.Finding](f.built[5].Record.Body)
	must(t, err)
	if decision.ToolCallID != call.ToolCallID || call.ToolCallID != finding.ToolCallID || decision.Agent != call.Agent || decision.EventID != finding.EventIDs[0] ||
		decision.ToolCallID == decision.Agent || decision.Session != call.Session || finding.CallID != call.CallID {
		t.Errorf("names are no longer equal where they were:\n%+v\n%+v\n%+v", decision, call, finding)
	}
}

// Evidence with such names verifies, and against the log it verifies whole.
func TestMaskedNamesVerify(t *testing.T) {
	f := newFixture(t)
	p := plantNames(f)
	rep := p.verify(nil)
	if !rep.OK || rep.Unsigned != 2 {
		t.Fatalf("%+v", rep)
	}
	if rep = p.verify(f.msgs); !rep.OK || rep.Unsigned != 0 {
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
		msgs := append([]events.LogMessage{}, f.msgs...)
		change(&msgs[2])
		if rep := p.verify(msgs); rep.OK {
			t.Errorf("%s on the log: verifies", name)
		}
	}
}

// A producer cannot have its decision's own words taken out by naming them as
// secrets.
func TestOwnWordsStay(t *testing.T) {
	f := newFixture(t)
	f.log(subject.Space{}.Control("GOV", events.ControlKey), nil, f.encode(f.keyRecord()))
	for i, word := range []string{"agenthook", "decision_id", "dev.countersign.decision.v1", "tool_policy", "sess-12345"} {
		raw := f.encode(events.Decision{DecisionID: "d-1", Tenant: "acme", Protocol: "agenthook", Source: "rt", Session: "sess-12345", Tool: `password="` + word + `"`,
			Agent: word, RequestDigest: digestOf("sess-12345", "x"), Verdict: events.Allow, Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule"}}, DecidedAt: events.At(testStart)})
		signed, err := f.receipt.SignRecords([][]byte{raw})
		must(t, err)
		b := f.log(subject.Space{}.Decision("acme", "allow", "sess-12345"), map[string][]string{events.HeaderSignature: {signed[0]}, "Ce-Type": {"dev.countersign.decision.v1"}}, raw)
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
		f := newFixture(t)
		s := subject.Space{}
		f.log(s.Control("GOV", events.ControlKey), nil, f.encode(f.keyRecord()))
		pointer := "/tool_input/" + pointerToken(name) + "/0"
		args, err := json.Marshal(map[string]any{name: []string{"dana@acme.example"}})
		must(t, err)
		body := []byte(`{"event_id":"e-1","session_id":"sess-1","tool_call_id":"c-1","tool_name":"t","agent_id":"a","tool_input":` + string(args) + `,"metadata":{"redaction":{"fields":["` + strings.ReplaceAll(strings.ReplaceAll(pointer, `\`, `\\`), `"`, `\"`) + `"]}}}`)
		request := f.log(s.Request("acme", "rt", "agenthook", "sess-1"), map[string][]string{events.HeaderDecisionID: {"d-1"}, events.HeaderSession: {"sess-1"}}, body)
		raw := f.encode(events.Decision{DecisionID: "d-1", Tenant: "acme", Protocol: "agenthook", Source: "rt", Session: "sess-1", RequestDigest: digestOf("sess-1", string(body)), Verdict: events.Deny,
			Reasons: []events.Reason{{Evaluator: "agenthook", Code: "duplicate_key", Path: pointer}}, DecidedAt: events.At(testStart), ReceiptHash: "sha256:" + strings.Repeat("0", 64)})
		signed, err := f.receipt.SignRecords([][]byte{raw})
		must(t, err)
		f.log(s.Decision("acme", "deny", "sess-1"), map[string][]string{events.HeaderSignature: {signed[0]}}, raw)
		f.log(s.Call("acme", "denied", "sess-1"), nil, f.encode(events.Call{CallID: "acme/rt/sess-1/c-1/1", Tenant: "acme", Source: "rt", Protocol: "agenthook", Session: "sess-1", ToolCallID: "c-1", Occurrence: 1, Tool: "t",
			State: events.CallDenied, Timeline: []events.TimelineEntry{{Step: "requested", Seq: request.Record.Seq, At: events.At(testStart), EventID: "e-1"}}, Differences: []events.Difference{{Pointer: pointer, Kind: events.DifferenceChanged}}}))
		f.log(s.Finding("acme", "high", "sess-1"), nil, f.encode(events.Finding{FindingID: "f-1", Rule: "input_drift", Severity: events.SeverityHigh, Tenant: "acme", Session: "sess-1", ToolCallID: "c-1",
			Explanation: "additionalProperties at " + strings.Trim(strconv.QuoteToGraphic(pointer), `"`) + ", argument " + strconv.Quote(name), DetectedAt: events.At(testStart)}))
		for _, b := range f.built {
			if text := string(b.Canonical); strings.Contains(text, secret) || strings.Contains(text, base64Of("the password=" + secret)[:24]) {
				t.Errorf("%s: record %d (%s) holds it: %s", name, b.Record.Seq, b.Record.Kind, text)
			}
		}
		p := planted{f: f}
		if rep := p.verify(f.msgs); !rep.OK {
			t.Errorf("%s: does not verify: %+v", name, rep.Findings)
		}
	}
}
