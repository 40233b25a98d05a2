package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
)

const (
	shard = "GOV@20261120T064150.123456789Z"
	kd    = "hmac-sha256:99e6353abb805d8992ad6055dab2aa30ee774b3ed8f5e5966d360d6b6d058732"
)

var begin = time.Date(2026, 11, 20, 6, 42, 0, 0, time.UTC)

// log makes records as they stand in a bundle, without hashes.
type log struct {
	t       testing.TB
	session string
	records []evidence.Record
	skip    uint64 // sequences that belong to others
}

func (l *log) add(kind, subj string, body any, redactions ...evidence.Redaction) *evidence.Record {
	l.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		l.t.Fatal(err)
	}
	n := uint64(len(l.records) + 1)
	l.records = append(l.records, evidence.Record{V: 1, Shard: shard, Seq: n + l.skip, Tenant: "acme", Session: l.session, Kind: kind, Subject: subj,
		BrokerTime: events.At(begin.Add(time.Duration(n) * 1234 * time.Millisecond)), Body: raw, SessionIndex: &n, Redactions: redactions})
	return &l.records[len(l.records)-1]
}

func (l *log) event(typ string, body map[string]any, redactions ...evidence.Redaction) {
	l.add(evidence.KindEvent, subject.Space{}.Event("acme", "runtime-1", "agenthook", l.session, typ), body, redactions...)
}

func (l *log) request(body map[string]any, redactions ...evidence.Redaction) {
	l.add(evidence.KindRequest, subject.Space{}.Request("acme", "runtime-1", "agenthook", l.session), body, redactions...)
}

func (l *log) decision(d events.Decision) {
	d.Tenant, d.Protocol, d.Source, d.Session, d.Agent = "acme", "agenthook", "runtime-1", l.session, "invoice-bot"
	d.DecidedAt, d.ArgsDigest = events.At(begin), kd
	l.add(evidence.KindDecision, subject.Space{}.Decision("acme", string(d.Verdict), l.session), d)
}

func (l *log) call(c events.Call) {
	c.Tenant, c.Source, c.Protocol, c.Session, c.Agent, c.Timeline = "acme", "runtime-1", "agenthook", l.session, "invoice-bot", []events.TimelineEntry{}
	l.add(evidence.KindCall, subject.Space{}.Call("acme", string(c.State), l.session), c)
}

func (l *log) approval(a events.Approval) {
	a.Tenant, a.Session, a.ActionDigest, a.RequestedAt, a.ExpiresAt = "acme", l.session, kd, events.At(begin), events.At(begin.Add(time.Hour))
	l.add(evidence.KindApproval, subject.Space{}.Approval("acme", a.Status, a.WorkflowID), a)
}

func (l *log) finding(f events.Finding) {
	f.Tenant, f.Session = "acme", l.session
	l.add(evidence.KindFinding, subject.Space{}.Finding("acme", string(f.Severity), l.session), f)
}

