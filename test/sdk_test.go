package e2e_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sdkPolicies decide about the tools of the SDKs' tests.
const sdkPolicies = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: sdk-test}
spec:
  match: {tools: [allowed_tool, denied_tool, asked_tool]}
  rules:
    - {name: no, when: 'tool == "denied_tool"', verdict: deny, reason: forbidden_tool, message: This tool is forbidden.}
    - {name: ask, when: 'tool == "asked_tool"', verdict: ask, reason: needs_a_person, message: A person must approve this.}
    - {name: yes, when: 'tool == "allowed_tool"', verdict: allow, reason: harmless}
`

// The Python SDK's own tests, against a system; and what is then on record: what ran is linked with
// what was admitted, and nothing else ran.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 to run the Python SDK with")
	}
	s := start(t, "--policy", policyDir(t, "sdk.yaml", sdkPolicies))
	cmd := exec.Command("python3", "-m", "unittest", "discover", "-s", "tests", "-v")
	cmd.Dir = filepath.Join(root, "sdk/python")
	countersign, err := filepath.Abs(program("countersign"))
	ok(t, err)
	cmd.Env = cleanEnv("COUNTERSIGN_READY_FILE="+s.ready, "COUNTERSIGN="+countersign, "COUNTERSIGN_TEST_SESSION=s-python", "PYTHONDONTWRITEBYTECODE=1")
	r := command(t, cmd)
	if r.code != 0 || strings.Contains(r.err, "skipped") {
		t.Fatalf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	s.settle(t)
	ended := map[string]int{}
	for line := range strings.Lines(s.run(t, "calls", "--session", "s-python", "--json").want(t, 0).out) {
		for _, state := range []string{"completed", "failed", "denied", "open"} {
			if strings.Contains(line, `"state":"`+state+`"`) {
				ended[state]++
			}
		}
		if strings.Contains(line, `"executed_digest"`) && !strings.Contains(line, `"match":"equal"`) {
			t.Errorf("what ran is not what was admitted: %s", line)
		}
	}
	if ended["completed"] != 2 || ended["failed"] != 1 || ended["denied"] != 3 {
		t.Errorf("calls by their end: %v", ended)
	}
	if found := s.run(t, "findings", "--session", "s-python", "--json").out; strings.Contains(found, `"severity":"high"`) || strings.Contains(found, `"severity":"critical"`) {
		t.Errorf("findings:\n%s", found)
	}
}

// The example agent: one call runs, one is denied, one runs once a person has approved it.
func TestPythonAgent(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 to run the Python SDK with")
	}
	s := start(t)
	cmd := exec.Command("python3", "examples/agents/agent.py", s.ready)
	cmd.Dir, cmd.Env = root, cleanEnv("PYTHONPATH=sdk/python", "PYTHONDONTWRITEBYTECODE=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := launch(cmd)
	ok(t, err)
	eventually(t, "the mail waits for a person", func() error {
		list, _ := s.review(t, 0, "list")["workflows"].([]any)
		if len(list) != 1 {
			return errorf("%v", list)
		}
		s.run(t, "approvals", "approve", list[0].(map[string]any)["workflow_id"].(string), "--yes").want(t, 0)
		return nil
	})
	ok(t, p.wait())
	want := []string{"read_file: the content of /etc/hostname", "write_file: refused: deny: ", "send_email: sent to press@newspaper.example"}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, line := range want {
		if len(lines) != len(want) || !strings.HasPrefix(lines[i], line) {
			t.Fatalf("the agent wrote\n%s", out.String())
		}
	}
}
