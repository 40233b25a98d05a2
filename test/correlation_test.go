package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/correlation"
)

// scene is one agent session with something wrong in it.
type scene struct {
	name string
	// play publishes events and asks for admission in the given session.
	play func(t *testing.T, r runtimeClient, session string)
	want []string // rule/severity, in order of the alphabet
	aaep bool
}

// allow asks for admission and announces the call.
func allow(t *testing.T, r runtimeClient, call object, verdict string) {
	t.Helper()
	if a := r.admit(t, "agenthook", call.bytes()); a.verdict != verdict {
		t.Fatalf("verdict %s, want %s", a.verdict, verdict)
	}
	r.publish(t, call)
}

var scenes = []scene{
	{name: "honest", play: func(t *testing.T, r runtimeClient, s string) {
		call := allowedCall(s, "c1")
		allow(t, r, call, "allow")
		r.publish(t, postToolUse(call))
		r.publish(t, hook(s, "SessionEnd"))
	}},
	{name: "denied and run", want: []string{"executed_despite_deny/critical"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := deniedCall(s, "c1")
		allow(t, r, call, "deny")
		r.publish(t, postToolUse(call))
	}},
	{name: "asked and run", want: []string{"executed_while_ask_pending/high"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := askedCall(s, "c1")
		allow(t, r, call, "ask")
		r.publish(t, postToolUse(call))
	}},
	{name: "never asked", want: []string{"executed_without_verdict/high"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := allowedCall(s, "c1")
		r.publish(t, call)
		r.publish(t, postToolUse(call))
	}},
	{name: "a claimed verdict only", want: []string{"executed_without_verdict/high"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := allowedCall(s, "c1").with("metadata.admission_verdict", object{"verdict": "allow"})
		r.publish(t, call)
		r.publish(t, postToolUse(call))
	}},
	{name: "other arguments", want: []string{"input_drift/critical"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := allowedCall(s, "c1")
		allow(t, r, call, "allow")
		r.publish(t, postToolUse(call).with("metadata.tool_input_executed.path", "/etc/passwd"))
	}},
	{name: "completion of nothing", want: []string{"orphan_completion/high"}, play: func(t *testing.T, r runtimeClient, s string) {
		r.publish(t, postToolUse(allowedCall(s, "c1")))
	}},
	{name: "completion before its announcement", want: []string{"executed_without_verdict/high", "orphan_completion/high", "orphan_completion/info"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := allowedCall(s, "c1")
		r.publish(t, postToolUse(call))
		r.publish(t, call)
		r.publish(t, hook(s, "SessionEnd"))
	}},
	{name: "completion before its admission", want: []string{"executed_before_verdict/high", "executed_without_verdict/high", "executed_without_verdict/info",
		"orphan_completion/high", "orphan_completion/info"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := allowedCall(s, "c1").with("timestamp", "2026-01-01T00:00:00.000Z")
		r.publish(t, postToolUse(call))
		allow(t, r, call, "allow")
		r.publish(t, hook(s, "SessionEnd"))
	}},
	{name: "reused id", want: []string{"reused_tool_call_id/high"}, play: func(t *testing.T, r runtimeClient, s string) {
		first, second := allowedCall(s, "c1"), allowedCall(s, "c1").with("tool_input.path", "/workspace/other")
		allow(t, r, first, "allow")
		allow(t, r, second, "allow")
		r.publish(t, postToolUse(first))
		r.publish(t, postToolUse(second))
	}},
	{name: "not an AgentHook event", want: []string{"schema_invalid/medium"}, play: func(t *testing.T, r runtimeClient, s string) {
		r.publish(t, hook(s, "SessionStart").with("surprise", true))
	}},
	{name: "left open at the end", want: []string{"missing_completion/medium"}, play: func(t *testing.T, r runtimeClient, s string) {
		allow(t, r, allowedCall(s, "c1"), "allow")
		r.publish(t, hook(s, "SessionEnd"))
	}},
	{name: "one event id, two contents", want: []string{"duplicate_event_conflict/medium"}, play: func(t *testing.T, r runtimeClient, s string) {
		e := hook(s, "SessionStart")
		r.publish(t, e)
		r.publish(t, e.with("action", "open"))
	}},
	{name: "everything at once", want: []string{"executed_despite_deny/critical", "missing_completion/medium", "orphan_completion/high"},
		play: func(t *testing.T, r runtimeClient, s string) {
			bad := deniedCall(s, "c1")
			allow(t, r, bad, "deny")
			r.publish(t, postToolUse(bad))
			allow(t, r, allowedCall(s, "c2"), "allow")
			r.publish(t, postToolUse(allowedCall(s, "c3")))
			r.publish(t, hook(s, "SessionEnd"))
		}},
	{name: "aaep honest", aaep: true, play: func(t *testing.T, r runtimeClient, s string) {
		call := invoked(s, "call_1", "find_flights")
		r.admit(t, "aaep", call.bytes())
		r.publish(t, aaepEvent(s, "session.started", object{"request_text": "x"}))
		r.publish(t, call)
		r.publish(t, completed(s, "call_1", "find_flights"))
	}},
	{name: "aaep denied and run", aaep: true, want: []string{"executed_despite_deny/critical"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := invoked(s, "call_1", "wipe_disk")
		r.admit(t, "aaep", call.bytes())
		r.publish(t, call)
		r.publish(t, completed(s, "call_1", "wipe_disk"))
	}},
	{name: "aaep completion before its invocation", aaep: true, want: []string{"executed_without_verdict/high", "orphan_completion/high", "orphan_completion/info"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := invoked(s, "call_1", "find_flights")
		r.publish(t, completed(s, "call_1", "find_flights"))
		r.publish(t, call)
		r.publish(t, aaepEvent(s, "session.completed", nil))
	}},
	{name: "aaep left open at the end", aaep: true, want: []string{"missing_completion/high"}, play: func(t *testing.T, r runtimeClient, s string) {
		call := invoked(s, "call_1", "find_flights")
		r.admit(t, "aaep", call.bytes())
		r.publish(t, call)
		r.publish(t, aaepEvent(s, "session.completed", object{"duration_ms": 5, "tool_invocations_count": 1}))
	}},
}

