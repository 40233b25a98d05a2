package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// hookPolicies decide about shell commands: those with "forbidden" are denied, those with "asked" wait
// for a person, those that begin with "touch" or "ls" run.
const hookPolicies = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: hook-test}
spec:
  match: {tools: [Bash, bash, run_shell_command]}
  rules:
    - {name: no, when: 'args.command.contains("forbidden")', verdict: deny, reason: forbidden_word, message: This word is forbidden.}
    - {name: ask, when: 'args.command.contains("asked")', verdict: ask, reason: needs_a_person, message: A person must approve this.}
    - {name: yes, when: 'args.command.matches("^(touch|ls)")', verdict: allow, reason: harmless}
`

// hooked is a system with an agent's home whose configuration runs the gate.
type hooked struct {
	*system
	home string
	env  []string
}

func startHooked(t *testing.T, agent, budget string, install ...string) hooked {
	t.Helper()
	return start(t, "--policy", policyDir(t, "hook.yaml", hookPolicies)).hook(t, agent, budget, install...)
}

// hook puts the gate in front of an agent in a home of its own.
func (s *system) hook(t *testing.T, agent, budget string, install ...string) hooked {
	t.Helper()
	home := t.TempDir()
	h := hooked{s, home, cleanEnv("HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, ".config"), "XDG_STATE_HOME="+filepath.Join(home, "state"))}
	h.countersign(t, append([]string{"hook", "install", agent, "--ready-file", s.ready, "--budget", budget}, install...)...).want(t, 0)
	return h
}

// countersign runs the tool in the agent's home.
func (h hooked) countersign(t testing.TB, args ...string) result {
	t.Helper()
	cmd := exec.Command(program("countersign"), args...)
	cmd.Env = h.env
	return command(t, cmd)
}

// gate prepares a run of the gate with an input of Claude Code.
func (h hooked) gate(event, id, shell string) *exec.Cmd {
	input, err := json.Marshal(object{"session_id": "s-hook", "hook_event_name": event, "tool_name": "Bash", "tool_use_id": id, "tool_input": object{"command": shell}})
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(program("countersign-hook"), "claude-code")
	cmd.Env, cmd.Stdin = h.env, bytes.NewReader(input)
	return cmd
}

// before asks for a call as the agent does; the answer is empty if the call may run.
func (h hooked) before(t testing.TB, id, shell string) string {
	t.Helper()
	return h.denied(t, command(t, h.gate("PreToolUse", id, shell)).want(t, 0).out)
}

// denied reads the reason of a refusal in Claude Code's words; empty if there is none.
func (h hooked) denied(t testing.TB, out string) string {
	t.Helper()
	if out == "" {
		return ""
	}
	var answer struct {
		Specific struct {
			Event    string `json:"hookEventName"`
			Decision string `json:"permissionDecision"`
			Reason   string `json:"permissionDecisionReason"`
		} `json:"hookSpecificOutput"`
	}
	ok(t, json.Unmarshal([]byte(out), &answer))
	if answer.Specific.Event != "PreToolUse" || answer.Specific.Decision != "deny" || answer.Specific.Reason == "" {
		t.Fatalf("no refusal: %s", out)
	}
	return answer.Specific.Reason
}

var workflowInText = regexp.MustCompile(`Workflow (\S+?):`)

// The gate in front of an agent, as its configuration runs it: what may run, what may not, what waits
// for a person and runs once when it is repeated, and what is then on record.
func TestHook(t *testing.T) {
	t.Parallel()
	h := startHooked(t, "claude-code", "6s")
	if got := h.before(t, "c1", "ls -la"); got != "" {
		t.Errorf("an allowed call: %s", got)
	}
	command(t, h.gate("PostToolUse", "c1", "ls -la")).want(t, 0)
	if got := h.before(t, "c2", "touch forbidden"); !strings.Contains(got, "This word is forbidden. (deny)") {
		t.Errorf("a denied call: %s", got)
	}
	got := h.before(t, "c3", "touch asked")
	m := workflowInText.FindStringSubmatch(got)
	if m == nil || !strings.Contains(got, "repeat the identical call") {
		t.Fatalf("a call that waits for a person: %s", got)
	}
	_, where, _ := strings.Cut(got, "Where a person decides: countersign ") // works where the gate is installed, without more words
	if shown := h.countersign(t, strings.Fields(where)...).want(t, 0).out; !strings.Contains(shown, m[1]) {
		t.Errorf("%q shows %s", where, shown)
	}
	h.run(t, "approvals", "approve", m[1], "--yes").want(t, 0)
	if got := h.before(t, "c4", "touch asked; rm x"); !strings.Contains(got, "Workflow") || strings.Contains(got, m[1]) {
		t.Errorf("other arguments after the approval: %s", got)
	}
	if got := h.before(t, "c5", "touch asked"); got != "" {
		t.Errorf("the repetition after the approval: %s", got)
	}
	command(t, h.gate("PostToolUse", "c5", "touch asked")).want(t, 0)
	if got := h.before(t, "c6", "touch asked"); !strings.Contains(got, "Workflow") {
		t.Errorf("an approval was used twice: %s", got)
	}
	h.countersign(t, "hook", "install", "claude-code", "--budget", "20s").want(t, 0) // for a busy machine
	out := h.waits(t, "c7", "touch asked and waited for")
	open := h.waiting(t)
	h.run(t, "approvals", "approve", open[len(open)-1], "--yes").want(t, 0)
	if got := h.denied(t, out()); got != "" {
		t.Errorf("approved while the gate waited: %s", got)
	}
	command(t, h.gate("PostToolUse", "c7", "touch asked and waited for")).want(t, 0)
	damaged := h.waits(t, "c8", "touch asked, and the memory is damaged")
	open = h.waiting(t)
	h.damageMemory(t, open[len(open)-1])
	h.run(t, "approvals", "approve", open[len(open)-1], "--yes").want(t, 0)
	if got := h.denied(t, damaged()); !strings.Contains(got, "(memory_of_calls)") {
		t.Errorf("with a damaged memory: %s", got)
	}
	large := "ls " + strings.Repeat("a", 900<<10)
	if got := h.before(t, "c9", large); got != "" {
		t.Errorf("a large call: %.300s", got)
	}
	command(t, h.gate("PostToolUse", "c9", large)).want(t, 0)
	h.settle(t)
	for id, want := range map[string]int{"c7": 2, "c6": 1} { // waiting leaves nothing on record: one ask, and what was decided
		if rows := evidence(t, h.auditors(t), "kind = 'decision' AND session = 's-hook' AND position(record, ?) > 0", `"`+id+`"`); len(rows) != want {
			t.Errorf("the admitter decided %d times on %s, want %d", len(rows), id, want)
		}
	}
	calls := h.run(t, "calls", "--session", "s-hook", "--json").want(t, 0).out
	if line := lineWith(calls, `"tool_call_id":"c8"`); !strings.Contains(line, `"state":"denied"`) {
		t.Errorf("an allowed call that the gate refused: %s", line)
	}
	for _, id := range []string{`"c1"`, `"c3"`, `"c7"`, `"c9"`} { // c5 ran as c3, which was approved
		if line := lineWith(calls, `"tool_call_id":`+id); !strings.Contains(line, `"match":"equal"`) || !strings.Contains(line, `"state":"completed"`) {
			t.Errorf("the call %s is not linked with what ran: %s", id, line)
		}
	}
	if found := h.run(t, "findings", "--session", "s-hook", "--json").out; strings.Contains(found, `"high"`) || strings.Contains(found, `"critical"`) || strings.Contains(found, "AH-C-081") {
		t.Errorf("findings:\n%s", found)
	}
	h.verified(t, 0, "--session", "s-hook")
}

// damageMemory spoils what the gate remembers of the call that waits for a workflow.
func (h hooked) damageMemory(t *testing.T, workflow string) {
	t.Helper()
	eventually(t, "the gate remembers the call", func() error {
		remembered, err := filepath.Glob(filepath.Join(h.home, "state/countersign/hook/*"))
		ok(t, err)
		for _, path := range remembered {
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(workflow)) {
				return os.WriteFile(path, []byte("{"), 0o600)
			}
		}
		return errorf("%q", remembered)
	})
}

// waits starts the gate for a call that waits for a person, and returns when it does. The function waits for the gate's
// answer.
func (h hooked) waits(t *testing.T, id, shell string) (answer func() string) {
	t.Helper()
	open := len(h.waiting(t))
	cmd := h.gate("PreToolUse", id, shell)
	var out bytes.Buffer
	cmd.Stdout = &out
	p, err := launch(cmd)
	ok(t, err)
	eventually(t, "the call waits for a person", func() error {
		if list := h.waiting(t); len(list) != open+1 {
			return errorf("%v", list)
		}
		return nil
	})
	return func() string {
		ok(t, p.wait())
		return out.String()
	}
}

// waiting are the workflows that wait for a person, oldest first.
func (h hooked) waiting(t *testing.T) (ids []string) {
	t.Helper()
	list, _ := h.review(t, 0, "list")["workflows"].([]any) // nil if there are none
	for _, w := range list {
		ids = append(ids, w.(map[string]any)["workflow_id"].(string))
	}
	return ids
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

// Killed while it waits for a person, in any way that a program can notice, the gate refuses; once a person
// has approved, the repeated call runs however the gate ended. It refuses when the gateway stands still or is gone.
func TestHookRefusesInTrouble(t *testing.T) {
	t.Parallel()
	h := startHooked(t, "claude-code", "20s")
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL} {
		shell := "touch asked " + string(rune('a'+i))
		cmd := h.gate("PreToolUse", "c"+sig.String(), shell)
		var out bytes.Buffer
		cmd.Stdout = &out
		p, err := launch(cmd)
		ok(t, err)
		eventually(t, "the call waits for a person, and the gate remembers it", func() error {
			remembered, err := filepath.Glob(filepath.Join(h.home, "state/countersign/hook/*"))
			if list := h.review(t, 0, "list"); err != nil || len(remembered) != i+1 || len(list["workflows"].([]any)) != 1 {
				return errorf("%v, %v, %v", list, remembered, err)
			}
			return nil
		})
		p.signal(sig)
		if err := p.wait(); (err == nil) != (sig != syscall.SIGKILL) {
			t.Errorf("%v: %v", sig, err)
		} else if err == nil {
			if got := h.denied(t, out.String()); !strings.Contains(got, "no_") {
				t.Errorf("%v: %q", sig, got)
			}
		}
		waits := h.review(t, 0, "list")["workflows"].([]any)[0].(map[string]any)["workflow_id"].(string)
		h.run(t, "approvals", "approve", waits, "--yes").want(t, 0)
		if got := h.before(t, "again"+sig.String(), shell); got != "" {
			t.Errorf("%v: approved and repeated, the call is refused: %s", sig, got)
		}
	}
	h.countersign(t, "hook", "install", "claude-code", "--budget", "2s").want(t, 0)
	gateway := h.info(t).PIDs["gateway"]
	ok(t, syscall.Kill(gateway, syscall.SIGSTOP))
	if got := h.before(t, "still", "ls"); !strings.Contains(got, "no_") {
		t.Errorf("a gateway that stands still: %q", got)
	}
	ok(t, syscall.Kill(gateway, syscall.SIGCONT))
	h.countersign(t, "hook", "install", "claude-code", "--ready-file", h.ready, "--budget", "20s").want(t, 0) // for a busy machine
	doctor := h.countersign(t, "hook", "doctor", "claude-code")
	if doctor.code != 0 || !strings.Contains(doctor.out, "refused by the admitter") || !strings.Contains(doctor.out, "mentions with @") {
		t.Errorf("doctor: exit %d\n%s%s", doctor.code, doctor.out, doctor.err)
	}
	h.countersign(t, "hook", "install", "claude-code", "--budget", "6s").want(t, 0)
	out := h.waits(t, "goes", "touch asked, and the gateway goes")
	h.countersign(t, "hook", "install", "claude-code", "--budget", "2s").want(t, 0)
	ok(t, h.stop())
	if got := h.denied(t, out()); !strings.Contains(got, "Workflow wf-") {
		t.Errorf("the gateway went while the call waited: %q", got)
	}
	if got := h.before(t, "gone", "ls"); !strings.Contains(got, "no_verdict") && !strings.Contains(got, "bad_configuration") {
		t.Errorf("a gateway that is gone: %q", got)
	}
	if doctor := h.countersign(t, "hook", "doctor", "claude-code"); doctor.code != 1 {
		t.Errorf("doctor without a gateway: exit %d\n%s", doctor.code, doctor.out)
	}
	if out := h.countersign(t, "hook", "uninstall", "claude-code").want(t, 0).err; !strings.Contains(out, filepath.Join(h.home, "state/countersign/hook")+": remove it") {
		t.Errorf("uninstall: %s", out)
	}
	if text, err := os.ReadFile(filepath.Join(h.home, ".claude/settings.json")); err != nil || strings.Contains(string(text), "countersign") {
		t.Errorf("after uninstall: %s, %v", text, err)
	}
}
