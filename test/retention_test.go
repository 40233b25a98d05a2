package e2e_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/digest"
	format "github.com/countersign-dev/countersign/evidence"
)

// secretSession is a session full of values that have to be erased: in a field, in a text, in a
// pending approval, and in bytes that cannot be parsed.
type secretSession struct {
	name, pin, mail, broken string
	values                  []string
	texts                   []string // of which the password is all that an attacker does not know: messages, arguments
}

func playSecrets(t testing.TB, s *system, name string) secretSession {
	t.Helper()
	x := secretSession{name: name, pin: fmt.Sprintf("%06d", randomBelow(t, 1_000_000)), mail: "dora." + randomText(t) + "@secret.example", broken: randomText(t) + randomText(t)}
	password := "pw-" + x.pin
	x.values = []string{password, x.mail, x.broken}
	r := s.runtime(t)
	call := preToolUse(name, "c1", "write_file", object{"path": "/workspace/c1", "password": password})
	done := postToolUse(call)
	x.texts = []string{string(call.bytes()), string(done.bytes()), `{"password":"` + password + `","path":"/workspace/c1"}`}
	r.admit(t, "agenthook", call.bytes())
	r.publish(t, call)
	r.publish(t, done)
	r.admit(t, "agenthook", askedCall(name, "c2").with("tool_input.to", x.mail).bytes())
	r.put(t, r.subject("agenthook", name, "PreToolUse"), []byte(`{"broken": "`+x.broken))
	s.settle(t)
	signed(t, s)
	return x
}

func randomText(t testing.TB) string {
	t.Helper()
	b := make([]byte, 12)
	_, err := rand.Read(b)
	ok(t, err)
	return hex.EncodeToString(b)
}

func randomBelow(t testing.TB, n uint32) uint32 {
	t.Helper()
	var b [4]byte
	_, err := rand.Read(b[:])
	ok(t, err)
	return binary.BigEndian.Uint32(b[:]) % n
}

// found lists the files below a directory in which a value stands, plain or in
// base64 at any of its three places.
func found(t testing.TB, dir, value string) (files []string) {
	t.Helper()
	needles := [][]byte{[]byte(value)}
	for shift := range 3 {
		padded := append(make([]byte, shift), value...)
		whole := base64.StdEncoding.EncodeToString(padded)
		needles = append(needles, []byte(whole[(shift*8+5)/6:len(whole)-4]))
	}
	ok(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // what goes while we look is gone
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for _, n := range needles {
			if bytes.Contains(b, n) {
				files = append(files, path)
				break
			}
		}
		return nil
	}))
	return files
}

func masterKey(t testing.TB, s *system) digest.Master {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "keys", "master.key"))
	ok(t, err)
	seed, err := hex.DecodeString(strings.TrimSpace(string(text)))
	ok(t, err)
	master, err := digest.NewMaster(seed)
	ok(t, err)
	return master
}

// sessionKeys opens whatever below a directory is a wrapped key of a session, with
// the master key at hand.
func sessionKeys(t testing.TB, s *system, tenant, session string) (keys [][]byte) {
	t.Helper()
	const size = 1 + 12 + 32 + 16
	wrapping := masterKey(t, s).Wrapping(tenant)
	ok(t, filepath.WalkDir(filepath.Join(s.data, "nats"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for at := 0; at+size <= len(b); at++ {
			if b[at] != 1 {
				continue
			}
			if key, err := format.UnwrapSessionSecret(wrapping, tenant, session, b[at:at+size]); err == nil {
				keys = append(keys, key)
			}
		}
		return nil
	}))
	return keys
}

// commitment is that of docs/evidence-format.md, of a text.
func commitment(key []byte, seq uint64, index int, path, value string) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("countersign/commitment/v1\x00"))
	b := binary.BigEndian.AppendUint64(nil, seq)
	b = binary.BigEndian.AppendUint32(b, uint32(index))
	b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
	m.Write(b)
	m.Write([]byte(path + "s" + value))
	return "hmac-sha256:" + hex.EncodeToString(m.Sum(nil))
}