// Every rule through the whole system: raw events in, exactly the findings out,
// on NATS and in ClickHouse; saying the same again changes nothing.
func TestFindings(t *testing.T) {
	t.Parallel()
	s := alone(t)
	r := s.runtime(t)
	heard := listen(t, s, "gov.findings.acme.>")
	for i, sc := range scenes {
		t.Run(sc.name, func(t *testing.T) {
			sess := sessionName(sc, i)
			sc.play(t, r, sess)
			s.settle(t)
			expect(t, s, heard, sess, sc.want)
		})
	}
	t.Run("again", func(t *testing.T) {
		before := number(t, s.auditors(t), "SELECT count() FROM findings")
		events := published(t, s)
		for i, sc := range scenes {
			for _, m := range events[sessionName(sc, i)] {
				r.put(t, m.Subject, m.Data)
			}
		}
		s.settle(t)
		for i, sc := range scenes {
			expect(t, s, heard, sessionName(sc, i), sc.want)
		}
		if after := number(t, s.auditors(t), "SELECT count() FROM findings"); after != before {
			t.Errorf("%d findings became %d", before, after)
		}
	})
}

func sessionName(sc scene, i int) string {
	if sc.aaep {
		return fmt.Sprintf("sess_scene%d", i)
	}
	return fmt.Sprintf("scene-%d", i)
}

// Call records tell how a call went, once for each state, and link the verdict
// with what ran.
func TestCallRecords(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	call := allowedCall("s-calls", "c1")
	a := r.admit(t, "agenthook", call.bytes())
	r.publish(t, call)
	r.publish(t, call) // the same, again
	ran := r.publish(t, postToolUse(call))
	s.settle(t)
	var rows []struct {
		State        string `ch:"state"`
		DecisionID   string `ch:"decision_id"`
		DecisionSeq  uint64 `ch:"decision_seq"`
		ExecutionSeq uint64 `ch:"execution_seq"`
		Match        string `ch:"match"`
		Verdict      string `ch:"verdict"`
	}
	ok(t, s.auditors(t).Select(context.Background(), &rows,
		"SELECT state, decision_id, decision_seq, execution_seq, match, verdict FROM calls WHERE session = 's-calls' ORDER BY seq"))
	if len(rows) < 2 || rows[len(rows)-1].State != "completed" {
		t.Fatalf("%+v", rows)
	}
	end := rows[len(rows)-1]
	if end.DecisionID != a.id || end.DecisionSeq != a.seq || end.ExecutionSeq != ran || end.Match != "equal" || end.Verdict != "allow" {
		t.Errorf("%+v, want decision %s at %d, execution at %d", end, a.id, a.seq, ran)
	}
	if end.DecisionSeq >= end.ExecutionSeq {
		t.Error("the decision was not recorded before the execution")
	}
}

// A finding about an event that was published twice under two publishers'
// sessions is not shared: sessions are apart.
func TestSameIDsInTwoSessions(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	heard := listen(t, s, "gov.findings.acme.>")
	for _, sess := range []string{"s-twin-a", "s-twin-b"} {
		call := deniedCall(sess, "call-twin").with("event_id", uuid.NewString())
		allow(t, r, call, "deny")
		r.publish(t, postToolUse(call))
	}
	s.settle(t)
	for _, sess := range []string{"s-twin-a", "s-twin-b"} {
		expect(t, s, heard, sess, []string{"executed_despite_deny/critical"})
	}
}

// An allow is good for as long as its receipt says, and not for longer.
func TestExecutedAfterExpiry(t *testing.T) {
	t.Parallel()
	short := strings.Replace(policyText("rockets", "launch_rocket", "allow"), "spec:\n", "spec:\n  expiresAfter: 1s\n", 1)
	s := start(t, "--policy", policyDir(t, "rockets.yaml", short))
	r := s.runtime(t)
	heard := listen(t, s, "gov.findings.acme.>")
	call := unknownCall("s-late", "c1")
	a := r.admit(t, "agenthook", call.bytes())
	r.publish(t, call)
	until, err := time.Parse(time.RFC3339Nano, atSeq(t, s.auditors(t), a.seq).body(t).text("expires_at"))
	ok(t, err)
	until = until.Add(correlation.DefaultClockSkew)
	eventually(t, "the allow expires", func() error {
		if !time.Now().After(until) {
			return errorf("it is good until %s, by any clock", until)
		}
		return nil
	})
	r.publish(t, postToolUse(call).with("metadata.execution.started_at", now()))
	s.exact(t)
	expect(t, s, heard, "s-late", []string{"executed_after_expiry/high"})
}
