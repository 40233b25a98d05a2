package e2e_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// shell is a shell that gets its lines one by one, as a reader of a page types them.
type shell struct {
	in  io.Writer
	dir string
	mu  sync.Mutex
	out bytes.Buffer
}

// Write keeps what the shell prints.
func (s *shell) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}

func (s *shell) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// newShell starts a shell in a folder that has the ready file, the programs and the examples where the
// pages have them.
func newShell(t *testing.T, s *system) *shell {
	t.Helper()
	dir := t.TempDir()
	abs := func(path string) string {
		path, err := filepath.Abs(path)
		ok(t, err)
		return path
	}
	for name, target := range map[string]string{"ready.json": s.ready, "examples": filepath.Join(root, "examples"), "bin": filepath.Dir(program("countersign"))} {
		ok(t, os.Symlink(abs(target), filepath.Join(dir, name)))
	}
	sh := &shell{dir: dir}
	cmd := exec.Command("bash", "--norc", "--noprofile")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, sh, sh, cleanEnv("COUNTERSIGN_READY_FILE="+abs(s.ready))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	ok(t, err)
	ok(t, cmd.Start())
	sh.in = in
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the streams, too
		_ = cmd.Wait()
	})
	return sh
}

// run types a line and waits until the shell has printed a text behind what it has printed before.
func (s *shell) run(t *testing.T, line, want string) {
	t.Helper()
	before := len(s.text())
	_, err := io.WriteString(s.in, line+"\n")
	ok(t, err)
	s.await(t, before, line, want)
}

func (s *shell) await(t *testing.T, from int, line, want string) {
	t.Helper()
	eventually(t, line, func() error {
		if got := s.text()[from:]; !strings.Contains(got, want) {
			return errorf("%s prints:\n%s\nwant %s", line, got, want)
		}
		return nil
	})
}

// curlAnswers are what the endpoints of the pages' lines answer.
var curlAnswers = map[string]string{
	"/v1/follow/decisions": ": GOV@", // the stream has begun
	"/pre-tool-check":      `"route":"refuse"`,
	"/event":               `"event_id":"e-1"`,
}

var curlPath = regexp.MustCompile(`\$url(/[a-z0-9/_-]+)`)

// runCurlLines runs the shell blocks of a page that use curl, line by line, exactly as they are printed. A
// decision that a line asks for is then seen on the stream that an earlier line follows.
func runCurlLines(t *testing.T, s *system, page string) {
	needProgram(t, "curl")
	needProgram(t, "jq")
	text, err := os.ReadFile(filepath.Join(root, page))
	ok(t, err)
	seen := map[string]bool{}
	for _, block := range strings.Split(string(text), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, "curl ") {
			continue
		}
		sh, asked := newShell(t, s), false
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(line)
			at := curlPath.FindStringSubmatch(line)
			switch {
			case line == "":
			case !strings.HasPrefix(line, "curl "):
				sh.run(t, line+"; echo set", "set")
			case at == nil || curlAnswers[at[1]] == "":
				t.Errorf("%s: say in curlAnswers what this answers: %s", page, line)
			default:
				seen[at[1]] = true
				asked = asked || at[1] == "/pre-tool-check"
				sh.run(t, line, curlAnswers[at[1]])
			}
		}
		if asked {
			sh.await(t, 0, "the stream", "event: decisions")
		}
	}
	for path := range curlAnswers {
		if !seen[path] {
			t.Errorf("%s has no line with curl for %s", page, path)
		}
	}
}

// No other page has a line with curl that is not run.
func TestCurlLinesAreRun(t *testing.T) {
	check := func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" || slices.Contains([]string{"gateway.md", "approvals.md"}, filepath.Base(path)) || path == filepath.Join(root, "README.md") {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "\ncurl ") {
			t.Errorf("%s has a line with curl: run it in a test", path)
		}
		return err
	}
	for _, start := range []string{"docs", "README.md", "CONTRIBUTING.md"} {
		ok(t, filepath.WalkDir(filepath.Join(root, start), check))
	}
}
