package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReadyFileLeftBehind: after `up` was killed, its ready file is refused, with
// the file's name and a way out; the next `up` replaces it.
func TestReadyFileLeftBehind(t *testing.T) {
	t.Parallel()
	s := start(t)
	processes := tree(s.proc.pid)
	s.proc.signal(syscall.SIGKILL)
	_ = s.proc.wait()
	gone(t, processes)
	if _, err := os.Stat(s.ready); err != nil {
		t.Fatal("the ready file is gone: this test tests nothing")
	}
	for _, args := range [][]string{{"verify"}, {"doctor"}, {"admit", "--protocol", "agenthook", root + "/examples/requests/pre-tool-use.json"}} {
		s.run(t, args...).want(t, 1).oneLine(t, s.ready, "no longer runs")
	}
	again := startIn(t, s.dir, "--policy", samplePolicies)
	eventually(t, "the next up replaces the file", func() error {
		if r := again.run(t, "verify"); r.code != 0 {
			return errorf("exit %d: %s", r.code, r.err)
		}
		return nil
	})
}

// TestReadOnlyDataDirectory: `up` says in one line that it cannot write, and
// leaves nothing behind.
func TestReadOnlyDataDirectory(t *testing.T) {
	t.Parallel()
	needSystem(t)
	r := tool(t, "up", "--data-dir", "/proc/countersign-data", "--ready-file", filepath.Join(t.TempDir(), "ready.json"))
	r.want(t, 1).oneLine(t, "/proc/countersign-data")
}

// TestDamagedLog: damage of the log on the disk is noticed when `up` starts, and nothing is written to the rest of
// it. The place of the damage decides what NATS makes of it: a message with a damaged text is
// missing, and behind a message with a damaged length the log ends. Once the original block is
// restored, the log continues.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		damage func(block []byte)
		by     string
		says   string
	}{
		{"the text of a message", func(block []byte) { invert(block[bytes.Index(block, []byte(`"c10"`)):][:5]) }, "correlator", "has a gap"},
		{"the length of a message", func(block []byte) { invert(recordAround(block, []byte(`"c10"`))[:4]) }, "auditor", "holds less than the evidence"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			r := s.runtime(t)
			for i := range 20 {
				call := allowedCall("s-damaged", fmt.Sprint("c", i))
				r.admit(t, "agenthook", call.bytes())
				r.publish(t, call)
				r.publish(t, postToolUse(call))
			}
			s.exact(t)
			ok(t, s.stop())
			block := filepath.Join(s.data, "nats", "jetstream", "COUNTERSIGN", "streams", "GOV", "msgs", "1.blk")
			whole, err := os.ReadFile(block)
			ok(t, err)
			damaged := slices.Clone(whole)
			c.damage(damaged)
			ok(t, os.WriteFile(block, damaged, 0o600))

			broken := startWith(t, s.dir, nil)
			list, _ := problems(t, broken)
			for _, name := range []string{"admitter", "correlator", "auditor"} {
				want := "stopped: nothing may write to this log, see " + c.by
				if name == c.by {
					want = c.says
				}
				if !strings.Contains(list[name+"/process"], want) {
					t.Errorf("%s does not say %q: %v", name, want, list)
				}
			}
			if r := broken.run(t, "admit", "--protocol", "agenthook", root+"/examples/requests/pre-tool-use.json"); r.code != 1 {
				t.Errorf("a request is answered: exit %d %s%s", r.code, r.out, r.err)
			}
			ok(t, broken.stop())
			ok(t, os.WriteFile(block, whole, 0o600))
			_ = os.Remove(filepath.Join(filepath.Dir(block), "index.db")) // it describes the damaged block
			again := startIn(t, s.dir, "--policy", samplePolicies)
			again.runtime(t).admit(t, "agenthook", allowedCall("s-damaged", "after").bytes())
			again.exact(t)
			again.verified(t, 0)
		})
	}
}

// recordAround is a block of NATS's file store from the record on that holds
// text: its length (4 bytes), sequence (8), time (8), the length of the subject
// (2), the subject, and the message.
func recordAround(block, text []byte) []byte {
	subject := bytes.LastIndex(block[:bytes.Index(block, text)], []byte("gov."))
	return block[subject-22:]
}

func invert(b []byte) {
	for i := range b {
		b[i] ^= 0xff
	}
}

// TestDamagedEvidence: a part of the evidence that was damaged on the disk makes
// every command that reads it fail, and say which table.
func TestDamagedEvidence(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.runtime(t)
	for i := range 20 {
		r.admit(t, "agenthook", allowedCall("s-damaged", fmt.Sprint("c", i)).bytes())
	}
	s.exact(t)
	spoil(t, largestPart(t, filepath.Join(s.data, "clickhouse")))
	for _, args := range [][]string{{"verify"}, {"verify", "--session", "s-damaged"}, {"chain", "--session", "s-damaged"}} {
		got := s.run(t, args...).want(t, 1)
		if got.out != "" && args[0] != "chain" {
			t.Errorf("%v: %s", args, got.out)
		}
		got.oneLine(t, "table countersign.", "damaged on ClickHouse's disk", "docs/operating.md")
	}
}

// spoil inverts bytes in the middle of a file.
func spoil(t testing.TB, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	ok(t, err)
	invert(b[len(b)/2:][:16])
	ok(t, os.WriteFile(path, b, 0o600))
}

// largestPart is the largest file of rows below a folder, which is of the
// evidence itself.
func largestPart(t testing.TB, dir string) (path string) {
	t.Helper()
	size := int64(0)
	ok(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(p) != ".bin" {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Size() > size {
			path, size = p, info.Size()
		}
		return nil
	}))
	if path == "" {
		t.Fatal("the engine stored nothing")
	}
	return path
}

// pauseFor is how long a service stands still in TestServiceStandsStill.
func pauseFor() time.Duration {
	if longSweeps {
		return 30 * time.Second
	}
	return 4 * time.Second
}

// TestServiceStandsStill pauses each process of the pipeline under traffic
// (SIGSTOP). What is answered meanwhile is recorded; what is not answered is no
// allow; afterwards everything is in evidence, once.
func TestServiceStandsStill(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name := range s.info(t).PIDs {
		if name == "up" {
			continue
		}
		release := s.holdDown(t, name)
		sess := "s-still-" + name
		for deadline, i := time.Now().Add(pauseFor()), 0; time.Now().Before(deadline); i++ {
			got := s.run(t, "admit", "--protocol", "agenthook", "--timeout", "2s", requestFile(t, allowedCall(sess, fmt.Sprint("c", i))))
			if got.code != 0 && got.code != 1 && got.code != 4 {
				t.Errorf("%s stands still: exit %d\n%s%s", name, got.code, got.out, got.err)
			}
			time.Sleep(100 * time.Millisecond) // a caller's pace
		}
		release()
		eventually(t, "admission is there again after "+name+" stood still", func() error {
			if got := s.run(t, "admit", "--protocol", "agenthook", requestFile(t, allowedCall(sess, "after"))); got.code != 0 {
				return errorf("exit %d: %s", got.code, got.err)
			}
			return nil
		})
		s.settle(t)
	}
	s.verified(t, 0)
	emittedOnce(t, s)
}

// requestFile writes a request where the tool can read it.
func requestFile(t testing.TB, call object) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "request.json")
	ok(t, os.WriteFile(path, call.bytes(), 0o600))
	return path
}