// guessed tries all PINs against all commitments of a session, with all keys that
// there are.
func guessed(t testing.TB, rows []row, keys [][]byte, near string) (values []string) {
	t.Helper()
	for _, r := range rows {
		var rec struct {
			Redactions []struct{ Path, Commitment string }
		}
		ok(t, json.Unmarshal([]byte(r.Record), &rec))
		for i, red := range rec.Redactions {
			for _, key := range keys {
				for n := range 1000 { // of a million; the rest would take its time
					if v := "pw-" + near[:3] + fmt.Sprintf("%03d", n); commitment(key, r.Seq, i, red.Path, v) == red.Commitment {
						values = append(values, v)
					}
				}
			}
		}
	}
	return values
}

// A session is erased: nothing of its values can be recovered from anything that
// is there, the master key included, and everything that was proved still is.
func TestErasedSession(t *testing.T) {
	t.Parallel()
	s := start(t)
	x, kept := playSecrets(t, s, "s-erase"), playSecrets(t, s, "s-keep")
	db := s.auditors(t)
	dir := t.TempDir()
	bundle, key := filepath.Join(dir, "before.zip"), filepath.Join(dir, "checkpoint.pub")
	ok(t, os.WriteFile(key, []byte(s.info(t).PublicKey+"\n"), 0o600))
	s.run(t, "export", "--session", x.name, "--out", bundle).want(t, 0)
	before := session(t, db, x.name)

	// First that the tools of the attack are sharp.
	for _, v := range x.values {
		if len(found(t, s.data, v)) == 0 {
			t.Fatalf("%q stands nowhere before the erasure: the test looks in the wrong place", v)
		}
	}
	for where, list := range digestsEverywhere(t, s, before, bundle) {
		if got := fitting(t, s, x, list); !slices.Contains(got, x.pin) && where != "snapshots" { // which are written when it is time
			t.Errorf("of %d digests in %s before the erasure, %v fit: the test does not know how", len(list), where, got)
		}
	}
	keys := sessionKeys(t, s, "acme", x.name)
	if len(keys) == 0 || !slices.Contains(guessed(t, before, keys, x.pin), "pw-"+x.pin) {
		t.Fatalf("with the key, %d found, a commitment cannot be guessed: the test does not know how", len(keys))
	}

	s.run(t, "retention", "erase", "--session", x.name, "--reason", "request 17").want(t, 1).oneLine(t, "may go on")
	var hold object
	ok(t, json.Unmarshal([]byte(s.run(t, "retention", "hold", "--session", x.name, "--reason", "case 4", "--json").want(t, 0).out), &hold))
	s.run(t, "retention", "erase", "--session", x.name, "--reason", "request 17", "--quiet", "0s", "--yes").want(t, 1).oneLine(t, "legal hold", "case 4")
	s.run(t, "retention", "release", hold.text("id"), "--reason", "settled").want(t, 0)
	if hold.text("tenant") != "acme" || hold.text("session") != x.name || hold.text("reason") != "case 4" {
		t.Errorf("the hold for programs: %v", hold)
	}
	r := s.run(t, "retention", "erase", "--session", x.name, "--reason", "request 17", "--quiet", "0s").want(t, 0)
	if !strings.Contains(r.err, "nothing was changed") || len(found(t, s.data, x.mail)) == 0 {
		t.Fatalf("a dry run did something: %s", r.err)
	}
	var erased struct {
		Messages uint64
		Order    struct {
			By, Status string
			Result     struct{ Messages uint64 }
		}
	}
	ok(t, json.Unmarshal([]byte(s.run(t, "retention", "erase", "--session", x.name, "--reason", "request 17", "--by", "dana", "--quiet", "0s", "--yes", "--json").want(t, 0).out), &erased))
	if o := erased.Order; o.By != "dana" || o.Status != "done" || erased.Messages == 0 || o.Result.Messages != erased.Messages {
		t.Errorf("the erasure for programs: %+v", erased)
	}

	gone := func(when string) {
		t.Helper()
		eventually(t, "gone "+when, func() error {
			for _, v := range x.values {
				if files := found(t, s.data, v); len(files) > 0 {
					return errorf("%q still stands in %v", v, files)
				}
			}
			return nil
		})
		keys := sessionKeys(t, s, "acme", x.name)
		if len(keys) > 0 {
			t.Errorf("%s: the session's key is still there", when)
		}
		if v := guessed(t, before, keys, x.pin); len(v) > 0 {
			t.Errorf("%s: guessed %v", when, v)
		}
		for where, list := range digestsEverywhere(t, s, before, bundle) {
			if got := fitting(t, s, x, list); len(got) > 0 {
				t.Errorf("%s: with the master key and ten thousand guesses, digests in %s give %v away", when, where, got)
			}
		}
		for _, table := range []string{"evidence", "decisions", "calls", "findings", "approvals"} {
			for _, v := range x.values {
				if n := number(t, s.auditors(t), "SELECT count() FROM "+table+" WHERE position(toString(tuple(*)), ?) > 0", v); n > 0 {
					t.Errorf("%s: %q stands in table %s", when, v, table)
				}
			}
		}
		for _, v := range kept.values {
			if len(found(t, filepath.Join(s.data, "nats"), v)) == 0 {
				t.Errorf("%s: %q of another session is gone, too", when, v)
			}
		}
		eventually(t, "no reviewer sees it "+when, func() error {
			if waiting := s.run(t, "approvals", "list", "--json").want(t, 0).out; strings.Contains(waiting, x.name) || !strings.Contains(waiting, kept.name) {
				return errorf("%s", waiting)
			}
			return nil
		})
	}
	holds := func(when string) {
		t.Helper()
		s.settle(t)
		signed(t, s)
		if r := s.verified(t, 0); !strings.Contains(r.out, "erased from the log") {
			t.Errorf("%s: %s", when, r.out)
		}
		s.verified(t, 0, "--session", x.name)
		tool(t, "verify", "--bundle", bundle, "--key", key).want(t, 0)
		s.sound(t)
		s.run(t, "replay", "--session", x.name).want(t, 1).oneLine(t, "was erased", "dana", "request 17")
		s.run(t, "replay", "--session", kept.name).want(t, 0)
		s.run(t, "replay", "--session", kept.name, "--whole").want(t, 0)
		if after := session(t, s.auditors(t), x.name); !slices.Equal(after, before) {
			t.Errorf("%s: the evidence of the session is not what it was:\n%s\n%s", when, listed(after), listed(before))
		}
	}
	gone("at once")
	holds("at once")
	after := filepath.Join(dir, "after.zip")
	s.run(t, "export", "--session", x.name, "--out", after).want(t, 0)
	tool(t, "verify", "--bundle", after, "--key", key).want(t, 0)
	for _, v := range x.values {
		if len(found(t, dir, v)) > 0 {
			t.Errorf("%q stands in a bundle", v)
		}
	}
	if n := number(t, db, "SELECT count() FROM evidence WHERE subject = 'gov.control.GOV.erasure'"); n != 2 {
		t.Errorf("%d erasure records, want one that it begins and one that it is done", n)
	}

	// All over again, without a snapshot to start from.
	ok(t, s.stop())
	ok(t, os.RemoveAll(filepath.Join(s.data, "state")))
	findings := number(t, startIn(t, s.dir).auditors(t), "SELECT count() FROM findings")
	gone("after a restart")
	holds("after a restart")
	if n := number(t, s.auditors(t), "SELECT count() FROM findings"); n != findings {
		t.Errorf("%d findings after the restart, %d before: a gap is no finding", n, findings)
	}
}

