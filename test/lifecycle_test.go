package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The ready file is what other programs script against (architecture.md
// section 7).
func TestReadyFile(t *testing.T) {
	s := shared(t)
	st, err := os.Stat(s.ready)
	ok(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", st.Mode())
	}
	r := s.info(t)
	if r.Tenant != "acme" || r.PublicKey == "" || !strings.HasPrefix(r.NATSURL, "nats://127.0.0.1:") ||
		!strings.HasPrefix(r.ClickHouseDSN, "clickhouse://") || !strings.HasPrefix(r.ClickHouseReadonlyDSN, "clickhouse://") {
		t.Errorf("tenant %q, public_key %q, nats_url %q", r.Tenant, r.PublicKey, r.NATSURL)
	}
	inboxes := map[string]bool{}
	for _, name := range []string{"runtime", "subscriber", "reviewer", "operator"} {
		c := r.Roles[name]
		if c.User == "" || c.Password == "" || c.InboxPrefix == "" || inboxes[c.InboxPrefix] {
			t.Errorf("role %s: user %q, inbox %q", name, c.User, c.InboxPrefix)
		}
		inboxes[c.InboxPrefix] = true
		if hasPublisher := c.Publisher != ""; hasPublisher != (name == "runtime") {
			t.Errorf("role %s: publisher %q", name, c.Publisher)
		}
		if err := s.connect(t, name).Flush(); err != nil {
			t.Errorf("role %s cannot connect: %v", name, err)
		}
	}
	seen := map[int]bool{}
	for _, name := range []string{"up", "nats", "clickhouse", "admitter", "correlator", "auditor", "gateway"} {
		pid := r.PIDs[name]
		if _, state, _, lives := stat(pid); pid == 0 || !lives || state == "Z" || seen[pid] {
			t.Errorf("pid %d of %s: alive %t, of another too: %t", pid, name, lives, seen[pid])
		}
		seen[pid] = true
	}
	if r.PIDs["up"] != s.proc.pid || len(r.PIDs) != 7 {
		t.Errorf("pids %v, up is %d", r.PIDs, s.proc.pid)
	}
	eventually(t, "a good system is healthy", func() error { // a busy one may answer late
		if code, body := health(t, s); code != http.StatusOK {
			return errorf("%d %s", code, body)
		}
		return nil
	})
}

// health asks the health endpoint.
func health(t testing.TB, s *system) (code int, body string) {
	t.Helper()
	res, err := http.Get(s.info(t).HTTPURL + "/healthz")
	ok(t, err)
	defer res.Body.Close()
	var b json.RawMessage
	ok(t, json.NewDecoder(res.Body).Decode(&b))
	return res.StatusCode, string(b)
}

// SIGTERM stops every process; what was there is there again after the next
// start: keys, passwords, log and evidence.
func TestStopAndStartAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	before, keys := s.info(t), keyFiles(t, s)
	s.runtime(t).admit(t, "agenthook", allowedCall("s-restart", "c1").bytes())
	s.settle(t)
	shard := evidence(t, s.auditors(t), "seq = 1")[0].Shard
	count := number(t, s.auditors(t), "SELECT count() FROM evidence")
	all := tree(s.proc.pid)
	if len(all) < 6 {
		t.Fatalf("the tree has %d processes", len(all))
	}
	ok(t, s.stop())
	gone(t, all)
	if _, err := os.Stat(s.ready); !os.IsNotExist(err) {
		t.Errorf("the ready file is still there: %v", err)
	}

	s = startIn(t, dir, "--policy", samplePolicies)
	after := s.info(t)
	if after.PublicKey != before.PublicKey {
		t.Errorf("the public key changed from %s to %s", before.PublicKey, after.PublicKey)
	}
	for name, c := range before.Roles {
		if after.Roles[name] != c {
			t.Errorf("role %s changed", name)
		}
	}
	for name, k := range keyFiles(t, s) {
		if keys[name] != k {
			t.Errorf("key file %s changed", name)
		}
	}
	if first := evidence(t, s.auditors(t), "seq = 1")[0].Shard; first != shard {
		t.Errorf("shard %s became %s", shard, first)
	}
	s.runtime(t).admit(t, "agenthook", allowedCall("s-restart", "c2").bytes())
	s.exact(t)
	if n := number(t, s.auditors(t), "SELECT count() FROM evidence"); n <= count {
		t.Errorf("%d records, %d before the restart", n, count)
	}
	s.verified(t, 0)
}

