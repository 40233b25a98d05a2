package aana

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/digest"
)

var update = flag.Bool("update", false, "write the golden envelopes anew")

// TestGoldenEnvelopes holds every byte of a reply.
func TestGoldenEnvelopes(t *testing.T) {
	decision := events.Decision{ReceivedAt: events.At(now), DecidedAt: events.At(now.Add(1234567 * time.Nanosecond))}
	pending := decision
	pending.Verdict, pending.Approval = events.Ask, &events.ApprovalRef{
		WorkflowID: "wf-1", Status: "pending", ActionID: "act-1", RequestedAt: events.At(now), ExpiresAt: events.At(now.Add(time.Minute)), ResumePolicy: "retry_same_event",
	}
	denied := decision
	denied.Verdict = events.Deny
	for name, k := range map[string]struct {
		profile call.Profile
		in      any
		d       events.Decision
		reason  string
	}{
		"accept":          {hard, event(wire.Write, wire.Confirmed), decision, ""},
		"ask":             {hard, event(wire.Write, wire.UserClaimed, doc{"tool_name": "send_note", "evidence_refs": refs("draft:1"), "proposed_arguments": doc{"to": "x", "api_key_name": 1}}), pending, ""},
		"defer":           {sdk, event(wire.PrivateRead, wire.Authenticated, doc{"evidence_refs": refs(ref("auth_event", doc{"contradicts": refs("x")}), ref("other", doc{"source_id": "the-token-7", "retrieved_at": "2020-01-01"}))}), decision, ""},
		"refuse":          {hard, event(wire.Unknown, wire.None, doc{"recommended_route": "refuse"}), denied, ""},
		"malformed":       {hard, `{"tool_name":"x","evidence_refs":[42]}`, denied, ""},
		"unreadable":      {sdk, `null`, denied, ""},
		"denied-by-rules": {hard, event(wire.Write, wire.Confirmed), denied, "denied_by_policy"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, k.profile, k.in)
			c, o := Evaluator{}.Read(r)
			if k.d.Verdict == "" {
				k.d.Verdict = o.Verdict
			}
			got, err := Evaluator{}.Reply(c, k.d, k.reason)
			if err != nil {
				t.Fatal(err)
			}
			var pretty any
			if err := json.Unmarshal(got, &pretty); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// envelopeOf renders a decision on an event as the reply says it.
func envelopeOf(t *testing.T, c call.Call, d events.Decision, reason string) Envelope {
	t.Helper()
	b, err := Evaluator{}.Reply(c, d, reason)
	if err != nil {
		t.Fatal(err)
	}
	var e Envelope
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestStricterVerdictIsInTheReply: a client of the contract must not be able to
// read leave out of any part of the envelope.
func TestStricterVerdictIsInTheReply(t *testing.T) {
	c, o := Evaluator{}.Read(request(t, hard, event(wire.Write, wire.Confirmed)))
	if o.Verdict != events.Allow {
		t.Fatal(o.Verdict)
	}
	for _, k := range []struct {
		verdict         events.Verdict
		text            string
		route           wire.Route
		blocker, reason string
	}{
		{events.Ask, "approval_required", wire.Ask, "approval_required", ""}, {events.Defer, "decision_deferred", wire.Defer, "decision_deferred", ""},
		{events.Deny, "denied_by_policy", wire.Refuse, "denied_by_policy", ""}, {events.Deny, "no_policy", wire.Refuse, "no_policy", ""},
		{events.Deny, "audit_unavailable", wire.Refuse, "audit_unavailable", ""}, {events.Ask, "Two people must look.", wire.Ask, "approval_required", "Two people must look."},
		{events.Deny, "", wire.Refuse, "denied_by_policy", ""}, {"maybe", "x", wire.Refuse, "x", ""},
	} {
		e := envelopeOf(t, c, events.Decision{Verdict: k.verdict}, k.text)
		if e.Action != k.route || e.Route != k.route || e.Architecture.Route != k.route || e.AIx.Decision != k.route || e.Architecture.Audit.Route != k.route || e.Execution.Observed.Route != k.route {
			t.Errorf("%s: %+v", k.verdict, e)
		}
		if e.Gate != "fail" || e.CandidateGate != "fail" || e.Execution.Allowed || e.Execution.AANAAllows || e.Execution.Reason != executionBlocked || e.Execution.Observed.BlockerCount != 3 {
			t.Errorf("%s: %+v", k.verdict, e.Execution)
		}
		for _, list := range [][]string{e.Blockers, e.AIx.Blockers, e.Architecture.Blockers, e.Architecture.Audit.Blockers} {
			if diff := cmp.Diff([]string{k.blocker}, list); diff != "" {
				t.Error(diff)
			}
		}
		if e.AANARoute != wire.Accept || k.reason != "" && !strings.Contains(strings.Join(e.Reasons, "|"), k.reason) || e.Reasons[len(e.Reasons)-1] != reasonConsolidated+":"+string(k.route) {
			t.Errorf("%s: %v", k.verdict, e.Reasons)
		}
	}
	// The same call, rendered again, is what it was: nothing was changed.
	if e := envelopeOf(t, c, events.Decision{Verdict: events.Allow}, ""); e.Action != wire.Accept || !e.Execution.Allowed {
		t.Errorf("%+v", e)
	}
	// A verdict that is not stricter than the contract's changes nothing.
	c, _ = Evaluator{}.Read(request(t, hard, event(wire.PrivateRead, wire.None)))
	if e := envelopeOf(t, c, events.Decision{Verdict: events.Defer}, "private_read_not_authenticated"); e.Action != wire.Defer || len(e.Blockers) != 1 {
		t.Errorf("%+v", e)
	}
}

// TestReplyWithoutAnEvaluation: what answers when the evaluation did not come
// back, or when the request never reached it.
func TestReplyWithoutAnEvaluation(t *testing.T) {
	for _, own := range []any{nil, "x"} {
		e := envelopeOf(t, call.Call{ProtocolState: own}, events.Decision{Verdict: events.Deny}, "internal_error")
		if e.Action != wire.Refuse || e.Gate != "fail" || e.Execution.Allowed || e.Blockers[0] != "internal_error" || e.ToolName != nil || e.AIx.Score != 0.15 {
			t.Errorf("%+v", e)
		}
	}
	// Nothing can make an allow of it.
	if e := envelopeOf(t, call.Call{}, events.Decision{Verdict: events.Allow}, ""); e.Action == wire.Accept || e.Execution.Allowed || e.Execution.Reason != executionRoute {
		t.Errorf("%+v", e)
	}
}

func TestLatency(t *testing.T) {
	for _, k := range []struct {
		received, decided time.Time
		want              string
	}{
		{now, now.Add(1234567 * time.Nanosecond), "1.234"}, {now, now, "0"}, {time.Time{}, now, "null"}, {now.Add(1), now, "null"},
	} {
		c, _ := Evaluator{}.Read(request(t, hard, event(wire.PublicRead, wire.None)))
		b, err := Evaluator{}.Reply(c, events.Decision{Verdict: events.Allow, ReceivedAt: events.At(k.received), DecidedAt: events.At(k.decided)}, "")
		if err != nil || strings.Count(string(b), `"latency_ms":`+k.want+`,`) != 2 {
			t.Errorf("%v: %s", k, b)
		}
	}
}

func TestMask(t *testing.T) {
	keyed := newMasker(func(b []byte) string { return digest.Keyed(make([]byte, 32), b) })
	for id, want := range map[string]string{
		"desk.scan": "desk.scan", "": "evidence_ref:1", " ": "evidence_ref:1", strings.Repeat("x", maxIdentifier): strings.Repeat("x", maxIdentifier),
	} {
		if got := keyed(id, "evidence_ref:1"); got != want {
			t.Errorf("%q: %q", id, got)
		}
	}
	for _, id := range []string{"Bearer x", "my_api_key", "session-token", "a.SECRET", "password", "ghp_1", "sk-abcdefghijkl1234", "card 4111 1111 1111 1111", strings.Repeat("x", maxIdentifier+1)} {
		got := keyed(id, "evidence_ref:2")
		if want := "evidence_ref:2:hmac-sha256:" + strings.TrimPrefix(digest.Keyed(make([]byte, 32), []byte(id)), digest.PrefixKeyed)[:16]; got != want {
			t.Errorf("%s: %s", id, got)
		}
		if got := newMasker(nil)(id, "evidence_ref:2"); got != "evidence_ref:2" {
			t.Errorf("%s: %s", id, got)
		}
		if got := newMasker(digest.Plain)(id, "e"); !strings.HasPrefix(got, "e:sha256:") || len(got) != len("e:sha256:")+16 {
			t.Errorf("%s: %s", id, got)
		}
	}
	// Without a key there is no digest.
	if got := newMasker(func([]byte) string { return "" })("token", "e"); got != "e" {
		t.Error(got)
	}
}

func TestArgumentKeys(t *testing.T) {
	got := ArgumentKeys(map[string]any{"b": 1, "a": 2, "user_token": 3, "API-Key": 4, "Password": 5, "sk-abcdefghijkl1234": 6, "owner@parcels.example": 7, strings.Repeat("k", 65): 8, "päckchen": 9})
	if diff := cmp.Diff([]string{redactedKey, "a", "b", "päckchen"}, got); diff != "" {
		t.Error(diff)
	}
	if got := ArgumentKeys(nil); got == nil || len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// The audit event holds no text of the event and no value of an argument.
func TestAuditEventHoldsNoText(t *testing.T) {
	const marker = "zzz-marker"
	for _, p := range profiles {
		d := decide(t, p, event(wire.Write, wire.Confirmed, doc{"user_intent": marker, "proposed_arguments": doc{"note": marker, "deep": doc{"x": marker}},
			"authorization_subject": doc{"subject_ref": marker}, "evidence_refs": refs(ref("approval", doc{"summary": "Confirmed " + marker, "provenance": marker,
				"citation_url": "https://" + marker, "supports": refs(marker)}))}))
		if strings.Contains(d.raw, marker) {
			t.Errorf("%s: %s", p, d.raw)
		}
		a := d.Envelope.Architecture.Audit
		if a.RawLogged || a.Effective == "" || len(a.ArgumentKeys) != 2 || a.Version != AuditEventVersion {
			t.Errorf("%+v", a)
		}
	}
}

func TestPublicReadiness(t *testing.T) {
	for want, r := range map[bool]doc{
		true: ref("approval"), false: ref("approval", doc{"freshness": doc{"status": "unknown"}}),
	} {
		a := decide(t, hard, event(wire.Write, wire.Confirmed, doc{"evidence_refs": refs(r)})).Envelope.Architecture.Audit
		if a.PublicLog != want || a.PublicClaim != want {
			t.Errorf("%v: %+v", want, a)
		}
	}
	if a := decide(t, hard, "{}").Envelope.Architecture.Audit; a.PublicLog || a.PublicClaim {
		t.Error("a malformed event is ready for the public")
	}
}

func TestExecutionReasons(t *testing.T) {
	for in, want := range map[string]string{
		body(t, event(wire.Write, wire.Confirmed)):                                    executionAccepted,
		body(t, event(wire.Write, wire.None)):                                         executionBlocked,
		body(t, event(wire.Write, wire.Confirmed, doc{"recommended_route": "ask"})):   executionRoute,
		body(t, event(wire.Write, wire.Confirmed, doc{"recommended_route": "maybe"})): executionInvalid,
	} {
		if got := decide(t, hard, in).Envelope.Execution; got.Reason != want || len(got.RouteTable) != 6 || got.Mode != "enforce" {
			t.Errorf("%s: %+v", want, got)
		}
	}
	for route, step := range routeTable {
		if step.ExecutionAllowed != (route == "accept") {
			t.Error(route)
		}
	}
}
