package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newestCheckpoint writes the newest stored checkpoint to a file.
func newestCheckpoint(t testing.TB, s *system, path string) (size uint64) {
	t.Helper()
	var note string
	ok(t, s.auditors(t).QueryRow(t.Context(), "SELECT note, size FROM checkpoints ORDER BY size DESC LIMIT 1").Scan(&note, &size))
	ok(t, os.WriteFile(path, []byte(note), 0o600))
	return size
}

// code says whether a report has a problem.
func (r report) code(want string) bool {
	for _, p := range r.Problems {
		if p.Code == want {
			return true
		}
	}
	return false
}

// A kept checkpoint must be the beginning of today's log, for the whole shard, for a session and
// for a time range.
func TestVerifyFromCheckpoint(t *testing.T) {
	t.Parallel()
	s := smallSystem(t)
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept.txt")
	size := newestCheckpoint(t, s, kept)
	r := s.runtime(t)
	r.admit(t, "agenthook", allowedCall("small-later", "c1").bytes())
	s.exact(t)
	signed(t, s)
	rep, _ := s.report(t, "--from-checkpoint", kept)
	if !rep.OK || uint64(rep.Signed) <= size {
		t.Fatalf("%+v", rep)
	}
	s.verified(t, 0, "--from-checkpoint", kept, "--session", "small-1")
	s.verified(t, 0, "--from-checkpoint", kept, "--since", "2026-01-01T00:00:00Z")

	shard := evidence(t, s.auditors(t), "seq = 1")[0].Shard
	forked := filepath.Join(dir, "forked.txt")
	ok(t, os.WriteFile(forked, []byte(s.signCheckpoint(t, shard, size, [32]byte{1})), 0o600))
	for _, more := range [][]string{nil, {"--session", "small-1"}} {
		if rep, r := s.report(t, append(more, "--from-checkpoint", forked)...); rep.OK || r.code != 1 || !rep.code("checkpoint_fork") {
			t.Errorf("%v: a fork goes through: %+v", more, rep)
		}
	}
	beyond := filepath.Join(dir, "beyond.txt")
	ok(t, os.WriteFile(beyond, []byte(s.signCheckpoint(t, shard, size+10_000, [32]byte{1})), 0o600))
	for _, more := range [][]string{nil, {"--session", "small-1"}} {
		if rep, _ := s.report(t, append(more, "--from-checkpoint", beyond)...); rep.OK || !rep.code("checkpoint_ahead") {
			t.Errorf("%v: a log that was longer goes through: %+v", more, rep)
		}
	}
	s.run(t, "verify", "--from-checkpoint", filepath.Join(dir, "none")).want(t, 2).oneLine(t, "--from-checkpoint")
}

// A time range is proved without the rest of the rows; what is changed in it is
// found, what is changed before it is not its business, unless it is the tree.
func TestVerifyTimeRange(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.runtime(t)
	for i := range 3 {
		r.admit(t, "agenthook", allowedCall(fmt.Sprint("s-early-", i), "c1").bytes())
	}
	s.settle(t)
	middle := evidence(t, s.auditors(t), "1")
	since := middle[len(middle)-1].BrokerTime.UTC().Add(time.Nanosecond).Format(time.RFC3339Nano)
	for i := range 3 {
		r.admit(t, "agenthook", allowedCall(fmt.Sprint("s-late-", i), "c1").bytes())
	}
	s.exact(t)
	signed(t, s)
	for _, args := range [][]string{{"--since", since}, {"--until", since}, {"--since", "2026-01-01T00:00:00Z", "--until", "2126-01-01T00:00:00Z"}} {
		if rep, _ := s.report(t, args...); !rep.OK || rep.Records == 0 {
			t.Errorf("%v: %+v", args, rep)
		}
	}
	s.run(t, "verify", "--since", "2126-01-01T00:00:00Z").want(t, 1).oneLine(t, "time range")
	s.run(t, "verify", "--since", "yesterday").want(t, 2).oneLine(t, "--since")

	db := s.owner(t)
	late := evidence(t, db, "session = 's-late-1' AND kind = 'decision'")[0].Seq
	change(t, db, fmt.Sprintf("ALTER TABLE evidence UPDATE record = replaceOne(record, 's-late-1', 's-late-9') WHERE seq = %d", late))
	if rep, _ := s.report(t, "--since", since); rep.OK || !rep.code("hash_mismatch") {
		t.Errorf("%+v", rep)
	}
	s.verified(t, 0, "--until", since)
}

