package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// file writes a file for a command to read.
func file(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "input.json")
	ok(t, os.WriteFile(path, content, 0o600))
	return path
}

// admit takes the request from standard input, its session and call from flags.
func TestAdmitCommand(t *testing.T) {
	s := shared(t)
	cmd := exec.Command(program("countersign"), "admit", "--timeout", "1m", "--protocol", "agenthook", "--session", "s-cli-header", "--tool-call-id", "c9", "-")
	cmd.Stdin = strings.NewReader(string(allowedCall("x", "c1").with("session_id", nil).with("metadata", nil).bytes()))
	command(t, cmd, "COUNTERSIGN_READY_FILE="+s.ready).want(t, 0)
	s.settle(t)
	if n := number(t, s.auditors(t), "SELECT count() FROM decisions WHERE session = 's-cli-header' AND tool_call_id = 'c9'"); n != 1 {
		t.Errorf("%d decisions under the headers' session and call", n)
	}
}

// publish: exit 0 only when everything is stored.
func TestPublishCommand(t *testing.T) {
	s := shared(t)
	rogue := filepath.Join(root, "examples/sessions/agenthook-rogue.jsonl")
	if r := s.run(t, "publish", "--protocol", "agenthook", rogue).want(t, 0); !strings.Contains(r.out, "4 stored") {
		t.Errorf("%s", r.out)
	}
	s.settle(t)
	if n := number(t, s.auditors(t), "SELECT count() FROM evidence WHERE session = 'sess-rogue-1' AND kind = 'event'"); n != 4 {
		t.Errorf("%d events in evidence", n)
	}
	array := "[" + strings.Join([]string{string(hook("s-cli-pub", "SessionStart").bytes()), string(hook("s-cli-pub", "SessionEnd").bytes())}, ",") + "]"
	s.run(t, "publish", "--quiet", "--protocol", "agenthook", file(t, []byte(array))).want(t, 0)
	s.run(t, "publish", "--protocol", "agenthook", file(t, nil)).want(t, 2).oneLine(t)
	s.run(t, "publish", "--protocol", "nonsense", rogue).want(t, 2).oneLine(t, "nonsense")
	s.run(t, "publish", "--protocol", "agenthook", "--publisher", "somebody-else", rogue).want(t, 1).oneLine(t, "may not publish as somebody-else")
	s.run(t, "publish", "--protocol", "agenthook", filepath.Join(t.TempDir(), "absent")).want(t, 2).oneLine(t, "absent")
}

// chain and explain-by-eye: the session's records in order, as stored.
func TestChainCommand(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	call := deniedCall("s-cli-chain", "c1")
	r.admit(t, "agenthook", call.bytes())
	r.publish(t, call)
	r.publish(t, postToolUse(call))
	s.settle(t)
	out := s.run(t, "chain", "--session", "s-cli-chain", "--json").want(t, 0).out
	rows := session(t, s.auditors(t), "s-cli-chain")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(rows) {
		t.Fatalf("%d lines, %d rows", len(lines), len(rows))
	}
	for i, l := range lines {
		var line struct {
			Record     json.RawMessage `json:"record"`
			RecordHash string          `json:"record_hash"`
		}
		ok(t, json.Unmarshal([]byte(l), &line))
		if string(line.Record) != rows[i].Record || len(line.RecordHash) != 64 {
			t.Errorf("line %d is not row %d", i, rows[i].Seq)
		}
	}
	if people := s.run(t, "chain", "--session", "s-cli-chain").want(t, 0).out; !strings.Contains(people, "executed_despite_deny") {
		t.Errorf("%s", people)
	}
	s.run(t, "chain", "--session", "nobody").want(t, 1).oneLine(t, "nobody")
}

// tail follows, filters and stops after --count.
func TestTailCommand(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	cmd := exec.Command(program("countersign"), "tail", "--json", "--count", "2", "--verdict", "deny", "--session", "s-cli-tail")
	cmd.Env = cleanEnv("COUNTERSIGN_READY_FILE=" + s.ready)
	var out bytes.Buffer
	cmd.Stdout = &out
	p, err := launch(cmd)
	ok(t, err)
	until(t, p, func() {
		r.admit(t, "agenthook", allowedCall("s-cli-tail", "c1").bytes())
		r.admit(t, "agenthook", deniedCall("s-cli-tail", "c2").bytes())
	})
	lines := 0
	for in := bufio.NewScanner(&out); in.Scan(); lines++ {
		var d object
		ok(t, json.Unmarshal(in.Bytes(), &d))
		if d.text("verdict") != "deny" || d.text("session") != "s-cli-tail" {
			t.Errorf("%s", in.Text())
		}
	}
	if lines != 2 {
		t.Errorf("%d lines", lines)
	}
}

