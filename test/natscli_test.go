package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The README promises that the `nats` tool alone is enough to ask and to follow.
func TestNATSCommandLine(t *testing.T) {
	s := shared(t)
	nats := natsTool(t)
	info := s.info(t)
	as := func(name string, args ...string) *exec.Cmd {
		c := info.Roles[name]
		cmd := exec.Command(nats, append([]string{"--server", info.NATSURL, "--user", c.User, "--password", c.Password,
			"--inbox-prefix", c.InboxPrefix, "--timeout", "30s"}, args...)...)
		cmd.Env = cleanEnv("XDG_CONFIG_HOME=" + t.TempDir())
		return cmd
	}
	t.Run("micro", func(t *testing.T) {
		for _, args := range [][]string{{"micro", "ls"}, {"micro", "info", "admitter"}, {"micro", "stats", "admitter"}} {
			if r := command(t, as("operator", args...)).want(t, 0); !strings.Contains(r.out, "admitter") {
				t.Errorf("nats %v shows no admitter:\n%s", args, r.out)
			}
		}
	})
	t.Run("req and sub", func(t *testing.T) {
		sub := as("subscriber", "sub", "--count", "2", "gov.decisions.acme.>")
		var heard bytes.Buffer
		sub.Stdout, sub.Stderr = &heard, &heard
		p, err := launch(sub)
		ok(t, err)
		until(t, p, func() {
			for name, want := range map[string]string{"pre-tool-use.json": "allow", "pre-tool-use-denied.json": "deny"} {
				request, err := os.ReadFile(filepath.Join(root, "examples", "requests", name))
				ok(t, err)
				r := command(t, as("runtime", "req", "--raw", "gov.admit.acme.agenthook", string(request))).want(t, 0)
				var reply object
				ok(t, json.Unmarshal([]byte(r.out), &reply))
				if reply.text("decision") != want {
					t.Errorf("%s: %s", name, r.out)
				}
			}
		})
		if n := strings.Count(heard.String(), `"decision_id"`); n != 2 {
			t.Errorf("nats sub heard %d decisions:\n%s", n, heard.String())
		}
	})
}

// natsTool returns the tool, which is built once for each version and kept in the user's cache.
func natsTool(t testing.TB) string {
	t.Helper()
	needPrograms(t)
	module := filepath.Join(root, "tools", "natscli")
	sums, err := os.ReadFile(filepath.Join(module, "go.sum")) // names every version
	ok(t, err)
	cache, err := os.UserCacheDir()
	ok(t, err)
	path := filepath.Join(cache, "countersign", fmt.Sprintf("nats-%x", sha256.Sum256(sums)))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
	built := filepath.Join(t.TempDir(), "nats")
	cmd := exec.Command("go", "build", "-o", built, "github.com/nats-io/natscli/nats")
	cmd.Dir = module
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("the nats tool does not build here (%v): %s", err, out)
	}
	keep(t, built, path)
	return path
}

// keep copies a program to where others look for it, which appears whole or not at all.
func keep(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	ok(t, err)
	f, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+"-*")
	ok(t, err)
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	ok(t, err)
	ok(t, f.Chmod(0o755))
	ok(t, f.Close())
	ok(t, os.Rename(f.Name(), to))
}
