package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The hooks of Cline are executables with the names of their events; the doctor's call leaves nothing that waits for a
// person, where the policies ask for every tool that they do not know.
func TestHookCline(t *testing.T) {
	t.Parallel()
	h := start(t, "--policy", filepath.Join(root, "examples/policies/coding-agent")).hook(t, "cline", "20s")
	for shell, want := range map[string]string{"ls": `{"cancel":false}`, "git push --force": `{"cancel":true,`} {
		input := object{"taskId": "s-cline", "hookName": "tool_call", "tool_call": object{"id": "c-" + shell, "name": "execute_command", "input": object{"command": shell}}}
		cmd := exec.Command(filepath.Join(h.home, ".cline/hooks/PreToolUse.sh"))
		cmd.Env, cmd.Stdin = h.env, bytes.NewReader(input.bytes())
		if got := command(t, cmd).want(t, 0).out; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", shell, got, want)
		}
	}
	if out := h.countersign(t, "hook", "doctor", "cline").want(t, 0).out; !strings.Contains(out, "refused by the admitter") || !strings.Contains(out, "not checked in the agent") {
		t.Errorf("doctor: %s", out)
	}
	memory := filepath.Join(h.home, "state/countersign/hook")
	ok(t, os.MkdirAll(filepath.Dir(memory), 0o700))
	ok(t, os.WriteFile(memory, nil, 0o600))
	if out := h.countersign(t, "hook", "doctor", "gemini").out; !strings.Contains(out, "memory of calls: mkdir "+memory) {
		t.Errorf("doctor without a memory of calls: %s", out)
	}
	if waits := h.waiting(t); len(waits) != 0 {
		t.Errorf("the doctor leaves what waits for a person: %q", waits)
	}
	h.settle(t)
	if found := h.run(t, "findings", "--session", "countersign-doctor", "--json").out; found != "" {
		t.Errorf("the doctor leaves findings: %s", found)
	}
	h.countersign(t, "hook", "uninstall", "cline").want(t, 0)
	if left, err := filepath.Glob(filepath.Join(h.home, ".cline/hooks/*")); err != nil || len(left) != 0 {
		t.Errorf("uninstalled: %q, %v", left, err)
	}
}

// A managed configuration runs the gate for all users of a machine, each with the gateway of the own home, whatever the
// environment says; calls of a user without one are refused.
func TestHookManaged(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespace can be made here: %s", out)
	}
	h := startHooked(t, "codex", "20s") // writes a configuration into h.home, which no managed gate reads
	const script = `
chmod 755 "$1/.."
mount -t tmpfs -o mode=755 none "$1" && mkdir "$1/up" "$1/work" "$1/bin" "$1/home"
mount -t overlay none -o "lowerdir=/etc,upperdir=$1/up,workdir=$1/work" /etc
mount --bind "$2" "$1/bin"
echo "root:x:0:0:root:$1/home:/bin/sh" > /etc/passwd
export HOME="$4"
"$1/bin/countersign" hook install claude-code --managed >&2
gate=$(jq -r '.hooks.PreToolUse[0].hooks[0].command' /etc/claude-code/managed-settings.json)
echo "$gate" | grep -q -- "^$1/bin/countersign-hook claude-code --managed$"
sh -c "$gate" <<< "$5"
"$1/bin/countersign" hook install claude-code --gate-only --ready-file "$3" >&2
sh -c "$gate" <<< "$5"
XDG_CONFIG_HOME=/nowhere HOME=/nowhere sh -c "$gate" <<< "$5"
setpriv --reuid 65534 --clear-groups sh -c "$gate" <<< "$5"
"$1/bin/countersign" hook doctor claude-code --managed >&2
`
	input := object{"session_id": "s-managed", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "c1", "tool_input": object{"command": "touch forbidden"}}
	cmd := exec.Command("unshare", "-m", "bash", "-ec", script, "sh", t.TempDir(), filepath.Dir(program("countersign")), h.ready, h.home, string(input.bytes()))
	cmd.Env = h.env
	r := command(t, cmd).want(t, 0)
	var reasons []string
	for line := range strings.Lines(r.out) {
		var answer struct {
			Specific struct {
				Reason string `json:"permissionDecisionReason"`
			} `json:"hookSpecificOutput"`
		}
		ok(t, json.Unmarshal([]byte(line), &answer))
		reasons = append(reasons, answer.Specific.Reason)
	}
	for i, want := range []string{"(bad_configuration)", "forbidden. (deny)", "forbidden. (deny)", "(bad_configuration)"} {
		if len(reasons) != 4 || !strings.HasSuffix(reasons[i], want) {
			t.Fatalf("refusal %d of %q, want %s\n%s", i, reasons, want, r.err)
		}
	}
}
