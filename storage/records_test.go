package storage

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign-dev/countersign/events"
)

func containsSecret(s string) bool { return strings.Contains(s, "secret") }

// moment is a record time with nanoseconds.
func moment(n int) events.Time { return events.At(testTime.Add(time.Duration(n) * time.Millisecond)) }

// full has every field set; Tenant and Session are those of row.
var (
	fullDecision = events.Decision{
		DecisionID: "0199-d", EventID: "e1", Tenant: "acme", Protocol: "agenthook", Source: "rt1", Agent: "agent é", Session: "s1",
		ToolCallID: "tc-full", Occurrence: 2, Tool: "bash", Action: "execute", ResourceKind: "shell", ArgsDigest: "hmac-sha256:aa",
		RequestDigest: "hmac-sha256:bb", Verdict: events.Ask, NativeVerdict: "ask",
		Reasons: []events.Reason{
			{Evaluator: "tool_policy", Code: "rule", Path: "/tool_input/command", Policy: "p/r"}, {Evaluator: "agenthook", Code: "ok"},
			{Evaluator: "tool_policy", Code: "trial", Policy: "q/r", Action: "audit", WouldVerdict: events.Deny},
		},
		Policy: &events.PolicyRef{Name: "p", Revision: 1<<53 - 1, Digest: "sha256:cc"}, Mandate: &events.MandateRef{ID: "m", Hash: "sha256:dd"},
		Approval:   &events.ApprovalRef{WorkflowID: "w", Status: "pending", ActionID: "a", RequestedAt: moment(1), ExpiresAt: moment(2), ResumePolicy: "retry_same_event"},
		ReceivedAt: moment(3), DecidedAt: moment(4), ExpiresAt: moment(5), ReceiptHash: "sha256:ee", Durability: "fsync", Trace: "00-aa-bb-01",
		CanonicalTool: "shell.run", Publishers: &events.SnapshotRef{Revision: 7, Digest: "sha256:ff"},
		Counts: []events.Count{{Key: "k1", WindowMS: 60_000, Amount: 2, Total: 5}, {Key: "k2", WindowMS: 1, Amount: -1, Total: -1}},
		Inputs: &events.DecisionInputs{Strict: true, Mandate: &events.MandateInput{Reserved: 1 << 52, Signatures: "required"}},
	}
	fullCall = events.Call{
		CallID: "c", Tenant: "acme", Source: "rt1", Protocol: "aaep", Agent: "a", Session: "s1", ToolCallID: "tc-full", Occurrence: 3, Tool: "bash",
		State: events.CallCompleted, Outcome: "success", Verdict: events.Allow, DecisionID: "0199-d", DecisionSeq: 4, ExecutionSeq: 9,
		AdmittedDigest: "hmac-sha256:aa", ExecutedDigest: "hmac-sha256:ab", Match: "drift", Inferred: true, WeakScope: true, Binding: events.BindingInferred,
		Findings: []string{"input_drift", "executed_after_expiry"},
		Timeline: []events.TimelineEntry{{Step: "requested", Seq: 3, At: moment(1), EventID: "e1"}, {Step: "decided", Seq: 4, At: moment(2), Protocol: "aaep"}},

		Protocols: []string{"aaep", "agenthook"}, MatchReason: "no_digest", Differences: []events.Difference{{Pointer: "/to", Kind: "changed"}, {Kind: "added"}}, MoreDifferences: 7,
		Attempt: 3, RetriedFrom: "c0", RetriedTo: "c9", Trace: "00-aa-bb-01", Parent: &events.CallParent{CallID: "p", Source: "rt0", Session: "s0", By: events.LinkSpan},
		Durations: &events.CallDurations{Decided: new(int64), Ran: pointer(int64(1 << 40))}, Claimed: &events.CallClaim{StartedAt: moment(5), DurationMS: 12, Attempt: 2},
	}
	fullFinding = events.Finding{
		FindingID: "f", Rule: "input_drift", Severity: events.SeverityCritical, Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "tc-full",
		CallID: "c", EventIDs: []string{"e1", "e2"}, Seqs: []uint64{3, 9}, Explanation: "it's \"different\"", Remedy: "ask", DetectedAt: moment(6), Retracts: "f0", Enforced: true,
	}
	fullApproval = events.Approval{
		WorkflowID: "w", Tenant: "acme", Status: "approved", ActionDigest: "hmac-sha256:aa", Source: "rt1", Session: "s1", ToolCallID: "tc-full",
		DecisionID: "0199-d", Approver: "alice", Reason: "fine", RequestedAt: moment(1), DecidedAt: moment(2), ExpiresAt: moment(3),
		Step: 3, Act: "vote", ActionID: "a1", Tool: "bash", Calls: []string{"tc-full", "tc-2"}, Policy: &events.PolicyRef{Name: "p", Revision: 4, Digest: "sha256:cc"},
		Mandate: &events.MandateRef{ID: "m", Hash: "sha256:dd"}, ReviewerGroups: []string{"ops"}, Quorum: 2, Approvers: []string{"alice", "bob"},
		PreviewDigest: "hmac-sha256:ee", ResumePolicy: "retry_same_event", ChangedAt: moment(4), Refused: "not_a_reviewer",
	}
)

func pointer[T any](v T) *T { return &v }

// A field that a record has learnt and its table has not is lost without a word:
// every field of the samples is set.
func TestSamplesAreFull(t *testing.T) {
	for _, v := range []any{fullDecision, fullCall, fullFinding, fullApproval} {
		r := reflect.ValueOf(v)
		for i := range r.NumField() {
			if r.Field(i).IsZero() {
				t.Errorf("%s.%s is not set", r.Type(), r.Type().Field(i).Name)
			}
		}
	}
}

