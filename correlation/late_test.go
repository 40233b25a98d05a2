package correlation

import (
	stdcmp "cmp"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// TestLateAnnouncement: a completion that comes before its announcement is a finding, and
// the announcement begins no second call that would be missing its end. Whether
// the announcement is late, its producer's clock says.
func TestLateAnnouncement(t *testing.T) {
	claiming := func(verdict string) tree {
		return set(pre(1), "metadata.admission_verdict", tree{"verdict": verdict})
	}
	bare := set(set(post(2), "metadata.execution.started_at", nil), "metadata.execution.completed_at", nil)
	aaepAt := func(e tree, at float64) tree { return set(e, "timestamp", stamp(at)) }
	anonymous := func(e tree) tree { return set(e, "metadata.tool_call_id", nil) }
	orphan, orphanHook, orphanAAEP := "orphan_completion/high", "AH-C-078/high", "AAEP-C-080/high"
	lateHook, lateAAEP := "AH-C-078/low", "AAEP-C-080/low" // it was announced after all
	for _, tc := range []struct {
		name   string
		events []tree
		want   []string
		calls  []string // state and match
	}{
		{"AgentHook", []tree{bare, pre(1)}, []string{lateHook}, []string{"completed equal"}},
		{"claims to have asked first", []tree{bare, set(pre(1), "evidence_phase", "pre_commit")}, []string{lateHook, "AH-C-083/medium"}, []string{"completed equal"}},
		{"with other arguments", []tree{bare, set(pre(1), "tool_input.amount", 7)},
			[]string{lateHook, "input_drift/high", "AH-C-080/high"}, []string{"completed drift"}},
		{"with other arguments, for a reason", []tree{set(bare, "metadata.execution.mutation_reason", "limit"), set(pre(1), "tool_input.amount", 7)},
			[]string{lateHook, "input_drift/medium"}, []string{"completed drift"}},
		{"another tool", []tree{bare, set(pre(1), "tool_name", "other")}, []string{lateHook, "input_drift/high"}, []string{"completed drift"}},
		{"denied", []tree{bare, claiming("deny")}, []string{lateHook, "executed_despite_deny/critical", "AH-C-075/critical"}, []string{"completed "}},
		{"put off", []tree{bare, claiming("ask")}, []string{lateHook, "executed_while_ask_pending/high", "AH-C-076/high"}, []string{"completed equal"}},
		{"failed", []tree{set(bare, "metadata.execution.outcome", "failed"), pre(1)}, []string{lateHook}, []string{"failed equal"}},
		{"cancelled after it began", []tree{set(bare, "metadata.execution.outcome", "cancelled"), pre(1)}, []string{lateHook}, []string{"failed equal"}},
		{"never ran", []tree{set(set(set(bare, "metadata.execution.outcome", "cancelled"), "metadata.execution.started_at", nil), "metadata.tool_input_executed", tree{}), pre(1)}, []string{lateHook}, []string{"failed "}},
		{"the next call under the same id", []tree{bare, set(pre(3), "timestamp", stamp(3)), set(set(bare, "event_id", uuid(4)), "timestamp", stamp(4))},
			[]string{orphan, orphanHook}, []string{"orphaned ", "completed equal"}},
		{"the next call under the same id never ends", []tree{bare, set(pre(3), "timestamp", stamp(3))},
			[]string{orphan, orphanHook, "missing_completion/medium", "AH-C-079/medium"}, []string{"orphaned ", "abandoned "}},
		{"the next call under the same id asked first", []tree{bare, set(set(pre(3), "timestamp", stamp(3)), "evidence_phase", "pre_commit"), set(set(bare, "event_id", uuid(4)), "timestamp", stamp(4))},
			[]string{orphan, orphanHook}, []string{"orphaned ", "completed equal"}},
		{"both twice", []tree{bare, set(set(bare, "event_id", uuid(4)), "timestamp", stamp(4)), pre(1), set(pre(3), "timestamp", stamp(3))},
			[]string{lateHook}, []string{"completed equal", "completed equal"}},
		{"without ids, two at once", []tree{anonymous(bare), anonymous(set(pre(3), "tool_input.amount", 7)), anonymous(pre(1)),
			set(anonymous(set(bare, "event_id", uuid(4))), "metadata.tool_input_executed.amount", 7)},
			[]string{lateHook}, []string{"completed equal", "completed equal"}},
		{"AAEP", []tree{completed(2, "call_1", "success"), invoked(1, "call_1")}, []string{lateAAEP}, []string{"completed "}},
		{"AAEP, another tool", []tree{completed(2, "call_1", "success"), set(invoked(1, "call_1"), "tool", "other")}, []string{lateAAEP, "input_drift/high", "AAEP-C-082/medium"}, []string{"completed drift"}},
		{"AAEP without ids", []tree{completed(2, "", "success"), invoked(1, "")}, []string{lateAAEP}, []string{"completed "}},
		{"AAEP without ids, twice", []tree{completed(2, "", "success"), aaepAt(completed(4, "", "error"), 4), invoked(1, ""), aaepAt(invoked(3, ""), 3)},
			[]string{lateAAEP, "AAEP-C-083/low"}, []string{"completed ", "failed "}},
		{"AAEP without ids, the next one", []tree{completed(2, "", "success"), aaepAt(invoked(3, ""), 3), aaepAt(completed(4, "", "success"), 4)},
			[]string{orphan, orphanAAEP}, []string{"orphaned ", "completed "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.opts.RequireVerdict = false
			for _, e := range tc.events {
				l.event(e)
			}
			l.at(4000).tick()
			r := l.run()
			got := slices.DeleteFunc(callRules(r), func(rule string) bool { return rule == "AH-C-054/low" })
			want := slices.Sorted(slices.Values(tc.want))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			var calls []string
			for _, c := range r.last() {
				calls = append(calls, string(c.State)+" "+c.Match)
			}
			if diff := cmp.Diff(tc.calls, calls); diff != "" {
				t.Errorf("calls: -want +got\n%s", diff)
			}
			for cut := range l.msgs {
				resumedAt(t, l, cut, r)
			}
		})
	}
}

// callRules are the findings about calls that stand, as "rule/severity".
func callRules(r result) []string {
	withdrawn := map[string]bool{}
	all := slices.Concat(r.findings, r.checks)
	for _, f := range all {
		withdrawn[f.Retracts] = true
	}
	out := []string{}
	for _, f := range all {
		if f.Severity != events.SeverityInfo && f.CallID != "" && !withdrawn[f.FindingID] {
			out = append(out, f.Rule+"/"+string(f.Severity))
		}
	}
	slices.Sort(out)
	return out
}

// resumedAt: from a snapshot that was made anywhere, the rest of the outputs are
// the same.
func resumedAt(t *testing.T, l *testLog, cut int, want result) {
	t.Helper()
	before := replay(t, l.opts, l.msgs[:cut])
	again, err := Restore(l.opts, before.core.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	rest := []Output{}
	for _, m := range l.msgs[cut:] {
		rest = append(rest, again.Apply(m)...)
	}
	if diff := cmp.Diff(printed(want.outputs[len(before.outputs):]), printed(rest)); diff != "" {
		t.Errorf("from a snapshot after %d messages: %s", cut, diff)
	}
}

// TestLateEvidence: an announcement under another event id than the request's
// that comes after the end belongs to the call nonetheless, and so does the
// request's own event after another one announced the call.
func TestLateEvidence(t *testing.T) {
	done := set(set(post(3), "metadata.execution.started_at", nil), "metadata.execution.completed_at", nil)
	for _, tc := range []struct {
		name string
		last []tree
	}{
		{"under another event id", []tree{done, pre(2)}},
		{"under the request's event id, again", []tree{pre(2), done, pre(1)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(pre(1), "d1", events.Allow)
			for _, e := range tc.last {
				l.event(e)
			}
			l.at(4000).tick()
			r := l.run()
			if c := r.only(t); c.State != events.CallCompleted || len(callRules(r)) > 0 {
				t.Errorf("%+v, rules %v", c, callRules(r))
			}
		})
	}
}

// TestLateClaim: an execution is judged again when its announcement comes late and says that
// it was denied.
func TestLateClaim(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	l.event(pre(1))
	l.event(set(set(post(2), "metadata.execution.started_at", nil), "metadata.execution.completed_at", nil))
	denied := set(pre(1), "metadata.admission_verdict", tree{"verdict": "deny"})
	l.event(denied)
	l.event(denied)
	if diff := cmp.Diff([]string{"AH-C-075/critical", "executed_despite_deny/critical"}, callRules(l.run())); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A late announcement, whatever its date, is no verdict: the orphan finding is retracted, the
// missing verdict is not.
func TestABackdatedAnnouncementExcusesNothing(t *testing.T) {
	bare := set(set(post(2), "metadata.execution.started_at", nil), "metadata.execution.completed_at", nil)
	l := newTestLog(t)
	l.event(bare)
	l.event(pre(1))
	got := slices.DeleteFunc(callRules(l.run()), func(rule string) bool { return rule == "AH-C-054/low" })
	if diff := cmp.Diff([]string{"AH-C-078/low", noVerdict}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	denied := newTestLog(t)
	denied.admit(pre(1), "d1", events.Deny)
	denied.event(set(bare, "metadata.tool_call_id", "c2"))
	denied.event(set(retry(pre(3)), "timestamp", stamp(1)))
	got = slices.DeleteFunc(callRules(denied.run()), func(rule string) bool { return rule == "AH-C-054/low" })
	if diff := cmp.Diff([]string{"AH-C-075/critical", "AH-C-078/low", despiteDeny}, got); diff != "" {
		t.Errorf("tried again under another id: -want +got\n%s", diff)
	}
}

// TestLateRequest: a request that came after its call was done, though it is earlier by the
// producer's clock, belongs to that call. Its verdict comes too late, and nothing is missing.
func TestLateRequest(t *testing.T) {
	bare := set(set(post(2), "metadata.execution.started_at", nil), "metadata.execution.completed_at", nil)
	other := set(pre(3), "timestamp", stamp(1))
	for _, tc := range []struct {
		name    string
		asked   tree
		verdict events.Verdict
		want    []string
		calls   int
		before  []tree
	}{
		{"after announcement and end, under another event id", other, events.Allow, []string{"AH-C-083/medium", afterTheFact}, 1, []tree{pre(1)}},
		{"in the same second", set(pre(1), "timestamp", stamp(2)), events.Allow, []string{"AH-C-078/high", "AH-C-079/medium", missingHook, orphan}, 2, nil},
		{"allowed", pre(1), events.Allow, []string{"AH-C-078/low", "AH-C-083/medium", afterTheFact}, 1, nil},
		{"denied", pre(1), events.Deny, []string{"AH-C-078/low", "AH-C-083/medium", afterTheFact}, 1, nil},
		{"the next call", set(pre(1), "timestamp", stamp(3)), events.Allow, []string{"AH-C-078/high", "AH-C-079/medium", missingHook, orphan}, 2, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			for _, e := range append(tc.before, bare) {
				l.event(e)
			}
			l.admit(tc.asked, "d1", tc.verdict)
			l.event(tc.asked)
			l.at(4000).tick()
			r := l.run()
			if diff := cmp.Diff(tc.want, slices.DeleteFunc(callRules(r), func(rule string) bool { return rule == "AH-C-054/low" })); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if len(r.last()) != tc.calls {
				t.Errorf("calls %+v", r.last())
			}
			for cut := range l.msgs {
				resumedAt(t, l, cut, r)
			}
		})
	}
}

// TestRequestAfterStop: whether a request under another event id that is recorded
// after its call failed or was blocked is late word of that call or the next
// attempt, its publisher's clock tells.
func TestRequestAfterStop(t *testing.T) {
	asked := func(at float64) tree { return set(pre(3), "timestamp", stamp(at)) }
	end := func(n int, at float64) tree {
		done := set(set(post(n), "metadata.execution.started_at", nil), "metadata.execution.completed_at", nil)
		return set(done, "timestamp", stamp(at))
	}
	const never = "AH-C-079/medium"
	for _, tc := range []struct {
		name     string
		stopped  float64 // when, by the publisher
		asked    tree
		verdict  events.Verdict
		after    []tree
		want     []string
		attempts int
	}{
		{"asked before", 1, asked(0.5), events.Allow, nil, nil, 1},
		{"asked before, and denied", 1, asked(0.5), events.Deny, nil, nil, 1},
		{"asked before, denied, and it ran", 1, asked(0.5), events.Deny, []tree{end(4, 2)}, []string{"AH-C-075/critical", "executed_despite_deny/critical"}, 1},
		{"asked before, announced once more", 1, asked(0.5), events.Allow, []tree{asked(0.5)}, nil, 1},
		{"asked in the same instant", 1.125, asked(1.125), events.Allow, nil, nil, 1},
		{"the next attempt", 1, asked(1.5), events.Allow, []tree{asked(1.5), end(4, 2)}, nil, 2},
		{"the next attempt never ends", 1, asked(1.5), events.Allow, []tree{asked(1.5)}, []string{never, missingHook}, 2},
		{"in the same second, nobody knows", 1, asked(1), events.Allow, nil, []string{never, missingHook}, 2},
		{"without a time, nobody knows", 1, set(pre(3), "timestamp", nil), events.Allow, nil, []string{never, missingHook}, 2},
		{"asked before, for something else", 1, set(asked(0.5), "tool_input.amount", 7), events.Allow, nil, []string{never, missingHook}, 2},
	} {
		for _, how := range []string{"ErrorOccurred", "ToolUseBlocked"} {
			t.Run(how+"/"+tc.name, func(t *testing.T) {
				l := newTestLog(t)
				l.event(pre(1))
				l.event(hook(2, how, tc.stopped))
				l.admit(tc.asked, "d1", tc.verdict)
				for _, e := range tc.after {
					l.event(e)
				}
				l.at(4000).tick()
				r := l.run()
				got := slices.DeleteFunc(callRules(r), func(rule string) bool { return rule == "AH-C-054/low" })
				if !slices.Equal(got, tc.want) || len(r.last()) != tc.attempts {
					t.Errorf("%v, want %v, of %d calls: %+v", got, tc.want, tc.attempts, r.last())
				}
				for cut := range l.msgs {
					resumedAt(t, l, cut, r)
				}
			})
		}
	}
}

// TestLateInTwoProtocols: the events of one call in two protocols are one call
// in every order, and end up with the same comparison.
func TestLateInTwoProtocols(t *testing.T) {
	in := func(e tree) tree { return set(set(e, "session_id", "sess_1"), "metadata.tool_call_id", "call_1") }
	bare := set(set(post(3), "metadata.execution.started_at", nil), "metadata.execution.completed_at", nil)
	steps := []tree{set(invoked(1, "call_1"), "tool", "pay_invoice"), set(completed(2, "call_1", "success"), "tool", "pay_invoice"), in(pre(1)), in(bare)}
	for _, order := range orders(steps) {
		l := newTestLog(t)
		var kinds []string
		for _, e := range order {
			typ, _ := e["event_type"].(string)
			kinds = append(kinds, stdcmp.Or(typ, fmt.Sprint(e["type"])))
			l.event(e)
		}
		l.at(4000).tick()
		r := l.run()
		if list := r.last(); len(list) != 1 || list[0].State != events.CallCompleted || list[0].Match != matchEqual {
			t.Errorf("%v: %+v", kinds, list)
		}
		if got := callRules(r); slices.Contains(got, missingHook) || slices.Contains(got, missingAAEP) || slices.Contains(got, driftHigh) {
			t.Errorf("%v: %v", kinds, got)
		}
	}
}

// TestLateInTheSameSecond: a clock that shows less than seconds tells enough.
func TestLateInTheSameSecond(t *testing.T) {
	at := func(e tree) tree { return set(e, "timestamp", stamp(2.125)) }
	l := newTestLog(t)
	l.event(at(set(set(post(2), "metadata.execution.started_at", nil), "metadata.execution.completed_at", nil)))
	l.admit(at(pre(1)), "d1", events.Allow)
	l.event(at(pre(1)))
	l.at(4000).tick()
	if r := l.run(); len(r.last()) != 1 || slices.Contains(callRules(r), missingHook) {
		t.Errorf("%+v, %v", r.last(), callRules(r))
	}
}

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
				l := newTestLog(t)
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
		l := newTestLog(t)
		for i, s := range steps {
			l.at(float64(2 + i)).event(s)
		}
		if got := standingRules(l.run()); !slices.Equal(got, []string{"AH-C-082", ExecutedWithoutVerdict}) {
			t.Errorf("in the order %s: %v", kindsOf(steps), got)
		}
	}
}

// standingRules are the rules above info of the findings that are not retracted.
func standingRules(r result) []string {
	standing, withdrawn := map[string]string{}, map[string]bool{}
	for _, f := range slices.Concat(r.findings, r.checks) {
		withdrawn[f.Retracts] = f.Retracts != ""
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

// TestEarlyUpdatesAreBounded: the buffered updates of a session are bounded; the oldest are
// forgotten.
func TestEarlyUpdatesAreBounded(t *testing.T) {
	l := newTestLog(t)
	for i := range 3 * maxEarlyUpdates {
		l.event(set(hook(100+i, "ErrorOccurred", 1), "metadata.tool_call_id", fmt.Sprint("x", i)))
	}
	l.event(set(pre(1), "metadata.tool_call_id", "x0"))
	l.event(set(pre(2), "metadata.tool_call_id", fmt.Sprint("x", 3*maxEarlyUpdates-1)))
	r := l.run()
	s, _ := r.core.engine.calls.sessions.Oldest()
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

// TestEarlyUpdatesInRecordings: a recording is judged alike.
func TestEarlyUpdatesInRecordings(t *testing.T) {
	for _, steps := range orders([]any{pre(1), hook(2, "ErrorOccurred", 0)}) {
		found, err := Check(subject.ProtoAgentHook, recording(steps...), CheckOptions{Now: epoch.Add(4000e9)})
		if err != nil || len(rulesOf(found)) > 0 {
			b, _ := json.Marshal(found)
			t.Errorf("%s %v", b, err)
		}
	}
}

// TestDenialOutlivesItsSession: that a call was denied is known when it runs, also
// where everything else of it had to be forgotten.
func TestDenialOutlivesItsSession(t *testing.T) {
	denied := func(l *testLog) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
	}
	crowd := func(l *testLog) {
		for i := range 40 {
			l.event(set(pre(5000+i), "session_id", fmt.Sprint("crowd-", i)))
		}
	}
	unstarted := set(set(set(post(2), "metadata.execution.outcome", "cancelled"), "metadata.execution.started_at", nil), "metadata.tool_input_executed", tree{})
	unnamed := func(e tree) tree { return set(e, "metadata.tool_call_id", nil) }
	other := func(e tree) tree { return set(e, "tool_input", tree{"command": "other"}) }
	for name, tc := range map[string]struct {
		before, between func(*testLog)
		end             tree
		want            []string
	}{
		"pushed out":                    {denied, crowd, post(2), []string{despiteDeny}},
		"pushed out, and ended unbegun": {denied, crowd, unstarted, []string{orphan}},
		"idle for days":                 {denied, func(l *testLog) { l.idle(3 * 24 * 3600) }, post(2), []string{despiteDeny}},
		"many calls since": {denied, func(l *testLog) {
			for i := range DefaultMaxClosedPerSession + 1 {
				other := func(e tree) tree { return set(e, "metadata.tool_call_id", fmt.Sprint("x", i)) }
				l.admit(other(pre(100+2*i)), fmt.Sprint("x", i), events.Allow)
				l.event(other(pre(100 + 2*i)))
				l.event(other(set(post(101+2*i), "metadata.execution.started_at", nil)))
			}
		}, post(2), []string{despiteDeny}},
		"stopped by its own runtime": {func(l *testLog) {
			l.event(pre(1))
			l.event(hook(3, "ToolUseBlocked", 1))
		}, crowd, post(2), []string{despiteDeny}},
		"allowed": {func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(pre(1))
		}, crowd, post(2), []string{missingHook, "orphan_completion/low"}},
		"asked for again since, and allowed": {denied, func(l *testLog) {
			crowd(l)
			l.admit(pre(3), "d2", events.Allow)
			l.event(pre(3))
		}, post(2), []string{}},
		"announced again": {denied, func(l *testLog) { crowd(l); l.event(pre(3)) }, post(2), []string{despiteDeny}},
		"announced after it was forgotten": {func(l *testLog) { l.admit(pre(1), "d1", events.Deny) },
			func(l *testLog) { crowd(l); l.event(pre(1)) }, post(2), []string{despiteDeny}},
		"announced again, with a claim": {denied, func(l *testLog) {
			l.idle(3 * 24 * 3600)
			l.event(set(pre(3), "metadata.admission_verdict.verdict", "allow"))
		}, post(2), []string{despiteDeny}},
		"announced again without an id": {func(l *testLog) { l.admit(unnamed(pre(1)), "d1", events.Deny) },
			func(l *testLog) { crowd(l); l.event(unnamed(pre(3))) }, unnamed(post(2)), []string{despiteDeny}},
		"announced with other arguments, and run with those of the denial": {denied, func(l *testLog) { crowd(l); l.event(other(pre(3))) },
			post(2), []string{despiteDeny}},
		"another call under its id": {denied, func(l *testLog) { crowd(l); l.event(other(pre(3))) },
			set(post(2), "metadata.tool_input_executed", tree{"command": "other"}), []string{"executed_without_verdict/high"}},
		"announced again, which its publisher alone had denied, with a claim": {func(l *testLog) {
			l.event(pre(1))
			l.event(hook(3, "ToolUseBlocked", 1))
		}, func(l *testLog) {
			crowd(l)
			l.event(set(pre(4), "metadata.admission_verdict.verdict", "allow"))
		}, post(2), []string{"executed_without_verdict/high"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.opts.MaxSessions = 8
			tc.before(l)
			tc.between(l)
			at := len(l.msgs)
			l.event(tc.end)
			whole := l.run()
			var mine []events.Finding
			for _, f := range whole.findings {
				if f.Session == pre(1)["session_id"] {
					mine = append(mine, f)
				}
			}
			wantRules(t, mine, tc.want...)
			resumed, _ := goingOn(t, l, at)
			sameOutputs(t, "resumed", resumed, whole.outputs)
			onceEach(t, whole.outputs)
		})
	}
}

// TestForgottenDenialOfAStart: a denied call that was forgotten is found as soon as its protocol says that it begins; a call
// under its id that was asked for again and allowed is none.
func TestForgottenDenialOfAStart(t *testing.T) {
	others := func(l *testLog, from int) {
		for i := range 5 {
			id := fmt.Sprint("call_x", from+i)
			l.admit(invoked(from+2*i, id), id, events.Allow)
			l.event(invoked(from+2*i, id))
			l.event(completed(from+2*i+1, id, "success"))
		}
	}
	for name, tc := range map[string]struct {
		after func(*testLog)
		want  []string
	}{
		"invoked":               {func(l *testLog) { l.event(invoked(50, "call_1")) }, []string{despiteDeny}},
		"invoked and completed": {func(l *testLog) { l.event(invoked(50, "call_1")); l.event(completed(51, "call_1", "success")) }, []string{despiteDeny}},
		"allowed since, and invoked twice": {func(l *testLog) {
			l.admit(invoked(50, "call_1"), "d2", events.Allow)
			for n := range 2 {
				l.event(invoked(51+2*n, "call_1"))
				l.event(completed(52+2*n, "call_1", "success"))
			}
		}, []string{"executed_without_verdict/high", "reused_tool_call_id/high"}},
		"allowed since, forgotten again, and invoked twice": {func(l *testLog) {
			l.admit(invoked(50, "call_1"), "d2", events.Allow)
			l.event(invoked(51, "call_1"))
			l.event(completed(52, "call_1", "success"))
			others(l, 60)
			l.event(invoked(80, "call_1"))
			l.event(completed(81, "call_1", "success"))
		}, []string{"executed_without_verdict/high", "reused_tool_call_id/high"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.opts.MaxClosedPerSession = 2
			l.admit(invoked(1, "call_1"), "d1", events.Deny)
			others(l, 10)
			at := len(l.msgs)
			tc.after(l)
			whole := l.run()
			wantRules(t, whole.findings, tc.want...)
			resumed, _ := goingOn(t, l, at)
			sameOutputs(t, "resumed", resumed, whole.outputs)
			onceEach(t, whole.outputs)
		})
	}
}

// TestForgottenDenialOfARetriedCall: a denial that outlived its call counts for retries of the call under other ids, and
// for the call itself behind them, as while the call is known.
func TestForgottenDenialOfARetriedCall(t *testing.T) {
	began := func(e tree) tree { return set(e, "metadata.execution.started_at", nil) }
	retry := func(e tree, id string) tree {
		return set(set(e, "metadata.tool_call_id", id), "metadata.retry", tree{"attempt": 2, "previous_tool_call_id": "c1"})
	}
	for name, tc := range map[string]struct {
		events []tree
		want   []string
	}{
		"a retry runs":                        {[]tree{retry(pre(30), "c9"), retry(began(post(31)), "c9")}, []string{despiteDeny}},
		"a retry is announced, the call runs": {[]tree{retry(pre(30), "c9"), began(post(31))}, []string{despiteDeny}},
		"of two retries the second runs":      {[]tree{retry(pre(30), "c9"), retry(pre(31), "c10"), retry(began(post(32)), "c10")}, []string{despiteDeny}},
		"two retries run":                     {[]tree{retry(pre(30), "c9"), retry(began(post(31)), "c9"), retry(pre(32), "c10"), retry(began(post(33)), "c10")}, []string{despiteDeny, despiteDeny}},
		"the call runs":                       {[]tree{began(post(31))}, []string{despiteDeny}},
	} {
		for _, forget := range []bool{false, true} {
			for _, require := range []bool{true, false} {
				t.Run(fmt.Sprint(name, " ", forget, " ", require), func(t *testing.T) {
					l := newTestLog(t)
					l.opts.MaxClosedPerSession, l.opts.RequireVerdict = 2, require
					l.admit(pre(1), "d1", events.Deny)
					for i := range 3 {
						if !forget {
							break
						}
						id := fmt.Sprint("x", i)
						l.admit(set(pre(10+i), "metadata.tool_call_id", id), id, events.Allow)
						l.event(set(pre(10+i), "metadata.tool_call_id", id))
						l.event(set(began(post(20+i)), "metadata.tool_call_id", id))
					}
					at := len(l.msgs)
					for _, e := range tc.events {
						l.event(e)
					}
					whole := l.run()
					wantRules(t, whole.findings, tc.want...)
					resumed, _ := goingOn(t, l, at)
					sameOutputs(t, "resumed", resumed, whole.outputs)
					onceEach(t, whole.outputs)
				})
			}
		}
	}
}

// TestReportedBlockKeepsTheDecision: the record of a call that the admitter denied, and its gate reports as blocked, has
// the admitter's decision.
func TestReportedBlockKeepsTheDecision(t *testing.T) {
	l := newTestLog(t)
	l.admit(pre(1), "d1", events.Deny)
	l.event(hook(2, "ToolUseBlocked", 1))
	calls := l.run().calls
	if last := calls[len(calls)-1]; last.State != events.CallDenied || last.Verdict != events.Deny || last.DecisionID != "d1" {
		t.Errorf("state %s, verdict %q, decision %q", last.State, last.Verdict, last.DecisionID)
	}
}

// onceEach checks that no two outputs have one id.
func onceEach(t *testing.T, list []Output) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range list {
		o.Encode()
		if seen[o.ID] {
			t.Errorf("%s is put out twice", o.ID)
		}
		seen[o.ID] = true
	}
}

// TestClaimedDenialOutlastsItsCall: a claimed denial after a decision on record counts against the claim of the next
// attempt, also once the call that it was about is forgotten.
func TestClaimedDenialOutlastsItsCall(t *testing.T) {
	attempt := func(e tree, id, before, claim string) tree {
		e = set(set(e, "metadata.tool_call_id", id), "metadata.retry", tree{"attempt": 2, "previous_tool_call_id": before})
		return set(e, "metadata.admission_verdict.verdict", claim)
	}
	l := newTestLog(t)
	l.opts.MaxClosedPerSession = 2
	l.admit(pre(1), "d1", events.Ask)
	l.event(pre(1))
	l.event(attempt(pre(2), "c2", "c1", "deny"))
	l.event(attempt(pre(3), "c3", "c2", "allow"))
	for i := range 3 {
		id := fmt.Sprint("x", i)
		l.admit(set(pre(10+i), "metadata.tool_call_id", id), id, events.Allow)
		l.event(set(pre(10+i), "metadata.tool_call_id", id))
		l.event(set(set(post(20+i), "metadata.tool_call_id", id), "metadata.execution.started_at", nil))
	}
	at := len(l.msgs)
	l.event(set(post(4), "metadata.tool_call_id", "c3"))
	whole := l.run()
	wantRules(t, whole.findings, despiteDeny)
	resumed, _ := goingOn(t, l, at)
	sameOutputs(t, "resumed", resumed, whole.outputs)
}

// TestDenialsAreBounded: no tenant fills the places that all share.
func TestDenialsAreBounded(t *testing.T) {
	cs := newCallsPart(Options{})
	keep := func(tenant string, i int) {
		s := &session{calls: cs, Origin: &fact.Origin{Key: fact.SourceSession{Tenant: tenant, Source: "rt1", Session: fmt.Sprint("s", i)}}}
		c := &call{session: s, group: newCallGroup(fact.CallKeyOf("c1", ""), 0), occurrence: 1, closeReason: closedByDeny, details: new(details)}
		c.verdictClaim.Verdict = events.Deny
		cs.keepDenial(c)
	}
	keep("acme", 0)
	for i := range maxDenials + 100 {
		keep("other", i)
	}
	if n := cs.denials.Len(); n != maxDenials {
		t.Errorf("%d are kept, of at most %d", n, maxDenials)
	}
	key, _ := denialKey(fact.SourceSession{Tenant: "acme", Source: "rt1", Session: "s0"}, fact.CallKeyOf("c1", ""), &fact.Arguments{})
	if _, kept := cs.denials.Peek(key); !kept {
		t.Error("a tenant with one denial lost it to another")
	}
}

// TestMemoryOfClosedCalls measures and prints what a closed call and a closed session take,
// with their ids and indexes. Multiply the bounds of Options with these.
func TestMemoryOfClosedCalls(t *testing.T) {
	const mostCall, mostSession = 1088, 1728
	calls := rounds(1500, 600)
	perCall := usedFor(t, calls, 100) / calls
	perSession := (usedFor(t, calls, 1) - usedFor(t, calls, 100)) / (calls - calls/100)
	t.Logf("%d bytes a closed call, %d bytes a session more", perCall, perSession)
	if perCall > mostCall || perSession > mostSession {
		t.Errorf("want at most %d and %d bytes", mostCall, mostSession)
	}
}

// usedFor is the heap that a correlator takes after so many calls that were
// admitted, announced and completed.
func usedFor(t *testing.T, calls, perSession int) int {
	return usedBy(t, calls, func(l *testLog, i int) {
		at := func(e tree) tree {
			return set(set(e, "session_id", "session-"+strconv.Itoa(1000+i/perSession)), "metadata.tool_call_id", "call-"+strconv.Itoa(100_000+i))
		}
		l.admit(at(pre(2*i)), "decision-"+strconv.Itoa(100_000+i), events.Allow)
		l.event(at(pre(2 * i)))
		l.event(at(post(2*i + 1)))
	})
}

// usedBy is the heap that a correlator takes after so many calls, each of which is closed.
func usedBy(t *testing.T, calls int, logCall func(l *testLog, i int)) int {
	l := newTestLog(t)
	// What is bounded however many calls there are is full before it is measured.
	l.opts.MaxEvents, l.opts.MaxEventsPerSource = 256, 256
	core := New(l.opts)
	core.engine.lineage.linkTargets, core.engine.receipts.holders = tables.NewShared[fact.Sum, sessionLink](512), tables.NewShared[fact.Sum, fact.Sum](512)
	seq := uint64(0)
	apply := func() {
		for _, m := range l.msgs {
			seq++
			m.Seq = seq
			core.Apply(m)
		}
		l.msgs = l.msgs[:0]
	}
	apply()
	play := func(from, to int) {
		for i := from; i < to; i++ {
			logCall(l, i)
			apply()
		}
	}
	play(0, 300)
	before := heapInUse()
	play(300, 300+calls)
	used := heapInUse() - before
	if st := core.Stats(); st.Open != 0 || st.Calls != 300+calls {
		t.Fatalf("%+v", st)
	}
	return used
}

// A text that is remembered is a copy: a part of its message would keep the whole message in memory.
func TestRememberedTextsPinNoMessages(t *testing.T) {
	governed := tree{
		"tool_identity":        tree{"canonical_name": "billing.pay", "provider_name": "pay_invoice", "source": "mcp_tools_call", "schema_hash": "sha256:" + strings.Repeat("a1", 32)},
		"provider_translation": tree{"provider_surface": "mcp_tools_call", "model_facing_tool": "pay", "provider": "smtp", "adapter_version": "1.4.2"},
		"risk":                 tree{"risk_class": "write", "requires_human_approval": false},
		"validation":           tree{"status": "passed", "validator": "jsonschema"},
		"retry":                tree{"attempt": 1}, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "instance_id": "instance-1",
		"web":                 tree{"search_id": "search-1", "url": "https://example.com/"},
		"runtime_attestation": tree{"session_id": "s", "nonce": "nonce-1", "hooks": []any{tree{"hook_id": "h", "status": "trusted"}}},
		"runtime_contract":    tree{"required_hooks": []any{"h"}, "fail_mode": "fail_closed"},
	}
	hook := func(filling string, blocks tree) func(l *testLog, i int) {
		return func(l *testLog, i int) {
			id := strconv.Itoa(100_000 + i)
			at := func(e tree) tree {
				e = set(set(set(e, "session_id", "session-"+strconv.Itoa(1000+i/20)), "metadata.tool_call_id", "call-"+id), "metadata.filling", filling)
				e = set(set(e, "correlation_id", "correlation-"+id), "source", "agent-runtime")
				for name, block := range blocks {
					e = set(e, "metadata."+name, block)
				}
				return e
			}
			e := set(at(pre(2*i)), "evidence_phase", "pre_commit")
			l.admit(e, "decision-"+id, events.Allow)
			l.event(set(e, "metadata.admission_verdict", tree{"verdict": "allow", "decided_at": stamp(0)}))
			l.event(at(post(2*i + 1)))
		}
	}
	aaep := func(filling string) func(l *testLog, i int) {
		return func(l *testLog, i int) {
			id := "call_" + strconv.Itoa(100_000+i)
			at := func(e tree) tree {
				return set(set(e, "session_id", "sess_"+strconv.Itoa(1000+i/20)), "summary_normal", "Looked it up."+filling)
			}
			l.event(at(invoked(2*i, id)))
			l.event(at(completed(2*i+1, id, "success")))
		}
	}
	const most = 400 // bytes a call more where its messages are long
	calls, filling := rounds(400, 200), strings.Repeat("x", 6000)
	for _, c := range []struct {
		name        string
		short, long func(l *testLog, i int)
	}{
		{"AgentHook", hook("", nil), hook(filling, nil)},
		{"AgentHook, governed", hook("", governed), hook(filling, governed)},
		{"AAEP", aaep(""), aaep(filling)},
	} {
		short, long := usedBy(t, calls, c.short)/calls, usedBy(t, calls, c.long)/calls
		t.Logf("%s: %d bytes a closed call, %d with long messages", c.name, short, long)
		if long > short+most {
			t.Errorf("%s: %d bytes a closed call more if its messages are long", c.name, long-short)
		}
	}
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestLateArgumentsAreNotKept: the arguments of a call that was announced after its end take no
// room. Nothing would free it.
func TestLateArgumentsAreNotKept(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	l.event(post(2))
	l.event(pre(1))
	if st := l.run().core.Stats(); st.ArgsBytes != 0 || st.Calls != 1 {
		t.Errorf("%+v", st)
	}
}

// TestCallsCountWhatTheyHold: the counts of the part are what its sessions hold, whatever is
// opened, closed and forgotten.
func TestCallsCountWhatTheyHold(t *testing.T) {
	cs := newCallsPart(Options{MaxClosedPerSession: 2})
	held := func(what string, sessions, open, calls, ids, bytes int) {
		t.Helper()
		s, o, c, i, b := cs.held()
		if got, want := [...]int{s, o, c, i, b}, [...]int{sessions, open, calls, ids, bytes}; got != want {
			t.Errorf("%s: sessions, open, calls, ids and bytes are %v, want %v", what, got, want)
		}
	}
	for n := range 2 {
		f := &fact.Fact{Kind: fact.KindPre, Origin: fact.OriginOf("acme", "rt1", fmt.Sprint("s", n))}
		s := cs.addSession(&f.Origin, 0)
		for i := range 4 {
			f := &fact.Fact{Kind: fact.KindPre, Origin: f.Origin, Tool: "pay", Args: fact.Arguments{Known: true, Canonical: []byte(`{"a":1}`)}}
			f.SetCallKey(fact.CallKeyOf(fmt.Sprint("c", i), ""))
			c := cs.newOccurrence(s, f)
			c.state = events.CallOpen
			cs.addOpen(c)
			c.attachFact(f)
		}
	}
	held("opened", 2, 8, 8, 8, 8*len(`{"a":1}`))
	s := cs.find(fact.SourceSession{Tenant: "acme", Source: "rt1", Session: "s0"})
	for len(s.open) > 0 {
		cs.closeCall(s.open[0], events.CallCompleted, closedByPost)
	}
	held("closed, of which two are remembered", 2, 4, 6, 8, 4*len(`{"a":1}`))
	cs.compactCalls()
	cs.forgetSession(s, 0)
	held("forgotten", 1, 4, 4, 4, 4*len(`{"a":1}`))
	other := cs.touch(fact.SourceSession{Tenant: "acme", Source: "rt1", Session: "s1"})
	for len(other.open) > 0 {
		cs.closeCall(other.open[0], events.CallAbandoned, closedByDeadline)
	}
	cs.forgetSession(other, 0)
	held("empty", 0, 0, 0, 0, 0)
}

// A gate blocks a call whose allow came too late, and the agent asks again under another id: that goes around no
// verdict. Around a denial it does, whoever reported that it was blocked.
func TestAskedAgainAfterALateAllow(t *testing.T) {
	again := set(pre(3), "metadata.tool_call_id", "c2")
	for verdict, want := range map[events.Verdict]int{events.Allow: 0, events.Deny: 1} {
		l := newTestLog(t)
		l.event(pre(1))
		l.decide(pre(1), "first", verdict)
		l.event(hook(2, "ToolUseBlocked", 1))
		l.event(again)
		l.decide(again, "second", events.Allow)
		found := 0
		for _, f := range l.run().checks {
			if f.Rule == "AH-C-077" {
				found++
			}
		}
		if found != want {
			t.Errorf("%s: %d findings of AH-C-077, want %d", verdict, found, want)
		}
	}
}
