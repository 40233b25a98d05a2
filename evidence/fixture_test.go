package evidence

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
	"github.com/countersign-dev/countersign/evidence/tree"
)

// maxCheckpoint is the bound of package tree on the text of a checkpoint.
const maxCheckpoint = 64 << 10

const testShard = "GOV@20261120T064150.123456789Z"

var testStart = time.Date(2026, 11, 20, 6, 42, 0, 0, time.UTC)

// testKeys derives every key from its name.
type testKeys struct{ asked int }

func (*testKeys) TenantKey(tenant string) []byte { return derived("tenant/" + tenant) }

func (k *testKeys) SessionSecret(tenant, session string) ([]byte, error) {
	k.asked++
	return derived("session/" + tenant + "/" + session), nil
}

func derived(name string) []byte {
	mac := hmac.New(sha256.New, []byte("evidence tests"))
	mac.Write([]byte(name))
	return mac.Sum(nil)
}

// digestOf is a digest under the key of a session of acme.
func digestOf(session, text string) string {
	return digest.NewSession(derived("session/acme/" + session)).Digest([]byte(text))
}

// noKeys fails every test that redacts where it should not.
type noKeys struct{}

func (noKeys) TenantKey(string) []byte                      { return nil }
func (noKeys) SessionSecret(string, string) ([]byte, error) { return nil, errNoKeyExpected }

var errNoKeyExpected = errors.New("no key expected")

type fixture struct {
	t        testing.TB
	builder  *Builder
	chain    *Chain
	keys     *testKeys
	receipt  signing.PrivateKey
	signer   note.Signer
	verifier note.Verifier
	vkey     string
	msgs     []events.LogMessage
	built    []Built
	tree     tree.Tree
	hashes   []tlog.Hash
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	b, err := NewBuilder(testShard, subject.Space{})
	must(t, err)
	skey, vkey, err := signing.NewCheckpointKey(bytes.NewReader(derived("checkpoint")))
	must(t, err)
	signer, err := signing.CheckpointSigner(skey)
	must(t, err)
	verifier, err := signing.CheckpointVerifier(vkey)
	must(t, err)
	receipt, err := signing.NewPrivateKey(derived("receipt"))
	must(t, err)
	return &fixture{t: t, builder: b, chain: NewChain(func(SessionID) (Head, error) { return Head{}, nil }, 0), keys: &testKeys{},
		receipt: receipt, signer: signer, verifier: verifier, vkey: vkey}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// log appends a message and builds its record.
func (f *fixture) log(subj string, header map[string][]string, body []byte) Built {
	f.t.Helper()
	n := len(f.msgs)
	m := events.LogMessage{Seq: uint64(n + 1), Subject: subj, Time: testStart.Add(time.Duration(n) * 1234567 * time.Nanosecond), Header: header, Body: body}
	f.msgs = append(f.msgs, m)
	built, err := f.builder.BuildBatch(f.chain, []events.LogMessage{m}, f.keys)
	must(f.t, err)
	f.chain.Commit()
	f.built = append(f.built, built[0])
	for _, node := range f.tree.Append(built[0].Hash) {
		if node.Index != int64(len(f.hashes)) {
			f.t.Fatalf("node index %d, want %d", node.Index, len(f.hashes))
		}
		f.hashes = append(f.hashes, node.Hash)
	}
	return built[0]
}

func (f *fixture) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		if at < 0 || at >= int64(len(f.hashes)) {
			return nil, fmt.Errorf("no hash %d", at)
		}
		out[i] = f.hashes[at]
	}
	return out, nil
}

func (f *fixture) encode(v any) []byte {
	b, err := events.Encode(v)
	must(f.t, err)
	return b
}

func (f *fixture) keyRecord() events.KeyRecord {
	k := events.KeyRecord{KeyID: f.receipt.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(f.receipt.Public()), CreatedAt: events.At(testStart)}
	var err error
	k.Vouch, err = signing.SignKeyRecord(f.signer, k)
	must(f.t, err)
	return k
}

func (f *fixture) retirement() events.KeyRetirement { return f.retiredAt(0) }

// retiredAt is a retirement some seconds after the log began.
func (f *fixture) retiredAt(seconds int) events.KeyRetirement {
	k := events.KeyRetirement{KeyID: f.receipt.ID, Use: "receipt", RetiredAt: events.At(testStart.Add(time.Duration(seconds) * time.Second))}
	var err error
	k.Vouch, err = signing.SignRetirement(f.signer, k)
	must(f.t, err)
	return k
}

