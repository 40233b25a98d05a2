package evidence_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
	"github.com/countersign-dev/countersign/evidence/tree"
)

const (
	formatDoc   = "../test/verifier/example.md"
	vectorStart = "<!-- vectors: checked by TestGoldenVectors; UPDATE_GOLDEN=1 go test ./evidence rewrites them -->\n"
	vectorEnd   = "<!-- end of vectors -->\n"
)

// vectors writes the worked example of docs/evidence-format.md.
func vectors(t *testing.T) string {
	f := evidencetest.New(t)
	header := map[string][]string{"Content-Type": {"application/json"}, "Nats-Expected-Stream": {"GOV"}, "X-Api-Key": {"abc"}}
	f.Log("gov.events.acme.runtime-1.agenthook.sess-a.PostToolUse", nil, []byte(evidencetest.PlainEvent))
	f.Log("gov.events.acme.runtime-1.agenthook.sess-a.PreToolUse", header, []byte(evidencetest.SecretEvent))
	f.Log("gov.events.acme.runtime-1.aaep.sess-a.agent.tool.invoked", nil, []byte("{not json"))
	f.Log("gov.control.GOV.tick", nil, f.Encode(events.Tick{Shard: "GOV", Due: events.At(evidencetest.Start)}))
	f.Decision(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000001", Tenant: "acme", Protocol: "agenthook", Source: "runtime-1", Session: "sess-a",
		RequestDigest: digest.Plain([]byte("{}")), Verdict: events.Deny, Reasons: []events.Reason{}, DecidedAt: events.At(evidencetest.Start)})
	f.Builder = evidencetest.NewWithPolicy(t, evidencetest.SamplePolicy).Builder
	f.Log("gov.events.acme.runtime-1.agenthook.sess-a.PostToolUse", map[string][]string{"X-User": {"dana"}}, []byte(evidencetest.PersonalEvent))
	f.Log("gov.events.acme.runtime-1.aana.sess-a.request", nil, []byte(`{"tool_name":"send_email","proposed_arguments":{"to":"dana@other.example","n":3}}`))

	var b strings.Builder
	block := func(title, text string) {
		fmt.Fprintf(&b, "%s\n\n```\n%s\n```\n\n", title, strings.TrimSuffix(text, "\n"))
	}
	block("Keys: tenant digest key, session key, checkpoint seed, receipt seed (hex), and the checkpoint verifier key.",
		fmt.Sprintf("%x\n%x\n%x\n%x\n%s", evidencetest.Derived("tenant/acme"), evidencetest.Derived("session/acme/sess-a"), evidencetest.Derived("checkpoint"), evidencetest.Derived("receipt"), f.VKey))
	for i, m := range f.Messages {
		h, err := json.Marshal(m.Header)
		evidencetest.Must(t, err)
		fmt.Fprintf(&b, "#### Message %d\n\n", m.Seq)
		block("Subject, broker time, headers, body (the body in base64).", fmt.Sprintf("%s\n%s\n%s\n%s", m.Subject, events.At(m.Time), h, base64.StdEncoding.EncodeToString(m.Body)))
		block("Record.", string(f.Built[i].Canonical))
		leaf := tree.LeafHash(f.Built[i].Hash)
		block("Record hash, leaf hash.", hex.EncodeToString(f.Built[i].Hash[:])+"\n"+hex.EncodeToString(leaf[:]))
	}
	block("The redaction policy of messages 6 and 7.", evidencetest.SamplePolicy)
	block("Signed checkpoint.", f.Checkpoint())
	proof, err := tree.InclusionProof(f, int64(len(f.Messages)), 2)
	evidencetest.Must(t, err)
	var path []string
	for _, h := range proof {
		path = append(path, h.String())
	}
	block("Inclusion proof of sequence 2 in the tree of size 7 (base64).", strings.Join(path, "\n"))
	k := f.KeyRecord()
	block("Vouched key record (RFC 8785).", string(f.Encode(k)))
	moreVectors(t, f, block)
	wrapped, err := evidence.WrapSessionSecret(evidencetest.Derived("wrapping"), "acme", "sess-a", evidencetest.Derived("session/acme/sess-a"), evidencetest.Derived("nonce")[:12])
	evidencetest.Must(t, err)
	block("Wrapped session key: wrapping key, nonce, result (hex).", fmt.Sprintf("%x\n%x\n%x", evidencetest.Derived("wrapping"), evidencetest.Derived("nonce")[:12], wrapped))
	return b.String()
}

func TestGoldenVectors(t *testing.T) {
	doc, err := os.ReadFile(formatDoc)
	evidencetest.Must(t, err)
	before, rest, ok1 := strings.Cut(string(doc), vectorStart)
	got, after, ok2 := strings.Cut(rest, vectorEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no section for vectors", formatDoc)
	}
	want := "\n" + vectors(t)
	if got == want {
		return
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		evidencetest.Must(t, os.WriteFile(formatDoc, []byte(before+vectorStart+want+vectorEnd+after), 0o644))
		t.Skip("vectors rewritten; run again")
	}
	at := canonical.FirstDifference([]byte(got), []byte(want))
	t.Errorf("the format changed, or its documentation: first at byte %d of the vectors\n doc %.200q\n now %.200q", at, got[at:], want[at:])
}
