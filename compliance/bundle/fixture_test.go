package bundle

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/internal/testkit"
)

const shard = evidencetest.Shard

var (
	begin = evidencetest.Start
	ok    = testkit.OK
)

// world is a log with evidence of it.
type world struct {
	*evidencetest.Fixture
	policy  *events.PolicyRef // that decisions name
	expired map[uint64]uint64 // the record of the expiry, by the sequence of a record without its text
}

func newWorld(t testing.TB) *world {
	t.Helper()
	f := evidencetest.New(t)
	f.Step = time.Second
	return &world{Fixture: f, expired: map[uint64]uint64{}}
}

// everything is a log with one of everything.
func everything(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.Session()
	return w
}

// size is the number of messages.
func (w *world) size() int { return int(w.Tree.Size()) }

// time is when message n was logged.
func (w *world) time(n int) time.Time { return begin.Add(time.Duration(n-1) * w.Step) }

// rows are the rows of the log as the database has them.
func (w *world) rows() []evidence.Row {
	rows := w.Rows()
	for i, r := range rows {
		if w.expired[r.Seq] > 0 {
			rows[i].Record, rows[i].Expiry = "", w.expired[r.Seq]
		}
	}
	return rows
}

// call logs a request, its decision, and what ran.
func (w *world) call(tenant, session string, verdict events.Verdict) {
	w.T.Helper()
	s := subject.Space{}
	id := fmt.Sprintf("0199a000-0000-7000-8000-%012d", w.size())
	body := []byte(`{"event_type":"PreToolUse","tool_name":"send_email","metadata":{"tool_call_id":"c1"},"tool_input":{"to":"a@example.invalid"}}`)
	w.Log(s.Request(tenant, "runtime-1", "agenthook", session), map[string][]string{events.HeaderDecisionID: {id}}, body)
	w.Decision(events.Decision{DecisionID: id, Tenant: tenant, Protocol: "agenthook", Source: "runtime-1", Session: session, ToolCallID: "c1", Tool: "send_email", Agent: "bot",
		RequestDigest: digest.Keyed(w.Keys.TenantKey(tenant), body), Verdict: verdict, Policy: w.policy, Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule_matched"}},
		ReceivedAt: events.At(w.time(w.size())), DecidedAt: events.At(begin)})
	w.Log(s.Call(tenant, "completed", session), nil, w.Encode(events.Call{CallID: id, Tenant: tenant, Source: "runtime-1", Protocol: "agenthook", Session: session, Occurrence: 1,
		State: events.CallCompleted, Verdict: verdict, Timeline: []events.TimelineEntry{}}))
	if verdict == events.Deny {
		w.Log(s.Finding(tenant, "critical", session), nil, w.Encode(events.Finding{FindingID: id, Rule: "executed_despite_deny", Severity: events.SeverityCritical, Tenant: tenant,
			Session: session, EventIDs: []string{}, Explanation: "it ran"}))
	}
}

// session is the input for the bundle of a session.
func (w *world) session(tenant, session string) Input {
	return w.input(Input{Tenant: tenant, Session: session})
}

// ranged is the input for everything of a tenant from one message of the log to
// another, without the latter.
func (w *world) ranged(tenant string, from, to int) Input {
	return w.input(Input{Tenant: tenant, From: w.time(from), To: w.time(to)})
}

func (w *world) input(in Input) Input {
	in.Shard, in.Checkpoint, in.Keys, in.Decided, in.Nodes = shard, w.Checkpoint(), []events.KeyRecord{w.KeyRecord()}, stored{}, w.ReadHashes
	in.Spool = func(string) (Spool, error) { return &spool{}, nil }
	in.Rows = func(yield func(evidence.Row) error) error {
		for _, r := range w.rows() {
			selected := r.Session == in.Session
			if in.Session == "" {
				selected = !r.BrokerTime.Before(in.From) && r.BrokerTime.Before(in.To)
			}
			if selected && r.Tenant == in.Tenant {
				if err := yield(r); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return in
}

// spool holds a member in memory.
type spool struct{ b []byte }

func (s *spool) Write(p []byte) (int, error) { s.b = append(s.b, p...); return len(p), nil }

func (s *spool) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(s.b).ReadAt(p, off) }

// changeRows changes the rows of an input.
func changeRows(t testing.TB, in *Input, change func([]evidence.Row) []evidence.Row) {
	t.Helper()
	var rows []evidence.Row
	ok(t, in.Rows(func(r evidence.Row) error { rows = append(rows, r); return nil }))
	rows = change(rows)
	in.Rows = func(yield func(evidence.Row) error) error {
		for _, r := range rows {
			if err := yield(r); err != nil {
				return err
			}
		}
		return nil
	}
}

// written is a bundle.
func written(t testing.TB, in Input) []byte {
	t.Helper()
	var out bytes.Buffer
	_, err := Write(&out, in)
	ok(t, err)
	return out.Bytes()
}
