package correlation

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

// TestAskedAboutNoCall: what is no tool call can be asked about, too. The
// admitter's copy is not the event: that is news when it comes.
func TestAskedAboutNoCall(t *testing.T) {
	action := set(hook(1, "WebActionRequested", 0), "evidence_phase", "pre_commit")
	action = set(action, "metadata.web", tree{"action_id": "act_1", "url": "https://example.org"})
	allowed := set(action, "metadata.admission_verdict", tree{"verdict": "allow"})
	done := set(hook(2, "WebActionCompleted", 1), "metadata", tree{"web": tree{"action_id": "act_1"}})
	question := wire(2, "awaiting.confirmation", 1, tree{"action": "wipe", "consequence": "Gone.", "reply_token": "rpl_1", "timeout_seconds": 60,
		"default_decision": "reject", "urgency": "critical"})
	answer := tree{"type": "confirmation.reply", "subscription_id": "sub_1", "reply_token": "rpl_1", "decision": "accept", "timestamp": stamp(2)}
	for _, tc := range []struct {
		name  string
		asked tree
		ruled events.Verdict // "" if there is no decision
		after []tree
		want  []string
	}{
		{"the event itself", action, "", []tree{action, done}, []string{"AH-C-145/medium"}},
		{"the event with its verdict", action, "", []tree{allowed, done}, []string{}},
		{"the event, and again with its verdict", action, "", []tree{action, allowed, done}, []string{}},
		{"the event, and the verdict is on record", action, events.Allow, []tree{action, done}, []string{}},
		{"the event with a verdict that is none", action, events.Deny, []tree{allowed, done}, []string{"AH-C-145/medium"}},
		{"a question", question, "", []tree{question, answer}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			if tc.asked["type"] != nil {
				l.event(wire(1, "session.started", 0, nil))
			}
			l.request(tc.asked, "d1")
			if tc.ruled != "" {
				l.decide(tc.asked, "d1", tc.ruled)
			}
			for _, e := range tc.after {
				if e["type"] == "confirmation.reply" {
					l.put(space.Event("acme", "rt1", protoAAEP, "", "confirmation.reply"), nil, encode(e))
				} else {
					l.event(e)
				}
			}
			got := []string{}
			for _, f := range l.run().checks {
				if f.Severity != events.SeverityInfo {
					got = append(got, f.Rule+"/"+string(f.Severity))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
