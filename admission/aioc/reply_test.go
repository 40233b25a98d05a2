package aioc

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// Whoever knows no ruling gets a reply too, with the text as its reason.
func TestReplyWithoutRuling(t *testing.T) {
	d := events.Decision{Protocol: NameTool, DecisionID: "d", Verdict: events.Deny, DecidedAt: events.At(noon)}
	for _, p := range []call.Protocol{Tool{}, Handoff{}} {
		b, err := p.Reply(call.Call{}, d, "no_reason_to_allow")
		if err != nil || string(b) != `{"decision":"deny","metadata":{"decisionId":"d","verdict":"deny"},"reason":"no_reason_to_allow","resultMode":"throw"}` {
			t.Errorf("%v %s", err, b)
		}
		if p.HasNativeEvaluator() {
			t.Error("the RFC has no evaluator of its own")
		}
	}
}

// The matrix has the last word on what goes out.
func TestReplyGoesThroughTheMatrix(t *testing.T) {
	ok := call.Ruling{Policies: policy.Result{Verdict: events.Allow, Code: "ok"}}
	blank := ok
	blank.Policies.Code = "\u00a0"
	for want, c := range map[string]struct {
		d events.Decision
		r call.Ruling
	}{
		`"decision":"allow"`:               {events.Decision{Verdict: events.Allow, ExpiresAt: events.At(noon.Add(time.Second))}, ok},
		`"reason":"policy_result_expired"`: {events.Decision{Verdict: events.Allow, ExpiresAt: events.At(noon)}, ok},
		`"reason":"invalid_policy_result"`: {events.Decision{Verdict: events.Allow}, blank},
		// A verdict without a reason.
		`"decision":"deny","metadata":{"decisionId":"","verdict":"deny"},"reason":"invalid_policy_result"`: {events.Decision{Verdict: events.Deny}, call.Ruling{}},
		`"decision":"deny","metadata":{"decisionId":"","verdict":"maybe"}`:                                 {events.Decision{Verdict: "maybe"}, ok},
	} {
		c.d.DecidedAt = events.At(noon)
		b, err := renderReply(call.Call{}, c.d, c.r)
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%v: %s\nwant %s", err, b, want)
		}
	}
}

func TestWhatHasNoCanonicalFormIsRefused(t *testing.T) {
	o := call.Opinion{Verdict: events.Allow}
	b := reader{name: NameTool, o: &o}
	b.bindArguments(&call.Call{}, nil, errors.New("x"))
	if !o.Malformed || o.Reasons[0].Code != call.CodeSchemaInvalid {
		t.Errorf("%+v", o)
	}
}

func BenchmarkSettle(b *testing.B) {
	raw := []byte(`{"decision":"allow","reason":"ok","expiresAt":"2026-11-20T12:01:00Z","metadata":{"proposalHash":"x"}}`)
	for b.Loop() {
		if ApplyDenyMatrix(PolicyReturn{Configured: true, Value: raw}, noon).Decision != "allow" {
			b.Fatal("not allowed")
		}
	}
}
