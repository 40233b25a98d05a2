package correlation

import (
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
)

// gate is a decision on an aioc proposal of call c1.
func gate(l *ledger, protocol, id string, v events.Verdict) events.Decision {
	return events.Decision{
		DecisionID: id, Tenant: "acme", Protocol: protocol, Source: "rt1", Agent: "Finance Agent", Session: "s1", ToolCallID: "c1", Tool: "pay_invoice",
		ArgsDigest: digest.Keyed(tenantKey, []byte(`{"amount":120,"invoice":"A-17"}`)), RequestDigest: digest.Keyed(tenantKey, []byte("{}")),
		Verdict: v, Reasons: []events.Reason{}, DecidedAt: events.At(l.now), ExpiresAt: events.At(l.now.Add(60e9)),
	}
}

// traceOf is the trace event that the admitter writes for a decision.
func traceOf(d events.Decision, change ...func(*aioc.PolicyEvaluated)) []byte {
	e := aioc.PolicyEvaluated{
		Timestamp: d.DecidedAt.String(), Level: aioc.LevelInfo, Type: aioc.TypeToolEvaluated, Agent: d.Agent, Turn: 1, ToolName: d.Tool,
		CallID: d.ToolCallID, Decision: aioc.Allow, Reason: "ok", Metadata: map[string]any{"decisionId": d.DecisionID, "verdict": string(d.Verdict)},
	}
	for _, c := range change {
		c(&e)
	}
	b, err := e.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

func (l *ledger) trace(subj, id string, body []byte, k *signing.PrivateKey) uint64 {
	h := map[string][]string{events.HeaderDecisionID: {id}, "ce-id": {id + "-trace"}, "ce-type": {aioc.CloudEventType}}
	if k != nil {
		sig, err := k.SignDetached(signing.TypeRecord, body)
		if err != nil {
			l.t.Fatal(err)
		}
		h[events.HeaderSignature] = []string{sig}
	}
	return l.put(subj, h, body)
}

const traceSubject = "gov.events.acme.rt1.tool.s1.tool_policy_evaluated"

// The admitter's own trace event is no finding and a step of its call; anybody
// else's is forged.
func TestTraceEvents(t *testing.T) {
	for _, tt := range []struct {
		name string
		log  func(l *ledger)
		want []string
		step bool
	}{
		{"the admitter's", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
		}, nil, true},
		{"delivered twice", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
		}, nil, true},
		{"of a deny", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Deny)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
		}, nil, false},
		{"of a handoff", func(l *ledger) {
			d := gate(l, "handoff", "d1", events.Allow)
			l.signed(d, signer)
			l.trace("gov.events.acme.rt1.handoff.s1.handoff_policy_evaluated", "d1",
				traceOf(d, func(e *aioc.PolicyEvaluated) { e.Type = aioc.TypeHandoffEvaluated }), &signer)
		}, nil, true},
		{"unsigned", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), nil)
		}, []string{"forged_record/critical"}, false},
		{"signed by a stranger", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &stranger)
		}, []string{"forged_record/critical"}, false},
		{"without a decision", func(l *ledger) {
			l.trace(traceSubject, "d1", traceOf(gate(l, "tool", "d1", events.Allow)), &signer)
		}, []string{"forged_record/critical"}, false},
		{"of another tenant's decision", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			d.Tenant = "globex"
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d), &signer)
		}, []string{"forged_record/critical"}, false},
		{"of another protocol's decision", func(l *ledger) {
			l.admit(pre(1), "d1", events.Allow)
			l.trace(traceSubject, "d1", traceOf(gate(l, "tool", "d1", events.Allow)), &signer)
		}, []string{"forged_record/critical"}, false},
		{"in another session", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace("gov.events.acme.rt1.tool.s2.tool_policy_evaluated", "d1", traceOf(d), &signer)
		}, []string{"forged_record/critical"}, false},
		{"of another publisher", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace("gov.events.acme.rt2.tool.s1.tool_policy_evaluated", "d1", traceOf(d), &signer)
		}, []string{"forged_record/critical"}, false},
		{"under the name of another decision", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d, func(e *aioc.PolicyEvaluated) { e.Metadata["decisionId"] = "d2" }), &signer)
		}, []string{"forged_record/critical"}, false},
		{"of the other type", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", traceOf(d, func(e *aioc.PolicyEvaluated) { e.Type = aioc.TypeHandoffEvaluated }), &signer)
		}, []string{"forged_record/critical"}, false},
		{"no trace event at all", func(l *ledger) {
			d := gate(l, "tool", "d1", events.Allow)
			l.signed(d, signer)
			l.trace(traceSubject, "d1", []byte(`{"decisionId":"d1"}`), &signer)
		}, []string{"forged_record/critical"}, false},
		{"other events of the protocol", func(l *ledger) {
			l.put("gov.events.acme.rt1.tool.s1.tool_call_started", nil, []byte("{}"))
			l.put("gov.events.acme.rt1.tool.s1.handoff_policy_evaluated", nil, []byte("{} "))
		}, []string{"schema_invalid/medium", "schema_invalid/medium"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger(t)
			tt.log(l)
			l.event(set(hook(9, "SessionEnd", 3), "tool_name", nil)) // what is open is put out once more
			r := l.run()
			var found []events.Finding
			for _, f := range r.findings {
				if len(f.EventIDs) == 0 { // what the SessionEnd lacks is not of interest
					found = append(found, f)
				}
			}
			wantRules(t, found, tt.want...)
			step := false
			for _, c := range r.last() {
				for _, e := range c.Timeline {
					step = step || e.Step == stepNames[stepTraced]
				}
			}
			if step != tt.step {
				t.Errorf("a step in the timeline: %v", step)
			}
		})
	}
}

// What a handoff was decided on is not the arguments of the call that makes it.
func TestHandoffDigestIsNotCompared(t *testing.T) {
	l := newLedger(t)
	d := gate(l, "handoff", "d1", events.Allow)
	d.ArgsDigest = digest.Keyed(tenantKey, []byte(`{"from":"a","payload":{},"to":"b"}`))
	l.signed(d, signer)
	l.event(pre(1))
	l.event(post(2))
	r := l.run()
	wantRules(t, r.findings)
	if c := r.only(t); c.Verdict != events.Allow || c.Match != matchEqual {
		t.Errorf("%+v", c)
	}
	l = newLedger(t)
	d = gate(l, "tool", "d1", events.Allow)
	d.ArgsDigest = digest.Keyed(tenantKey, []byte(`{"amount":1}`))
	l.signed(d, signer)
	l.event(pre(1))
	l.event(post(2))
	wantRules(t, l.run().findings, "input_drift/high", "reused_tool_call_id/high")
}