// One record is proved by a file of its own, anywhere.
func TestVerifyProof(t *testing.T) {
	t.Parallel()
	s := borrowed(t)
	dir := t.TempDir()
	file, key := filepath.Join(dir, "one.tlog-proof"), s.info(t).PublicKey
	seq := evidence(t, s.auditors(t), "kind = 'decision'")[1].Seq
	s.run(t, "verify", "--prove", fmt.Sprint(seq), "--out", file).want(t, 0)
	s.run(t, "verify", "--prove", "99999999", "--out", filepath.Join(dir, "none")).want(t, 1).oneLine(t, "99999999")
	s.run(t, "verify", "--prove", fmt.Sprint(seq)).want(t, 2)
	// From here on no command is told where a system is.
	if r := tool(t, "verify", "--proof", file, "--key", key).want(t, 0); !strings.Contains(r.out, "holds") || !strings.Contains(r.out, fmt.Sprint("sequence ", seq)) {
		t.Errorf("%s", r.out)
	}
	text, err := os.ReadFile(file)
	ok(t, err)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if line == "" || strings.HasPrefix(line, "— countersign.dev/checkpoint ") && i == len(lines)-1 {
			continue
		}
		bad := strings.Split(string(text), "\n")
		b := []byte(line)
		b[len(b)/2] ^= 1
		bad[i] = string(b)
		ok(t, os.WriteFile(file, []byte(strings.Join(bad, "\n")), 0o600))
		if r := tool(t, "verify", "--proof", file, "--key", key); r.code != 1 {
			t.Errorf("line %d changed: exit %d\n%s%s", i+1, r.code, r.out, r.err)
		}
	}
}

// Kept receipts must be those of decisions in the log.
func TestVerifyReceipts(t *testing.T) {
	t.Parallel()
	s := amongOthers(t)
	r := s.runtime(t)
	a := r.admit(t, "agenthook", allowedCall("s-receipts", "c1").bytes())
	b := r.admit(t, "agenthook", deniedCall("s-receipts", "c2").bytes())
	s.exact(t)
	signed(t, s)
	file := filepath.Join(t.TempDir(), "receipts")
	try := func(text string, more ...string) report {
		t.Helper()
		ok(t, os.WriteFile(file, []byte(text), 0o600))
		rep, _ := s.report(t, append(more, "--receipt", file)...)
		return rep
	}
	for _, more := range [][]string{nil, {"--session", "s-receipts"}} {
		if rep := try(a.receipt+"\n"+b.receipt+"\n", more...); !rep.OK {
			t.Errorf("%v: %+v", more, rep)
		}
		if rep := try(a.receipt+"\n"+a.receipt+"\n", more...); rep.OK || !rep.code("receipt_replayed") {
			t.Errorf("%v: handed in twice: %+v", more, rep)
		}
		head, rest, _ := strings.Cut(a.receipt, ".")
		_, sig, _ := strings.Cut(rest, ".")
		_, other, _ := strings.Cut(b.receipt, ".")
		body, _, _ := strings.Cut(other, ".")
		if rep := try(head+"."+body+"."+sig, more...); rep.OK || !rep.code("receipt_without_decision") {
			t.Errorf("%v: made of two: %+v", more, rep)
		}
	}
}

