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

// standby starts one of the service programs beside the one that `up` runs, as
// a second machine would: with nothing but the environment.
func (s *system) standby(t testing.TB, name string) *proc {
	t.Helper()
	info := s.info(t)
	return serve(t, name, filepath.Join(s.dir, name+"-standby.log"), "COUNTERSIGN_NATS_URL="+info.NATSURL, "COUNTERSIGN_NATS_PASSWORD="+s.password(t, name),
		"COUNTERSIGN_KEYS="+filepath.Join(s.data, "keys"), "COUNTERSIGN_CLICKHOUSE="+info.ClickHouseDSN)
}

// serve starts one of the service programs by itself and waits until it is ready.
func serve(t testing.TB, name, path string, env ...string) *proc {
	t.Helper()
	cmd := exec.Command(program(name))
	cmd.Env = cleanEnv(append(env, "COUNTERSIGN_NATS_USER="+name)...)
	log, err := os.Create(path)
	ok(t, err)
	t.Cleanup(func() {
		if b, err := os.ReadFile(path); err == nil && t.Failed() {
			t.Logf("%s:\n%s", path, b)
		}
	})
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd)
	ok(t, err)
	eventually(t, "the "+name+" is ready", func() error {
		b, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(b), `"message":"ready"`) {
			err = errorf("not yet")
		}
		return err
	})
	return p
}

// A second admitter shares the work; a second correlator and a second auditor
// stand by. Nothing is lost and nothing is there twice.
func TestSecondInstances(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.runtime(t)
	var second []*proc
	for _, name := range []string{"admitter", "correlator", "auditor"} {
		second = append(second, s.standby(t, name))
	}
	operator := s.connect(t, "operator")
	eventually(t, "two admitters answer", func() error {
		sub, err := operator.SubscribeSync(operator.NewInbox())
		ok(t, err)
		defer func() { _ = sub.Unsubscribe() }()
		ok(t, operator.PublishRequest("$SRV.PING.admitter", sub.Subject, nil))
		for n := range 2 {
			if _, err := sub.NextMsg(time.Second); err != nil {
				return errorf("%d answers", n)
			}
		}
		return nil
	})
	for i := range 150 {
		sess := fmt.Sprintf("s-two-%d", i%7)
		call := allowedCall(sess, fmt.Sprint("call-", i))
		if i%3 == 0 {
			call = deniedCall(sess, fmt.Sprint("call-", i))
		}
		r.admit(t, "agenthook", call.bytes())
		r.publish(t, call)
		r.publish(t, postToolUse(call))
	}
	s.exact(t)
	emittedOnce(t, s)
	if n := number(t, s.auditors(t), "SELECT count() FROM findings WHERE rule = 'executed_despite_deny'"); n != 50 {
		t.Errorf("%d findings, want 50", n)
	}
	s.verified(t, 0)
	for _, p := range second {
		p.signal(15)
		_ = p.wait()
	}
	// What is left goes on alone.
	r.admit(t, "agenthook", allowedCall("s-two-after", "c1").bytes())
	s.exact(t)
	s.verified(t, 0)
}

// An active auditor or correlator that hangs is succeeded by its standby. When it
// goes on it finds the shard taken and steps down, and nothing is lost or there
// twice.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.runtime(t)
	for _, name := range []string{"auditor", "correlator"} {
		s.standby(t, name)
		r.admit(t, "agenthook", allowedCall("s-over", name+"-before").bytes())
		s.exact(t)
		hung := s.info(t).PIDs[name]
		ok(t, syscall.Kill(hung, syscall.SIGSTOP))
		for i := range 20 {
			call := deniedCall("s-over-"+name, fmt.Sprint("during-", i))
			r.admit(t, "agenthook", call.bytes())
			r.publish(t, call)
			r.publish(t, postToolUse(call))
		}
		eventually(t, "the standby finds what was run despite a deny", func() error {
			n := number(t, s.auditors(t), "SELECT count() FROM findings WHERE rule = 'executed_despite_deny' AND session = 's-over-"+name+"'")
			if n != 20 {
				return errorf("%d of 20", n)
			}
			return nil
		})
		s.exact(t)
		ok(t, syscall.Kill(hung, syscall.SIGCONT))
		eventually(t, "the "+name+" that hung steps down", func() error {
			if pid := s.info(t).PIDs[name]; pid == hung {
				return errorf("it still runs as %d", pid)
			}
			return nil
		})
		for i := range 20 {
			r.admit(t, "agenthook", allowedCall("s-over", fmt.Sprint(name, "-after-", i)).bytes())
		}
		s.exact(t)
	}
	emittedOnce(t, s)
	s.verified(t, 0)
}

// A service that cannot work says why in one line, and what to do, and ends.
func TestServicePrograms(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	keys := t.TempDir()
	tool(t, "provision", "--keys", keys).want(t, 0)
	for _, name := range []string{"admitter", "correlator", "auditor"} {
		run := func(args ...string) result { return command(t, exec.Command(program(name), args...)) }
		where := []string{"--server", "nats://127.0.0.1:1"}
		if name == "auditor" {
			where = append(where, "--clickhouse", "clickhouse://someone:secret-password@127.0.0.1:1/x")
		}
		run("--frobnicate").want(t, 2).oneLine(t, "--frobnicate")
		run(append(where, "--keys", filepath.Join(keys, "absent"))...).want(t, 1).oneLine(t, "countersign provision")
		r := run(append(where, "--keys", keys)...).want(t, 1)
		r.oneLine(t, "127.0.0.1:1")
		if strings.Contains(r.err, "secret-password") {
			t.Errorf("%s says a password: %s", name, r.err)
		}
	}
}
