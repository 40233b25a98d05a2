package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/countersign-dev/countersign/internal/pipeline/child"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/enginetest"
)

// TestMain makes the test program the one that the scripts run, and what that
// one starts as its own children.
func TestMain(m *testing.M) {
	child.RunIfAsked()
	testscript.Main(m, map[string]func(){"countersign": main})
}

// TestScripts runs every script that needs nothing running.
func TestScripts(t *testing.T) { runScripts(t, "testdata/script") }

// TestSystemScripts runs those that start a whole pipeline.
func TestSystemScripts(t *testing.T) {
	enginetest.Need(t)
	runScripts(t, "testdata/system")
}

func runScripts(t *testing.T, dir string) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := engine.DefaultCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, RequireUniqueNames: true, RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("EXAMPLES", filepath.Join(root, "examples"))
			e.Setenv("COUNTERSIGN_CACHE", cache)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("TMPDIR", filepath.Join(e.WorkDir, "tmp"))
			return os.Mkdir(filepath.Join(e.WorkDir, "tmp"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": cmdExits, "lines": cmdLines, "await": cmdAwait, "mode": cmdMode, "files": cmdFiles,
			"settled": cmdSettled, "stop": cmdStop,
		},
	})
}

// exits CODE PROGRAM ARGS...: the program ends with this exit code.
func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// lines FILE N: stdout, stderr or a file has so many lines.
func cmdLines(ts *testscript.TestScript, _ bool, args []string) {
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); strconv.Itoa(got) != args[1] {
		ts.Fatalf("%s has %d lines, want %s", args[0], got, args[1])
	}
}

// await FILE [TEXT]: a file is there, and holds a text.
func cmdAwait(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err == nil && (len(args) == 1 || strings.Contains(string(b), args[1])) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s did not come about: %v", strings.Join(args, " "), err)
		}
	}
}

// mode PERM FILE...: the files have these permissions.
func cmdMode(ts *testscript.TestScript, _ bool, args []string) {
	for _, f := range args[1:] {
		info, err := os.Stat(ts.MkAbs(f))
		ts.Check(err)
		if got := strconv.FormatUint(uint64(info.Mode().Perm()), 8); got != args[0] {
			ts.Fatalf("%s has mode %s, want %s", f, got, args[0])
		}
	}
}

// files DIR PATTERN N: so many files of a directory match.
func cmdFiles(ts *testscript.TestScript, _ bool, args []string) {
	list, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), args[1]))
	ts.Check(err)
	if strconv.Itoa(len(list)) != args[2] {
		ts.Fatalf("%d files match: %v", len(list), list)
	}
}

// stop NAME: SIGTERM to a program in the background.
func cmdStop(ts *testscript.TestScript, _ bool, args []string) {
	for _, p := range ts.BackgroundCmds() {
		_ = p.Process.Signal(syscall.SIGTERM)
	}
}

// settled SESSION TEXT: the session's chain holds a text, and is signed.
func cmdSettled(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(2 * time.Minute); ; {
		err := ts.Exec("countersign", "chain", "--session", args[0])
		if err == nil && strings.Contains(ts.ReadFile("stdout"), args[1]) && ts.Exec("countersign", "verify", "--session", args[0]) == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("session %s is not settled: %s%s", args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	}
}
