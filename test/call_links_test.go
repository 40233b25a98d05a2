package e2e_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

// A sub-agent's session says what started it; calls, timeline and replay tell so,
// and where what ran was not what was admitted.
func TestCallLinks(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	parent := allowedCall("s-kin", "c1").with("event_id", uuid.NewString())
	r.admit(t, "agenthook", parent.bytes())
	r.publish(t, parent)
	r.publish(t, hook("s-kin-child", "SessionStart").with("event_id", uuid.NewString()).with("correlation_id", parent.text("event_id")))
	child := allowedCall("s-kin-child", "c1").with("event_id", uuid.NewString())
	r.admit(t, "agenthook", child.bytes())
	r.publish(t, child)
	again := allowedCall("s-kin-child", "c2").with("event_id", uuid.NewString()).with("metadata.retry.previous_tool_call_id", "c1")
	r.admit(t, "agenthook", again.bytes())
	r.publish(t, again)
	r.publish(t, postToolUse(again))
	r.publish(t, postToolUse(parent).with("metadata.tool_input_executed.path", "/etc/passwd"))
	s.settle(t)

	calls := jsonLines(t, s.run(t, "calls", "--session", "s-kin", "--json").want(t, 0).out)
	if len(calls) != 1 || member(calls[0], "call.match") != "drift" || member(calls[0], "call.durations.requested_to_decided_us") == "" {
		t.Fatalf("calls: %v", calls)
	}
	place, _ := calls[0]["call"].(map[string]any)["differences"].([]any)
	if len(place) != 1 || place[0].(map[string]any)["pointer"] != "/path" || place[0].(map[string]any)["kind"] != "changed" {
		t.Errorf("differences: %v", place)
	}
	below := jsonLines(t, s.run(t, "calls", "--session", "s-kin-child", "--json").want(t, 0).out)
	for _, c := range below {
		if member(c, "call.parent.call_id") != member(calls[0], "call.call_id") || member(c, "call.parent.session") != "s-kin" || member(c, "call.parent.by") != "event" {
			t.Errorf("the child: %v", c)
		}
	}
	first, second := byText(t, below, "call.tool_call_id", "c1"), byText(t, below, "call.tool_call_id", "c2")
	if member(second, "call.retried_from") != member(first, "call.call_id") || member(second, "call.attempt") != "2" {
		t.Errorf("the retry: %v", second)
	}
	for sess, marked := range map[string]string{"s-kin": "    s-kin  <- this one", "s-kin-child": "      s-kin-child"} {
		out := s.run(t, "session", sess).want(t, 0).out
		if !strings.Contains(out, "sessions that belong together") || !strings.Contains(out, marked) || !strings.Contains(out, "by the event that it names") {
			t.Errorf("the timeline of %s:\n%s", sess, out)
		}
	}
	if out := s.run(t, "session", "s-kin").want(t, 0).out; !strings.Contains(out, "drift: changed /path") {
		t.Errorf("the timeline:\n%s", out)
	}
	if out := s.run(t, "calls", "--session", "s-kin-child").want(t, 0).out; !strings.Contains(out, "attempt 2, after call_") {
		t.Errorf("calls:\n%s", out)
	}
	// What a session belongs to is not in its own messages.
	alone := replays(t, s, 0, "--session", "s-kin-child")
	if member(alone, "same") != "true" || len(alone["inconclusive"].([]any)) == 0 {
		t.Errorf("replayed alone: %v", alone)
	}
	whole := replays(t, s, 0, "--session", "s-kin-child", "--whole")
	for _, m := range whole["inconclusive"].([]any) {
		if strings.Contains(member(object(m.(map[string]any)), "why_inconclusive"), "other sessions") {
			t.Errorf("replayed with all others: %v", m)
		}
	}
}
