package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/subject"
)

// A tenant's policy lets a session go as time passes: first its messages, then
// the texts of its evidence. What a hold or `keep` reaches stays. Between the
// steps the system is started anew with a clock that is ahead.
func TestPeriodsRunOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startWith(t, dir, nil, "--policy", samplePolicies)
	due, held, kept := playSecrets(t, s, "s-due"), playSecrets(t, s, "s-held"), playSecrets(t, s, "s-kept")
	all := []secretSession{due, held, kept}
	file, bundle, key := filepath.Join(dir, "acme.yaml"), filepath.Join(dir, "before.zip"), filepath.Join(dir, "checkpoint.pub")
	ok(t, os.WriteFile(key, []byte(s.info(t).PublicKey+"\n"), 0o600))
	ok(t, os.WriteFile(file, []byte("version: 1\nname: acme\nlog: 24h\nevidence: 72h\nsessions:\n  - {match: s-kept, keep: true}\n"), 0o600))
	s.run(t, "export", "--session", due.name, "--out", bundle).want(t, 0)
	s.run(t, "retention", "hold", "--session", held.name, "--reason", "case 4").want(t, 0)
	s.run(t, "retention", "push", file).want(t, 0)

	later := func(hours string) {
		t.Helper()
		ok(t, s.stop())
		s = startWith(t, dir, []string{"COUNTERSIGN_RETENTION_AHEAD=" + hours}, "--policy", samplePolicies)
	}
	onDisk := func(x secretSession) (values []string) {
		for _, v := range x.values {
			if len(found(t, filepath.Join(s.data, "nats"), v)) > 0 {
				values = append(values, v)
			}
		}
		return values
	}
	texts := func(x secretSession) uint64 {
		return number(t, s.auditors(t), "SELECT count() FROM evidence WHERE session = ? AND record != ''", x.name)
	}
	check := func(when string, gone, expired []string) {
		t.Helper()
		for _, x := range all {
			eventually(t, when+": the messages of "+x.name, func() error {
				if left := len(onDisk(x)); (left == 0) != slices.Contains(gone, x.name) || left != 0 && left != len(x.values) {
					return errorf("%d of %d values stand on the disk", left, len(x.values))
				}
				return nil
			})
			eventually(t, when+": the texts of "+x.name, func() error {
				if n := texts(x); (n == 0) != slices.Contains(expired, x.name) {
					return errorf("%d records have a text", n)
				}
				return nil
			})
		}
		s.settle(t)
		signed(t, s)
		s.verified(t, 0)
		for _, x := range all {
			s.verified(t, 0, "--session", x.name)
			r := s.run(t, "chain", "--session", x.name).want(t, 0)
			if strings.Contains(r.out+r.err, "under retention policy acme@") != slices.Contains(expired, x.name) {
				t.Errorf("%s: chain of %s: %s%s", when, x.name, r.out, r.err)
			}
		}
		tool(t, "verify", "--bundle", bundle, "--key", key).want(t, 0)
		if code, out := python(t, "--bundle", bundle, "--key", key); code != 0 {
			t.Errorf("%s: the second verifier: %s", when, out)
		}
		s.sound(t)
	}
	check("at once", nil, nil)
	later("23h")
	check("before the first period ends", nil, nil)
	later("25h")
	check("after the log's period", []string{due.name}, nil)
	later("73h")
	check("after the evidence's period", []string{due.name}, []string{due.name})

	// A hold that is released lets go what was due all the time.
	list := s.run(t, "retention", "show").want(t, 0).out
	id := list[strings.Index(list, "hold-"):]
	s.run(t, "retention", "release", strings.Fields(id)[0], "--reason", "settled").want(t, 0)
	later("74h")
	check("after the hold", []string{due.name, held.name}, []string{due.name, held.name})
	for _, x := range all {
		s.run(t, "export", "--session", x.name, "--out", bundle, "--force").want(t, 0)
		tool(t, "verify", "--bundle", bundle, "--key", key).want(t, 0)
		if code, out := python(t, "--bundle", bundle, "--key", key); code != 0 {
			t.Errorf("the second verifier, of %s: %s", x.name, out)
		}
	}
}

// A session whose id does not fit into a subject is stored under a hash of it. A hold by either
// name blocks an erasure by either name, and one by a data subject.
func TestHoldByEitherName(t *testing.T) {
	t.Parallel()
	s := start(t)
	long := "s-" + strings.Repeat("long-", 30)
	r := s.runtime(t)
	call := preToolUse(long, "c1", "write_file", object{"path": "/workspace/c1", "owner": "jroe-4711"})
	r.admit(t, "agenthook", call.bytes())
	r.publish(t, call)
	r.publish(t, postToolUse(call))
	s.settle(t)
	signed(t, s)
	hashed := subject.Escape(long)
	if !strings.HasPrefix(hashed, "~h") {
		t.Fatal(hashed)
	}
	erase := func(args ...string) result {
		return s.run(t, append([]string{"retention", "erase", "--reason", "request 17", "--quiet", "0s", "--yes"}, args...)...)
	}
	for _, name := range []string{long, hashed} {
		id := strings.TrimSuffix(strings.Fields(s.run(t, "retention", "hold", "--session", name, "--reason", "case 4").want(t, 0).out)[0], ":")
		for _, scope := range [][]string{{"--session", long}, {"--session", hashed}, {"--subject", "jroe-4711"}} {
			erase(scope...).want(t, 1).oneLine(t, "legal hold", "case 4")
		}
		s.run(t, "retention", "release", id, "--reason", "settled").want(t, 0)
	}
	erase("--session", long).want(t, 0)
	s.verified(t, 0)
}
