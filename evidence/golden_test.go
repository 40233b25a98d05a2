package evidence

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
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	"github.com/countersign-dev/countersign/evidence/tree"
)

const (
	formatDoc   = "../docs/evidence-format.md"
	vectorStart = "<!-- vectors: checked by TestGoldenVectors; UPDATE_GOLDEN=1 go test ./evidence rewrites them -->\n"
	vectorEnd   = "<!-- end of vectors -->\n"
)

// vectors writes the worked example of the format's documentation.
func vectors(t *testing.T) string {
	f := newFixture(t)
	header := map[string][]string{"Content-Type": {"application/json"}, "Nats-Expected-Stream": {"GOV"}, "X-Api-Key": {"abc"}}
	f.log("gov.events.acme.runtime-1.agenthook.sess-a.PostToolUse", nil, []byte(plainEvent))
	f.log("gov.events.acme.runtime-1.agenthook.sess-a.PreToolUse", header, []byte(secretEvent))
	f.log("gov.events.acme.runtime-1.aaep.sess-a.agent.tool.invoked", nil, []byte("{not json"))
	f.log("gov.control.GOV.tick", nil, f.encode(events.Tick{Shard: "GOV", Due: events.At(testStart)}))
	f.decision(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000001", Tenant: "acme", Protocol: "agenthook", Source: "runtime-1", Session: "sess-a",
		RequestDigest: digest.Plain([]byte("{}")), Verdict: events.Deny, Reasons: []events.Reason{}, DecidedAt: events.At(testStart)})
	f.builder = policyFixture(t, samplePolicy).builder
	f.log("gov.events.acme.runtime-1.agenthook.sess-a.PostToolUse", map[string][]string{"X-User": {"dana"}}, []byte(personalEvent))
	f.log("gov.events.acme.runtime-1.aana.sess-a.request", nil, []byte(`{"tool_name":"send_email","proposed_arguments":{"to":"dana@other.example","n":3}}`))

	var b strings.Builder
	block := func(title, text string) {
		fmt.Fprintf(&b, "%s\n\n```\n%s\n```\n\n", title, strings.TrimSuffix(text, "\n"))
	}
	block("Keys: tenant digest key, session key, checkpoint seed, receipt seed (hex), and the checkpoint verifier key.",
		fmt.Sprintf("%x\n%x\n%x\n%x\n%s", derived("tenant/acme"), derived("session/acme/sess-a"), derived("checkpoint"), derived("receipt"), f.vkey))
	for i, m := range f.msgs {
		h, err := json.Marshal(m.Header)
		must(t, err)
		fmt.Fprintf(&b, "#### Message %d\n\n", m.Seq)
		block("Subject, broker time, headers, body (the body in base64).", fmt.Sprintf("%s\n%s\n%s\n%s", m.Subject, events.At(m.Time), h, base64.StdEncoding.EncodeToString(m.Body)))
		block("Record.", string(f.built[i].Canonical))
		leaf := tree.LeafHash(f.built[i].Hash)
		block("Record hash, leaf hash.", hex.EncodeToString(f.built[i].Hash[:])+"\n"+hex.EncodeToString(leaf[:]))
	}
	block("The redaction policy of messages 6 and 7.", samplePolicy)
	block("Signed checkpoint.", f.checkpoint())
	proof, err := tree.InclusionProof(f, int64(len(f.msgs)), 2)
	must(t, err)
	var path []string
	for _, h := range proof {
		path = append(path, h.String())
	}
	block("Inclusion proof of sequence 2 in the tree of size 7 (base64).", strings.Join(path, "\n"))
	k := f.keyRecord()
	block("Vouched key record (RFC 8785).", string(f.encode(k)))
	moreVectors(t, f, block)
	wrapped, err := WrapSessionSecret(derived("wrapping"), "acme", "sess-a", derived("session/acme/sess-a"), derived("nonce")[:12])
	must(t, err)
	block("Wrapped session key: wrapping key, nonce, result (hex).", fmt.Sprintf("%x\n%x\n%x", derived("wrapping"), derived("nonce")[:12], wrapped))
	return b.String()
}

func TestGoldenVectors(t *testing.T) {
	doc, err := os.ReadFile(formatDoc)
	must(t, err)
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
		must(t, os.WriteFile(formatDoc, []byte(before+vectorStart+want+vectorEnd+after), 0o644))
		t.Skip("vectors rewritten; run again")
	}
	at := firstDifference([]byte(got), []byte(want))
	t.Errorf("the format changed, or its documentation: first at byte %d of the vectors\n doc %.200q\n now %.200q", at, got[at:], want[at:])
}

// TestDocumentedCodes keeps the list of problem codes and detectors complete.
func TestDocumentedCodes(t *testing.T) {
	doc, err := os.ReadFile(formatDoc)
	must(t, err)
	report, err := os.ReadFile("report.go")
	must(t, err)
	for line := range strings.SplitSeq(string(report), "\n") {
		if _, value, ok := strings.Cut(line, " Code = \""); ok {
			code, _, _ := strings.Cut(value, "\"")
			if !strings.Contains(string(doc), "`"+code+"`") {
				t.Errorf("%s does not explain %s", formatDoc, code)
			}
		}
	}
	for _, name := range append(redact.Detectors(), redact.ClassDetectors()...) {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("%s does not explain detector %s", formatDoc, name)
		}
	}
}
