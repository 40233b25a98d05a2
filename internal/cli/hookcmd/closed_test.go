package hookcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/testkit"
)

// gateScripts are gates, for sh, and what the shell around them makes of them.
var gateScripts = map[string]struct {
	script string // empty: there is none
	out    string
	errs   string // the gate's
	closed bool   // the shell refuses
}{
	"allows":        {script: "echo '{}'", out: "{}\n"},
	"refuses":       {script: "cat; echo \" $*\"", out: "input codex --config /no where/hook.json\n"},
	"fails":         {script: "echo for these reasons >&2; exit 1", errs: "for these reasons\n", closed: true},
	"is killed":     {script: "kill -KILL $$", closed: true},
	"is not there":  {closed: true},
	"dies speaking": {script: "printf '{'; kill -SEGV $$", out: "{", closed: true},
	"hangs":         {script: "printf '{'; exec sleep 30", out: "{", closed: true},
	"is stopped":    {script: "kill -STOP $$", closed: true},
}

// Around a gate that answers, the shell changes nothing; for one that dies, cannot start or hangs it refuses. No process
// is left.
func TestClosed(t *testing.T) {
	for name, tt := range gateScripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := filepath.Join(t.TempDir(), "it's", gateProgram)
			writeGate(t, gate, tt.script)
			limit := 60
			if name == "hangs" || name == "is stopped" {
				limit = 1
			}
			code, out, errs := runAlone(t, "/bin/sh", "-c", closed(gateCommand("codex", gate, "/no where/hook.json"), limit))
			if want := map[bool]int{true: 2}[tt.closed]; code != want || out != tt.out || tt.closed != strings.Contains(errs, refusedByShell) || !strings.HasPrefix(errs, tt.errs) || !tt.closed && errs != "" {
				t.Errorf("exit %d, %q, %q", code, out, errs)
			}
		})
	}
}

// Where a user may start no more processes, or not all that the shells need, they refuse at once, and no process is left.
func TestClosedWithoutProcesses(t *testing.T) {
	const gate = `/bin/echo '{"cancel":false}'`
	script, err := clineScript(gate)
	if err != nil {
		t.Fatal(err)
	}
	limited := func(t *testing.T, free, user uint32, args ...string) (code int, out, errs string) {
		attr := &syscall.SysProcAttr{Setpgid: true}
		if os.Getuid() == 0 {
			attr.Credential = &syscall.Credential{Uid: 20_000 + uint32(os.Getpid()%4_000)*10 + user, Gid: 65_534} // without other processes; containers map 65,536 ids
		} else if free > 0 {
			t.Skip("only root starts a process of a user without others")
		}
		const limit = `ulimit -u %d 2>/dev/null || ulimit -p %[1]d; exec /bin/sh -c "$0" "$@"` // bash, dash
		return runAs(t, attr, "/bin/sh", append([]string{"-c", fmt.Sprintf(limit, free+1)}, args...)...)
	}
	for free := range uint32(5) {
		t.Run(fmt.Sprint(free, " free"), func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			code, out, errs := limited(t, free, 2*free, closed(gate, 80))
			if refused := strings.Contains(errs, refusedByShell); refused != (free < 3) || code != map[bool]int{true: 2}[refused] || refused != (out == "") {
				t.Errorf("exit %d, %q, %q", code, out, errs)
			}
			code, out, _ = limited(t, free, 2*free+1, script, "/hooks/PreToolUse")
			if refused := strings.Contains(out, refusedByShell); refused != (free < 4) || code != 0 || !json.Valid([]byte(out)) {
				t.Errorf("Cline: exit %d, %q", code, out)
			}
			if took := time.Since(begun); took > 60*time.Second { // bash tries to fork for 15 seconds
				t.Errorf("after %v", took)
			}
		})
	}
}

// runAlone runs a command in a group of processes of its own, which ends with it.
func runAlone(t *testing.T, name string, args ...string) (code int, out, errs string) {
	t.Helper()
	return runAs(t, &syscall.SysProcAttr{Setpgid: true}, name, args...)
}

