package aana

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// drawRef draws a piece of evidence. Innocent evidence states no bad fact.
func drawRef(t *rapid.T, innocent bool) doc {
	kinds := []string{"user_message", "assistant_message", "tool_result", "policy", "auth_event", "approval", "system_state", "audit_record", "other"}
	summaries := []string{"", "Noted.", "The target was validated.", "Authenticated.", "The owner has confirmed it.", "This is allowed.", "Public notes."}
	redactions := []string{"public", "redacted", "unknown"}
	times := []any{nil, "2026-05-09T00:00:00Z", "2026-05-09"}
	if !innocent {
		summaries = append(summaries, "NOT confirmed.", "unknown", "a conflict", "sk-abcdefghijkl1234", "owner@parcels.example", "missing authorization")
		redactions = append(redactions, "sensitive")
		times = append(times, "2020-01-01", "never", "2027-01-01")
	}
	return ref(rapid.SampledFrom(kinds).Draw(t, "kind"), doc{
		"trust_tier": rapid.SampledFrom([]string{"verified", "runtime", "user_claimed", "unverified", "unknown"}).Draw(t, "trust"),
		"summary":    rapid.SampledFrom(summaries).Draw(t, "summary"), "redaction_status": rapid.SampledFrom(redactions).Draw(t, "redaction"),
		"retrieved_at": rapid.SampledFrom(times).Draw(t, "time"),
		"source_id":    rapid.SampledFrom([]string{"a", "b", "x.confirmed", "auth.authenticated"}).Draw(t, "id"),
	})
}

func drawRefs(t *rapid.T, innocent bool) []any {
	var list []any
	for range rapid.IntRange(0, 4).Draw(t, "refs") {
		list = append(list, drawRef(t, innocent))
	}
	return append([]any{}, list...)
}

func drawEvent(t *rapid.T, evidence []any) doc {
	return event(rapid.SampledFrom(wire.Categories()).Draw(t, "category"), rapid.SampledFrom(wire.States()).Draw(t, "state"), doc{
		"tool_name":          rapid.SampledFrom([]string{"move_parcel", "send_note", "get_user_card", "search_notes"}).Draw(t, "tool"),
		"risk_domain":        rapid.SampledFrom(wire.RiskDomains()).Draw(t, "domain"),
		"recommended_route":  string(rapid.SampledFrom([]wire.Route{wire.Accept, wire.Ask, wire.Defer, wire.Refuse}).Draw(t, "route")),
		"proposed_arguments": rapid.SampledFrom([]doc{{}, {"q": "x"}, {"user_id": 1}, {"password": "correct-horse"}}).Draw(t, "arguments"), "evidence_refs": evidence,
	})
}

// TestRecordedCodesAreKnown: exported records tell blockers from reasons by the code alone.
func TestRecordedCodesAreKnown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := judged(t, drawProfile(t), drawEvent(t, drawRefs(t, false)))
		for _, s := range r.recorded {
			if isBlocker := slices.Contains(r.Blockers, s.code); isBlocker != IsBlocker(s.code) || isBlocker == IsReason(s.code) {
				t.Fatalf("%s: a blocker: %v, by the tables %v, a reason %v", s.code, isBlocker, IsBlocker(s.code), IsReason(s.code))
			}
		}
	})
}

// judged decides on an event without the rest of the protocol.
func judged(t *rapid.T, p call.Profile, in doc) Result {
	b, err := strictjson.Canonical(in)
	if err != nil {
		t.Fatal(err)
	}
	e, err := profileFor(p).read(call.Request{Body: b, Limits: strictjson.DefaultLimits})
	if err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return judge(e, Inputs{Now: now, Profile: p})
}

func drawProfile(t *rapid.T) call.Profile { return rapid.SampledFrom(profiles).Draw(t, "profile") }

func TestRaisingTheRecommendedRouteNeverLoosens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, in := drawProfile(t), drawEvent(t, drawRefs(t, false))
		last := -1
		for _, r := range []wire.Route{wire.Accept, wire.Ask, wire.Defer, wire.Refuse} {
			in["recommended_route"] = string(r)
			now := judged(t, p, in).Route.Strictness()
			if now < last {
				t.Fatalf("%s loosens the route to %d from %d", r, now, last)
			}
			last = now
		}
	})
}

func TestAddingBlockersNeverPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, in := drawProfile(t), drawEvent(t, drawRefs(t, false))
		r := judged(t, p, in)
		blocked := r
		blocked.Blockers = append(slices.Clone(r.Blockers), "another")
		if blocked.passesGate() || blocked.Envelope().Execution.Allowed || !r.passesGate() && r.Envelope().Execution.Allowed {
			t.Fatal("a blocked result passes")
		}
	})
}

func TestLoweringTheAuthorizationNeverLoosens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Claims that the evidence supports.
		in := drawEvent(t, proof(wire.Confirmed))
		last := 4
		for _, s := range wire.States() {
			in["authorization_state"] = string(s)
			now := judged(t, hard, in).Route.Strictness()
			if now > last {
				t.Fatalf("%s is stricter than a weaker state", s)
			}
			last = now
		}
	})
}

func TestRemovingEvidenceNeverLoosens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawEvent(t, drawRefs(t, true))
		list := in["evidence_refs"].([]any)
		if in["tool_category"] == "public_read" || len(list) == 0 {
			return
		}
		before := judged(t, hard, in)
		i := rapid.IntRange(0, len(list)-1).Draw(t, "removed")
		in["evidence_refs"] = append(append([]any{}, list[:i]...), list[i+1:]...)
		after := judged(t, hard, in)
		if after.Route.Strictness() < before.Route.Strictness() || after.passesGate() && !before.passesGate() {
			t.Fatalf("%s %v became %s %v", before.Route, before.Blockers, after.Route, after.Blockers)
		}
	})
}

func TestOrderOfEvidenceDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, list := drawProfile(t), drawRefs(t, false)
		in := drawEvent(t, list)
		a := judged(t, p, in)
		in["evidence_refs"] = append([]any{}, rapid.Permutation(list).Draw(t, "order")...)
		b := judged(t, p, in)
		slices.Sort(a.Blockers)
		slices.Sort(b.Blockers)
		if a.Route != b.Route || !slices.Equal(a.Blockers, b.Blockers) {
			t.Fatalf("%s %v became %s %v", a.Route, a.Blockers, b.Route, b.Blockers)
		}
		in["evidence_refs"] = append(append([]any{}, list...), list...)
		if c := judged(t, p, in); c.Route != a.Route {
			t.Fatalf("repeating evidence changes %s to %s", a.Route, c.Route)
		}
	})
}

func TestPureFunction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, in := drawProfile(t), drawEvent(t, drawRefs(t, false))
		a, b := judged(t, p, in).Envelope(), judged(t, p, in).Envelope()
		if diff := cmp.Diff(a, b, cmp.AllowUnexported(EvidenceIntegrity{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Except where the reference takes a part of a word for the word, the hardened
// profile is never looser than it.
func TestHardenedIsNeverLooser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawEvent(t, drawRefs(t, false))
		h, r := judged(t, hard, in), judged(t, sdk, in)
		if h.passesGate() && !r.passesGate() {
			t.Fatalf("%s %v, and the reference %s %v", h.Route, h.Blockers, r.Route, r.Blockers)
		}
	})
}
