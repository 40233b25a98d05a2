package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const gatePolicy = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: gates}
spec:
  match: {protocols: [tool], tools: ["export_report"]}
  rules:
    - {name: reports, when: 'true', verdict: allow, reason: allow_report}
---
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: handoffs}
spec:
  match: {protocols: [handoff], toAgents: ["Finance Agent"]}
  rules:
    - {name: finance, when: 'true', verdict: allow, reason: allow_finance}
`

// The policy gates of aioc leave the trace events that RFC-0002 demands on the
// log, signed; a runtime that writes one of its own is found out.
func TestGateTraces(t *testing.T) {
	t.Parallel()
	s := start(t, "--policy", policyDir(t, "gates.yaml", gatePolicy))
	r, db := s.runtime(t), s.auditors(t)
	const sess = "s-gates"
	tool := object{"agentName": "Triage Agent", "toolName": "export_report", "rawArguments": `{"id":"rpt-1"}`, "callId": "call-t", "turn": 1, "runContext": object{}}
	handoff := object{"fromAgentName": "Triage Agent", "toAgentName": "Finance Agent", "handoffPayload": object{"reason": "route"}, "callId": "call-h", "turn": 2, "runContext": object{}}
	for _, tc := range []struct {
		name, protocol, decision, reason, verdict string
		request, fields                           object
	}{
		{"tool", "tool", "allow", "allow_report", "allow", tool, object{"toolName": "export_report", "callId": "call-t", "agent": "Triage Agent", "policyVersion": "gates@"}},
		{"unconfigured tool", "tool", "deny", "deny_unconfigured_tool_drop_table", "deny", tool.with("toolName", "drop_table").with("callId", "call-d"),
			object{"toolName": "drop_table", "callId": "call-d", "agent": "Triage Agent", "resultMode": "throw"}},
		{"handoff", "handoff", "allow", "allow_finance", "allow", handoff, object{"handoffName": "handoff_to_finance_agent", "toAgent": "Finance Agent", "callId": "call-h", "policyVersion": "handoffs@"}},
		{"unconfigured handoff", "handoff", "deny", "deny_unconfigured_handoff_HR", "deny", handoff.with("toAgentName", "HR").with("callId", "call-x"),
			object{"handoffName": "handoff_to_hr", "toAgent": "HR", "callId": "call-x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := r.admit(t, tc.protocol, tc.request.bytes(), "Countersign-Session", sess)
			if a.verdict != tc.verdict || a.body.text("reason") != tc.reason {
				t.Fatalf("%s: %s", a.verdict, a.msg.Data)
			}
			row := atSeq(t, db, a.seq+1)
			e := row.body(t)
			typ := tc.protocol + "_policy_evaluated"
			if row.Kind != "event" || row.Subject != r.subject(tc.protocol, sess, typ) {
				t.Fatalf("after the decision comes %s on %s", row.Kind, row.Subject)
			}
			for name, want := range tc.fields {
				if got := e.text(name); !strings.HasPrefix(got, want.(string)) {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			level := map[bool]string{true: "info", false: "warn"}[tc.verdict == "allow"]
			if e.text("type") != typ || e.text("decision") != tc.decision || e.text("reason") != tc.reason || e.text("level") != level ||
				e.text("timestamp") == "" || e["turn"] == nil || e.text("metadata.decisionId") != a.id || strings.Contains(row.Record, "rpt-1") {
				t.Errorf("%s", row.Record)
			}
			h, _ := row.record(t)["headers"].(map[string]any)
			if h["Countersign-Signature"] == nil || h["Countersign-Decision-Id"] == nil {
				t.Errorf("headers %v", h)
			}
		})
	}
	s.settle(t)
	// The agent went on after its handoff was accepted: that is one finding for each
	// of its calls from there on.
	if rules := ruleNames(t, s, sess); !slices.Equal(rules, []string{"call_after_handoff"}) {
		t.Errorf("findings %v", rules)
	}
	// A runtime's own word on a verdict.
	a := r.admit(t, "tool", tool.with("callId", "call-f").bytes(), "Countersign-Session", sess)
	forged := object{"timestamp": now(), "level": "info", "type": "tool_policy_evaluated", "agent": "Triage Agent", "turn": 1, "toolName": "drop_table",
		"callId": "call-d", "decision": "allow", "reason": "ok", "metadata": object{"decisionId": a.id}}
	r.put(t, r.subject("tool", sess, "tool_policy_evaluated"), forged.bytes(), "Countersign-Decision-Id", a.id)
	s.settle(t)
	if rules := ruleNames(t, s, sess); !slices.Equal(rules, []string{"call_after_handoff", "call_after_handoff", "forged_record"}) {
		t.Errorf("findings %v", rules)
	}
	s.exact(t)
	s.verified(t, 0)
}

// ruleNames are the rules of a session's findings, in order.
func ruleNames(t testing.TB, s *system, sess string) (list []string) {
	t.Helper()
	for _, row := range evidence(t, s.auditors(t), "kind = 'finding' AND session = ?", sess) {
		list = append(list, row.body(t).text("rule"))
	}
	return list
}

// A tenant's switches take effect from where the log has them: off, enforced and
// back, without a restart.
func TestRuleSwitches(t *testing.T) {
	t.Parallel()
	s := start(t)
	r, db := s.runtime(t), s.auditors(t)
	const rule = "executed_without_verdict"
	var probes int
	found := func() (there, enforced bool) {
		t.Helper()
		probes++
		sess := "s-switch-" + string(rune('a'+probes))
		r.publish(t, allowedCall(sess, "c1"))
		r.publish(t, postToolUse(allowedCall(sess, "c1")))
		s.settle(t)
		for _, row := range evidence(t, db, "kind = 'finding' AND session = ?", sess) {
			if f := row.body(t); f.text("rule") == rule {
				marked, _ := f["enforced"].(bool)
				return true, marked
			}
		}
		return false, false
	}
	set := func(mode string, changes int) {
		t.Helper()
		s.run(t, "rules", "set", strings.ToUpper(rule[:1])+rule[1:], mode).want(t, 0)
		eventually(t, "the switch is on the log", func() error {
			rows := evidence(t, db, "subject = 'gov.control.GOV.rules'")
			if len(rows) != changes {
				return errorf("%d changes", len(rows))
			}
			return nil
		})
	}
	if there, marked := found(); !there || marked {
		t.Errorf("before: found %v, enforced %v", there, marked)
	}
	set("off", 1)
	if there, _ := found(); there {
		t.Error("off, and found")
	}
	set("enforce", 2)
	if there, marked := found(); !there || !marked {
		t.Errorf("enforce: found %v, enforced %v", there, marked)
	}
	for _, command := range [][]string{{"findings", "--enforced", "--json"}, {"tail", "--enforced", "--since", "1h", "--count", "1", "--json"}} {
		lines := jsonLines(t, s.run(t, command...).want(t, 0).out)
		if len(lines) != 1 || !strings.Contains(string(lines[0].bytes()), `"session":"s-switch-d"`) {
			t.Errorf("%v: %v", command, lines)
		}
	}
	out := s.run(t, "rules", "switches", "--tenant", "acme", "--json").want(t, 0).out
	var line object
	ok(t, json.Unmarshal([]byte(out), &line))
	if line.text("rule") != rule || line.text("mode") != "enforce" || line.text("tenant") != "acme" {
		t.Error(out)
	}
	set("warn", 3)
	if there, marked := found(); !there || marked {
		t.Errorf("after: found %v, enforced %v", there, marked)
	}
	if out := s.run(t, "rules", "switches", "--tenant", "acme").want(t, 0).out; !strings.Contains(out, "every rule") {
		t.Error(out)
	}
	s.run(t, "rules", "set", "no_such_rule", "off").want(t, 2).oneLine(t, "rules list")
	s.run(t, "rules", "set", rule, "loud").want(t, 2)
	// An unknown tenant is refused, and nothing is switched, unless the operator says that it is
	// new; from then on its switches make it known.
	s.run(t, "rules", "set", "--tenant", "acmee", rule, "off").want(t, 1).oneLine(t, `"acmee"`, "tenant acme's", "--new")
	list := s.run(t, "rules", "switches", "--tenant", "acmee").want(t, 0)
	if !strings.Contains(list.out, "every rule") || !strings.Contains(list.err, `no tenant "acmee"`) {
		t.Error(list.out, list.err)
	}
	s.run(t, "rules", "set", "--tenant", "globex", rule, "off", "--new").want(t, 0)
	ok(t, json.Unmarshal([]byte(s.run(t, "rules", "set", "--tenant", "globex", rule, "warn", "--json").want(t, 0).out), &line))
	if line.text("tenant") != "globex" || line.text("rule") != rule || line.text("mode") != "warn" {
		t.Error(line)
	}
	if list := s.run(t, "rules", "switches", "--tenant", "globex").want(t, 0); list.err != "" {
		t.Error(list.err) // it is known, and has none
	}
	s.exact(t)
	s.verified(t, 0)
}