// sample is one of everything: an allow, an ask with its approval, a deny that
// ran all the same, a finding taken back.
func sample(t testing.TB) []evidence.Record {
	l := &log{t: t, session: "sess-2026-11-20-a", skip: 410}
	mail := evidence.Redaction{Action: "mask", Commitment: kd, Detector: "email", Path: "/body/tool_input/to/0", Policy: "acme@21fe93a43046199c/mail"}
	token := evidence.Redaction{Commitment: kd, Detector: "github_token", Path: "/body/tool_input/env/GITHUB_TOKEN"}
	policy := &events.PolicyRef{Name: "finance", Revision: 7, Digest: "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}
	pre := func(tool, call string) map[string]any {
		return map[string]any{"event_type": "PreToolUse", "tool_name": tool, "agent_id": "invoice-bot", "metadata": map[string]any{"tool_call_id": call}, "tool_input": map[string]any{"x": "SECRET-VALUE"}}
	}
	l.event("SessionStart", map[string]any{"event_type": "SessionStart", "agent_id": "invoice-bot"})
	l.request(pre("read_invoice", "c1"))
	l.decision(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000001", Verdict: events.Allow, Tool: "read_invoice", ToolCallID: "c1", Policy: policy,
		Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule_matched", Policy: "finance/read-only"}}})
	l.skip += 3
	l.event("PostToolUse", map[string]any{"event_type": "PostToolUse", "tool_name": "read_invoice", "metadata": map[string]any{"tool_call_id": "c1"}})
	l.call(events.Call{CallID: "k1", State: events.CallCompleted, Tool: "read_invoice", ToolCallID: "c1", Occurrence: 1, Verdict: events.Allow, DecisionSeq: 413, ExecutionSeq: 417, Match: "equal", Outcome: "success"})
	l.request(pre("send_email", "c2"), mail, mail, token)
	l.decision(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000002", Verdict: events.Ask, Tool: "send_email", ToolCallID: "c2", Policy: policy,
		Approval: &events.ApprovalRef{WorkflowID: "wf-7"}, Mandate: &events.MandateRef{ID: "mandate-4", Hash: "sha256:ab"},
		Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "approval_required", Policy: "finance/mail-outside", Path: "/tool_input/to"}, {Evaluator: "tool_policy", Code: "rule_matched", Policy: "trial/strict", Action: "warn", WouldVerdict: events.Deny}}})
	l.approval(events.Approval{WorkflowID: "wf-7", Status: "pending", Act: "open", Tool: "send_email"})
	l.approval(events.Approval{WorkflowID: "wf-7", Status: "approved", Act: "approve", Tool: "send_email", Approver: "dana@reviewers", Reason: "supplier is known", PreviewDigest: kd})
	l.approval(events.Approval{WorkflowID: "wf-7", Status: "consumed", Act: "consume", Tool: "send_email"})
	l.decision(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000003", Verdict: events.Allow, Tool: "send_email", ToolCallID: "c2", Policy: policy, Approval: &events.ApprovalRef{WorkflowID: "wf-7"},
		Reasons: []events.Reason{{Evaluator: "approvals", Code: "approved"}}})
	l.call(events.Call{CallID: "k2", State: events.CallCompleted, Tool: "send_email", ToolCallID: "c2", Occurrence: 1, Verdict: events.Allow, DecisionSeq: 424, ExecutionSeq: 426, Match: "inconclusive"})
	l.request(pre("delete_ledger", "c3"))
	l.decision(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000004", Verdict: events.Deny, Tool: "delete_ledger", ToolCallID: "c3", Policy: policy,
		Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule_matched", Policy: "finance/no-deletes"}}})
	l.finding(events.Finding{FindingID: "f1", Rule: "missing_completion", Severity: events.SeverityMedium, Explanation: "delete_ledger was announced as c3 and nothing was heard of it since.", Remedy: "Ask the runtime.", Seqs: []uint64{427}})
	l.call(events.Call{CallID: "k3", State: events.CallCompleted, Tool: "delete_ledger", ToolCallID: "c3", Occurrence: 1, Verdict: events.Deny, DecisionSeq: 428, ExecutionSeq: 431, Match: "drift", Findings: []string{"executed_despite_deny", "input_drift"}})
	l.finding(events.Finding{FindingID: "f2", Rule: "missing_completion", Severity: events.SeverityInfo, Explanation: "It was completed after all.", Remedy: "Nothing.", Retracts: "f1"})
	l.finding(events.Finding{FindingID: "f3", Rule: "executed_despite_deny", Severity: events.SeverityCritical, Explanation: "delete_ledger ran as c3 although it had been denied.", Remedy: "Stop the runtime and find out how the call got around its gate.", Seqs: []uint64{428, 431}, Enforced: true})
	broken := l.add(evidence.KindUnparseable, subject.Space{}.Event("acme", "runtime-1", "agenthook", l.session, "PreToolUse"), nil)
	broken.Reason = "duplicate_key"
	l.event("SessionEnd", map[string]any{"event_type": "SessionEnd"})
	return l.records
}

func source() Source {
	return Source{Shard: shard, Tenant: "acme", Session: "sess-2026-11-20-a", Checkpoint: tree.Checkpoint{Shard: shard, Size: 500},
		Note: "countersign.dev/" + shard + "\n500\nAAAA\n\n\u2014 countersign.dev/checkpoint YG2UrgAA\n\u2014 witness.example/w1 YG2UrgBB\n",
		Keys: []events.KeyRecord{{KeyID: "687e9a9d2118142b", Use: "receipt", Algorithm: "EdDSA", PublicKey: "AcojW2ot7z23FRRYuOsJl-oWX2o-Rc4aNsVYKaDNAbc", CreatedAt: events.At(begin)}}}
}

