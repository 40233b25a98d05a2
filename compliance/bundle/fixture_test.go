package bundle

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
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
	"github.com/countersign-dev/countersign/internal/testkit"
)

const shard = "GOV@20261120T064150.123456789Z"

var begin = time.Date(2026, 11, 20, 6, 42, 0, 0, time.UTC)

func derived(name string) []byte {
	mac := hmac.New(sha256.New, []byte("compliance tests"))
	mac.Write([]byte(name))
	return mac.Sum(nil)
}

type derivedKeys struct{}

func (derivedKeys) TenantKey(tenant string) []byte { return derived("tenant/" + tenant) }
func (derivedKeys) SessionSecret(tenant, session string) ([]byte, error) {
	return derived("session/" + tenant + "/" + session), nil
}

// world is a log with evidence of it.
type world struct {
	t       testing.TB
	builder *build.Builder
	chain   *build.Chain
	receipt signing.PrivateKey
	signer  note.Signer
	vkey    string
	tree    tree.Tree
	hashes  []tlog.Hash
	rows    []evidence.Row
	n       int
	policy  *events.PolicyRef // that decisions name
}

func newWorld(t testing.TB) *world {
	t.Helper()
	b, err := build.NewBuilder(shard, subject.Space{})
	ok(t, err)
	skey, vkey, err := signing.NewCheckpointKey(bytes.NewReader(derived("checkpoint")))
	ok(t, err)
	signer, err := signing.CheckpointSigner(skey)
	ok(t, err)
	receipt, err := signing.NewPrivateKey(derived("receipt"))
	ok(t, err)
	return &world{t: t, builder: b, chain: build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0),
		receipt: receipt, signer: signer, vkey: vkey}
}

var ok = testkit.OK

func (w *world) log(subj string, header map[string][]string, body []byte) {
	w.t.Helper()
	w.n++
	m := events.LogMessage{Seq: uint64(w.n), Subject: subj, Time: begin.Add(time.Duration(w.n) * time.Second), Header: header, Body: body}
	built, err := w.builder.BuildBatch(w.chain, []events.LogMessage{m}, derivedKeys{})
	ok(w.t, err)
	w.chain.Commit()
	for _, n := range w.tree.Append(built[0].Hash) {
		w.hashes = append(w.hashes, n.Hash)
	}
	w.rows = append(w.rows, built[0].Row())
}

func (w *world) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, n := range indexes {
		out[i] = w.hashes[n]
	}
	return out, nil
}

func (w *world) encode(v any) []byte {
	b, err := events.Encode(v)
	ok(w.t, err)
	return b
}

// call logs a request, its decision, and what ran.
func (w *world) call(tenant, session string, verdict events.Verdict) {
	w.t.Helper()
	s := subject.Space{}
	id := fmt.Sprintf("0199a000-0000-7000-8000-%012d", w.n)
	body := []byte(`{"event_type":"PreToolUse","tool_name":"send_email","metadata":{"tool_call_id":"c1"},"tool_input":{"to":"a@example.invalid"}}`)
	w.log(s.Request(tenant, "runtime-1", "agenthook", session), map[string][]string{events.HeaderDecisionID: {id}}, body)
	record := w.encode(events.Decision{DecisionID: id, Tenant: tenant, Protocol: "agenthook", Source: "runtime-1", Session: session, ToolCallID: "c1", Tool: "send_email", Agent: "bot",
		RequestDigest: digest.Keyed(derivedKeys{}.TenantKey(tenant), body), Verdict: verdict, Policy: w.policy, Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule_matched"}},
		ReceivedAt: events.At(begin.Add(time.Duration(w.n) * time.Second)), DecidedAt: events.At(begin)})
	sig, err := w.receipt.SignDetached(signing.TypeRecord, record)
	ok(w.t, err)
	w.log(s.Decision(tenant, string(verdict), session), map[string][]string{events.HeaderSignature: {sig}}, record)
	w.log(s.Call(tenant, "completed", session), nil, w.encode(events.Call{CallID: id, Tenant: tenant, Source: "runtime-1", Protocol: "agenthook", Session: session, Occurrence: 1,
		State: events.CallCompleted, Verdict: verdict, Timeline: []events.TimelineEntry{}}))
	if verdict == events.Deny {
		w.log(s.Finding(tenant, "critical", session), nil, w.encode(events.Finding{FindingID: id, Rule: "executed_despite_deny", Severity: events.SeverityCritical, Tenant: tenant,
			Session: session, EventIDs: []string{}, Explanation: "it ran"}))
	}
}

// approval logs a step of a workflow.
func (w *world) approval(tenant, session string) {
	w.t.Helper()
	record := w.encode(events.Approval{WorkflowID: "wf", Tenant: tenant, Status: "pending", Session: session, ActionDigest: digest.Keyed(derived("x"), nil), RequestedAt: events.At(begin)})
	sig, err := w.receipt.SignDetached(signing.TypeRecord, record)
	ok(w.t, err)
	w.log(subject.Space{}.Approval(tenant, "pending", "wf"), map[string][]string{events.HeaderSignature: {sig}}, record)
}

func (w *world) checkpoint() string {
	text, err := tree.SignCheckpoint(w.signer, tree.Checkpoint{Shard: shard, Size: w.tree.Size(), Root: w.tree.Root()})
	ok(w.t, err)
	return text
}

func (w *world) keys() []events.KeyRecord {
	k := events.KeyRecord{KeyID: w.receipt.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(w.receipt.Public()), CreatedAt: events.At(begin)}
	var err error
	k.Vouch, err = signing.SignKeyRecord(w.signer, k)
	ok(w.t, err)
	return []events.KeyRecord{k}
}

// input is the bundle of a session.
func (w *world) input(tenant, session string) Input {
	in := Input{Shard: shard, Tenant: tenant, Session: session, Checkpoint: w.checkpoint(), Keys: w.keys(), Decided: stored{}}
	for _, r := range w.rows {
		if r.Tenant == tenant && r.Session == session {
			p, err := tree.InclusionProof(w, w.tree.Size(), r.Seq)
			ok(w.t, err)
			in.Rows, in.Proofs = append(in.Rows, r), append(in.Proofs, p)
		}
	}
	return in
}