// runAs is runAlone for a process with attributes, which must have Setpgid.
func runAs(t *testing.T, attr *syscall.SysProcAttr, name string, args ...string) (code int, out, errs string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.SysProcAttr = attr
	// Into files: a process that is left does not hold them open for Wait.
	dir := t.TempDir()
	file := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	o, e := file("out"), file("errs")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("input"), o, e
	_ = cmd.Run() // its exit code is looked at
	for until := time.Now().Add(testkit.Guard); len(living(t, cmd.Process.Pid)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Errorf("left: %q", living(t, cmd.Process.Pid))
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			break
		}
	}
	text := func(f *os.File) string {
		all, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
	return cmd.ProcessState.ExitCode(), text(o), text(e)
}

// living are the processes of a group that have not ended.
func living(t *testing.T, group int) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, _ := os.ReadFile(path) // it may have ended meanwhile
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 2 && f[0] != "Z" && f[2] == strconv.Itoa(group) {
			found = append(found, string(text))
		}
	}
	return found
}

// signalEnv makes this test program a gate that sends a signal to its group and refuses when the signal comes.
const signalEnv = "COUNTERSIGN_TEST_SIGNAL"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(signalEnv)); err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.Signal(n))
		_ = syscall.Kill(0, syscall.Signal(n))
		<-ctx.Done()
		stop()
		fmt.Println(`{"cancel":true,"errorMessage":"interrupted"}`)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A signal to all that an agent has started leaves the answer to the gate.
func TestClosedInterrupted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		gate := filepath.Join(t.TempDir(), gateProgram)
		writeGate(t, gate, fmt.Sprintf("%s=%d exec %s", signalEnv, sig, shellWord(self)))
		command := gateCommand("cline", gate, "/none")
		for name, args := range map[string][]string{
			"in a shell": {"/bin/sh", "-c", closed(command, 20)}, "of Cline": {writeCline(t, "PreToolUse", command)},
		} {
			if code, out, errs := runAlone(t, args[0], args[1:]...); code != 0 || !strings.Contains(out, "interrupted") || errs != "" {
				t.Errorf("%v, %s: exit %d, %q, %q", sig, name, code, out, errs)
			}
		}
	}
}

// Cline reads a refusal unless the gate answers; its other events have what the gate says.
func TestClosedCline(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		closed bool
	}{
		"allows":        {script: `echo '{"cancel":false}'`},
		"refuses":       {script: `echo '{"cancel":true,"errorMessage":"a \"reason\""}'`},
		"fails":         {script: `echo '{"cancel":false}'; exit 1`, closed: true},
		"is killed":     {script: "kill -KILL $$", closed: true},
		"is not there":  {closed: true},
		"dies speaking": {script: `printf '{"cancel":'; kill -SEGV $$`, closed: true},
		"stops midway":  {script: `printf '{"cancel":fal'`, closed: true},
		"is silent":     {script: "exit 0", closed: true},
		"babbles":       {script: "echo it failed", closed: true},
		"hangs":         {script: "exec sleep 30", closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := filepath.Join(t.TempDir(), gateProgram)
			writeGate(t, gate, tt.script)
			command := gateCommand("cline", gate, "/none")
			before := writeCline(t, "PreToolUse.sh", command)
			if name == "hangs" {
				text, err := os.ReadFile(before)
				if err != nil {
					t.Fatal(err)
				}
				writeProgram(t, before, strings.Replace(string(text), "sleep 28", "sleep 1", 1))
			}
			code, out, _ := runAlone(t, before)
			var answer struct {
				Cancel       bool
				ErrorMessage string
			}
			if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || tt.closed != (answer.ErrorMessage == refusedByShell) || answer.Cancel != (name != "allows") {
				t.Errorf("exit %d, %q, %v", code, out, err)
			}
			if name == "hangs" {
				return
			}
			if _, out, _ := runAlone(t, writeCline(t, "PostToolUse.sh", command)); strings.Contains(out, refusedByShell) {
				t.Errorf("after a call: %q", out)
			}
		})
	}
}

// writeCline writes Cline's hook of an event.
func writeCline(t *testing.T, event, command string) string {
	t.Helper()
	text, err := clineScript(command)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), event)
	writeProgram(t, path, text)
	return path
}

// writeProgram writes a program, while no process is forked: one that holds the file open for writing would keep it from
// being run.
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
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
	writeProgram(t, path, "#!/bin/sh\n"+script+"\n")
}
