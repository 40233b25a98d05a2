package events_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// A message has the kind of its subject; copies of requests, and events that no follower gets, have none.
func TestFollowKindOf(t *testing.T) {
	space := subject.Space{}
	for subj, want := range map[string]string{
		space.Decision("acme", "deny", "s"): "decisions", space.Approval("acme", "pending", "w"): "approvals", space.Control("GOV", "tick"): "",
		space.Event("acme", "rt1", "aaep", "s", "agent.tool.invoked"): "aaep", space.Event("acme", "rt1", "agenthook", "s", "PreToolUse"): "",
		space.Event("acme", "rt1", "tool", "s", "tool_policy_evaluated"): "aioc", space.Event("acme", "rt1", "handoff", "s", "handoff_policy_evaluated"): "aioc",
		space.Event("acme", "rt1", "tool", "s", "handoff_policy_evaluated"): "", space.Request("acme", "rt1", "tool", "s"): "", space.Event("acme", "rt1", "tool", "s", "run_started"): "",
	} {
		p, err := space.Parse(subj)
		if got := events.FollowKindOf(p); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", subj, got, err, want)
		}
	}
}

// Whatever is asked for, it is within the bounds and the tenant.
func FuzzFollowRequest(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"after":0}`, `{"since":"2026-11-20T09:00:00Z","kinds":["decisions"],"states":{"decisions":"deny"},"session":"a.>"}`,
		`{"max":500,"wait_ms":30000,"log":"GOV@20261120T064150.123456789Z"}`, `{"kinds":["findings","findings"]}`, `{"session":"*"}`,
		`{"kinds":["aaep","aioc","calls"],"session":"s"}`} {
		f.Add([]byte(seed))
	}
	space := subject.Space{}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := events.DecodeFollowRequest(b)
		if err != nil {
			return
		}
		if r.Max < 1 || r.Max > events.FollowMax || r.WaitMS < 0 || len(r.Kinds) == 0 || r.After != nil && !r.Since.IsZero() {
			t.Errorf("%q: %+v", b, r)
		}
		for _, s := range r.Subjects(space, "acme") {
			tokens := strings.Split(s, ".")
			ofEvents := tokens[1] == string(subject.Events)
			if !ofEvents && len(tokens) != 5 || ofEvents && len(tokens) != 7 || tokens[2] != "acme" || strings.Contains(strings.TrimSuffix(s, ".aaep."+tokens[len(tokens)-2]+".>"), ">") {
				t.Errorf("%q: %s", b, s)
			}
		}
	})
}
