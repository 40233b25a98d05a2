package e2e_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

const tenantPolicies = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: files}
spec:
  match: {protocols: [agenthook], tools: ["write_file"]}
  rules:
    - {name: files, when: 'true', verdict: allow, reason: allow_files}
---
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: databases-of-acme}
spec:
  match: {tenants: [acme], protocols: [agenthook], tools: ["delete_database"]}
  rules:
    - {name: delete, when: 'true', verdict: allow, reason: allow_delete}
---
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: databases-of-globex}
spec:
  match: {tenants: [globex], protocols: [agenthook], tools: ["delete_database"]}
  rules:
    - {name: delete, when: 'true', verdict: deny, reason: deny_delete}
---
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: handoffs}
spec:
  match: {protocols: [handoff], toAgents: ["Finance Agent"]}
  rules:
    - {name: finance, when: 'true', verdict: allow, reason: allow_finance}
`

// What the tenants' agents do at the same time, under the same names: the very same
// requests and events, byte for byte. One tenant may delete databases, the other not;
// in one an agent hands over, and both go on as if it had not.
const (
	sharedSession = "s-shared"
	lastCall      = "call-last"
	triage        = "Triage Agent"
	finance       = "Finance Agent"
)

func sharedCalls() (before, after []object) {
	by := func(agent string, call object) object { return call.with("agent_id", agent) }
	return []object{by(triage, allowedCall(sharedSession, "call-1")), by(triage, deniedCall(sharedSession, "call-2"))},
		[]object{by(triage, allowedCall(sharedSession, "call-3")), by(finance, allowedCall(sharedSession, "call-4")), by(finance, allowedCall(sharedSession, lastCall))}
}

// play asks for calls, announces them and runs them, whatever the verdict was.
func (r runtimeClient) play(calls, ends []object) error {
	for i, call := range calls {
		if _, err := r.ask("agenthook", call.bytes()); err != nil {
			return err
		}
		for _, e := range []object{call, ends[i]} {
			m := nats.NewMsg(e.subject(r))
			m.Data = e.bytes()
			if _, err := r.store(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// Two tenants on one server and one log use the same names for sessions, calls, events and
// arguments, and never meet: not in decisions, calls and findings, and not in what their
// subscribers receive. (Publishers differ: users are global in a server.)
func TestTwoTenants(t *testing.T) {
	t.Parallel()
	d := deploy(t, "globex")
	d.run(t, "operator", "policy", "push", policyDir(t, "tenants.yaml", tenantPolicies)).want(t, 0)
	tenants := []string{"acme", "globex"}
	heard := map[string]func() []*nats.Msg{}
	for _, tenant := range tenants {
		heard[tenant] = d.subscribe(t, tenant)
	}
	d.deaf(t, "acme-subscriber", "gov.decisions.globex.>", "gov.calls.globex.>", "gov.findings.globex.>", "gov.approvals.globex.>", "gov.*.globex.>", ">")

	before, after := sharedCalls()
	ends := func(calls []object) (list []object) {
		for _, c := range calls {
			list = append(list, postToolUse(c))
		}
		return list
	}
	beforeEnds, afterEnds := ends(before), ends(after)
	played := make(chan error)
	for _, tenant := range tenants {
		r := d.runtime(t, tenant)
		go func() {
			err := r.play(before, beforeEnds)
			if tenant == "acme" && err == nil {
				_, err = r.ask("handoff", object{"fromAgentName": triage, "toAgentName": finance, "handoffPayload": object{"reason": "route"}, "callId": "call-h", "turn": 2, "runContext": object{}}.bytes(),
					"Countersign-Session", sharedSession)
			}
			played <- errors.Join(err, r.play(after, afterEnds))
		}()
	}
	for range tenants {
		ok(t, <-played)
	}

	read := d.logOf(t)
	eventually(t, "the last call of each tenant is completed", func() error {
		log := read()
		for _, tenant := range tenants {
			if c := callOf(log, tenant, lastCall); c.text("state") != "completed" {
				return errorf("%s: %v", tenant, c)
			}
		}
		return nil
	})
	log := read()
	apart(t, log, tenants)
	for _, tenant := range tenants {
		eventually(t, tenant+"'s subscriber has heard everything", func() error { return same(heard[tenant](), read(), tenant) })
	}

	for tenant, want := range map[string]struct{ deleted, found string }{
		"acme":   {"allow", "call_after_handoff/call-3"},
		"globex": {"deny", "executed_despite_deny/call-2"},
	} {
		var found []string
		for _, l := range log {
			if l.class == "findings" && l.tenant == tenant && named(l.body.text("rule")) {
				found = append(found, l.body.text("rule")+"/"+nameOf(log, l.body.text("call_id")))
			}
		}
		if !slices.Equal(found, []string{want.found}) {
			t.Errorf("%s: findings %v, want %s", tenant, found, want.found)
		}
		if c := callOf(log, tenant, "call-2"); c.text("verdict") != want.deleted || c.text("state") != "completed" || c.text("source") != tenant+"-runtime" {
			t.Errorf("%s: %v", tenant, c)
		}
	}
	handedOver(t, log)

	// What the log holds of a tenant is how an operator without a ready file knows it.
	d.run(t, "operator", "rules", "set", "--tenant", "globex", "executed_without_verdict", "off").want(t, 0)
	d.run(t, "operator", "rules", "set", "--tenant", "globe", "executed_without_verdict", "off").want(t, 1).oneLine(t, `"globe"`, "--new")
	for tenant, noted := range map[string]bool{"globex": false, "globe": true} {
		r := d.run(t, "operator", "retention", "hold", "--tenant", tenant, "--session", "nobodys", "--reason", "case 6").want(t, 0)
		if got := strings.Contains(r.err, "holds nothing of tenant "+tenant); got != noted {
			t.Errorf("a hold for tenant %s, noted as unknown %v: %s", tenant, got, r.err)
		}
	}
}

// handedOver demands of the finding about the agent that went on after its handoff
// that its call and what proves it name the agents.
func handedOver(t *testing.T, log []logged) {
	t.Helper()
	for name, agent := range map[string]string{"call-1": triage, "call-3": triage, "call-4": finance, lastCall: finance} {
		if got := callOf(log, "acme", name).text("agent"); got != agent {
			t.Errorf("%s is %q's, want %q", name, got, agent)
		}
	}
	for _, l := range log {
		if l.class != "findings" || l.body.text("rule") != "call_after_handoff" {
			continue
		}
		var seen []string
		for _, seq := range l.seqs() {
			if m := log[seq-1]; m.class == "decisions" {
				seen = append(seen, strings.Join([]string{m.tenant, m.body.text("protocol"), m.body.text("agent"), m.body.text("tool"), m.body.text("verdict")}, "/"))
			}
		}
		if want := "acme/handoff/" + triage + "/handoff_to_finance_agent/allow"; !slices.Contains(seen, want) {
			t.Errorf("it is proved by %v, want %s", seen, want)
		}
	}
}

// callOf is the newest record of a tenant's call, by the id that its runtime gave it.
func callOf(log []logged, tenant, name string) (c object) {
	for _, l := range log {
		if l.class == "calls" && l.tenant == tenant && l.body.text("tool_call_id") == name {
			c = l.body
		}
	}
	return c
}

// nameOf is the id that a runtime gave to a call.
func nameOf(log []logged, callID string) string {
	for _, l := range log {
		if l.class == "calls" && l.body.text("call_id") == callID {
			return l.body.text("tool_call_id")
		}
	}
	return ""
}

// apart demands that nothing that was put out for a tenant names, or is proved by,
// what is another's, and that no id or digest is there for two.
func apart(t *testing.T, log []logged, tenants []string) {
	t.Helper()
	owner := map[string]string{}
	claim := func(l logged, name string) {
		id := l.body.text(name)
		if id == "" {
			return
		}
		if of, taken := owner[name+id]; taken && of != l.tenant {
			t.Errorf("%s %s is %s's and %s's", name, id, of, l.tenant)
		}
		owner[name+id] = l.tenant
	}
	count := map[string]int{}
	for _, l := range log {
		switch l.class {
		case "decisions", "calls", "findings":
		default:
			continue
		}
		count[l.tenant+"/"+l.class]++
		if !slices.Contains(tenants, l.tenant) || l.body.text("tenant") != l.tenant || !strings.HasPrefix(l.body.text("source"), l.tenant+"-") {
			t.Errorf("on a subject of %s: %v", l.tenant, l.body)
		}
		for _, name := range []string{"decision_id", "call_id", "finding_id", "args_digest", "request_digest", "receipt_hash"} {
			claim(l, name)
		}
		for _, seq := range l.seqs() {
			if m := log[seq-1]; m.tenant != l.tenant {
				t.Errorf("a finding of %s rests on sequence %d, a message of %s: %v", l.tenant, seq, m.tenant, l.body)
			}
		}
	}
	for _, tenant := range tenants {
		for _, class := range []string{"decisions", "calls", "findings"} {
			if count[tenant+"/"+class] == 0 {
				t.Errorf("no %s of %s", class, tenant)
			}
		}
	}
}

// same compares what a subscriber has heard with what the log holds for it.
func same(heard []*nats.Msg, log []logged, tenant string) error {
	var got, want []string
	for _, m := range heard {
		part := strings.Split(m.Subject, ".")
		var body object
		if err := json.Unmarshal(m.Data, &body); err != nil {
			return err
		}
		if body.text("tenant") != tenant {
			return errorf("%s: %s", m.Subject, m.Data)
		}
		got = append(got, strings.Join(part[1:4], "/")+string(body.bytes()))
	}
	for _, l := range log {
		if l.tenant == tenant && (l.class == "decisions" || l.class == "calls" || l.class == "findings") {
			want = append(want, l.class+"/"+l.tenant+"/"+l.state+string(l.body.bytes()))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return errorf("%d messages heard, %d on the log", len(got), len(want))
	}
	return nil
}