func TestTypedTablesLoseNothing(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	fullDecision, fullCall, fullFinding := fullDecision, fullCall, fullFinding
	fullDecision.DecisionID, fullDecision.ToolCallID, fullCall.ToolCallID, fullFinding.ToolCallID = shard, shard, shard, shard
	bodies := []struct {
		kind string
		body any
	}{
		{KindDecision, fullDecision}, {KindDecision, events.Decision{DecisionID: "bare", Tenant: "acme", Session: "s1"}},
		{KindCall, fullCall}, {KindCall, events.Call{CallID: "bare", Tenant: "acme", Session: "s1"}},
		{KindFinding, fullFinding}, {KindFinding, events.Finding{FindingID: "bare", Tenant: "acme", Session: "s1"}},
		{KindApproval, fullApproval}, {KindApproval, events.Approval{WorkflowID: "bare", Tenant: "acme", Session: "s1"}},
	}
	var rows []EvidenceRow
	for i, b := range bodies {
		r := recordRow(t, shard, uint64(i+1), b.kind, b.body)
		r.Session = shard
		rows = append(rows, r)
	}
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	decisions, err := db.Decisions(t.Context(), "acme", shard)
	wantRecords(t, err, decisions, 1, bodies[0].body, bodies[1].body)
	calls, err := db.Calls(t.Context(), "acme", shard)
	wantRecords(t, err, calls, 3, bodies[2].body, bodies[3].body)
	findings, err := db.Findings(t.Context(), "acme", shard)
	wantRecords(t, err, findings, 5, bodies[4].body, bodies[5].body)
	approvals, err := db.Approvals(t.Context(), "acme", shard)
	wantRecords(t, err, approvals, 7, bodies[6].body, bodies[7].body)
	call, err := db.ToolCall(t.Context(), "acme", shard)
	if err != nil || len(call.Decisions) != 1 || len(call.Calls) != 1 || len(call.Findings) != 1 {
		t.Errorf("tool call: %+v (%v)", call, err)
	}
	byID, err := db.DecisionByID(t.Context(), "acme", shard)
	wantRecords(t, err, byID, 1, bodies[0].body)
}

// wantRecords compares what came back with what went in. The session is the
// row's, which these tests set themselves.
func wantRecords[T any](t testing.TB, err error, got []Located[T], firstSeq uint64, want ...any) {
	t.Helper()
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d records (%v), want %d", len(got), err, len(want))
	}
	for i, g := range got {
		if g.Seq != firstSeq+uint64(i) || !g.Time.Equal(testTime.Add(time.Duration(g.Seq))) {
			t.Errorf("record %d is at %d, %v", i, g.Seq, g.Time)
		}
		ignoreSession := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Session" }, cmp.Ignore())
		if d := cmp.Diff(want[i], any(g.Record), ignoreSession, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("record %d (-want +got):\n%s", i, d)
		}
	}
}

// Bodies that are no records of ours (forged, redacted, of a later version) must
// not keep evidence from being stored.
func TestStrangeBodies(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	deep := strings.Repeat(`[`, 900) + strings.Repeat(`]`, 900)
	bodies := []string{
		``, `null`, `[]`, `"text"`, `{`, "\xff", `{"body":null}`, `{"body":[1,2]}`, `{"body":"text"}`, `{"body":{}}`,
		`{"body":{"decision_id":{"redacted":"x"},"occurrence":-1,"policy":"none","reasons":{"a":1},"decided_at":"yesterday","seqs":["x"],"findings":{"x":1}}}`,
		`{"body":{"occurrence":99999999999999999999,"policy":{"revision":1e400},"timeline":[1,{"at":5,"seq":"x"}],"inferred":"maybe","approval":[]}}`,
		`{"body":{"decided_at":"9999-12-31T23:59:59Z","received_at":"0001-01-01T00:00:00Z","detected_at":"-1"}}`,
		`{"body":` + deep + `}`,
		`{"body":{"policies":{"name":1},"documents":[1,{"name":[]}],"changes":"x","rules":[1],"kid":{},"counts":[[]],"inputs":[1],"enforced":"x","tool_call_ids":{},"quorum":-1}}`,
		`{"body":{"rules":{"a":{"b":1},"c":2},"policies":[{"name":"p"},7]},"redactions":[{"path":1},"x",{"detector":["y"]}]}`,
	}
	var rows []EvidenceRow
	for _, kind := range []string{KindDecision, KindCall, KindFinding, KindApproval, KindControl, KindUnparseable} {
		for i, b := range bodies {
			r := row(shard, uint64(len(rows)+1))
			r.Kind, r.Record, r.Session = kind, b, shard
			if kind == KindControl {
				r.Subject = "gov.control.GOV." + []string{"policy", "mandate", "publisher", "key", "rules", "redaction", "resolve", "new"}[i%8]
			}
			rows = append(rows, r)
		}
	}
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	n := uint64(len(bodies))
	wantRows(t, db, shard, map[string]uint64{"evidence": 6 * n, "redactions": n + 5, "decisions": n, "calls": n, "findings": n, "approvals": n})
	wantRows(t, db, shard, map[string]uint64{"changes": n})
	if _, err := db.Decisions(t.Context(), "acme", shard); err != nil {
		t.Error(err)
	}
	if _, err := db.Calls(t.Context(), "acme", shard); err != nil {
		t.Error(err)
	}
}
