package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// moments is at how many moments of its run a command is killed.
var moments = map[bool]int{false: 3, true: 6}[longSweeps]

// killedAt starts a command and kills it at a fraction of its usual running time. It reports
// whether the command was still running. The time of one that was not becomes the usual one: the
// first run on a machine that is less busy later took longer than the rest will.
func (s *system) killedAt(t *testing.T, whole *time.Duration, moment int, args ...string) bool {
	t.Helper()
	cmd := exec.Command(program("countersign"), args...)
	cmd.Env = cleanEnv("COUNTERSIGN_READY_FILE=" + s.ready)
	start := time.Now()
	p, err := launch(cmd)
	ok(t, err)
	select {
	case <-p.done:
		*whole = min(*whole, time.Since(start))
		return false
	case <-time.After(*whole * time.Duration(moment) / time.Duration(moments+1)):
	}
	p.signal(syscall.SIGKILL)
	_ = p.wait()
	return true
}

// timed runs a command and gives the time that it took.
func (s *system) timed(t *testing.T, args ...string) time.Duration {
	t.Helper()
	start := time.Now()
	s.run(t, args...).want(t, 0)
	return time.Since(start)
}

// TestCommandsKilled: a command that is killed in the middle has done what it was
// told, or nothing; told again it does it. Meanwhile runtimes are at work, and the
// service that carries the command out is killed, too.
func TestCommandsKilled(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := atWork(t, s, 2)
	killed := map[string]int{}
	var whole time.Duration
	at := func(what string, moment int, args ...string) {
		if s.killedAt(t, &whole, moment, args...) {
			killed[what]++
		}
	}

	dirs := [2]string{t.TempDir(), t.TempDir()}
	for i, dir := range dirs { // beside the samples, two documents of each set's own
		ok(t, os.CopyFS(dir, os.DirFS(samplePolicies)))
		for _, part := range []string{"one", "two"} {
			ok(t, os.WriteFile(filepath.Join(dir, "zz-"+part+".yaml"), fmt.Appendf(nil, "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\n"+
				"metadata: {name: %s-%d}\nspec: {match: {tools: [nothing-%d]}, rules: [{name: r, when: 'true', verdict: deny, reason: no}]}\n", part, i, i), 0o600))
		}
	}
	whole = s.timed(t, "policy", "push", dirs[0], "--yes")
	for moment := range moments {
		dir := dirs[(moment+1)%2]
		at("push", moment+1, "policy", "push", dir, "--yes")
		shown := s.run(t, "policy", "show").want(t, 0).out
		for i := range dirs {
			if strings.Contains(shown, fmt.Sprint("one-", i)) != strings.Contains(shown, fmt.Sprint("two-", i)) {
				t.Errorf("half a set is in force:\n%s", shown)
			}
		}
		if moment%3 == 0 {
			s.kill(t, "admitter")
		}
		again := s.run(t, "policy", "push", dir, "--yes")
		if again.code == 5 { // the admitter was not there yet: the push says so
			eventually(t, "the push is confirmed", func() error {
				if again = s.run(t, "policy", "push", dir, "--yes"); again.code != 0 {
					return errorf("%s", again.err)
				}
				return nil
			})
		}
		again.want(t, 0)
	}

	playSecrets(t, s, "s-killed-whole")
	for moment := range moments {
		playSecrets(t, s, fmt.Sprint("s-killed-", moment))
	}
	out, key := t.TempDir(), filepath.Join(t.TempDir(), "checkpoint.pub")
	ok(t, os.WriteFile(key, []byte(s.info(t).PublicKey+"\n"), 0o600))
	whole = s.timed(t, "export", "--session", "s-killed-whole", "--out", filepath.Join(out, "whole.zip"))
	for moment := range moments {
		file := filepath.Join(out, fmt.Sprint(moment, ".zip"))
		at("export", moment+1, "export", "--session", "s-killed-whole", "--out", file)
		if _, err := os.Stat(file); err == nil {
			tool(t, "verify", "--bundle", file, "--key", key).want(t, 0)
			ok(t, os.Remove(file))
		}
		s.run(t, "export", "--session", "s-killed-whole", "--out", file).want(t, 0)
		tool(t, "verify", "--bundle", file, "--key", key).want(t, 0)
	}

	erase := func(session string) []string {
		return []string{"retention", "erase", "--session", session, "--reason", "request 17", "--quiet", "0s", "--yes"}
	}
	whole = s.timed(t, erase("s-killed-whole")...)
	for moment := range moments {
		name := fmt.Sprint("s-killed-", moment)
		at("erase", moment+1, erase(name)...)
		if victims := [...]string{"auditor", "correlator", "clickhouse"}; moment < len(victims) {
			s.kill(t, victims[moment])
		}
		eventually(t, name+" is erased", func() error {
			r := s.run(t, erase(name)...)
			if r.code == 0 || strings.Contains(r.err, "nothing to erase") || strings.Contains(r.err, "already") {
				return nil
			}
			return errorf("exit %d: %s", r.code, r.err)
		})
		if keys := sessionKeys(t, s, "acme", name); len(keys) > 0 {
			t.Errorf("%s: %d keys are left", name, len(keys))
		}
	}
	if killed["push"]+killed["export"]+killed["erase"] < moments { // on a busy machine some end before
		t.Errorf("commands were killed so often: %v: this test tests little", killed)
	}
	c.progress(t)
	c.goHome()
	s.exact(t)
	signed(t, s)
	s.verified(t, 0)
	s.sound(t)
}

// TestFirstStartKilled: `up` on an empty directory, which makes keys, streams,
// buckets and tables, is killed at moments of it with all its children. The next
// one makes what is missing.
func TestFirstStartKilled(t *testing.T) {
	t.Parallel()
	needSystem(t)
	start := time.Now()
	s, err := boot(t.TempDir(), "--policy", samplePolicies)
	ok(t, err)
	whole := time.Since(start)
	ok(t, s.stop())
	killed := 0
	const kills = 2 // of one directory
	dirs := (moments + 1) / kills
	for at := range dirs {
		dir := t.TempDir()
		for again := range kills { // the second start is killed, too, at another moment
			cmd := exec.Command(program("countersign"), "up", "--data-dir", filepath.Join(dir, "data"), "--ready-file", filepath.Join(dir, "ready.json"), "--policy", samplePolicies)
			cmd.Env = cleanEnv()
			p, err := launch(cmd)
			ok(t, err)
			time.Sleep(whole * time.Duration(kills*at+again+1) / time.Duration(kills*dirs+1))
			children := tree(p.pid)
			for _, child := range children {
				if child.pid != p.pid {
					_ = syscall.Kill(child.pid, syscall.SIGKILL)
				}
			}
			p.signal(syscall.SIGKILL)
			_ = p.wait()
			gone(t, children)
			killed++
			_ = os.Remove(filepath.Join(dir, "ready.json"))
		}
		s := startIn(t, dir, "--policy", samplePolicies)
		r := s.runtime(t)
		call := allowedCall("s-first", "c1")
		if a := r.admit(t, "agenthook", call.bytes()); a.verdict != "allow" {
			t.Error(a.verdict)
		}
		r.publish(t, call)
		r.publish(t, postToolUse(call))
		s.exact(t)
		signed(t, s)
		s.verified(t, 0)
		s.sound(t)
		ok(t, s.stop())
	}
}