// whatDecided is what decided in the sample.
func whatDecided(text string) *inforce.File {
	return &inforce.File{Policies: []inforce.Policy{
		{Revision: 6, Digest: "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", Seq: 17, At: events.At(begin.Add(-time.Hour)), Author: "dana", Message: "the first set", Text: inforce.TextMissing, Why: "the text is in neither log nor bucket any more"},
		{Revision: 7, Digest: "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", Use: inforce.Use{Decisions: 4, First: 413, Last: 428}, Seq: 402, At: events.At(begin), Author: text, Message: text,
			Text: inforce.TextPartial, Why: "documents that speak of other tenants are withheld, so what is here does not give the digest", Withheld: 2,
			Documents: []inforce.Document{{Name: "finance.yaml" + text, Text: "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata:\n  name: finance\nspec:\n  match:\n    tools: [read_invoice, send_email, delete_ledger]\n  rules:\n    - name: read-only\n      when: 'tool == \"read_invoice\"'\n      verdict: allow\n      reason: rule_matched\n" + text, Redacted: []string{"email"}}}},
	}, Mandates: []inforce.Mandate{{ID: "mandate-4" + text, Hash: "sha256:ab", Use: inforce.Use{Decisions: 1, First: 419, Last: 419}, Text: inforce.TextComplete, Document: `{"id":"mandate-4","purpose":"pay invoices of known suppliers up to 500 EUR without asking, and ask for more"}` + text}}}
}

func render(t testing.TB, src Source, records []evidence.Record) string {
	return renderWith(t, src, records, nil)
}

func renderWith(t testing.TB, src Source, records []evidence.Record, f *inforce.File) string {
	t.Helper()
	b := New(src)
	if f != nil {
		b.InForce(*f)
	}
	for _, r := range records {
		b.Add(r)
	}
	var out strings.Builder
	if err := b.Render(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// hostile is a session in which everything that a producer can name is an
// attack on the page or on its reader.
func hostile(t testing.TB) []evidence.Record {
	l := &log{t: t, session: "s<script>alert(1)</script>"}
	bad := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</title></style><svg onload=alert(1)>`, `javascript:alert(1)`, `{{.Tenant}}`, `&lt;b&gt;`, `</bdi></td></tr></table><h1>ALL VERIFIED</h1>`,
		"deny\u202Ewolla\u202C", "a\u200Bb\u2060c\uFEFFd", "line\nbreak\r\x00\x1b[2J\x7f\u0085\u2028", "Z\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301a",
		strings.Repeat("W", 100_000), "\U000E0041\U000E0042 tags", "سلام <b>", "\U0001F600\U0001F3FF",
	}
	for i, s := range bad {
		id := fmt.Sprintf("%d%s", i, s)
		l.request(map[string]any{"event_type": s, "tool_name": s, "agent_id": s, "metadata": map[string]any{"tool_call_id": s}},
			evidence.Redaction{Detector: s, Action: s, Path: "/body/" + s, Commitment: s})
		l.decision(events.Decision{DecisionID: id, Verdict: events.Verdict(s), Tool: s, ToolCallID: s, Policy: &events.PolicyRef{Name: s, Digest: s}, Mandate: &events.MandateRef{ID: s, Hash: s},
			Approval: &events.ApprovalRef{WorkflowID: s}, Reasons: []events.Reason{{Evaluator: s, Code: s, Path: s, Policy: s, Action: s, WouldVerdict: events.Verdict(s)}}})
		l.call(events.Call{CallID: id, State: events.CallState(s), Tool: s, ToolCallID: s, Outcome: s, Match: s, Verdict: events.Verdict(s), Findings: []string{s}})
		l.approval(events.Approval{WorkflowID: s, Status: s, Act: s, Approver: s, Reason: s, Tool: s, PreviewDigest: s, Refused: s})
		l.finding(events.Finding{FindingID: id, Rule: s, Severity: events.Severity(s), Explanation: s, Remedy: s})
		l.records[len(l.records)-1].Reason = ""
		l.event(s, map[string]any{"event_type": []any{s}, "tool_name": 1e300, "metadata": "x"})
	}
	wrong := l.add(evidence.KindDecision, "not a subject", []string{"not", "a", "decision"})
	wrong.Kind = evidence.KindDecision
	return l.records
}