// A witness signs what extends what it signed before, remembers it, and verify
// demands it.
func TestWitness(t *testing.T) {
	t.Parallel()
	s := smallSystem(t)
	dir := t.TempDir()
	key, pub, file := filepath.Join(dir, "w1"), filepath.Join(dir, "w1.pub"), filepath.Join(dir, "signed.txt")
	s.run(t, "witness", "key", "--name", "witness.example.com/w1", "--out", key).want(t, 0)
	s.run(t, "witness", "key", "--name", "witness.example.com/w1", "--out", key).want(t, 2).oneLine(t, "exists")
	if rep, _ := s.report(t, "--witness", pub); rep.OK || !rep.code("witness_quorum") {
		t.Errorf("nobody has signed: %+v", rep)
	}
	sign := func(code int, args ...string) result {
		t.Helper()
		return s.run(t, append([]string{"witness", "sign", "--key", key}, args...)...).want(t, code)
	}
	sign(0, "--out", file)
	first, err := os.ReadFile(file)
	ok(t, err)
	if !strings.Contains(string(first), "— witness.example.com/w1 ") {
		t.Fatalf("%s", first)
	}
	s.verified(t, 0, "--witness", pub, "--from-checkpoint", file)
	s.verified(t, 0, "--witness", pub, "--from-checkpoint", file, "--session", "small-0")
	s.run(t, "verify", "--witness", pub, "--quorum", "2", "--from-checkpoint", file).want(t, 2).oneLine(t, "--quorum")

	// The log goes on: the witness signs again, with a proof from the database.
	s.runtime(t).admit(t, "agenthook", allowedCall("s-witness", "c1").bytes())
	s.exact(t)
	signed(t, s)
	if rep, _ := s.report(t, "--witness", pub, "--unwitnessed", "0", "--from-checkpoint", file); rep.OK || !rep.code("witness_quorum") {
		t.Errorf("an old signature is enough: %+v", rep)
	}
	s.verified(t, 0, "--witness", pub, "--unwitnessed", "100000", "--from-checkpoint", file)
	sign(0, "--out", file)
	if rep, r := s.report(t, "--witness", pub, "--from-checkpoint", file); !rep.OK || !strings.Contains(r.out, `"witnessed":`+fmt.Sprint(rep.Signed)) {
		t.Errorf("%s", r.out)
	}

	// Not an older checkpoint, and not another history, even with valid signatures.
	ok(t, os.WriteFile(file, first, 0o600))
	sign(1, "--checkpoint", file).says(t, "shorter")
	older := filepath.Join(dir, "older.state")
	sign(0, "--checkpoint", file, "--state", older)
	shard := evidence(t, s.auditors(t), "seq = 1")[0].Shard
	last := number(t, s.auditors(t), "SELECT max(size) FROM checkpoints")
	ok(t, os.WriteFile(file, []byte(s.signCheckpoint(t, shard, last, [32]byte{9})), 0o600))
	sign(1, "--checkpoint", file).says(t, "another history")
	sign(1, "--checkpoint", file, "--state", older).says(t, "if its tree hashes are damaged")
	const another = "GOV@20200101T000000.000000000Z"
	ok(t, os.WriteFile(file, []byte(s.signCheckpoint(t, another, last, [32]byte{9})), 0o600))
	sign(1, "--checkpoint", file).says(t, "--new-log "+another)
	sign(0, "--checkpoint", file, "--new-log", another, "--out", filepath.Join(dir, "another.txt"))
	ok(t, os.WriteFile(file, []byte(strings.Replace(string(first), "countersign.dev/GOV", "countersign.dev/VOG", 1)), 0o600))
	sign(1, "--checkpoint", file)
	// Nor does it forget.
	ok(t, os.WriteFile(key+".state", []byte("x"), 0o600))
	sign(1).says(t, "must not forget")
	ok(t, os.Chmod(key, 0o644))
	sign(2).says(t, "may be read by others")
}

// says wants an error on standard error that says something, in however many
// lines, and nothing on standard output.
func (r result) says(t testing.TB, what string) {
	t.Helper()
	if r.out != "" || !strings.Contains(r.err, what) {
		t.Errorf("want %q\nout %s\nerr %s", what, r.out, r.err)
	}
}

// verify compares decisions with the log, and says how many.
func TestVerifyCompares(t *testing.T) {
	t.Parallel()
	s := borrowed(t)
	for _, tc := range []struct {
		args []string
		want int
	}{{nil, 6}, {[]string{"--compare-log", "2"}, 2}, {[]string{"--compare-log", "0"}, 0}, {[]string{"--compare-log=-1"}, 6}, {[]string{"--session", "small-1"}, 0}} {
		_, r := s.report(t, tc.args...)
		var rep struct {
			OK       bool `json:"ok"`
			Compared int  `json:"compared"`
		}
		ok(t, json.Unmarshal([]byte(r.out), &rep))
		if tc.want == 0 && len(tc.args) > 0 && tc.args[0] == "--session" {
			if rep.Compared == 0 || !rep.OK {
				t.Errorf("%v: %+v", tc.args, rep)
			}
			continue
		}
		if rep.Compared != tc.want || !rep.OK {
			t.Errorf("%v: %+v, want %d", tc.args, rep, tc.want)
		}
	}
}
