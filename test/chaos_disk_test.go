package e2e_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestChaosDiskFull fills the log's disk, and then the engine's, while runtimes are at work.
// While the log's disk is full, no request is allowed; while the engine's is, the evidence waits
// in the log. Once there is room again everything continues without help, and the books are
// exact.
func TestChaosDiskFull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, dir, size string
		hurts           func(t *testing.T, s *system, c *crowd)
	}{
		{"log", "nats", "64m", func(t *testing.T, _ *system, c *crowd) {
			before, _ := c.unserved()
			eventually(t, "nobody is served", func() error {
				if n, _ := c.unserved(); n < before+8 {
					return errorf("%d requests and events were not served", n-before)
				}
				return nil
			})
		}},
		{"engine", "clickhouse", "256m", func(t *testing.T, s *system, c *crowd) {
			before := lines(t, s.log, "no way on")
			eventually(t, "the auditor says that it cannot store", func() error {
				if lines(t, s.log, "no way on") == before {
					return errorf("not yet")
				}
				return nil
			})
			c.progress(t) // others do not notice
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			needSystem(t)
			run, dir, rounds := newChaos(t, 1, 1), t.TempDir(), 1
			if run.long {
				rounds = 6
			}
			fill := smallDisk(t, filepath.Join(dir, "data", c.dir), c.size)
			s := startIn(t, dir)
			crowd := atWork(t, s, 5)
			crowd.progress(t)
			for round := range rounds {
				release := fill()
				c.hurts(t, s, crowd)
				if round%2 == 1 { // and then it is killed, too
					_ = syscall.Kill(s.info(t).PIDs[c.dir], syscall.SIGKILL)
					run.killed[c.dir]++
					run.nap(3 * time.Second)
				}
				release()
				crowd.progress(t)
				s.audited(t, s.auditors(t), 5)
				run.logf("the disk was full %d times; %s", round+1, crowd)
			}
			crowd.goHome()
			crowd.audit(t, s)
			run.logf("the books are exact: %s", crowd)
		})
	}
}

// unserved are requests without an answer or denied for want of a record and
// events without an acknowledgement, and the requests that were served.
func (c *crowd) unserved() (unserved, served int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent + c.refused + c.unstored, len(c.heard)
}
