package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/testkit"
)

// world is an admitter's key with the checkpoint key's word for it.
type world struct {
	t      *testing.T
	key    signing.PrivateKey
	record string
	public string // file
}

func newWorld(t *testing.T) world {
	t.Helper()
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	ok(t, err)
	private, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{2}, 32)))
	ok(t, err)
	signer, err := signing.CheckpointSigner(private)
	ok(t, err)
	k := events.KeyRecord{KeyID: key.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(key.Public()), CreatedAt: events.At(time.Now())}
	k.Vouch, err = signing.SignKeyRecord(signer, k)
	ok(t, err)
	record, err := events.Encode(k)
	ok(t, err)
	file := filepath.Join(t.TempDir(), "checkpoint.pub")
	ok(t, os.WriteFile(file, []byte(public+"\n"), 0o600))
	return world{t, key, string(record), file}
}

var ok = testkit.OK

// call is what a runtime hands over after an allow.
func (w world) call(id, arguments string) handedOver {
	w.t.Helper()
	now := time.Now()
	c := receipt.Claims{DecisionID: "d-" + id, Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: id, Tool: "echo", Verdict: events.Allow,
		IssuedAt: events.At(now), ExpiresAt: events.At(now.Add(time.Minute)), Nonce: "n-" + id}
	ok(w.t, c.BindArguments(bytes.Repeat([]byte{3}, receipt.SaltSize), []byte(arguments)))
	token, _, err := receipt.Issue(w.key, c)
	ok(w.t, err)
	return handedOver{Source: "rt1", Session: "s1", ToolCallID: id, Tool: "echo", Arguments: json.RawMessage(arguments), Receipt: token, Key: w.record}
}

func TestExecutor(t *testing.T) {
	w := newWorld(t)
	good := w.call("c1", `{"text":"hi"}`)
	changed := w.call("c2", `{"text":"hi"}`)
	changed.Arguments = json.RawMessage(`{"text":"bye"}`)
	moved := w.call("c3", `{"text":"hi"}`)
	moved.ToolCallID = "c4"
	bare := w.call("c5", `{"text":"hi"}`)
	bare.Receipt = ""
	odd := w.call("c6", `{"text":"hi"}`)
	odd.Tool = "rm"
	failing := w.call("c7", `{"text":7}`)
	var in bytes.Buffer
	for _, c := range []handedOver{good, good, changed, moved, bare, odd, failing} {
		b, err := json.Marshal(c)
		ok(t, err)
		in.Write(append(b, '\n'))
	}
	used := filepath.Join(t.TempDir(), "used")
	args := []string{"-key", w.public, "-used", used}
	var out bytes.Buffer
	ok(t, run(context.Background(), args, &in, &out))
	want := []string{
		`{"tool_call_id":"c1","ran":true,"result":"hi"}`,
		`{"tool_call_id":"c1","ran":false,"refused":"receipt_used"}`,
		`{"tool_call_id":"c2","ran":false,"refused":"receipt_other_arguments"}`,
		`{"tool_call_id":"c4","ran":false,"refused":"receipt_other_tool_call"}`,
		`{"tool_call_id":"c5","ran":false,"refused":"receipt_missing"}`,
		`{"tool_call_id":"c6","ran":false,"refused":"unknown_tool"}`,
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want)+1 {
		t.Fatalf("%s", out.String())
	}
	for i := range want {
		if lines[i] != want[i] {
			t.Errorf("%s, want %s", lines[i], want[i])
		}
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, `"ran":true`) || !strings.Contains(last, `"error":`) {
		t.Errorf("a tool that fails: %s", last)
	}
	// Another executor of this machine, or this one after a restart.
	again, err := json.Marshal(good)
	ok(t, err)
	out.Reset()
	ok(t, run(context.Background(), args, bytes.NewReader(again), &out))
	if !strings.Contains(out.String(), "receipt_used") {
		t.Errorf("another process: %s", out.String())
	}
}

func TestExecutorNeedsItsKey(t *testing.T) {
	for name, args := range map[string][]string{
		"no file": {"-key", filepath.Join(t.TempDir(), "absent")}, "no key": {"-key", os.DevNull}, "no flag": {"-frobnicate"},
	} {
		if err := run(context.Background(), args, strings.NewReader(""), &bytes.Buffer{}); err == nil {
			t.Errorf("%s: it starts", name)
		}
	}
}
