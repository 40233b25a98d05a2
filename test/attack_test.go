package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// weapons are subjects that an attacker wants something to land on.
var weapons = []string{
	"gov.decisions.acme.allow.s-attack", "gov.calls.acme.completed.s-attack", "gov.approvals.acme.approved.wf-1", "gov.control.GOV.key",
	"gov.control.GOV.cursor", "gov.events.acme.acme-runtime.agenthook.s-attack.request", "gov.events.acme.other.agenthook.s-attack.PreToolUse",
	"$KV.policies.mail", "$KV.keys.k1", "$JS.API.STREAM.DELETE.GOV", "$JS.API.STREAM.PURGE.GOV", "gov.admit.acme.agenthook", "gov.quarantine.acme",
}

// stillWell expects that a following admission works and that the policies are
// what they were.
func stillWell(t *testing.T, s *system, r runtimeClient, policies string) {
	t.Helper()
	call := allowedCall("s-attack-after", "call-"+strings.ReplaceAll(t.Name(), "/", "-"))
	a := r.admit(t, "agenthook", call.bytes())
	if a.verdict != "allow" {
		t.Errorf("a following admission is answered %s: %s", a.verdict, a.msg.Data)
	}
	if _, err := message(s.connect(t, "operator"), "GOV", object{"seq": a.seq}); err != nil {
		t.Errorf("its decision is not on the log: %v", err)
	}
	if now := s.run(t, "policy", "list", "--json").want(t, 0).out; now != policies {
		t.Errorf("the policies changed:\n%s\n%s", policies, now)
	}
}

// untouched expects that nothing of the attack is in the evidence: what is on
// the weapons' subjects would be a success of it.
func untouched(t *testing.T, s *system) {
	t.Helper()
	s.exact(t)
	db := s.auditors(t)
	for _, w := range weapons {
		if n := number(t, db, "SELECT count() FROM evidence WHERE subject = ?", w); n > 0 && w != "gov.control.GOV.key" && w != "gov.control.GOV.cursor" {
			t.Errorf("%d messages landed on %s", n, w)
		}
	}
	if n := number(t, db, "SELECT count() FROM evidence WHERE subject = 'gov.control.GOV.key'"); n != 1 {
		t.Errorf("%d key records, want the admitter's one", n)
	}
	if n := number(t, db, "SELECT count() FROM findings WHERE rule = 'forged_record'"); n != 0 {
		t.Errorf("%d forged records got onto the log", n)
	}
	// Every decision has its request right before it and was made by the admitter.
	if n := number(t, db, "SELECT count() FROM decisions WHERE source != 'acme-runtime'"); n != 0 {
		t.Errorf("%d decisions for a source that is not the runtime's", n)
	}
	s.verified(t, 0)
}

// Whatever a runtime aims by the reply subject of its publishes, it lands
// nowhere (field-notes.md, reply subjects are weapons).
func TestAttackReplySubjects(t *testing.T) {
	t.Parallel()
	s := amongOthers(t)
	r := s.runtime(t)
	policies := s.run(t, "policy", "list", "--json").want(t, 0).out
	for i, w := range weapons {
		event := hook("s-aim", "SessionStart")
		ok(t, r.nc.PublishMsg(&nats.Msg{Subject: event.subject(r), Reply: w, Data: event.bytes()}))
		request := allowedCall("s-aim", fmt.Sprint("call-", i))
		ok(t, r.nc.PublishMsg(&nats.Msg{Subject: "gov.admit.acme.agenthook", Reply: w, Data: request.bytes()}))
	}
	ok(t, r.nc.Flush())
	stillWell(t, s, r, policies)
	untouched(t, s)
}

// permissions collects what the server refuses a connection.
type permissions struct {
	mu      sync.Mutex
	refused []string
}

func (p *permissions) handler(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = append(p.refused, err.Error())
}

func (p *permissions) has(kind, subject string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.refused {
		if strings.Contains(r, kind) && strings.Contains(r, `"`+subject+`"`) {
			return true
		}
	}
	return false
}

// Claiming a message id first does not make another publisher's message vanish.
func TestAttackMessageID(t *testing.T) {
	t.Parallel()
	s := amongOthers(t)
	r := s.runtime(t)
	policies := s.run(t, "policy", "list", "--json").want(t, 0).out
	event := hook("s-id", "SessionStart")
	claim := func(id string) *nats.Msg {
		return &nats.Msg{Subject: event.subject(r), Header: nats.Header{"Nats-Msg-Id": {id}}, Data: event.bytes()}
	}
	call := allowedCall("s-id", "call-1")
	first := r.admit(t, "agenthook", call.bytes())
	for _, id := range []string{call.text("event_id"), first.id, "decision-1", "key", "cursor-1-0", "barrier-1"} {
		_, err := r.nc.RequestMsg(claim(id), patience)
		ok(t, err)
	}
	// The same request with ids that were claimed before.
	m := &nats.Msg{Subject: "gov.admit.acme.agenthook", Header: nats.Header{"Nats-Msg-Id": {first.id}}, Data: call.bytes()}
	reply, err := r.nc.RequestMsg(m, patience)
	ok(t, err)
	if id := reply.Header.Get("Countersign-Decision-Id"); reply.Header.Get("Countersign-Verdict") != "allow" || id == first.id {
		t.Errorf("answered %v", reply.Header)
	}
	stillWell(t, s, r, policies)
	untouched(t, s)
}