// A session goes on after its erasure: under a new key, in the same chain.
func TestErasedSessionGoesOn(t *testing.T) {
	t.Parallel()
	s := start(t)
	x := playSecrets(t, s, "s-on")
	s.run(t, "retention", "erase", "--session", x.name, "--reason", "r", "--quiet", "0s", "--yes").want(t, 0)
	again := playSecrets(t, s, x.name)
	if keys := sessionKeys(t, s, "acme", x.name); len(keys) == 0 {
		t.Error("no key for what came after")
	} else if rows := session(t, s.auditors(t), x.name); !slices.Contains(guessed(t, rows, keys, again.pin), "pw-"+again.pin) || slices.Contains(guessed(t, rows, keys, x.pin), "pw-"+x.pin) && again.pin != x.pin {
		t.Error("the new key opens the old commitments, or not the new ones")
	}
	s.verified(t, 0)
	s.verified(t, 0, "--session", x.name)
	s.run(t, "retention", "erase", "--session", x.name, "--reason", "r", "--quiet", "0s", "--yes").want(t, 0)
	for _, v := range append(x.values, again.values...) {
		eventually(t, "gone", func() error {
			if files := found(t, s.data, v); len(files) > 0 {
				return errorf("%q still stands in %v", v, files)
			}
			return nil
		})
	}
	s.verified(t, 0)
}

