package admitter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const payPolicy = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: payments}
spec:
  match: {tools: ["*"]}
  rules:
    - {name: all, when: 'true', verdict: allow, reason: ok}
`

type doc = map[string]any

func encoded(tb testing.TB, d doc, more ...doc) []byte {
	tb.Helper()
	for _, m := range more {
		for k, v := range m {
			d[k] = v
		}
	}
	b, err := json.Marshal(d)
	servicetest.OK(tb, err)
	return b
}

func wireTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

func aaepDoc(typ, id string) doc {
	return doc{
		"@context": "https://aaep-protocol.org/context/v1", "type": "aaep:agent." + typ, "event_id": "evt_" + id, "session_id": "sess_1",
		"timestamp": wireTime(time.Now()), "producer": doc{"agent_id": "bot"}, "summary_normal": "A step.",
	}
}

// transfer is a request for something that cannot be undone.
func transfer(tb testing.TB, call string) []byte {
	return encoded(tb, aaepDoc("tool.invoked", "i"+strings.TrimPrefix(call, "call_")), doc{"tool": "transfer", "tool_call_id": call, "irreversible": true, "risk_level": "high"})
}

// question asks the user about a call.
func question(tb testing.TB, token, call string) streams.Msg {
	body := encoded(tb, aaepDoc("awaiting.confirmation", "q"+strings.TrimPrefix(token, "rpl_")), doc{
		"urgency": "critical", "action": "Transfer", "consequence": "The money is gone.", "reply_token": token, "timeout_seconds": 300,
		"default_decision": "reject", "irreversible": true, "risk_level": "high", "extra_context": doc{"tool_call_id": call},
	})
	return streams.Msg{Subject: "gov.events.acme.rt1.aaep.sess_1.agent.awaiting.confirmation", Body: body}
}

func answerTo(tb testing.TB, user, token, decision string) streams.Msg {
	body := encoded(tb, doc{"type": "confirmation.reply", "reply_token": token, "decision": decision, "subscription_id": "sub_1", "timestamp": wireTime(time.Now())})
	return streams.Msg{Subject: "gov.events.acme." + user + ".aaep.~.confirmation.reply", Body: body}
}

// verdictOn gives verdict and reason codes of an AAEP request.
func verdictOn(tb testing.TB, nc *nats.Conn, body []byte) string {
	tb.Helper()
	d, err := events.DecodeRecord[events.Decision](ask(tb, nc, "gov.admit.acme.aaep", body).Data)
	servicetest.OK(tb, err)
	words := []string{string(d.Verdict)}
	for _, r := range d.Reasons {
		words = append(words, r.Code)
	}
	return strings.Join(words, " ")
}

const (
	unasked  = "ask confirmation_required high_risk_unconfirmed ok"
	accepted = "allow confirmation_accepted ok"
	used     = "ask confirmation_required high_risk_unconfirmed confirmation_used ok"
)

// A confirmation is good for one allow, across restarts and admitters, and what
// was read back is what was there.
func TestConfirmationIsUsedOnce(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "pay.yaml", []byte(payPolicy))
	first := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	want := func(call, want string) {
		t.Helper()
		if got := verdictOn(t, nc, transfer(t, call)); got != want {
			t.Errorf("%s: %s, want %s", call, got, want)
		}
	}
	want("call_1", unasked)
	n.Publish(servicetest.Runtime, question(t, "rpl_1", "call_1"), question(t, "rpl_2", "call_2"), question(t, "rpl_3", "call_3"), question(t, "rpl_4", "call_4"))
	n.Publish(servicetest.Runtime, answerTo(t, servicetest.Runtime, "rpl_1", "accept"))
	want("call_1", accepted) // at once: the answer is in the log
	want("call_1", used)
	n.Publish(servicetest.Runtime, answerTo(t, servicetest.Runtime, "rpl_2", "reject"), answerTo(t, servicetest.Runtime, "rpl_3", "accept"))
	want("call_2", "deny confirmation_declined ok")
	want("call_4", "ask confirmation_required high_risk_unconfirmed confirmation_pending ok")
	servicetest.OK(t, first.Stop())
	serve(t, n)
	want("call_1", used)
	want("call_2", "deny confirmation_declined ok")
	want("call_3", accepted)
	want("call_3", used)
}

// TestConfirmationOfAnEndedSession: the session has ended, and the admitter that decided by the
// acceptance had not read that yet.
func TestConfirmationOfAnEndedSession(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, question(t, "rpl_1", "call_1"), answerTo(t, servicetest.Runtime, "rpl_1", "accept"))
	begin := func() (c *confirmationStore, stop func()) {
		c = newConfirmationStore(unstarted(t, n))
		stop, err := c.start(t.Context(), nil, n.JS("admitter"))
		servicetest.OK(t, err)
		return c, stop
	}
	c, stop := begin()
	i := call.Invocation{Tenant: "acme", Source: servicetest.Runtime, Session: "sess_1", ToolCallID: "call_1", Tool: "transfer", Risk: "high", Irreversible: true, Now: time.Now()}
	found := c.Confirmation(i)
	if found.Status != call.ConfirmationAccepted {
		t.Fatalf("%+v", found)
	}
	out := &admission.Outcome{Decision: events.Decision{DecisionID: "d1", ToolCallID: "call_1"}}
	out.Consumption.Confirmation, out.Consumption.ConfirmedInvocation = found.ID, &i
	stop()
	n.Publish(servicetest.Runtime, streams.Msg{
		Subject: "gov.events.acme.rt1.aaep.sess_1.agent.session.cancelled", Body: encoded(t, aaepDoc("session.cancelled", "end"), doc{"cancelled_by": "user"}),
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.reserve(ctx, admission.Request{}, out); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("by one that cannot read the log: %v", err)
	}
	c, stop = begin()
	defer stop()
	if _, err := c.reserve(t.Context(), admission.Request{}, out); !errors.Is(err, errConflict) {
		t.Errorf("by one that has read the end meanwhile: %v", err)
	}
}

// Of many that ask at the same time, through two admitters, one is allowed. A
// machine that is too busy to record decisions in time denies some, the one that
// had the confirmation among them, perhaps: then it is there for the next.
func TestConfirmationRace(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "pay.yaml", []byte(payPolicy))
	serve(t, n)
	serve(t, n)
	n.Publish(servicetest.Runtime, question(t, "rpl_1", "call_1"))
	n.Publish(servicetest.Runtime, answerTo(t, servicetest.Runtime, "rpl_1", "accept"))
	got := make([]string, 24)
	var wg sync.WaitGroup
	nc := n.Conn(servicetest.Runtime)
	for i := range got {
		wg.Go(func() { got[i] = verdictOn(t, nc, transfer(t, "call_1")) })
	}
	wg.Wait()
	heard := 0
	for _, verdict := range got {
		switch {
		case verdict == accepted:
			heard++
		case verdict != used && !strings.HasSuffix(verdict, " audit_unavailable") && !strings.Contains(verdict, " confirmation_pending "):
			t.Error(verdict)
		}
	}
	recorded := allowedAfterReply(t, n)
	if recorded == 0 {
		servicetest.Eventually(t, "it is given back and used", func() bool { return verdictOn(t, nc, transfer(t, "call_1")) == accepted })
		heard, recorded = 1, allowedAfterReply(t, n)
	}
	if recorded != 1 || heard > 1 {
		t.Errorf("%d allows recorded, %d heard: %v", recorded, heard, got)
	}
}

// allowedAfterReply counts the allows on the log, which must follow the reply.
func allowedAfterReply(t *testing.T, n *servicetest.NATS) (yes int) {
	t.Helper()
	replied := false
	for _, m := range n.Log() {
		switch {
		case strings.HasPrefix(m.Subject, "gov.decisions.acme.allow."):
			yes++
			if !replied {
				t.Errorf("allowed at %d, before the reply", m.Seq)
			}
		case strings.HasSuffix(m.Subject, ".confirmation.reply"):
			replied = true
		}
	}
	return yes
}

// Where a tenant's registrations tell producer and user apart, only the user's publisher answers, after a restart of the
// admitter too: it knows the registrations before it reads the answers.
func TestConfirmationRepliers(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "pay.yaml", []byte(payPolicy))
	const front = `{"schema": "https://schemas.countersign.dev/countersign/publisher-registration/v1", "publisher": "rt2", "answers_confirmations": true}`
	_, err := bucket(t, n, "operator", streams.BucketPublishers).Put(t.Context(), publisher.Key(servicetest.Tenant, "registration.rt2"), []byte(front))
	servicetest.OK(t, err)
	s := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	n.Publish(servicetest.Runtime, question(t, "rpl_1", "call_1"), answerTo(t, servicetest.Runtime, "rpl_1", "accept"))
	servicetest.Eventually(t, "the question is known, and the runtime's own answer does not count", func() bool {
		return strings.Contains(verdictOn(t, nc, transfer(t, "call_1")), "ask confirmation_required high_risk_unconfirmed confirmation_pending")
	})
	n.Publish("rt2", answerTo(t, "rt2", "rpl_1", "accept"))
	servicetest.OK(t, s.Stop())
	serve(t, n)
	if got := verdictOn(t, nc, transfer(t, "call_1")); got != accepted {
		t.Error(got)
	}
}

// The memory of confirmations reads the tenant's catalogue: a confirmation that names no call is used by an invocation
// that came without asking and is grave by the catalogue alone.
func TestConfirmationsKnowTheCatalogue(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "pay.yaml", []byte(payPolicy))
	const tools = `{"schema":"https://schemas.countersign.dev/countersign/tool-catalogue/v1","name":"desk","tools":[{"name":"bank.transfer","aliases":["transfer"],"irreversible":true}]}`
	_, err := bucket(t, n, "operator", streams.BucketPublishers).Put(t.Context(), publisher.Key(servicetest.Tenant, toolsName), []byte(tools))
	servicetest.OK(t, err)
	asked := question(t, "rpl_1", "call_1")
	asked.Body = bytes.Replace(asked.Body, []byte(`"tool_call_id":"call_1"`), []byte(`"desk":1`), 1)
	ran := streams.Msg{Subject: "gov.events.acme.rt1.aaep.sess_1.agent.tool.invoked",
		Body: encoded(t, aaepDoc("tool.invoked", "i9"), doc{"tool": "transfer", "tool_call_id": "call_9"})}
	n.Publish(servicetest.Runtime, asked, answerTo(t, servicetest.Runtime, "rpl_1", "accept"), ran)
	serve(t, n)
	if got := verdictOn(t, n.Conn(servicetest.Runtime), transfer(t, "call_1")); got != unasked {
		t.Error(got)
	}
}

// What was taken for a decision that could not be recorded is given back.
func TestConfirmationIsGivenBack(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	c := newConfirmationStore(s)
	stop, err := c.start(t.Context(), nil, n.JS("admitter"))
	servicetest.OK(t, err)
	defer stop()
	d := events.Decision{DecisionID: "d1", ToolCallID: "call_1"}
	for range 2 {
		got, err := c.markUsed(t.Context(), "acme.rt1.x", d)
		servicetest.OK(t, err)
		if _, err := c.markUsed(t.Context(), "acme.rt1.x", d); !isAgain(err) {
			t.Errorf("used twice: %v", err)
		}
		got.release(t.Context())
	}
}

// An answer that is too old to be read back is not waited for.
func TestOldAnswersAreNotWaitedFor(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	n.Publish(servicetest.Runtime, question(t, "rpl_1", "call_1"), answerTo(t, servicetest.Runtime, "rpl_1", "accept"))
	s := unstarted(t, n)
	c := newConfirmationStore(s)
	c.lookback = -time.Hour
	stop, err := c.start(t.Context(), nil, n.JS("admitter"))
	servicetest.OK(t, err)
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c.watermark.await(ctx, 2) != nil {
		t.Errorf("it waits for the answer at 2; it has read up to %d", c.watermark.position)
	}
}

func isAgain(err error) bool { return err != nil && strings.Contains(err.Error(), errConflict.Error()) }

// A log that was created anew is read from its beginning; until then nothing
// counts as confirmed.
func TestConfirmationsOfAnotherLog(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	c := newConfirmationStore(s)
	stop, err := c.start(t.Context(), nil, n.JS("admitter"))
	servicetest.OK(t, err)
	defer stop()
	n.Publish(servicetest.Runtime, question(t, "rpl_1", "call_1"))
	servicetest.Eventually(t, "the question is read", func() bool { return c.watermark.await(t.Context(), 1) == nil })
	n.Stop()
	n.Recreate()
	n.Publish(servicetest.Runtime, question(t, "rpl_2", "call_2"), question(t, "rpl_3", "call_3"))
	servicetest.Eventually(t, "the new log is read", func() bool {
		at, _ := c.watermark.current()
		return at == 2
	})
	servicetest.Eventually(t, "health says so", func() bool { return s.env.Health.Report().Problems["confirmations"] == "" })
}
