package e2e_test

import (
	"bytes"
	"fmt"
	gobuild "go/build"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shell is a shell that gets its lines one by one, as a reader of a page types them.
type shell struct {
	in    io.WriteCloser
	dir   string
	lines int
	mu    sync.Mutex
	out   bytes.Buffer
	news  chan struct{} // something was printed
	ended chan struct{} // the shell itself has ended
}

// Write keeps what the shell prints.
func (s *shell) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
	return s.out.Write(b)
}

func (s *shell) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// readerDir makes a folder that has the programs and all that the repository has, as a reader's clone.
func readerDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list, err := os.ReadDir(root)
	ok(t, err)
	for _, e := range list {
		if name := e.Name(); name != "bin" && !strings.HasPrefix(name, ".") {
			ok(t, os.Symlink(absolute(t, filepath.Join(root, name)), filepath.Join(dir, name)))
		}
	}
	ok(t, os.Symlink(absolute(t, binDir), filepath.Join(dir, "bin")))
	ok(t, os.Mkdir(filepath.Join(dir, "home"), 0o700))
	return dir
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	ok(t, err)
	return path
}

// newShell starts a shell in a reader's folder that has the ready file of a system.
func newShell(t *testing.T, s *system) *shell {
	t.Helper()
	dir := readerDir(t)
	ok(t, os.Symlink(absolute(t, s.ready), filepath.Join(dir, "ready.json")))
	return shellIn(t, dir, "COUNTERSIGN_READY_FILE="+absolute(t, s.ready))
}

// shellIn starts a shell in a reader's folder, with a home of its own and the programs on PATH.
func shellIn(t *testing.T, dir string, env ...string) *shell {
	t.Helper()
	cache, err := os.UserCacheDir()
	ok(t, err)
	sh := &shell{dir: dir, news: make(chan struct{}, 1), ended: make(chan struct{})}
	cmd := exec.Command("bash", "--norc", "--noprofile")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, sh, sh
	cmd.Env = append(cleanEnv("HOME="+filepath.Join(dir, "home"), "XDG_CACHE_HOME="+cache, "GOPATH="+gobuild.Default.GOPATH,
		"PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1",
		"npm_config_offline=true", "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	ok(t, err)
	ok(t, cmd.Start())
	sh.in = in
	go func() {
		_ = cmd.Wait()
		close(sh.ended)
	}()
	t.Cleanup(func() {
		sh.end(t)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	})
	sh.code(t, "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT") // also when this process dies: the shell reads no more lines
	return sh
}

// code types a line and waits for its end. It returns what the line prints, and its exit code.
func (s *shell) code(t *testing.T, line string) (out string, code int) {
	t.Helper()
	s.lines++
	from, mark := len(s.text()), fmt.Sprintf("[line %d ends with ", s.lines)
	_, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null; echo \"%s$?]\"\n", line, mark)
	ok(t, err)
	end := regexp.MustCompile(regexp.QuoteMeta(mark) + `(\d+)\]\n`)
	for deadline := time.After(2 * patience); ; {
		text := s.text()[from:]
		if at := end.FindStringSubmatchIndex(text); at != nil {
			code, err = strconv.Atoi(text[at[2]:at[3]])
			ok(t, err)
			return text[:at[0]], code
		}
		select {
		case <-s.news:
		case <-s.ended:
			t.Fatalf("%s ends the shell, which prints:\n%s", line, s.text()[from:])
		case <-deadline:
			t.Fatalf("%s does not end, and prints:\n%s", line, text)
		}
	}
}

// end ends the shell and what its lines have left running.
func (s *shell) end(t *testing.T) {
	t.Helper()
	_ = s.in.Close()
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Errorf("the shell does not end, and has printed:\n%s", s.text())
	}
}

// run types a line, which must print a text.
func (s *shell) run(t *testing.T, line, want string) {
	t.Helper()
	if out, _ := s.code(t, line); !strings.Contains(out, want) {
		t.Fatalf("%s prints:\n%s\nwant %s", line, out, want)
	}
}
