package audit

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

// The log that the auditor's benchmark reads: calls as a governed runtime makes them, seven
// messages each. One call in eight holds something to redact.
const (
	messagesPerCall = 7
	callsPerSession = 10
	callsPerRound   = 140 // calls of a batch; it has their messages of one kind
)

// auditLog fills the log of a pipeline that runs no services.
type auditLog struct {
	space     subject.Space
	tenant    string
	publisher string
	services  func(service string) daemon.Flags
	conns     map[string]*nats.Conn
}

// openAuditLog connects as the services that write the log.
func openAuditLog(ctx context.Context, t *target.Target, p *pipeline.Pipeline) (*auditLog, error) {
	l := &auditLog{space: subject.Space{Prefix: t.Prefix}, tenant: t.Tenant, publisher: t.Publisher(), conns: map[string]*nats.Conn{}}
	l.services = func(service string) daemon.Flags {
		return daemon.Flags{Server: t.ReadyInfo().NATSURL, User: service, Password: p.Service(streams.Role(service)).Password, Prefix: t.Prefix, Stream: t.Stream, Keys: p.KeysDir()}
	}
	var err error
	for _, service := range []string{"admitter", "correlator"} {
		f := l.services(service)
		u := streams.User{Name: f.User}
		if l.conns[service], err = streams.Connect(ctx, streams.ConnectOptions{URL: f.Server, User: f.User, Password: f.Password, InboxPrefix: u.Inbox(), Name: "bench " + service}); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

func (l *auditLog) close() {
	for _, nc := range l.conns {
		nc.Close()
	}
}

// fill writes about n messages and returns how many.
func (l *auditLog) fill(ctx context.Context, n int) (wrote int, err error) {
	for call := 0; wrote < n; {
		round := map[string][]streams.Msg{}
		for range callsPerRound {
			for who, msgs := range l.call(call) {
				round[who] = append(round[who], msgs...)
			}
			call++
		}
		for _, part := range []struct {
			of, by string // the admitter puts the runtime's events on the log
		}{{"admitter", "admitter"}, {"runtime", "admitter"}, {"correlator", "correlator"}} {
			if err := streams.StoreAll(ctx, l.conns[part.by], round[part.of]); err != nil {
				return wrote, fmt.Errorf("filling the log: %w", err)
			}
			wrote += len(round[part.of])
		}
	}
	return wrote, nil
}

// call returns the messages of one call, by writer: request and decision, the events before and
// after it, the correlator's two records and its cursor.
func (l *auditLog) call(n int) map[string][]streams.Msg {
	c := sampleCall{n: n, session: sampleSession(n / callsPerSession), id: fmt.Sprintf("call-%08d", n), decision: fmt.Sprintf("01997d40-7a44-7a8e-9d0b-%012d", n),
		args: "hmac-sha256:" + randomHex(), at: events.At(time.Date(2026, 11, 20, 9, 0, 0, n*1000, time.UTC))}
	open, done := c.records(l)
	pre := c.pre()
	return map[string][]streams.Msg{
		"admitter": {
			{Subject: l.space.Request(l.tenant, l.publisher, subject.ProtoAgentHook, c.session), Header: map[string][]string{events.HeaderDecisionID: {c.decision}}, Body: pre},
			c.record(l.space.Decision(l.tenant, string(events.Allow), c.session), c.decision, events.TypeDecision, c.verdict(l)),
		},
		"runtime": {
			{Subject: l.space.Event(l.tenant, l.publisher, subject.ProtoAgentHook, c.session, "PreToolUse"), Body: pre},
			{Subject: l.space.Event(l.tenant, l.publisher, subject.ProtoAgentHook, c.session, "PostToolUse"), Body: c.post()},
		},
		"correlator": {
			c.record(l.space.Call(l.tenant, string(open.State), c.session), open.CallID+"-open", events.TypeCall, open),
			c.record(l.space.Call(l.tenant, string(done.State), c.session), done.CallID+"-completed", events.TypeCall, done),
			c.record(l.space.Control(streams.DefaultShard, events.ControlCursor), fmt.Sprintf("cursor-%d", n), events.TypeControl,
				events.Cursor{Shard: "GOV@20261120T090000.000000000Z", Consumed: uint64(n), Outputs: 2, Writer: "bench"}),
		},
	}
}

// sampleCall is one call of the log.
type sampleCall struct {
	n                           int
	session, id, decision, args string
	at                          events.Time
}

func (c sampleCall) pre() []byte {
	to := "meeting-room-4"
	if c.n%8 == 0 {
		to = "dana@acme.example"
	}
	return fmt.Appendf(nil, `{"schema_version":1,"event_id":"6f1d2c1e-7a44-4a8e-9d0b-%012d","event_type":"PreToolUse","timestamp":%q,"source":"mail-agent","session_id":%q,`+
		`"evidence_phase":"pre_commit","tool_name":"send_message","tool_input":{"to":%q,"subject":"Minutes of Thursday, part %d","body":"All figures are final; see the table on page %d."},`+
		`"action":"send","resource_kind":"message","resource":"outbox","resource_scope":"internal_network","operation_risk":"write","metadata":{"tool_call_id":%q}}`,
		c.n, c.at.String(), c.session, to, c.n%97, c.n%13, c.id)
}

func (c sampleCall) post() []byte {
	return fmt.Appendf(nil, `{"schema_version":1,"event_id":"7f1d2c1e-7a44-4a8e-9d0b-%012d","event_type":"PostToolUse","timestamp":%q,"source":"mail-agent","session_id":%q,`+
		`"evidence_phase":"post_hoc","tool_name":"send_message","tool_input":{"subject":"Minutes of Thursday, part %d"},"action":"send","resource_kind":"message","resource":"outbox",`+
		`"metadata":{"tool_call_id":%q,"execution":{"started_at":%q,"completed_at":%q,"outcome":"succeeded","duration_ms":%d}}}`,
		c.n, c.at.String(), c.session, c.n%97, c.id, c.at.String(), c.at.String(), c.n%700)
}

func (c sampleCall) verdict(l *auditLog) events.Decision {
	return events.Decision{
		DecisionID: c.decision, EventID: fmt.Sprintf("6f1d2c1e-7a44-4a8e-9d0b-%012d", c.n), Tenant: l.tenant, Protocol: subject.ProtoAgentHook, Source: l.publisher, Agent: "mail-agent",
		Session: c.session, ToolCallID: c.id, Occurrence: 1, Tool: "send_message", Action: "send", ResourceKind: "message", ArgsDigest: c.args, RequestDigest: "hmac-sha256:" + randomHex(),
		Verdict: events.Allow, NativeVerdict: "allow", Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "internal_message", Policy: "mail/internal"}, {Evaluator: "agenthook", Code: "valid"}},
		Policy:     &events.PolicyRef{Name: "mail", Revision: 4, Digest: "sha256:" + strings.Repeat("a1b2c3d4", 8)},
		ReceivedAt: c.at, DecidedAt: c.at, ExpiresAt: events.At(c.at.Add(time.Minute)), ReceiptHash: "sha256:" + randomHex(), Durability: "fsync",
	}
}

