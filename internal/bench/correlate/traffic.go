package correlate

import (
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

const (
	trafficPerSession = 50  // calls
	trafficGroup      = 100 // calls with decisions that share a signature, as those of a busy admitter do
	trafficMessages   = 6   // of one call in both protocols
)

// traffic makes the messages that the measurements put on the log: calls that break no rule. AgentHook: a request, its decision, the
// pre and the post event. AAEP: an invocation and its completion.
type traffic struct {
	Tenant, Source string
	Key            signing.PrivateKey
	TenantKey      []byte
}

// subject is the subject of an event of a session.
func (t traffic) subject(protocol, session, typ string) string {
	return subject.Space{}.Event(t.Tenant, t.Source, protocol, session, typ)
}

func trafficSession(i int) string { return fmt.Sprintf("s%06d", i/trafficPerSession) }

func trafficID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

const trafficInput = `{"path":"/srv/reports/2026/q4.csv","mode":"append","content":"All figures are final and were checked against the ledger."}`

// hookEvent is an AgentHook event of call i, of some 600 B.
func (t traffic) hookEvent(i int, id, typ string, now time.Time, metadata, more string) []byte {
	return fmt.Appendf(nil, `{"schema_version":1,"event_id":"%s","event_type":"%s","timestamp":"%s","source":"bench-agent","session_id":"%s",`+
		`"agent_id":"bench","tool_name":"write_file","action":"write","resource_kind":"file","resource":"/srv/reports/2026/q4.csv",`+
		`"resource_scope":"workspace","operation_risk":"reversible_write","metadata":{"tool_call_id":"call-%d"%s}%s}`,
		id, typ, stamp(now), trafficSession(i), i, metadata, more)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// pre is the PreToolUse of call i.
func (t traffic) pre(i int, now time.Time) []byte {
	return t.hookEvent(i, trafficID(2*i), "PreToolUse", now, "", `,"evidence_phase":"pre_commit","tool_input":`+trafficInput)
}

func (t traffic) post(i int, now, ran time.Time) []byte {
	at := stamp(ran)
	return t.hookEvent(i, trafficID(2*i+1), "PostToolUse", now,
		`,"tool_input_executed":`+trafficInput+`,"execution":{"outcome":"succeeded","started_at":"`+at+`","completed_at":"`+at+`"}`,
		`,"correlation_id":"`+trafficID(2*i)+`"`)
}

func (t traffic) aaepEvent(i, n int, typ string, now time.Time, more string) []byte {
	return fmt.Appendf(nil, `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.%s","event_id":"evt_%d","session_id":"sess_%s",`+
		`"timestamp":"%s","producer":{"agent_id":"bench"},"summary_normal":"A step of the report.","localization_hints":{"primary_language":"en"}%s}`,
		typ, 3*i+n, trafficSession(i), stamp(now), more)
}

// decision is the admitter's record of call i.
func (t traffic) decision(i int, body []byte, now time.Time) events.Decision {
	return events.Decision{
		DecisionID: fmt.Sprintf("decision-%012d", i), EventID: trafficID(2 * i), Tenant: t.Tenant, Protocol: subject.ProtoAgentHook, Source: t.Source,
		Agent: "bench", Session: trafficSession(i), ToolCallID: fmt.Sprintf("call-%d", i), Tool: "write_file",
		ArgsDigest: digest.Keyed(t.TenantKey, trafficCanonical), RequestDigest: digest.Keyed(t.TenantKey, body),
		Verdict: events.Allow, NativeVerdict: "allow", Reasons: []events.Reason{{Evaluator: "policy", Code: "small_write", Policy: "bench"}},
		ReceivedAt: events.At(now), DecidedAt: events.At(now), ExpiresAt: events.At(now.Add(time.Hour)), Durability: "fsync",
	}
}

// trafficCanonical is the RFC 8785 form of trafficInput.
var trafficCanonical = []byte(`{"content":"All figures are final and were checked against the ledger.","mode":"append","path":"/srv/reports/2026/q4.csv"}`)

// admitted returns the requests and decisions of n calls, as the admitter writes them; reported
// returns the runtime's events.
func (t traffic) admitted(from, n int, now time.Time) ([]streams.Msg, error) {
	var msgs []streams.Msg
	var bodies [][]byte
	var at []int
	for i := from; i < from+n; i++ {
		request := t.pre(i, now)
		d := t.decision(i, request, now)
		body, err := events.Encode(d)
		if err != nil {
			return nil, err
		}
		header := cloudevents.Binary(cloudevents.Attributes{ID: d.DecisionID, Source: "/countersign/GOV/admitter", Type: events.TypeDecision, Time: now})
		msgs = append(msgs,
			streams.Msg{Subject: t.subject(subject.ProtoAgentHook, trafficSession(i), subject.TypeRequest), Body: request,
				Header: map[string][]string{events.HeaderDecisionID: {d.DecisionID}}},
			streams.Msg{Subject: subject.Space{}.Decision(t.Tenant, string(d.Verdict), d.Session), Body: body, Header: header})
		bodies, at = append(bodies, body), append(at, len(msgs)-1)
	}
	values, err := t.Key.SignRecords(bodies)
	for i, v := range values {
		msgs[at[i]].Header[events.HeaderSignature] = []string{v}
	}
	return msgs, err
}

// reported returns the events of n calls. The event that announces a call repeats the request, so
// its time is asked. The call runs later, at ran: a disk that delays decisions for seconds cannot
// make a call begin before its verdict.
func (t traffic) reported(from, n int, asked, ran time.Time) (msgs []streams.Msg) {
	for i := from; i < from+n; i++ {
		at := func(typ string) string { return t.subject(subject.ProtoAgentHook, trafficSession(i), typ) }
		msgs = append(msgs, streams.Msg{Subject: at("PreToolUse"), Body: t.pre(i, asked)}, streams.Msg{Subject: at("PostToolUse"), Body: t.post(i, asked, ran)})
		msgs = append(msgs, t.lookup(i, asked)...)
	}
	return msgs
}

// lookup returns the AAEP messages of a call; the first call of a session starts the session.
func (t traffic) lookup(i int, now time.Time) (msgs []streams.Msg) {
	session := "sess_" + trafficSession(i)
	put := func(typ, more string) {
		body := t.aaepEvent(i, len(msgs), typ, now, more)
		msgs = append(msgs, streams.Msg{Subject: t.subject(subject.ProtoAAEP, session, "agent."+typ), Body: body})
	}
	if i%trafficPerSession == 0 {
		put("session.started", "")
	}
	call := fmt.Sprintf(`,"tool":"lookup","tool_call_id":"call_%d"`, i)
	put("tool.invoked", call)
	put("tool.completed", call+`,"status":"success"`)
	return msgs
}
