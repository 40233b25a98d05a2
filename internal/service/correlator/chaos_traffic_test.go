package correlator

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// chaosTraffic is what TestChaos publishes: the same messages each time, to the byte,
// under the same keys. Its scenes have numbers.
type chaosTraffic struct {
	key       signing.PrivateKey
	tenantKey []byte
	admitter  *nats.Conn
	runtime   *nats.Conn
}

// chaosTime is what the messages say that it is; deadlines go by the broker's time.
var chaosTime = time.Date(2026, 11, 20, 9, 2, 0, 0, time.UTC)

// newChaosTraffic also makes the receipt key known to the log.
func newChaosTraffic(t *testing.T, n *servicetest.NATS) *chaosTraffic {
	t.Helper()
	key, err := keys.Receipt(n.Keys)
	servicetest.OK(t, err)
	master, err := keys.Master(n.Keys)
	servicetest.OK(t, err)
	record, err := keys.RecordOf(n.Keys, key.ID)
	servicetest.OK(t, err)
	body, err := events.Encode(record)
	servicetest.OK(t, err)
	n.Publish("admitter", streams.Msg{Subject: subject.Space{}.Control(streams.DefaultShard, events.ControlKey), Body: body})
	return &chaosTraffic{key, master.Tenant(servicetest.Tenant), n.Conn("admitter"), n.Conn("admitter")}
}

const (
	chaosBatch  = 500 // about so many messages are published at once
	chaosScenes = 125 // which are of so many scenes
)

// chaosFrom is the first scene of a batch.
func chaosFrom(batch int) int { return 1000 + 1000*batch }

// send publishes batches; -1 is the last one, which gives an output, so that a cursor
// will cover it.
func (c *chaosTraffic) send(t *testing.T, batches ...int) {
	t.Helper()
	publish := func(nc *nats.Conn, msgs []streams.Msg) {
		ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
		defer cancel()
		servicetest.OK(t, streams.StoreAll(ctx, nc, msgs))
	}
	for _, b := range batches {
		if b < 0 {
			publish(c.runtime, []streams.Msg{lastOfChaos})
			continue
		}
		var admitted, reported []streams.Msg
		var bodies [][]byte
		for k := range chaosScenes {
			if d, decided := c.decision(chaosFrom(b) + k); decided {
				m, body := decisionMessage(t, d)
				admitted, bodies = append(admitted, m), append(bodies, body)
			}
			if b > 0 { // so that a correlator that is killed in between has much in its hands
				_, later := scene(chaosFrom(b-1) + k)
				reported = append(reported, later...)
			}
			now, _ := scene(chaosFrom(b) + k)
			reported = append(reported, now...)
		}
		values, err := c.key.SignRecords(bodies)
		servicetest.OK(t, err)
		for k, v := range values {
			admitted[k].Header[events.HeaderSignature] = []string{v}
		}
		publish(c.admitter, admitted)
		publish(c.runtime, reported)
	}
}

var lastOfChaos = hookMessage("chaos-last", "PreToolUse", 1, 1, "/x", "")

// decision is the verdict on the AgentHook call of a scene, for two of three: most
// allow it, some for other arguments, some until a time that is over.
func (c *chaosTraffic) decision(i int) (d events.Decision, decided bool) {
	if i%3 == 2 {
		return d, false
	}
	verdict, path, expires := events.Allow, "/x", chaosTime.AddDate(100, 0, 0)
	switch {
	case i%6 == 0:
		verdict = events.Deny
	case i%8 == 1:
		verdict = events.Ask
	case i%17 == 0:
		path = "/elsewhere"
	case i%19 == 0:
		expires = chaosTime.Add(-time.Minute)
	}
	at := events.At(chaosTime)
	return events.Decision{
		DecisionID: fmt.Sprintf("decision-%09d", i), EventID: chaosID(2 * i), Tenant: servicetest.Tenant, Protocol: subject.ProtoAgentHook, Source: servicetest.Runtime, Agent: "a",
		Session: chaosSession(i), ToolCallID: fmt.Sprintf("call-%d", i), Tool: "read_file",
		ArgsDigest: digest.Keyed(c.tenantKey, fmt.Appendf(nil, `{"path":"%s"}`, path)), RequestDigest: digest.Keyed(c.tenantKey, fmt.Appendf(nil, "%d", i)),
		Verdict: verdict, NativeVerdict: string(verdict), Reasons: []events.Reason{{Evaluator: "policy", Code: "chaos", Policy: "chaos"}},
		ReceivedAt: at, DecidedAt: at, ExpiresAt: events.At(expires), Durability: "fsync",
	}, true
}

func decisionMessage(t *testing.T, d events.Decision) (streams.Msg, []byte) {
	t.Helper()
	body, err := events.Encode(d)
	servicetest.OK(t, err)
	return streams.Msg{Subject: subject.Space{}.Decision(d.Tenant, string(d.Verdict), d.Session), Body: body,
		Header: cloudevents.Binary(cloudevents.Attributes{ID: d.DecisionID, Source: "/countersign/GOV/admitter", Type: events.TypeDecision, Time: chaosTime})}, body
}

