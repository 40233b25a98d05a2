package storagetest

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Moment is a record time with nanoseconds.
func Moment(n int) events.Time { return events.At(Time.Add(time.Duration(n) * time.Millisecond)) }

// The full records have every field set; Tenant and Session are those of Row.
var (
	FullDecision = events.Decision{
		DecisionID: "0199-d", EventID: "e1", Tenant: "acme", Protocol: "agenthook", Source: "rt1", Gateway: "gw1", Agent: "agent é", Session: "s1",
		ToolCallID: "tc-full", Occurrence: 2, Tool: "bash", Action: "execute", ResourceKind: "shell", ArgsDigest: "hmac-sha256:aa",
		RequestDigest: "hmac-sha256:bb", Verdict: events.Ask, NativeVerdict: "ask",
		Reasons: []events.Reason{
			{Evaluator: "tool_policy", Code: "rule", Path: "/tool_input/command", Policy: "p/r"}, {Evaluator: "agenthook", Code: "ok"},
			{Evaluator: "tool_policy", Code: "trial", Policy: "q/r", Action: "audit", WouldVerdict: events.Deny},
		},
		Policy: &events.PolicyRef{Name: "p", Revision: 1<<53 - 1, Digest: "sha256:cc"}, Mandate: &events.MandateRef{ID: "m", Hash: "sha256:dd"},
		Approval:   &events.ApprovalRef{WorkflowID: "w", Status: "pending", ActionID: "a", RequestedAt: Moment(1), ExpiresAt: Moment(2), ResumePolicy: "retry_same_event"},
		ReceivedAt: Moment(3), DecidedAt: Moment(4), ExpiresAt: Moment(5), ReceiptHash: "sha256:ee", Durability: "fsync", Traceparent: "00-aa-bb-01",
		CanonicalTool: "shell.run", Publishers: &events.SnapshotRef{Revision: 7, Digest: "sha256:ff"},
		Counts: []events.Count{{Key: "k1", WindowMS: 60_000, Amount: 2, Total: 5}, {Key: "k2", WindowMS: 1, Amount: -1, Total: -1}},
		Inputs: &events.DecisionInputs{Strict: true, Mandate: &events.MandateInput{Reserved: 1 << 52, Signatures: "required"}},
		Mode:   events.ModeObserve, Would: events.Deny,
	}
	FullCall = events.Call{
		CallID: "c", Tenant: "acme", Source: "rt1", Protocol: "aaep", Agent: "a", Session: "s1", ToolCallID: "tc-full", Occurrence: 3, Tool: "bash",
		State: events.CallCompleted, Outcome: "success", Verdict: events.Allow, DecisionID: "0199-d", DecisionSeq: 4, ExecutionSeq: 9,
		AdmittedDigest: "hmac-sha256:aa", ExecutedDigest: "hmac-sha256:ab", Match: "drift", Inferred: true, WeakScope: true, Binding: events.BindingInferred,
		Findings: []string{"input_drift", "executed_after_expiry"},
		Timeline: []events.TimelineEntry{{Step: "requested", Seq: 3, At: Moment(1), EventID: "e1"}, {Step: "decided", Seq: 4, At: Moment(2), Protocol: "aaep"}},

		Protocols: []string{"aaep", "agenthook"}, MatchReason: "no_digest", Differences: []events.Difference{{Pointer: "/to", Kind: "changed"}, {Kind: "added"}}, MoreDifferences: 7,
		Attempt: 3, RetriedFrom: "c0", RetriedTo: "c9", Traceparent: "00-aa-bb-01", Parent: &events.CallParent{CallID: "p", Source: "rt0", Session: "s0", By: events.LinkSpan},
		Durations: &events.CallDurations{Decided: new(int64), Ran: pointer(int64(1 << 40))}, Claimed: &events.CallClaim{StartedAt: Moment(5), DurationMS: 12, Attempt: 2},
	}
	FullFinding = events.Finding{
		FindingID: "f", Rule: "input_drift", Severity: events.SeverityCritical, Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "tc-full",
		CallID: "c", EventIDs: []string{"e1", "e2"}, Seqs: []uint64{3, 9}, Explanation: "it's \"different\"", Remedy: "ask", DetectedAt: Moment(6), Retracts: "f0", Enforced: true,
	}
	FullApproval = events.Approval{
		WorkflowID: "w", Tenant: "acme", Status: "approved", ActionDigest: "hmac-sha256:aa", Source: "rt1", Session: "s1", ToolCallID: "tc-full",
		DecisionID: "0199-d", Approver: "alice", Reason: "fine", RequestedAt: Moment(1), DecidedAt: Moment(2), ExpiresAt: Moment(3),
		Step: 3, Act: "vote", ActionID: "a1", Tool: "bash", Calls: []string{"tc-full", "tc-2"}, Policy: &events.PolicyRef{Name: "p", Revision: 4, Digest: "sha256:cc"},
		Mandate: &events.MandateRef{ID: "m", Hash: "sha256:dd"}, ReviewerGroups: []string{"ops"}, Quorum: 2, Approvers: []string{"alice", "bob"},
		PreviewDigest: "hmac-sha256:ee", ResumePolicy: "retry_same_event", ChangedAt: Moment(4), Refused: "not_a_reviewer",
	}
)

func pointer[T any](v T) *T { return &v }