// Headers that steer the server do nothing for a runtime.
func TestAttackSteeringHeaders(t *testing.T) {
	t.Parallel()
	s := amongOthers(t)
	r := s.runtime(t)
	policies := s.run(t, "policy", "list", "--json").want(t, 0).out
	before := lastSeq(t, s.connect(t, "operator"))
	steering := []nats.Header{
		{"Nats-Rollup": {"all"}}, {"Nats-Rollup": {"sub"}}, {"Nats-TTL": {"1s"}}, {"Nats-Incr": {"1"}}, {"Nats-Expected-Last-Sequence": {"0"}},
		{"Nats-Expected-Stream": {"OTHER"}}, {"Nats-Schedule": {"@at 2030-01-01T00:00:00Z"}, "Nats-Schedule-Target": {weapons[0]}},
		{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"7"}, "Nats-Batch-Commit": {"1"}},
	}
	for _, h := range steering {
		event := hook("s-steer", "SessionStart")
		if seq, err := r.store(&nats.Msg{Subject: event.subject(r), Header: h, Data: event.bytes()}); err == nil {
			t.Errorf("%v was stored at %d", h, seq)
		}
		// The admitter must not pass such a header on.
		call := allowedCall("s-steer", "call-"+strings.ToLower(fmt.Sprint(len(h), h.Get("Nats-Rollup"))))
		reply, err := r.nc.RequestMsg(&nats.Msg{Subject: "gov.admit.acme.agenthook", Header: h, Data: call.bytes()}, patience)
		ok(t, err)
		if reply.Header.Get("Countersign-Verdict") != "allow" {
			t.Errorf("a request with %v is answered %v", h, reply.Header)
		}
	}
	s.exact(t)
	if now := lastSeq(t, s.connect(t, "operator")); now < before+2*uint64(len(steering)) {
		t.Errorf("the log went from %d to %d", before, now)
	}
	stillWell(t, s, r, policies)
	untouched(t, s)
}

// Only the server's stamp identifies the caller; what a body says about its sender is a claim.
func TestAttackForgedIdentity(t *testing.T) {
	t.Parallel()
	s := amongOthers(t)
	r := s.runtime(t)
	policies := s.run(t, "policy", "list", "--json").want(t, 0).out
	lie := `{"acc":"tenant-globex:mallory","user":"mallory","svc":"x"}`
	for i, name := range []string{"Nats-Request-Info", "nats-request-info", "NATS-REQUEST-INFO"} {
		call := allowedCall("s-lie", fmt.Sprint("call-", i)).with("agent_id", "mallory").with("source", "mallory")
		m := &nats.Msg{Subject: "gov.admit.acme.agenthook", Header: nats.Header{name: {lie, lie}}, Data: call.bytes()}
		reply, err := r.nc.RequestMsg(m, patience)
		ok(t, err)
		// Either the lie is refused outright or the truth is taken; never the lie.
		if v := reply.Header.Get("Countersign-Verdict"); v != "allow" && v != "deny" {
			t.Errorf("%s: %v", name, reply.Header)
		}
	}
	s.settle(t)
	if n := number(t, s.auditors(t), "SELECT count() FROM evidence WHERE kind IN ('decision', 'request') AND (tenant = 'globex' OR subject LIKE '%mallory%')"); n != 0 {
		t.Errorf("%d records believe the lie", n)
	}
	if n := number(t, s.auditors(t), "SELECT count() FROM decisions WHERE session = 's-lie' AND verdict = 'allow' AND source = 'mallory'"); n != 0 {
		t.Errorf("%d verdicts for somebody else", n)
	}
	stillWell(t, s, r, policies)
	s.exact(t)
	s.verified(t, 0)
}

// An attacker with the admitter's NATS password, but not its key, can write a decision; the
// decision does not count and is found. No answer that has it is proved.
func TestForgedDecision(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.runtime(t)
	heard := listen(t, s, "gov.findings.acme.>")
	call := deniedCall("s-forged", "call-1")
	honest := r.admit(t, "agenthook", call.bytes())
	genuine, err := message(s.connect(t, "operator"), "GOV", object{"seq": honest.seq})
	ok(t, err)
	thief := s.service(t, "admitter")
	forgery := strings.Replace(string(genuine.Data), `"verdict":"deny"`, `"verdict":"allow"`, 1)
	if forgery == string(genuine.Data) {
		t.Fatal("nothing to forge")
	}
	for _, h := range []nats.Header{{}, {"Countersign-Signature": {strings.TrimSpace(headerOf(genuine.Header, "Countersign-Signature"))}}} {
		reply, err := thief.RequestMsg(&nats.Msg{Subject: "gov.decisions.acme.allow.s-forged", Header: h, Data: []byte(forgery)}, patience)
		ok(t, err)
		if strings.Contains(string(reply.Data), "error") {
			t.Fatalf("the forgery did not get onto the log: %s", reply.Data)
		}
		forgery += " "
	}
	r.publish(t, call)
	r.publish(t, postToolUse(call))
	s.exact(t)
	expect(t, s, heard, "s-forged", []string{"executed_despite_deny/critical", "forged_record/critical", "forged_record/critical"})
	rep, _ := s.report(t)
	if rep.OK || !strings.Contains(fmt.Sprint(rep.Problems), "decision_") {
		t.Errorf("verify says %+v", rep)
	}
	signed(t, s)
	answer := s.run(t, "chain", "--session", "s-forged", "--json", "--proved").want(t, 0)
	if strings.Contains(answer.out, `"proved":true`) || !strings.Contains(answer.err, "problems in the verified records, the first decision_unsigned") {
		t.Errorf("an answer with forged decisions is proved: %s\n%s", answer.out, answer.err)
	}
}

// headerOf reads a header out of a stored message's header block.
func headerOf(block []byte, name string) string {
	for _, line := range strings.Split(string(block), "\r\n") {
		if v, is := strings.CutPrefix(line, name+":"); is {
			return v
		}
	}
	return ""
}