func chaosID(n int) string { return fmt.Sprintf("9a3e5b70-2222-4c22-8d33-%012d", n) }

func chaosSession(i int) string { return fmt.Sprintf("chaos-%d", i/25) }

func hookMessage(session, typ string, id, call int, path, more string) streams.Msg {
	body := fmt.Sprintf(`{"schema_version":1,"event_id":"%s","event_type":"%s","timestamp":"2026-11-20T09:02:00Z","source":"a","session_id":"%s"%s}`,
		chaosID(id), typ, session, more)
	if path != "" {
		body = fmt.Sprintf(`%s,"tool_name":"read_file","tool_input":{"path":"%s"},"metadata":{"tool_call_id":"call-%d"}}`, body[:len(body)-1], path, call)
	}
	return streams.Msg{Subject: "gov.events.acme.rt1.agenthook." + session + "." + typ, Body: []byte(body)}
}

// scene is what a publisher says in a scene, some of it a batch later.
func scene(i int) (now, later []streams.Msg) {
	hook, aaep := hookScene(i), aaepScene(i)
	at, half := len(hook), len(aaep)/2
	if i%4 == 0 {
		at = min(1, len(hook))
	}
	return append(hook[:at:at], aaep[:half]...), append(hook[at:], aaep[half:]...)
}

// hookScene is an AgentHook call: announced, most of them completed, some of them
// twice, some never announced, some failed, some run with other arguments. The last of
// a session ends it, and some come after that.
func hookScene(i int) (msgs []streams.Msg) {
	put := func(typ string, id int, path string) {
		msgs = append(msgs, hookMessage(chaosSession(i), typ, id, i, path, ""))
	}
	if i%7 != 0 {
		put("PreToolUse", 2*i, "/x")
	}
	switch {
	case i%13 == 0:
		put("PostToolUse", 2*i+1, "/y")
	case i%23 == 0:
		put("ErrorOccurred", 2*i+1, "/x")
	case i%5 != 0:
		put("PostToolUse", 2*i+1, "/x")
	}
	if i%11 == 0 {
		put("PreToolUse", 2*i, "/x")
	}
	if i%25 == 23 {
		msgs = append(msgs, hookMessage(chaosSession(i), "SessionEnd", 5_000_000_000+i, i, "", ""))
	}
	return msgs
}

// aaepScene is an AAEP session in one of five scenes. It asks before it does
// what cannot be undone; some do it although they were told not to, some are not told,
// some never end, and some go on after their end.
func aaepScene(i int) (msgs []streams.Msg) {
	if i%5 != 0 {
		return nil
	}
	session := fmt.Sprintf("sess_%016d", i)
	put := func(typ string, members map[string]any) {
		n := len(msgs)
		e := map[string]any{
			"@context": "https://aaep-protocol.org/context/v1", "type": "aaep:agent." + typ, "event_id": fmt.Sprintf("evt_%012d%04d", i, n), "session_id": session,
			"sequence_number": n, "timestamp": chaosTime.Add(time.Duration(n) * time.Second).Format("2006-01-02T15:04:05.000Z"), "producer": map[string]any{"agent_id": "a"},
			"urgency": "normal", "aaep_version": "1.0.0", "localization_hints": map[string]any{"primary_language": "en"}, "summary_normal": "It goes on.",
		}
		subj := "agent." + typ
		if typ == "confirmation.reply" {
			subj, e = typ, map[string]any{"type": typ, "subscription_id": "sub_1", "timestamp": e["timestamp"]}
		}
		for k, v := range members {
			e[k] = v
		}
		body, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		msgs = append(msgs, streams.Msg{Subject: subject.Space{}.Event(servicetest.Tenant, servicetest.Runtime, subject.ProtoAAEP, session, subj), Body: body})
	}
	call := func(tool string, end bool) {
		m := map[string]any{"tool": tool, "tool_call_id": fmt.Sprintf("call_%s%d", tool, i), "irreversible": tool == "transfer", "risk_level": map[bool]string{true: "high", false: "low"}[tool == "transfer"]}
		put("tool.invoked", m)
		if end {
			put("tool.completed", map[string]any{"tool": tool, "tool_call_id": m["tool_call_id"], "status": "success"})
		}
	}
	put("session.started", nil)
	call("lookup", true)
	token := fmt.Sprintf("rpl_%d", i)
	put("awaiting.confirmation", map[string]any{"reply_token": token, "urgency": "critical", "action": "Do it.", "consequence": "It is done.", "timeout_seconds": 36_000,
		"default_decision": "reject", "irreversible": true, "risk_level": "high"})
	switch {
	case i%15 == 0:
		put("confirmation.reply", map[string]any{"reply_token": token, "decision": "reject"})
	case i%35 != 0:
		put("confirmation.reply", map[string]any{"reply_token": token, "decision": "accept"})
	}
	call("transfer", i%25 != 0)
	if i%20 != 0 {
		put("session.completed", nil)
	}
	if i%45 == 0 {
		call("afterwards", true)
	}
	return msgs
}