// admit logs a request and its decision as the admitter does.
func (f *fixture) admit(session, id string, verdict events.Verdict, body string) (request, decision Built) {
	f.t.Helper()
	s := subject.Space{}
	request = f.log(s.Request("acme", "runtime-1", "agenthook", session), map[string][]string{events.HeaderDecisionID: {id}}, []byte(body))
	d := events.Decision{DecisionID: id, Tenant: "acme", Protocol: "agenthook", Source: "runtime-1", Session: session, ToolCallID: "call-1", Tool: "send_email",
		ArgsDigest: digestOf(session, "{}"), RequestDigest: digestOf(session, body),
		Verdict: verdict, Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule_matched"}}, DecidedAt: events.At(testStart), ReceiptHash: digest.Plain([]byte(f.receiptFor(id, verdict)))}
	return request, f.decision(d)
}

func (f *fixture) receiptFor(id string, verdict events.Verdict) string {
	token, err := f.receipt.Sign(signing.TypeReceipt, f.encode(map[string]any{"v": 1, "decision_id": id, "tenant": "acme", "verdict": verdict}))
	must(f.t, err)
	return token
}

func (f *fixture) decision(d events.Decision) Built {
	f.t.Helper()
	record := f.encode(d)
	sig, err := f.receipt.SignDetached(signing.TypeRecord, record)
	must(f.t, err)
	return f.log(subject.Space{}.Decision(d.Tenant, string(d.Verdict), d.Session), map[string][]string{
		events.HeaderSignature: {sig}, "ce-specversion": {"1.0"}, "ce-type": {events.TypeDecision}, "ce-id": {d.DecisionID}}, record)
}

func (f *fixture) approval(a events.Approval) Built {
	f.t.Helper()
	record := f.encode(a)
	sig, err := f.receipt.SignDetached(signing.TypeRecord, record)
	must(f.t, err)
	return f.log(subject.Space{}.Approval(a.Tenant, a.Status, a.WorkflowID), map[string][]string{events.HeaderSignature: {sig}}, record)
}

const (
	plainEvent  = `{"schema_version":1,"event_id":"8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e6f","event_type":"PostToolUse","source":"runtime-1","session_id":"sess-a","tool_name":"search","tool_input":{"query":"weather"},"metadata":{"tool_call_id":"call-7"}}`
	secretEvent = `{"event_type":"PreToolUse","session_id":"sess-a","tool_input":{"to":"a@example.invalid","body":"private words","headers":{"Authorization":"Bearer abcdef0123456789"},"cmd":"curl -u x https://bob:hunter2@example.invalid/ && export GITHUB_TOKEN=ghp_0123456789abcdefghijABCDEFGHIJ012345"},"metadata":{"redaction":{"applied":false,"fields":["tool_input.body"]}}}`
)

// session fills the log with one of everything.
func (f *fixture) session() {
	f.t.Helper()
	s := subject.Space{}
	f.log(s.Control("GOV", events.ControlKey), nil, f.encode(f.keyRecord()))
	f.admit("sess-a", "0199a000-0000-7000-8000-000000000001", events.Allow, plainEvent)
	f.log(s.Event("acme", "runtime-1", "agenthook", "sess-a", "PreToolUse"), map[string][]string{"Content-Type": {"application/json"}, "X-Api-Key": {"abc"}}, []byte(secretEvent))
	f.admit("sess-b", "0199a000-0000-7000-8000-000000000002", events.Deny, secretEvent)
	f.log(s.Event("acme", "runtime-1", "aaep", "sess-a", "agent.tool.invoked"), nil, []byte("{not json"))
	f.log(s.Call("acme", "completed", "sess-a"), nil, f.encode(events.Call{CallID: "c-1", Tenant: "acme", Source: "runtime-1", Protocol: "agenthook", Session: "sess-a", Occurrence: 1, State: events.CallCompleted, Timeline: []events.TimelineEntry{}}))
	f.log(s.Finding("acme", "high", "sess-a"), nil, f.encode(events.Finding{FindingID: "f-1", Rule: "input_drift", Severity: events.SeverityHigh, Tenant: "acme", Session: "sess-a", EventIDs: []string{"e1"}, Explanation: "ran with token=Zx81kQ instead"}))
	f.approval(events.Approval{WorkflowID: "wf-1", Tenant: "acme", Status: "pending", Session: "sess-a", ActionDigest: digest.Keyed(derived("x"), nil), RequestedAt: events.At(testStart)})
	f.log(s.Event("acme", "runtime-1", "aaep", "", "agent.progress.updated"), nil, []byte(`{"progress":{"percent":0.50}}`))
	f.log(s.Control("GOV", events.ControlTick), nil, f.encode(events.Tick{Shard: "GOV", Due: events.At(testStart)}))
	f.log("gov.events.acme", nil, []byte(plainEvent))
}

func (f *fixture) checkpoint() string {
	f.t.Helper()
	text, err := tree.SignCheckpoint(f.signer, tree.Checkpoint{Shard: testShard, Size: f.tree.Size(), Root: f.tree.Root()})
	must(f.t, err)
	return text
}

func (f *fixture) options() VerifyOptions {
	return VerifyOptions{Shard: testShard, Keys: []note.Verifier{f.verifier}, Checkpoints: []Published{{"stored", f.checkpoint()}}}
}

func (f *fixture) rows() []Row {
	rows := make([]Row, len(f.built))
	for i, b := range f.built {
		rows[i] = b.Row()
	}
	return rows
}

func verifyRows(opts VerifyOptions, rows []Row) Report {
	v := NewVerifier(opts)
	for _, r := range rows {
		v.Row(r)
	}
	return v.Finish()
}

// sessionInput selects one session with proofs.
func (f *fixture) sessionInput(session string) SessionInput {
	f.t.Helper()
	in := SessionInput{Shard: testShard, Tenant: "acme", Session: session, Keys: []note.Verifier{f.verifier},
		Checkpoint: Published{"stored", f.checkpoint()}, ReceiptKeys: []events.KeyRecord{f.keyRecord()}}
	for _, r := range f.rows() {
		if r.Session == session && r.Tenant == "acme" {
			p, err := tree.InclusionProof(f, f.tree.Size(), r.Seq)
			must(f.t, err)
			in.Rows, in.Proofs = append(in.Rows, r), append(in.Proofs, p)
		}
	}
	return in
}
