// Package evidencetest makes logs with their evidence for tests.
package evidencetest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/testkit"
)

const Shard = "GOV@20261120T064150.123456789Z"

var Start = time.Date(2026, 11, 20, 6, 42, 0, 0, time.UTC)

// TestKeys derives every key from its name.
type TestKeys struct{ Asked int }

func (*TestKeys) TenantKey(tenant string) []byte { return Derived("tenant/" + tenant) }

func (k *TestKeys) SessionSecret(tenant, session string) ([]byte, error) {
	k.Asked++
	return Derived("session/" + tenant + "/" + session), nil
}

func Derived(name string) []byte {
	mac := hmac.New(sha256.New, []byte("evidence tests"))
	mac.Write([]byte(name))
	return mac.Sum(nil)
}

// DigestOf is a digest under the key of a session of acme.
func DigestOf(session, text string) string {
	return digest.NewSession(Derived("session/acme/" + session)).Digest([]byte(text))
}

// NoKeys fails every test that redacts where it should not.
type NoKeys struct{}

func (NoKeys) TenantKey(string) []byte                      { return nil }
func (NoKeys) SessionSecret(string, string) ([]byte, error) { return nil, ErrNoKeyExpected }

var ErrNoKeyExpected = errors.New("no key expected")

type Fixture struct {
	T        testing.TB
	Builder  *build.Builder
	Chain    *build.Chain
	Keys     *TestKeys
	Receipt  signing.PrivateKey
	Signer   note.Signer
	Verifier note.Verifier
	VKey     string
	Step     time.Duration // between two messages
	Messages []events.LogMessage
	Built    []build.Built
	Tree     tree.Tree
	Hashes   []tlog.Hash
}

func New(t testing.TB) *Fixture {
	t.Helper()
	b, err := build.NewBuilder(Shard, subject.Space{})
	Must(t, err)
	skey, vkey, err := signing.NewCheckpointKey(bytes.NewReader(Derived("checkpoint")))
	Must(t, err)
	signer, err := signing.CheckpointSigner(skey)
	Must(t, err)
	verifier, err := signing.CheckpointVerifier(vkey)
	Must(t, err)
	receipt, err := signing.NewPrivateKey(Derived("receipt"))
	Must(t, err)
	return &Fixture{T: t, Builder: b, Chain: build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0), Keys: &TestKeys{},
		Receipt: receipt, Signer: signer, Verifier: verifier, VKey: vkey, Step: 1234567 * time.Nanosecond}
}

var Must = testkit.OK

// Log appends a message and builds its record.
func (f *Fixture) Log(subj string, header map[string][]string, body []byte) build.Built {
	f.T.Helper()
	n := f.Tree.Size()
	m := events.LogMessage{Seq: uint64(n + 1), Subject: subj, Time: Start.Add(time.Duration(n) * f.Step), Header: header, Body: body}
	f.Messages = append(f.Messages, m)
	built, err := f.Builder.BuildBatch(f.Chain, []events.LogMessage{m}, f.Keys)
	Must(f.T, err)
	f.Chain.Commit()
	f.Built = append(f.Built, built[0])
	for _, node := range f.Tree.Append(built[0].Hash) {
		if node.Index != int64(len(f.Hashes)) {
			f.T.Fatalf("node index %d, want %d", node.Index, len(f.Hashes))
		}
		f.Hashes = append(f.Hashes, node.Hash)
	}
	return built[0]
}

func (f *Fixture) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		if at < 0 || at >= int64(len(f.Hashes)) {
			return nil, fmt.Errorf("no hash %d", at)
		}
		out[i] = f.Hashes[at]
	}
	return out, nil
}

func (f *Fixture) Encode(v any) []byte {
	b, err := events.Encode(v)
	Must(f.T, err)
	return b
}

func (f *Fixture) KeyRecord() events.KeyRecord {
	k := events.KeyRecord{KeyID: f.Receipt.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(f.Receipt.Public()), CreatedAt: events.At(Start)}
	var err error
	k.Vouch, err = signing.SignKeyRecord(f.Signer, k)
	Must(f.T, err)
	return k
}

func (f *Fixture) Retirement() events.KeyRetirement { return f.RetiredAt(0) }

