package agenthook_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Upstream's example events are read without an error, and its golden pair says
// that what was asked for is what ran.
func TestUpstreamIsRead(t *testing.T) {
	dir := os.Getenv("COUNTERSIGN_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	dir = filepath.Join(dir, "upstream", "agenthook")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("upstream's examples are not there (set COUNTERSIGN_SHARED): %v", err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "examples", "*.json"))
	events := map[string]*agenthook.Event{}
	for _, f := range append(files, filepath.Join(dir, "sample-event.json")) {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
		if err != nil {
			t.Errorf("%s: %v", f, err)
		}
		if _, isEvent := tree["event_type"]; !isEvent {
			continue // manifests, a lock file, an attestation, a reply
		}
		if events[filepath.Base(f)], err = agenthook.Decode(raw, strictjson.DefaultLimits); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
	if len(events) < 8 {
		t.Errorf("only %d events", len(events))
	}
	pre, post := events["pre-tool-use-action-governance-email-send.json"], events["post-tool-use-action-governance-email-send.json"]
	if pre == nil || post == nil || pre.ToolCallID() == "" || pre.ToolCallID() != post.ToolCallID() {
		t.Fatal("the golden pair is not one")
	}
	asked, ran := pre.InputCanonical(), post.Metadata.Get("tool_input_executed").AppendCanonical(nil)
	if asked == nil || !post.HasExecuted() || !bytes.Equal(asked, ran) {
		t.Errorf("asked %s; ran %s", asked, ran)
	}
}