// A tail goes on where the last one stopped, from any point in the past; its
// filters let through what they say.
func TestTailGoesOn(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	const session = "s-cli-resume"
	for i := range 3 {
		r.admit(t, "agenthook", deniedCall(session, fmt.Sprintf("c%d", i)).bytes())
	}
	r.admit(t, "agenthook", allowedCall(session, "c3").bytes())
	place := filepath.Join(t.TempDir(), "position.json")
	calls := func(args ...string) string {
		out := s.run(t, append([]string{"tail", "--json", "--session", session}, args...)...).want(t, 0).out
		var list []string
		for _, l := range strings.Split(strings.TrimSpace(out), "\n") {
			var d object
			ok(t, json.Unmarshal([]byte(l), &d))
			list = append(list, d.text("tool_call_id"))
		}
		return strings.Join(list, " ")
	}
	for _, step := range []struct {
		want string
		args []string
	}{
		{"c0 c1", []string{"--since", "1h", "--count", "2", "--resume", place}},
		{"c2", []string{"--since", "1h", "--count", "1", "--resume", place}},
		{"c3", []string{"--count", "1", "--resume", place}},
		{"c3", []string{"--since", "1h", "--count", "1", "--verdict", "allow"}},
		{"c3", []string{"--since", "1h", "--count", "1", "--tool", "write_file"}},
		{"c0", []string{"--since", "1h", "--count", "1", "--tool", "delete_database"}},
	} {
		if got := calls(step.args...); got != step.want {
			t.Errorf("%v: %s, want %s", step.args, got, step.want)
		}
	}
	ok(t, os.WriteFile(place, []byte("{}"), 0o600))
	s.run(t, "tail", "--resume", place).want(t, 1).oneLine(t, "begin anew")
	s.run(t, "tail", "--since", "1h", "--after", "3").want(t, 2).oneLine(t, "exclude")
	s.run(t, "tail", "--after", "99999999").want(t, 1).oneLine(t, "another one")
}

// until repeats do until a program has ended well: no message says when the program's
// subscription is in force.
func until(t testing.TB, p *proc, do func()) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		do()
		select {
		case <-p.done:
			ok(t, p.err)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	p.signal(syscall.SIGKILL)
	t.Fatal("the program does not end")
}

// doctor: 0 for a safe system, 1 for one with acknowledgements that are not durable.
func TestDoctorCommand(t *testing.T) {
	s := shared(t)
	s.runtime(t).admit(t, "agenthook", allowedCall("s-doctor", "c1").bytes())
	r := s.sound(t, "--json")
	for _, check := range []string{"durability", "log", "admitter", "correlator", "auditor", "policies", "gateway", "clock", "keys", "evidence"} {
		if !strings.Contains(r.out, `"check":"`+check+`","level":"ok"`) {
			t.Errorf("%s is not ok:\n%s", check, r.out)
		}
	}
	lax := start(t, "--sync-interval", "2m", "--policy", samplePolicies)
	if r := lax.run(t, "doctor").want(t, 1); !strings.Contains(r.out, "unsafe") || !strings.Contains(r.out, "interval") {
		t.Errorf("%s", r.out)
	}
	if d := onlyDecision(t, lax); d.text("durability") != "interval" {
		t.Errorf("its decisions claim durability %q", d.text("durability"))
	}
}

// A missing correlator has no visible effect by itself, so doctor must report it.
func TestDoctorMissesTheCorrelator(t *testing.T) {
	t.Parallel()
	d := deploy(t, "globex")
	says := func(what string) {
		t.Helper()
		eventually(t, "the doctor says of the correlator: "+what, func() error { // the server knows of its end a moment later
			if out := d.run(t, "operator", "doctor", "--json").out; !strings.Contains(out, `{"check":"correlator",`+what) {
				return errorf("%s", out)
			}
			return nil
		})
	}
	says(`"level":"ok"`)
	d.services["correlator"].signal(syscall.SIGTERM)
	ok(t, d.services["correlator"].wait())
	says(`"level":"unsafe","detail":"none is listening: nothing is found until one is`)
	d.run(t, "operator", "doctor").want(t, 1)
}

func onlyDecision(t testing.TB, s *system) object {
	t.Helper()
	a := s.runtime(t).admit(t, "agenthook", allowedCall("s-doctor", "c1").bytes())
	return atSeq(t, s.auditors(t), a.seq).body(t)
}
