package hookcmd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Around a gate that answers, the shell changes nothing; for one that dies or cannot start it refuses.
func TestClosed(t *testing.T) {
	for name, tt := range map[string]struct {
		script string // of the gate; empty: there is none
		out    string
		exit   int
	}{
		"allows":        {script: "echo '{}'", out: "{}\n"},
		"refuses":       {script: "cat; echo \" $*\"", out: "input codex --config /no where/hook.json\n"},
		"fails":         {script: "exit 1", exit: 2},
		"is killed":     {script: "kill -KILL $$", exit: 2},
		"is not there":  {exit: 2},
		"dies speaking": {script: "printf '{'; kill -SEGV $$", out: "{", exit: 2},
	} {
		t.Run(name, func(t *testing.T) {
			gate := filepath.Join(t.TempDir(), "it's", gateProgram)
			writeGate(t, gate, tt.script)
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", closed(gateCommand("codex", gate, "/no where/hook.json")))
			var out, errs bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("input"), &out, &errs
			_ = cmd.Run() // its exit code is looked at
			if code := cmd.ProcessState.ExitCode(); code != tt.exit || out.String() != tt.out || (tt.exit == 2) != strings.Contains(errs.String(), "Countersign refused") {
				t.Errorf("exit %d, %q, %q", code, out.String(), errs.String())
			}
		})
	}
}

// A signal to all that an agent has started leaves the answer to the gate.
func TestClosedInterrupted(t *testing.T) {
	for _, sig := range []string{"HUP", "INT", "TERM"} {
		gate := filepath.Join(t.TempDir(), gateProgram)
		writeGate(t, gate, "trap 'echo refused; exit 0' HUP INT TERM; kill -s "+sig+" 0; sleep 10")
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", closed(gateCommand("codex", gate, "/none")))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "refused\n" {
			t.Errorf("%s: %v, %q", sig, err, out)
		}
	}
}

func writeGate(t *testing.T, path, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if script == "" {
		return
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}
