package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/testkit"
)

// readyFile is the ready file of `countersign up` (docs/operating.md).
type readyFile struct {
	NATSURL               string          `json:"nats_url"`
	Roles                 map[string]role `json:"roles"`
	ClickHouseDSN         string          `json:"clickhouse_dsn"`
	ClickHouseReadonlyDSN string          `json:"clickhouse_readonly_dsn"`
	HTTPURL               string          `json:"http_url"`
	PublicKey             string          `json:"public_key"`
	Tenant                string          `json:"tenant"`
	PIDs                  map[string]int  `json:"pids"`
}

type role struct {
	User        string `json:"user"`
	Password    string `json:"password"`
	InboxPrefix string `json:"inbox_prefix"`
	Publisher   string `json:"publisher"`
}

// system is one running `countersign up`.
type system struct {
	dir   string // holds data, ready file and log
	data  string
	ready string
	log   string
	proc  *proc
}

// proc is a program that this process started and owns.
type proc struct {
	pid  int
	done chan struct{}
	err  error // set before done is closed
}

// launch starts a program that dies with this process, whatever kills it. The kernel ties a child
// to the thread that started it, so that thread is kept.
func launch(cmd *exec.Cmd) (*proc, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p, started := &proc{done: make(chan struct{})}, make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

func (p *proc) signal(sig syscall.Signal) { _ = syscall.Kill(p.pid, sig) }

// wait waits for the end of the program.
func (p *proc) wait() error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		return errors.New("the program does not end")
	}
}

const samplePolicies = root + "/examples/policies/assistant"

// boot starts `countersign up` in dir, which may hold the data of an earlier run, and waits for
// its ready file.
func boot(dir string, args ...string) (*system, error) { return bootWith(dir, nil, args...) }

// bootWith is boot with settings in the environment.
func bootWith(dir string, env []string, args ...string) (*system, error) {
	s := &system{dir: dir, data: filepath.Join(dir, "data"), ready: filepath.Join(dir, "ready.json"), log: filepath.Join(dir, "up.log")}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program("countersign"), append([]string{"up", "--data-dir", s.data, "--ready-file", s.ready}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = cleanEnv(env...), log, log
	if s.proc, err = launch(cmd); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(10 * time.Millisecond) { // the longest of all waits: everything starts
		if _, err := os.Stat(s.ready); err == nil {
			return s, nil
		}
		select {
		case <-s.proc.done:
			return nil, fmt.Errorf("up ended before it was ready: %w\n%s", s.proc.err, s.tail())
		default:
		}
		if time.Now().After(deadline) {
			s.proc.signal(syscall.SIGKILL)
			return nil, fmt.Errorf("up is not ready\n%s", s.tail())
		}
	}
}

// stop ends the system with SIGTERM.
func (s *system) stop() error {
	s.proc.signal(syscall.SIGTERM)
	if err := s.proc.wait(); err != nil {
		s.proc.signal(syscall.SIGKILL)
		return fmt.Errorf("%w\n%s", err, s.tail())
	}
	return nil
}

// tail is the end of the system's log, for failure messages.
func (s *system) tail() string {
	b, _ := os.ReadFile(s.log)
	const most = 6000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
}

// start boots a system for this test, with the sample policies unless args name others, and stops
// it at the test's end.
func start(t testing.TB, args ...string) *system {
	t.Helper()
	return startIn(t, t.TempDir(), args...)
}

func startIn(t testing.TB, dir string, args ...string) *system {
	t.Helper()
	needSystem(t)
	if len(args) == 0 {
		args = []string{"--policy", samplePolicies}
	}
	return startWith(t, dir, nil, args...)
}

// startWith is startIn with settings in the environment.
func startWith(t testing.TB, dir string, env []string, args ...string) *system {
	t.Helper()
	needSystem(t)
	s, err := bootWith(dir, env, args...)
	ok(t, err)
	t.Cleanup(func() {
		select {
		case <-s.proc.done: // the test has stopped it itself
		default:
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.dir, s.tail())
		}
	})
	return s
}

// shared returns the system that tests share. After the test, every message that it caused must
// be in evidence exactly once.
func shared(t testing.TB) *system {
	t.Helper()
	needSystem(t)
	c := &common
	if c.used[t.Name()] {
		ok(t, dropCommon())
	}
	if c.sys == nil {
		dir, err := os.MkdirTemp("", "countersign-e2e-shared-")
		ok(t, err)
		c.used = map[string]bool{}
		c.sys, err = boot(dir, "--policy", samplePolicies)
		ok(t, err)
	}
	c.used[t.Name()] = true
	s := c.sys
	t.Cleanup(func() {
		if !t.Skipped() {
			s.exact(t)
		}
		if t.Failed() {
			t.Logf("log of the shared system:\n%s", s.tail())
		}
	})
	return s
}

// info reads the ready file, which changes when a child is restarted.
func (s *system) info(t testing.TB) readyFile {
	t.Helper()
	b, err := os.ReadFile(s.ready)
	ok(t, err)
	var r readyFile
	ok(t, json.Unmarshal(b, &r))
	return r
}

// result is the result of a command.
type result struct {
	code     int
	out, err string
}

// run runs the tool against the system.
func (s *system) run(t testing.TB, args ...string) result {
	t.Helper()
	return command(t, exec.Command(program("countersign"), args...), "COUNTERSIGN_READY_FILE="+s.ready)
}

// sound waits until `doctor` is content, and returns what it says. A decision that was long on its way to a
// busy disk looks like a clock that is wrong; the next one does not.
func (s *system) sound(t testing.TB, args ...string) (r result) {
	t.Helper()
	eventually(t, "the doctor is content", func() error {
		if r = s.run(t, append([]string{"doctor"}, args...)...); r.code == 0 {
			return nil
		}
		s.runtime(t).admit(t, "agenthook", allowedCall("s-doctor", "c1").bytes())
		return errorf("exit %d: %s%s", r.code, r.out, r.err)
	})
	return r
}

// tool runs the tool without a system.
func tool(t testing.TB, args ...string) result {
	t.Helper()
	return command(t, exec.Command(program("countersign"), args...))
}

func command(t testing.TB, cmd *exec.Cmd, env ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Env == nil {
		cmd.Env = cleanEnv(env...)
	}
	cmd.Stdout, cmd.Stderr = &out, &errs
	p, err := launch(cmd)
	ok(t, err)
	err = p.wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.signal(syscall.SIGKILL)
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want fails the test unless the command ended with a code.
func (r result) want(t testing.TB, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.err)
	}
	return r
}

// progressLine is what a command prints when it takes longer than two seconds.
var progressLine = regexp.MustCompile(`(?m)^[a-z ,]+: \d+ of \d+ records\n`)

// oneLine fails the test unless standard error, without progress, is one line that contains all
// texts.
func (r result) oneLine(t testing.TB, texts ...string) {
	t.Helper()
	line := strings.TrimSuffix(progressLine.ReplaceAllString(r.err, ""), "\n")
	if line == "" || strings.Contains(line, "\n") || len(line) > 500 {
		t.Errorf("standard error is not one line:\n%s", r.err)
	}
	for _, text := range texts {
		if !strings.Contains(line, text) {
			t.Errorf("standard error does not say %q:\n%s", text, line)
		}
	}
}

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

var ok = testkit.OK

// eventually waits until check returns nil; a failure shows its last error. The pauses between
// two checks grow, because many checks are queries or commands.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	var last error
	pause := 10 * time.Millisecond
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(pause) {
		if last = check(); last == nil {
			return
		}
		pause = min(2*pause, 160*time.Millisecond)
	}
	t.Fatalf("%s: %v", what, last)
}