// RetiredAt is a retirement some seconds after the log began.
func (f *Fixture) RetiredAt(seconds int) events.KeyRetirement {
	k := events.KeyRetirement{KeyID: f.Receipt.ID, Use: "receipt", RetiredAt: events.At(Start.Add(time.Duration(seconds) * time.Second))}
	var err error
	k.Vouch, err = signing.SignRetirement(f.Signer, k)
	Must(f.T, err)
	return k
}

// Admit logs a request and its decision as the admitter does.
func (f *Fixture) Admit(session, id string, verdict events.Verdict, body string) (request, decision build.Built) {
	f.T.Helper()
	s := subject.Space{}
	request = f.Log(s.Request("acme", "runtime-1", "agenthook", session), map[string][]string{events.HeaderDecisionID: {id}}, []byte(body))
	d := events.Decision{DecisionID: id, Tenant: "acme", Protocol: "agenthook", Source: "runtime-1", Session: session, ToolCallID: "call-1", Tool: "send_email",
		ArgsDigest: DigestOf(session, "{}"), RequestDigest: DigestOf(session, body),
		Verdict: verdict, Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule_matched"}}, DecidedAt: events.At(Start), ReceiptHash: digest.Plain([]byte(f.ReceiptFor(id, verdict)))}
	return request, f.Decision(d)
}

func (f *Fixture) ReceiptFor(id string, verdict events.Verdict) string {
	token, err := f.Receipt.Sign(signing.TypeReceipt, f.Encode(map[string]any{"v": 1, "decision_id": id, "tenant": "acme", "verdict": verdict}))
	Must(f.T, err)
	return token
}

func (f *Fixture) Decision(d events.Decision) build.Built {
	f.T.Helper()
	record := f.Encode(d)
	sig, err := f.Receipt.SignDetached(signing.TypeRecord, record)
	Must(f.T, err)
	return f.Log(subject.Space{}.Decision(d.Tenant, string(d.Verdict), d.Session), map[string][]string{
		events.HeaderSignature: {sig}, "ce-specversion": {"1.0"}, "ce-type": {events.TypeDecision}, "ce-id": {d.DecisionID}}, record)
}

func (f *Fixture) Approval(a events.Approval) build.Built {
	f.T.Helper()
	record := f.Encode(a)
	sig, err := f.Receipt.SignDetached(signing.TypeRecord, record)
	Must(f.T, err)
	return f.Log(subject.Space{}.Approval(a.Tenant, a.Status, a.WorkflowID), map[string][]string{events.HeaderSignature: {sig}}, record)
}

const (
	PlainEvent  = `{"schema_version":1,"event_id":"8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e6f","event_type":"PostToolUse","source":"runtime-1","session_id":"sess-a","tool_name":"search","tool_input":{"query":"weather"},"metadata":{"tool_call_id":"call-7"}}`
	SecretEvent = `{"event_type":"PreToolUse","session_id":"sess-a","tool_input":{"to":"a@example.invalid","body":"private words","headers":{"Authorization":"Bearer abcdef0123456789"},"cmd":"curl -u x https://bob:hunter2@example.invalid/ && export GITHUB_TOKEN=ghp_0123456789abcdefghijABCDEFGHIJ012345"},"metadata":{"redaction":{"applied":false,"fields":["tool_input.body"]}}}`
)

// Session fills the log with one of everything.
func (f *Fixture) Session() {
	f.T.Helper()
	s := subject.Space{}
	f.Log(s.Control("GOV", events.ControlKey), nil, f.Encode(f.KeyRecord()))
	f.Admit("sess-a", "0199a000-0000-7000-8000-000000000001", events.Allow, PlainEvent)
	f.Log(s.Event("acme", "runtime-1", "agenthook", "sess-a", "PreToolUse"), map[string][]string{"Content-Type": {"application/json"}, "X-Api-Key": {"abc"}}, []byte(SecretEvent))
	f.Admit("sess-b", "0199a000-0000-7000-8000-000000000002", events.Deny, SecretEvent)
	f.Log(s.Event("acme", "runtime-1", "aaep", "sess-a", "agent.tool.invoked"), nil, []byte("{not json"))
	f.Log(s.Call("acme", "completed", "sess-a"), nil, f.Encode(events.Call{CallID: "c-1", Tenant: "acme", Source: "runtime-1", Protocol: "agenthook", Session: "sess-a", Occurrence: 1, State: events.CallCompleted, Timeline: []events.TimelineEntry{}}))
	f.Log(s.Finding("acme", "high", "sess-a"), nil, f.Encode(events.Finding{FindingID: "f-1", Rule: "input_drift", Severity: events.SeverityHigh, Tenant: "acme", Session: "sess-a", EventIDs: []string{"e1"}, Explanation: "ran with token=Zx81kQ instead"}))
	f.Approval(events.Approval{WorkflowID: "wf-1", Tenant: "acme", Status: "pending", Session: "sess-a", ActionDigest: digest.Keyed(Derived("x"), nil), RequestedAt: events.At(Start)})
	f.Log(s.Event("acme", "runtime-1", "aaep", "", "agent.progress.updated"), nil, []byte(`{"progress":{"percent":0.50}}`))
	f.Log(s.Control("GOV", events.ControlTick), nil, f.Encode(events.Tick{Shard: "GOV", Due: events.At(Start)}))
	f.Log("gov.events.acme", nil, []byte(PlainEvent))
}

func (f *Fixture) Checkpoint() string {
	f.T.Helper()
	text, err := tree.SignCheckpoint(f.Signer, tree.Checkpoint{Shard: Shard, Size: f.Tree.Size(), Root: f.Tree.Root()})
	Must(f.T, err)
	return text
}

func (f *Fixture) Options() verify.Options {
	return verify.Options{Shard: Shard, Keys: []note.Verifier{f.Verifier}, Checkpoints: []verify.Published{{Source: "stored", Text: f.Checkpoint()}}}
}

func (f *Fixture) Rows() []evidence.Row {
	rows := make([]evidence.Row, len(f.Built))
	for i, b := range f.Built {
		rows[i] = b.Row()
	}
	return rows
}

func VerifyRows(opts verify.Options, rows []evidence.Row) verify.Report {
	v := verify.NewVerifier(opts)
	for _, r := range rows {
		v.Row(r)
	}
	return v.Finish()
}

// SessionInput selects one session with proofs.
func (f *Fixture) SessionInput(session string) verify.SessionInput {
	f.T.Helper()
	in := verify.SessionInput{Shard: Shard, Tenant: "acme", Session: session, Keys: []note.Verifier{f.Verifier},
		Checkpoint: verify.Published{Source: "stored", Text: f.Checkpoint()}, ReceiptKeys: []events.KeyRecord{f.KeyRecord()}}
	for _, r := range f.Rows() {
		if r.Session == session && r.Tenant == "acme" {
			p, err := tree.InclusionProof(f, f.Tree.Size(), r.Seq)
			Must(f.T, err)
			in.Rows, in.Proofs = append(in.Rows, r), append(in.Proofs, p)
		}
	}
	return in
}

// Batch logs requests, then their decisions and one approval with shares of one
// signature.
func (f *Fixture) Batch(n int) (decisions []build.Built) {
	f.T.Helper()
	s := subject.Space{}
	var records [][]byte
	for i := range n {
		id := fmt.Sprintf("batch-%d-%d", len(f.Messages), i)
		f.Log(s.Request("acme", "runtime-1", "agenthook", "sess-a"), map[string][]string{events.HeaderDecisionID: {id}}, []byte(PlainEvent))
		records = append(records, f.Encode(events.Decision{DecisionID: id, Tenant: "acme", Session: "sess-a", Verdict: events.Allow, Reasons: []events.Reason{},
			RequestDigest: DigestOf("sess-a", PlainEvent)}))
	}
	records = append(records, f.Encode(events.Approval{WorkflowID: "wf-2", Tenant: "acme", Status: "consumed", Session: "sess-a"}))
	signatures, err := f.Receipt.SignRecords(records)
	Must(f.T, err)
	for i, r := range records {
		subj := s.Decision("acme", "allow", "sess-a")
		if i == n {
			subj = s.Approval("acme", "consumed", "wf-2")
		}
		b := f.Log(subj, map[string][]string{events.HeaderSignature: {signatures[i]}}, r)
		if i < n {
			decisions = append(decisions, b)
		}
	}
	return decisions
}
