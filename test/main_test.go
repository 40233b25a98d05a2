// Package e2e_test runs the built programs against a real NATS server and a real ClickHouse and
// uses them as any other program would: over plain nats.go and clickhouse-go, with replies and
// records decoded by hand. The driving side imports nothing of Countersign, except in the test of
// the client SDK itself.
//
// Short tests share one `countersign up` (shared), one after the other. After them, beside each other: tests that
// share a system which they read (borrowed) or in which they keep to what is theirs (amongOthers), and those that
// kill, tamper, change policies or count everything, with a system of their own (start, alone).
package e2e_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// binEnv names the directory of programs that are built already, as `make test` does. Without it
// they are built once, without cgo, as `make build` does.
const binEnv = "COUNTERSIGN_TEST_BIN"

var programs = []string{"countersign", "countersign-hook", "countersign-mcp", "admitter", "correlator", "auditor"}

// binDir is the directory of the built programs.
var binDir string

// root is the path of the repository from this package's folder.
const root = ".."

// patience bounds every wait. It is far longer than needed, and no measurement uses it. In long
// runs what was killed must read what came meanwhile, on a machine that may be busy.
var patience = map[bool]time.Duration{false: 90 * time.Second, true: 10 * time.Minute}[longSweeps]

// common is the system that tests share, with the tests that have used it. A repeated test (-count)
// gets a new system: session names repeat, and the log keeps everything of a session.
var common struct {
	sys  *system
	used map[string]bool
}

// longSweeps says that sweeps try every case with every command and at every moment, as `make chaos`
// does. Otherwise each kind of fault is tried at least once.
var longSweeps = os.Getenv("COUNTERSIGN_CHAOS") == "long"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if testing.Short() {
		return max(m.Run(), failed(dropVerifier())) // every test that starts a program of ours skips itself, visibly
	}
	dir, err := os.MkdirTemp("", "countersign-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := findOrBuild(dir); err != nil {
		fmt.Fprintln(os.Stderr, "building the programs:", err)
		return 1
	}
	return max(m.Run(), failed(errors.Join(dropCommon(), dropLent(), dropVerifier())))
}

// failed prints an error, and returns the exit code.
func failed(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// dropCommon ends the system that tests share, if there is one.
func dropCommon() error {
	s := common.sys
	if s == nil {
		return nil
	}
	common.sys = nil
	defer os.RemoveAll(s.dir)
	if err := s.stop(); err != nil {
		return fmt.Errorf("stopping the shared system: %w", err)
	}
	return nil
}

// findOrBuild sets binDir to the directory that binEnv names, or builds the programs below dir.
func findOrBuild(dir string) error {
	if binDir = os.Getenv(binEnv); binDir == "" {
		binDir = filepath.Join(dir, "bin")
		return build()
	}
	for _, p := range programs { // so that a remembered result is of these very files
		if _, err := os.Stat(program(p)); err != nil {
			return fmt.Errorf("%s names no directory of programs: run make build: %w", binEnv, err)
		}
	}
	return nil
}

func build() error {
	args := []string{"build", "-trimpath", "-o", binDir + string(filepath.Separator)}
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func program(name string) string { return filepath.Join(binDir, name) }

// engine is the result of fetching the ClickHouse engine, if it is not cached; err says why there
// is none.
var engine struct {
	once sync.Once
	out  string
	err  error
}

// needPrograms skips a test under -short that needs the programs but no system.
func needPrograms(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("end-to-end tests run the built programs: not under -short")
	}
}

// needSystem skips a test, with the reason, if there is no ClickHouse.
func needSystem(t testing.TB) {
	t.Helper()
	needPrograms(t)
	if _, err := exec.LookPath("clickhouse"); err == nil {
		return
	}
	engine.once.Do(func() {
		cmd := exec.Command(program("countersign"), "engine", "fetch", "--quiet")
		cmd.Env = cleanEnv()
		var out []byte
		out, engine.err = cmd.CombinedOutput()
		engine.out = strings.TrimSpace(string(out))
	})
	if engine.err == nil {
		return
	}
	for _, absent := range []string{"could not be fetched", "needs linux/amd64"} {
		if strings.Contains(engine.out, absent) {
			t.Skip("no ClickHouse to test with: " + engine.out)
		}
	}
	t.Fatalf("countersign engine fetch: %v: %s", engine.err, engine.out)
}

// agentHomes are the variables by which coding agents find their configuration.
var agentHomes = []string{"CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "GEMINI_CLI_SYSTEM_SETTINGS_PATH", "COPILOT_HOME", "CLINE_DIR", "XDG_CONFIG_HOME"}

// cleanEnv is this process's environment without variables that would lead the programs to a
// system or a coding agent of the developer's.
func cleanEnv(add ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		ours := strings.HasPrefix(name, "COUNTERSIGN_") && name != "COUNTERSIGN_CACHE"
		if !ours && !strings.HasPrefix(name, "NATS_") && !slices.Contains(agentHomes, name) {
			env = append(env, e)
		}
	}
	return append(env, add...)
}
