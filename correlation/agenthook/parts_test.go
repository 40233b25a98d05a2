package agenthook

import (
	"fmt"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// checksOf are the checks that a part was found to break.
func (l findingList) checksOf() (checks []string) {
	for _, f := range l {
		checks = append(checks, f.Check)
	}
	return checks
}

// Each part of a restored session knows that earlier events are forgotten: what a new session breaks
// without them, it does not.
func TestRestoredParts(t *testing.T) {
	type told struct{ typ, metadata string }
	for check, events := range map[string][]told{
		"AH-C-057": {{"PreLLMCall", ""}, {"PostLLMCall", ""}, {"PostLLMCall", ""}},
		"AH-C-121": {{"UserPromptSubmit", ""}, {"ErrorOccurred", `"runtime_attestation":{"session_id":"s1"}`}},
		"AH-C-132": {{"RuntimeContractLoaded", `"runtime_contract":{"required_hooks":["PreToolUse"]}`}, {"PostToolUse", ""}, {"SessionEnd", ""}},
		"AH-C-142": {{"WebActionCompleted", `"web":{"action_id":"a1"}`}},
	} {
		for name, c := range map[string]struct {
			s    *Session
			want bool
		}{"new": {Restore(0), true}, "restored": {Restore(tombstoneKnown), false}} {
			var found findingList
			for i, e := range events {
				found = append(found, c.s.Apply(event(t, i, e.typ, e.metadata))...)
			}
			if got := slices.Contains(found.checksOf(), check); got != c.want {
				t.Errorf("a %s session, %s: %v", name, check, found.checksOf())
			}
		}
	}
}

func TestIntroducedHooksOfARestoredSession(t *testing.T) {
	for _, restored := range []bool{false, true} {
		hooks, x := hookClaims{incomplete: restored}, event(t, 1, "SessionStart", `"hook_trust":{"hook_id":"h","fingerprint":"F","trust_status":"trusted"}`)
		hooks.checkTrust(new(findingList), x)
		if got := x.IntroducedHooks(); len(got) != 1 || got[0] != (IntroducedHook{"h", "f", !restored}) {
			t.Errorf("restored %v: %+v", restored, got)
		}
	}
}

// An id that is used again begins a session that has all of its events.
func TestReusedIDIsNoRestoredSession(t *testing.T) {
	s := Restore(tombstoneKnown | tombstoneEnded)
	s.Apply(event(t, 1, "SessionStart", ""))
	if found := s.Apply(event(t, 2, "WebActionCompleted", `"web":{"action_id":"a1"}`)); len(found) != 1 || found[0].Check != "AH-C-142" {
		t.Errorf("%+v", found)
	}
}

func TestModelCallsEndTheOldest(t *testing.T) {
	var m modelCalls
	var out findingList
	for i := range maxOpenModelCalls + 1 {
		m.announce(event(t, i, "PreLLMCall", ""))
	}
	m.endOldest(&out, event(t, 1000, "PostLLMCall", ""))
	if first := event(t, 2, "", "").eventRef(); len(m.openCalls) != maxOpenModelCalls-1 || m.openCalls[0] != first || len(out) > 0 {
		t.Errorf("%d are open, from %+v; %v", len(m.openCalls), m.openCalls[0], out.checksOf())
	}
	m.reportUnended(&out, event(t, 1001, "SessionEnd", ""))
	m.endReported(&out, event(t, 1002, "PostLLMCall", ""))
	end := last(out)
	if len(out) != maxOpenModelCalls || !end.RetractsOnly || end.Replaces != out[0] || m.storedItems() != maxOpenModelCalls-2 {
		t.Errorf("%d findings, the last %+v; %d items", len(out), end, m.storedItems())
	}
}

// The stamp of a governed call: what shows that it lacks, and what excuses it.
func TestGovernedCallStamps(t *testing.T) {
	announcement := func(t *testing.T, n int, phase string) *Event {
		x := event(t, n, "PreToolUse", `"tool_call_id":"c1","tool_identity":{}`)
		x.phase = phase
		return x
	}
	ended := func(t *testing.T) *Event {
		return event(t, 9, "PostToolUse", `"tool_call_id":"c1","execution":{"outcome":"succeeded"},"executed_arguments":{}`)
	}
	failed := func(t *testing.T) *Event { return event(t, 8, "ErrorOccurred", `"tool_call_id":"c1"`) }
	const missing = "AH-C-032"
	for name, c := range map[string]struct {
		steps func(t *testing.T, cs *governedCalls, out *findingList)
		want  int // findings about the stamp
	}{
		"no claim, no verdict": {func(t *testing.T, cs *governedCalls, out *findingList) {
			cs.announce(out, announcement(t, 1, ""))
			cs.end(out, ended(t))
		}, 0},
		"claimed, without a verdict": {func(t *testing.T, cs *governedCalls, out *findingList) {
			cs.announce(out, announcement(t, 1, agenthook.PhasePreCommit))
			cs.end(out, ended(t))
			cs.end(out, ended(t)) // once
		}, 1},
		"announced again": {func(t *testing.T, cs *governedCalls, out *findingList) {
			cs.announce(out, announcement(t, 1, agenthook.PhasePreCommit))
			cs.announce(out, announcement(t, 2, ""))
		}, 1},
		"a copy with the verdict": {func(t *testing.T, cs *governedCalls, out *findingList) {
			cs.announce(out, announcement(t, 1, agenthook.PhasePreCommit))
			copied := announcement(t, 1, agenthook.PhasePreCommit)
			copied.verdict = "allow"
			cs.noteAmended(copied)
			cs.end(out, ended(t))
		}, 0},
		"a copy without a verdict": {func(t *testing.T, cs *governedCalls, out *findingList) {
			cs.announce(out, announcement(t, 1, agenthook.PhasePreCommit))
			cs.noteAmended(announcement(t, 1, agenthook.PhasePreCommit))
			cs.end(out, ended(t))
		}, 1},
		"a recorded verdict, without a claim": {func(t *testing.T, cs *governedCalls, out *findingList) {
			x := announcement(t, 1, "")
			cs.announce(out, x)
			cs.noteDecided(out, "c1", "another event")
			cs.noteDecided(out, "c1", x.ID)
			cs.endSession(out, event(t, 9, "SessionEnd", ""))
		}, 1},
		"a recorded verdict after the end": {func(t *testing.T, cs *governedCalls, out *findingList) {
			x := announcement(t, 1, "")
			cs.announce(out, x)
			cs.end(out, ended(t))
			cs.noteDecided(out, "c1", x.ID)
		}, 1},
		"the fail mode fired before": {func(t *testing.T, cs *governedCalls, out *findingList) {
			cs.noteFailMode(out, failed(t))
			cs.announce(out, announcement(t, 1, agenthook.PhasePreCommit))
			cs.end(out, ended(t))
		}, 0},
		"the fail mode fired after the finding": {func(t *testing.T, cs *governedCalls, out *findingList) {
			cs.announce(out, announcement(t, 1, agenthook.PhasePreCommit))
			cs.end(out, ended(t))
			cs.noteFailMode(out, failed(t))
		}, 2}, // the second retracts the first
	} {
		t.Run(name, func(t *testing.T) {
			cs, out := governedCalls{}, findingList{}
			c.steps(t, &cs, &out)
			stamps := slices.DeleteFunc(out.checksOf(), func(check string) bool { return check != missing })
			if len(stamps) != c.want || c.want == 2 && (!last(out).RetractsOnly || last(out).Replaces != out[0] || last(out).Call != "c1") {
				t.Errorf("%v", out.checksOf())
			}
		})
	}
}

func TestGateClaims(t *testing.T) {
	for name, c := range map[string]struct {
		attestation   string
		want          []string
		claims, fails bool
	}{
		"no claim":        {`"session_id":"s1"`, nil, false, false},
		"a gate":          {`"claims":{"tool_calls_are_runtime_gated":true},"fail_mode":"fail_closed"`, []string{"AH-C-124"}, true, true},
		"no bypass":       {`"claims":{"do_not_bypass_gate":true}`, nil, true, false},
		"another session": {`"session_id":"s2"`, []string{"AH-C-122"}, false, false},
		"nothing denies":  {`"claims":{"tool_calls_are_runtime_gated":true},"active_subscribers":[{"mode":"observe","can_deny":true}]`, []string{"AH-C-124", "AH-C-124"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var g gateClaims
			var out findingList
			g.checkAttestation(&out, event(t, 1, "SessionStart", fmt.Sprintf(`"runtime_attestation":{%s}`, c.attestation)))
			for i := range 2 { // a call without pre_commit is reported once
				g.checkCall(&out, event(t, 2+i, "PreToolUse", ""))
			}
			if _, fails := g.failsClosed(); !slices.Equal(out.checksOf(), c.want) || g.claimsGate() != c.claims || fails != c.fails || g.statesFailMode() != c.fails {
				t.Errorf("%v, claims a gate: %v, fails closed: %v", out.checksOf(), g.claimsGate(), fails)
			}
		})
	}
}

func last(l findingList) *catalogue.Finding { return l[len(l)-1] }