func keyFiles(t testing.TB, s *system) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"receipt.key", "checkpoint.key", "master.key"} {
		path := filepath.Join(s.data, "keys", name)
		b, err := os.ReadFile(path)
		ok(t, err)
		st, err := os.Stat(path)
		ok(t, err)
		if st.Mode().Perm() != 0o600 || len(b) == 0 {
			t.Errorf("%s: mode %v, %d bytes", name, st.Mode(), len(b))
		}
		files[name] = string(b)
	}
	return files
}

// Whatever kills `up`, its children die with it, and what was acknowledged is
// there afterwards.
func TestKillOfUpTakesChildren(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	a := s.runtime(t).admit(t, "agenthook", deniedCall("s-kill", "c1").bytes())
	all := tree(s.proc.pid)
	s.proc.signal(syscall.SIGKILL)
	_ = s.proc.wait()
	gone(t, all)
	ok(t, os.Remove(s.ready)) // a killed `up` cannot remove it

	s = startIn(t, dir, "--policy", samplePolicies)
	if r := atSeq(t, s.auditors(t), a.seq); r.body(t).text("decision_id") != a.id {
		t.Errorf("sequence %d is not the decision the caller heard of", a.seq)
	}
	s.exact(t)
	s.verified(t, 0)
}

// A second signal does not wait.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	all := tree(s.proc.pid)
	eventually(t, "up ends", func() error {
		s.proc.signal(syscall.SIGTERM)
		select {
		case <-s.proc.done:
			return nil
		default:
			return errorf("it runs")
		}
	})
	gone(t, all)
}

// A data directory belongs to one `up`; a second one says so and does no harm.
func TestSecondUpOnSameData(t *testing.T) {
	s := shared(t)
	r := tool(t, "up", "--data-dir", s.data, "--ready-file", filepath.Join(s.dir, "second.json"))
	if r.code == 0 || r.code == -1 {
		t.Errorf("exit %d", r.code)
	}
	if !strings.Contains(r.err, "in use") {
		t.Errorf("it does not say that the data directory is in use:\n%s", r.err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "second.json")); err == nil {
		t.Error("a second ready file is there")
	}
	if a := s.runtime(t).admit(t, "agenthook", allowedCall("s-second", "c1").bytes()); a.verdict != "allow" {
		t.Errorf("the first one answers %s", a.verdict)
	}
	s.exact(t)
	s.verified(t, 0)
}

// While a ClickHouse of one's own is away, up starts and admits. Its health endpoint answers from the beginning, and
// names what does not run.
func TestUpWhileItsClickHouseIsAway(t *testing.T) {
	t.Parallel()
	address, early := freeAddress(t), make(chan bool, 1)
	go func() {
		for ; t.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
			res, err := http.Get("http://" + address + "/healthz")
			if err != nil {
				continue
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if strings.Contains(string(body), `"correlator/process":"does not run yet`) {
				early <- res.StatusCode == http.StatusServiceUnavailable
				return
			}
		}
	}()
	s := start(t, "--policy", samplePolicies, "--clickhouse", "clickhouse://someone:secret-password@127.0.0.1:1/x", "--http", address)
	select {
	case unhealthy := <-early:
		if !unhealthy {
			t.Error("up that begins is healthy")
		}
	default:
		t.Error("the health endpoint did not answer before the services ran")
	}
	if v := s.runtime(t).admit(t, "agenthook", allowedCall("s-away", "c1").bytes()); v.verdict != "allow" {
		t.Errorf("%+v", v)
	}
	code, body := health(t, s)
	for _, name := range []string{"clickhouse/process", "auditor/process"} {
		if code != http.StatusServiceUnavailable || !strings.Contains(body, `"`+name+`"`) || strings.Contains(body, "secret-password") {
			t.Errorf("%d, want %s: %s", code, name, body)
		}
	}
	if pid, is := s.info(t).PIDs["clickhouse"]; is {
		t.Errorf("pid %d of a process that there is not", pid)
	}
}