func (c sampleCall) records(l *auditLog) (open, done events.Call) {
	open = events.Call{
		CallID: fmt.Sprintf("c-%012d", c.n), Tenant: l.tenant, Source: l.publisher, Protocol: subject.ProtoAgentHook, Agent: "mail-agent", Session: c.session, ToolCallID: c.id, Occurrence: 1,
		Tool: "send_message", State: events.CallOpen, Timeline: []events.TimelineEntry{{Step: "requested", Seq: uint64(c.n + 1), At: c.at}},
	}
	done = open
	done.Verdict, done.DecisionID, done.DecisionSeq, done.AdmittedDigest = events.Allow, c.decision, uint64(c.n+2), c.args
	done.State, done.Outcome, done.ExecutionSeq, done.ExecutedDigest, done.Match = events.CallCompleted, "succeeded", uint64(c.n+9), c.args, "equal"
	done.Timeline = append(open.Timeline[:1:1], events.TimelineEntry{Step: "decided", Seq: uint64(c.n + 2), At: c.at},
		events.TimelineEntry{Step: "completed", Seq: uint64(c.n + 9), At: c.at})
	return open, done
}

// record returns a message of one of the services. A decision gets a signature that is not valid;
// the benchmark does not check it.
func (c sampleCall) record(subj, id, typ string, v any) streams.Msg {
	body, err := events.Encode(v)
	if err != nil {
		panic(err) // the benchmark made v
	}
	h := cloudevents.Binary(cloudevents.Attributes{ID: id, Source: "/countersign/GOV/bench", Type: typ, Time: c.at.Time})
	if typ == events.TypeDecision {
		h[events.HeaderSignature] = []string{"eyJhbGciOiJFZERTQSIsImtpZCI6ImJlbmNoIn0.." + randomText(64)}
	}
	return streams.Msg{Subject: subj, Header: h, Body: body}
}

func sampleSession(n int) string { return fmt.Sprintf("bench-session-%08d", n) }

func randomHex() string { return fmt.Sprintf("%x", randomBytes(32)) }

func randomText(n int) string { return base64.RawURLEncoding.EncodeToString(randomBytes(n)) }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}
