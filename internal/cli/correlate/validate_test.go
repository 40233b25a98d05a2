package correlate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// validate runs the command on a text and returns what it prints, and its exit code.
func validate(t *testing.T, protocol, text string, json bool) (string, int) {
	t.Helper()
	var out bytes.Buffer
	c := ValidateCmd{Protocol: protocol, File: "-", JSON: json}
	err := c.Run(context.Background(), ui.Stdio{In: strings.NewReader(text), Out: &out, Err: &out})
	var code ui.ExitCode
	var usage ui.UsageError
	switch {
	case err == nil:
		return out.String(), ui.ExitOK
	case errors.As(err, &code):
		return out.String(), int(code)
	case errors.As(err, &usage):
		return err.Error(), ui.ExitUsage
	}
	t.Fatal(err)
	return "", 0
}

// Every sample request and session is valid in its protocol.
func TestSamplesAreValid(t *testing.T) {
	for name, protocol := range map[string]string{
		"requests/pre-tool-use.json": "agenthook", "requests/pre-tool-use-external.json": "agenthook", "requests/pre-tool-use-denied.json": "agenthook",
		"requests/aaep-tool-invoked.json": "aaep", "requests/aana-write.json": "aana", "requests/aana-refused.json": "aana", "requests/aana-public-read.json": "aana",
		"requests/aump-action.json": "aump", "requests/handoff.json": "handoff", "requests/tool-call.json": "tool",
	} {
		text, err := fs.ReadFile(examples.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		if out, code := validate(t, protocol, string(text), false); code != ui.ExitOK || !strings.HasPrefix(out, "valid\n") {
			t.Errorf("%s: %d %s", name, code, out)
		}
	}
	for _, session := range []string{"aaep-flight", "agenthook-mail"} {
		text, err := os.ReadFile(filepath.Join("../../../examples/sessions", session+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if out, code := validate(t, strings.Split(session, "-")[0], string(text), false); code != ui.ExitOK {
			t.Errorf("%s: %d %s", session, code, out)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		protocol, text, want string
		code                 int
	}{
		{"agenthook", "{}", "not valid\n  error: ", ui.ExitFailed},
		{"agenthook", "{\n  \"event_id\": 5\n}", "AH-C-003", ui.ExitFailed},
		{"agenthook", "{}\n{}", "document 2: not valid", ui.ExitFailed},
		{"agenthook", "[{},{}]", "document 2: not valid", ui.ExitFailed},
		{"agenthook", "{\"a\":", "cannot be read", ui.ExitFailed},
		{"agenthook", "[{}", "cannot be read", ui.ExitFailed},
		{"agenthook", "5", "cannot be read", ui.ExitFailed},
		{"agenthook", "{}\nnonsense", "document 2: cannot be read", ui.ExitFailed},
		{"agenthook", `{"event_id":"x","event_id":"y"}`, "cannot be read", ui.ExitFailed},
		{"agenthook", " \n", "holds no document", ui.ExitUsage},
		{"agenthook", "[]", "holds no document", ui.ExitUsage},
		{"nonsense", "{}", "one of aaep, agenthook", ui.ExitUsage},
	} {
		if out, code := validate(t, c.protocol, c.text, false); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s %q: %d %s", c.protocol, c.text, code, out)
		}
	}
	file := filepath.Join(t.TempDir(), "one.json")
	var said bytes.Buffer
	if err := os.WriteFile(file, []byte("# prose"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&ValidateCmd{Protocol: "agenthook", File: file}).Run(t.Context(), ui.Stdio{Out: &said}); err == nil || !strings.HasPrefix(said.String(), file+": cannot be read") {
		t.Errorf("%v %s", err, said.String())
	}
	out, code := validate(t, "agenthook", `{"event_id":"secret-value"}`, true)
	var v validated
	if json.Unmarshal([]byte(out), &v) != nil || code != ui.ExitFailed || v.Valid || len(v.Violations) == 0 || v.Document != 1 || strings.Contains(out, "secret-value") {
		t.Errorf("%d %s", code, out)
	}
}
