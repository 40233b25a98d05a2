package correlation

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// comingBack is one way to come back after an approval.
type comingBack struct {
	name, policy   string
	call           string // the id of the retry; the first call has c1, or none if this is empty
	event          int    // the number of its event; the first has 1
	link, workflow bool   // it names the first call, or the workflow
	asked          int    // how often it is asked before the approval
	late           bool   // the first call was found to be missing its end before
}

// lines are the log of it.
func (r comingBack) lines() []tree {
	block := func(status string) tree {
		return tree{"required": true, "status": status, "workflow_id": "w1", "action_id": "a1", "resume_policy": r.policy,
			"requested_at": "2026-11-20T12:00:00Z", "expires_at": "2026-11-20T12:10:00Z"}
	}
	at := 0.0
	var lines []tree
	add := func(l tree) {
		l["broker"], at = at, at+1
		lines = append(lines, l)
	}
	ask := func(call string, event int, m tree, verdict, status string) {
		e, d := tree{"t": "PreToolUse", "event_id": uuid(event), "at": 1.0, "m": m}, tree{"verdict": verdict, "event_id": uuid(event), "approval": block(status)}
		if call != "" {
			e["call"], d["tool_call_id"] = call, call
		}
		add(tree{"request": e})
		add(tree{"decision": d})
	}
	add(tree{"t": "SessionStart", "at": 0.0})
	first := "c1"
	if r.call == "" {
		first = ""
	}
	for range max(r.asked, 1) {
		ask(first, 1, tree{}, "ask", "pending")
	}
	if r.late {
		at = 5000
	}
	add(tree{"approval": tree{"workflow_id": "w1", "tenant": "acme", "status": "approved", "action_digest": "sha256:00", "requested_at": "2026-11-20T12:00:00Z"}})
	m := tree{}
	if r.link {
		m["retry"] = tree{"attempt": 2, "previous_tool_call_id": "c1"}
	}
	if r.workflow {
		m["approval"] = block("approved")
	}
	ask(r.call, r.event, m, "allow", "consumed")
	m = set(set(m, "approval", block("approved")), "admission_verdict", tree{"verdict": "allow"})
	pre := tree{"t": "PreToolUse", "event_id": uuid(r.event), "at": 1.0, "evidence_phase": "pre_commit", "m": m}
	post := tree{"t": "PostToolUse", "at": at, "m": set(set(m, "admission_verdict", nil), "execution", tree{"outcome": "succeeded"})}
	if r.call != "" {
		pre["call"], post["call"] = r.call, r.call
	}
	add(pre)
	add(post)
	add(tree{"t": "SessionEnd", "at": at})
	return lines
}

// TestPermittedRetries: a retry that docs/approvals.md permits is no finding but, where
// the resume policy asks for the same event, of that (AH-C-106).
func TestPermittedRetries(t *testing.T) {
	const same, named = "retry_same_event", "retry_with_workflow_id"
	for _, r := range []comingBack{
		{name: "the same event", policy: same, call: "c1", event: 1},
		{name: "the same event, asked often", policy: same, call: "c1", event: 1, asked: 4},
		{name: "no ids", policy: same, event: 1},
		{name: "the same call, another event", policy: same, call: "c1", event: 2},
		{name: "another call that names the first", policy: same, call: "c2", event: 2, link: true},
		{name: "another call that names the workflow", policy: same, call: "c2", event: 2, workflow: true},
		{name: "the workflow named, the same call", policy: named, call: "c1", event: 1, workflow: true},
		{name: "the workflow named, another call", policy: named, call: "c2", event: 2, workflow: true},
		{name: "the workflow named in a header, another call", policy: named, call: "c2", event: 2},
		{name: "the publisher waits", policy: "publisher_waits", call: "c1", event: 1, asked: 4},
		{name: "started anew by hand", policy: "manual_retry", call: "c2", event: 2},
	} {
		t.Run(r.name, func(t *testing.T) {
			found := corpusCase{protocol: protoAgentHook, lines: r.lines()}.live(t)
			found = slices.DeleteFunc(found, func(f events.Finding) bool {
				return f.Rule == "AH-C-106" && r.policy == same && r.event != 1 || f.Severity == events.SeverityInfo
			})
			wantRules(t, found)
		})
	}
}

// TestRetryAfterTheDeadline: that the first call's end was missing is taken back.
func TestRetryAfterTheDeadline(t *testing.T) {
	r := comingBack{policy: "manual_retry", call: "c2", event: 2, late: true}
	c := corpusCase{protocol: protoAgentHook, lines: r.lines()}
	rules := func(found []events.Finding) (list []string) {
		for _, f := range found {
			if f.Retracts != "" {
				list = append(list, f.Rule)
			}
		}
		return list
	}
	run := c.ledger(t).run()
	if got := rules(slices.Concat(run.findings, run.checks)); !slices.Equal(got, []string{MissingCompletion, "AH-C-079"}) {
		t.Errorf("taken back: %v", got)
	}
}

// TestUnansweredAsk: nothing replaces a call that waits for an approval which no other
// call uses, and what was allowed is never replaced.
func TestUnansweredAsk(t *testing.T) {
	lines := comingBack{policy: "manual_retry", call: "c2", event: 2}.lines()
	for name, change := range map[string]func(tree) tree{
		"another workflow": func(l tree) tree {
			if d, ok := l["decision"].(tree); ok && d["verdict"] == "allow" {
				return set(l, "decision.approval.workflow_id", "w2")
			}
			return l
		},
		"the first call was allowed": func(l tree) tree {
			if d, ok := l["decision"].(tree); ok && d["verdict"] == "ask" {
				return set(l, "decision.verdict", "allow")
			}
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			var changed []tree
			for _, l := range lines {
				l = change(l)
				if m, _ := l["m"].(tree); m["approval"] != nil && name == "another workflow" {
					l = set(l, "m.approval.workflow_id", "w2")
				}
				changed = append(changed, l)
			}
			found := corpusCase{protocol: protoAgentHook, lines: changed}.live(t)
			if !slices.ContainsFunc(found, func(f events.Finding) bool { return f.Rule == MissingCompletion && f.ToolCallID == "c1" }) {
				t.Errorf("findings %v", rulesOf(found))
			}
		})
	}
}
