package correlation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// TestAnyOrder: events of a call that overtake each other give the same findings
// in every order, but for an end that is reported before its beginning, which is
// a finding itself. Each case is played in every order in which no completion
// comes before its announcement.
func TestAnyOrder(t *testing.T) {
	done := set(post(3), "metadata.execution.started_at", nil)
	done = set(done, "metadata.execution.completed_at", nil)
	of := func(e tree, call string) tree { return set(e, "metadata.tool_call_id", call) }
	for _, tc := range []struct {
		name  string
		steps []tree // {"request": …}, {"decision": …}, {"admit": …} for both, or an event
		state events.CallState
	}{
		{"a tool that fails", []tree{pre(1), hook(2, "ErrorOccurred", 1)}, events.CallFailed},
		{"a tool that was blocked", []tree{pre(1), hook(2, "ToolUseBlocked", 1)}, events.CallDenied},
		{"no verdict, and the fail mode denies", []tree{governed(1, "c1"), failModeOf(2, "c1", "deny")}, events.CallDenied},
		{"asked, no verdict, the fail mode allows, and it runs", []tree{{"request": governed(1, "c1")}, governed(1, "c1"), failModeOf(2, "c1", "allow"), done}, events.CallCompleted},
		{"asked, no verdict, and the fail mode denies", []tree{{"request": governed(1, "c1")}, governed(1, "c1"), failModeOf(2, "c1", "deny")}, events.CallDenied},
		{"asked, allowed, and it fails", []tree{{"request": pre(1)}, {"decision": pre(1)}, pre(1), hook(2, "ErrorOccurred", 1)}, events.CallFailed},
		{"asked, allowed, announced under another event, and it fails", []tree{{"admit": pre(1)}, pre(4), hook(2, "ErrorOccurred", 1)}, events.CallFailed},
		{"asked, allowed, announced under another event, and it was blocked", []tree{{"admit": pre(1)}, pre(4), hook(2, "ToolUseBlocked", 1)}, events.CallDenied},
		{"two calls that end without running", []tree{governed(1, "c1"), failModeOf(2, "c1", "deny"), of(pre(3), "c2"), of(hook(4, "ErrorOccurred", 1), "c2")}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			played := 0
			for _, steps := range orders(tc.steps) {
				if !announcedFirst(steps) {
					continue
				}
				played++
				l := newLedger(t)
				for i, s := range steps {
					l.at(float64(2 + i))
					switch {
					case s["request"] != nil:
						l.request(s["request"].(tree), "d1")
					case s["decision"] != nil:
						l.decide(s["decision"].(tree), "d1", events.Allow)
					case s["admit"] != nil:
						l.admit(s["admit"].(tree), "d1", events.Allow)
					default:
						l.event(s)
					}
				}
				l.at(4000).tick()
				r := l.run()
				if got := standingRules(r); len(got) > 0 {
					t.Errorf("in the order %s: %v", kindsOf(steps), got)
				}
				if tc.state != "" && r.only(t).State != tc.state {
					t.Errorf("in the order %s it is %s, want %s", kindsOf(steps), r.only(t).State, tc.state)
				}
			}
			if played < 2 {
				t.Errorf("%d orders", played)
			}
		})
	}
}

func governed(n int, call string) tree {
	e := set(set(pre(n), "evidence_phase", "pre_commit"), "metadata", tree{"tool_call_id": call})
	e["action"], e["resource_kind"], e["resource"], e["resource_scope"], e["operation_risk"] = "send", "email", "x", "unknown", "unknown"
	e = set(e, "metadata.tool_identity", tree{"canonical_name": "bank.pay", "provider_name": "pay", "source": "other"})
	return set(e, "metadata.risk", tree{"risk_class": "unknown"})
}

func failModeOf(n int, call, outcome string) tree {
	return set(hook(n, "ErrorOccurred", 1), "metadata", tree{"tool_call_id": call, "error_type": "admission_fail_mode", "fail_mode_triggered": true, "outcome": outcome})
}