// By data subject: all sessions that name it, and a hold on it protects them all.
func TestErasedSubject(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.runtime(t)
	secret := map[string]string{}
	for _, name := range []string{"s-a", "s-b", "s-c"} {
		secret[name] = "pw-" + randomText(t)
		call := preToolUse(name, "c1", "write_file", object{"path": "/workspace/c1", "password": secret[name]})
		if name != "s-c" {
			call = call.with("agent_id", "agent-dora")
		}
		r.admit(t, "agenthook", call.bytes())
	}
	s.settle(t)
	if out := s.run(t, "retention", "hold", "--tenant", "globex", "--reason", "case 6").want(t, 0).out; !strings.Contains(out, "on the whole tenant (tenant globex)") {
		t.Errorf("a hold without a scope: %s", out)
	}
	redaction := func() (v object) {
		t.Helper()
		ok(t, json.Unmarshal([]byte(s.run(t, "redaction", "show", "--json").want(t, 0).out), &v))
		return v
	}
	policy := "version: 1\nname: acme\nrules:\n  - {name: join, detectors: [email], action: tokenise}\n"
	if v := redaction(); v.text("tenant") != "acme" || v.text("policy") != "" || v["policy_id"] != nil {
		t.Errorf("without a redaction policy: %v", v)
	}
	s.run(t, "redaction", "push", file(t, []byte(policy))).want(t, 0)
	if v := redaction(); v.text("policy") != policy || !strings.HasPrefix(v.text("policy_id"), "acme@") || v["revision"] != 1.0 || v.text("since") == "" {
		t.Errorf("with one: %v", v)
	}
	hold := strings.Fields(s.run(t, "retention", "hold", "--subject", "agent-dora", "--reason", "case 5").want(t, 0).out)[0]
	held := s.run(t, "retention", "erase", "--session", "s-a", "--reason", "r", "--quiet", "0s", "--yes", "--json").want(t, 1)
	held.oneLine(t, "legal hold", "case 5")
	var plan object
	ok(t, json.Unmarshal([]byte(held.out), &plan))
	if plan["messages"] == nil || plan["messages"] == 0.0 || plan["order"] != nil {
		t.Errorf("what a hold keeps, for programs: %v", plan)
	}
	s.run(t, "retention", "release", strings.TrimSuffix(hold, ":"), "--reason", "settled").want(t, 0)
	s.run(t, "retention", "erase", "--subject", "nobody", "--reason", "r", "--quiet", "0s", "--yes").want(t, 1).oneLine(t, "no record")
	s.run(t, "retention", "erase", "--subject", "agent-dora", "--reason", "r", "--quiet", "0s", "--yes").want(t, 0)
	for name, want := range map[string]bool{"s-a": false, "s-b": false, "s-c": true} {
		if have := len(found(t, filepath.Join(s.data, "nats"), secret[name])) > 0; have != want {
			t.Errorf("session %s: on the disk is %v", name, have)
		}
	}
	eventually(t, "the order that named the subject is forgotten", func() error {
		if files := found(t, filepath.Join(s.data, "nats"), `"subject":"agent-dora"`); len(files) > 0 {
			return errorf("%v", files)
		}
		return nil
	})
	s.settle(t)
	signed(t, s)
	s.verified(t, 0)
}

// A message that goes without a record is found: by verify, by doctor, and by the
// correlator when it starts.
func TestLogGapWithoutRecord(t *testing.T) {
	t.Parallel()
	s := start(t)
	x := playSecrets(t, s, "s-gap")
	db := s.auditors(t)
	seq := number(t, db, "SELECT min(seq) FROM evidence WHERE session = ?", x.name)
	deleteAsCustodian(t, s, seq)
	s.settle(t)
	signed(t, s)
	if r := s.verified(t, 1); !strings.Contains(r.out+r.err, "log_gap") {
		t.Errorf("%s%s", r.out, r.err)
	}
	if r := s.run(t, "doctor").want(t, 1); !strings.Contains(r.out, "no erasure record") {
		t.Errorf("%s", r.out)
	}
}

// deleteAsCustodian does what only the custodian's password can.
func deleteAsCustodian(t testing.TB, s *system, seq uint64) {
	t.Helper()
	nc := s.service(t, "custodian")
	reply, err := nc.Request("$JS.API.STREAM.MSG.DELETE.GOV", fmt.Appendf(nil, `{"seq":%d}`, seq), patience)
	ok(t, err)
	if !bytes.Contains(reply.Data, []byte(`"success":true`)) {
		t.Fatalf("%s", reply.Data)
	}
}