// TestNoFailModeExcusesAClaim: that a fail mode let a call pass does not make the
// verdict true that its publisher claims for it, whenever it says so.
func TestNoFailModeExcusesAClaim(t *testing.T) {
	done := set(set(post(3), "metadata.execution.started_at", nil), "metadata.execution.completed_at", nil)
	claims := set(governed(1, "c1"), "metadata.admission_verdict", tree{"verdict": "allow"})
	for _, steps := range orders([]tree{claims, failModeOf(2, "c1", "allow"), done}) {
		if !announcedFirst(steps) {
			continue
		}
		l := newLedger(t)
		for i, s := range steps {
			l.at(float64(2 + i)).event(s)
		}
		if got := standingRules(l.run()); !slices.Equal(got, []string{"AH-C-082", ExecutedWithoutVerdict}) {
			t.Errorf("in the order %s: %v", kindsOf(steps), got)
		}
	}
}

// standingRules are the rules above info that were broken and not taken back.
func standingRules(r result) []string {
	standing, withdrawn := map[string]string{}, map[string]bool{}
	for _, f := range slices.Concat(r.findings, r.checks) {
		withdrawn[f.Withdraws] = f.Withdraws != ""
		if f.Severity != events.SeverityInfo && f.Rule != "AH-C-054" { // the events' own clock tells that they overtook each other
			standing[f.FindingID] = f.Rule
		}
	}
	maps.DeleteFunc(standing, func(id, _ string) bool { return withdrawn[id] })
	return slices.Sorted(maps.Values(standing))
}

func orders[T any](list []T) [][]T {
	if len(list) == 0 {
		return [][]T{nil}
	}
	var all [][]T
	for i, first := range list {
		rest := slices.Delete(slices.Clone(list), i, i+1)
		for _, p := range orders(rest) {
			all = append(all, append([]T{first}, p...))
		}
	}
	return all
}

// announcedFirst: what ends by a PostToolUse was announced, and asked for, before.
func announcedFirst(steps []tree) bool {
	over := false
	for _, s := range steps {
		if over && (s["request"] != nil || s["event_type"] == "PreToolUse") {
			return false
		}
		over = over || s["event_type"] == "PostToolUse"
	}
	return true
}

func kindsOf(steps []tree) (list []string) {
	for _, s := range steps {
		switch {
		case s["request"] != nil:
			list = append(list, "request")
		case s["decision"] != nil:
			list = append(list, "decision")
		case s["admit"] != nil:
			list = append(list, "admit")
		default:
			list = append(list, s["event_type"].(string))
		}
	}
	return list
}

// TestEarlyIsBounded: what a session remembers of calls that never come is
// bounded, and is forgotten from its oldest.
func TestEarlyIsBounded(t *testing.T) {
	l := newLedger(t)
	for i := range 3 * maxEarlyUpdates {
		l.event(set(hook(100+i, "ErrorOccurred", 1), "metadata.tool_call_id", fmt.Sprint("x", i)))
	}
	l.event(set(pre(1), "metadata.tool_call_id", "x0"))
	l.event(set(pre(2), "metadata.tool_call_id", fmt.Sprint("x", 3*maxEarlyUpdates-1)))
	r := l.run()
	s, _ := r.core.engine.calls.sessions.oldest()
	if len(s.earlyUpdates) != maxEarlyUpdates-1 {
		t.Errorf("%d remarks are remembered", len(s.earlyUpdates))
	}
	states := map[events.CallState]int{}
	for _, c := range r.last() {
		states[c.State]++
	}
	if states[events.CallOpen] != 1 || states[events.CallFailed] != 1 {
		t.Errorf("states %v", states)
	}
	b := r.core.Snapshot()
	again, err := Restore(l.opts, b)
	if err != nil || string(again.Snapshot()) != string(b) {
		t.Errorf("a snapshot loses what came early: %v", err)
	}
}

// TestEarlyRecording: a recording is judged alike.
func TestEarlyRecording(t *testing.T) {
	for _, steps := range orders([]any{pre(1), hook(2, "ErrorOccurred", 0)}) {
		found, err := Check(protoAgentHook, recording(steps...), CheckOptions{Now: epoch.Add(4000e9)})
		if err != nil || len(rulesOf(found)) > 0 {
			b, _ := json.Marshal(found)
			t.Errorf("%s %v", b, err)
		}
	}
}
