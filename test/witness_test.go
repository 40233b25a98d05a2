package e2e_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// What a witness signs finds its way into the evidence, into verification and into
// bundles; and a witness that runs refuses a log that tells two stories.
func TestWitnessesHaveAHome(t *testing.T) {
	t.Parallel()
	s := smallSystem(t)
	dir := t.TempDir()
	key, other := filepath.Join(dir, "w1"), filepath.Join(dir, "w2")
	for _, k := range []string{key, other} {
		s.run(t, "witness", "key", "--name", "witness.example.com/"+filepath.Base(k), "--out", k).want(t, 0)
	}
	plain := filepath.Join(dir, "plain.zip")
	s.run(t, "export", "--session", "small-1", "--out", plain).want(t, 0)
	if r := s.run(t, "witness", "list").want(t, 0); !strings.Contains(r.out, "no witness is trusted") {
		t.Errorf("%s", r.out)
	}

	// By hand: only what a trusted witness signed of this log.
	byHand := filepath.Join(dir, "cosigned.txt")
	s.run(t, "witness", "sign", "--key", key, "--out", byHand).want(t, 0)
	s.run(t, "witness", "add", byHand).want(t, 1).oneLine(t, "witness trust")
	s.run(t, "witness", "trust", "nonsense+key").want(t, 2)
	s.run(t, "witness", "trust", key+".pub").want(t, 0)
	if r := s.run(t, "witness", "add", byHand).want(t, 0); !strings.Contains(r.out, "cosigned by witness.example.com/w1 at 20") {
		t.Errorf("%s", r.out)
	}
	shard := evidence(t, s.auditors(t), "seq = 1")[0].Shard
	last := number(t, s.auditors(t), "SELECT max(size) FROM checkpoints")
	strange := filepath.Join(dir, "strange.txt")
	for name, c := range map[string]struct{ note, says string }{
		"another history": {s.signCheckpoint(t, shard, last, [32]byte{9}), "two histories"},
		"another log":     {s.signCheckpoint(t, "GOV@20200101T000000.000000000Z", last, [32]byte{9}), "another party has or had the log's key"},
		"another stream":  {s.signCheckpoint(t, "EAST@20200101T000000.000000000Z", last, [32]byte{9}), "not of stream GOV"},
		"not reached":     {s.signCheckpoint(t, shard, 1_000_000, [32]byte{9}), "does not reach as far yet"},
	} {
		ok(t, os.WriteFile(strange, []byte(c.note), 0o600))
		// Somebody else's machine: its witness has never seen the log.
		s.run(t, "witness", "sign", "--key", key, "--state", filepath.Join(t.TempDir(), "state"), "--checkpoint", strange, "--out", strange).want(t, 0)
		if r := s.run(t, "witness", "add", strange).want(t, 1); !strings.Contains(r.err, c.says) {
			t.Errorf("%s: %s", name, r.err)
		}
	}

	// By itself: what is published, handed in, taken in by the auditor.
	s.runtime(t).admit(t, "agenthook", allowedCall("s-later", "c1").bytes())
	s.exact(t)
	signed(t, s)
	s.run(t, "witness", "trust", other+".pub").want(t, 0)
	db := s.auditors(t)
	var size uint64
	eventually(t, "both witnesses sign one checkpoint", func() error { // the log may go on between them: time passes
		before := number(t, db, "SELECT max(size) FROM checkpoints")
		for _, k := range []string{key, other} {
			s.run(t, "witness", "run", "--key", k, "--once").want(t, 0)
		}
		if size = number(t, db, "SELECT max(size) FROM checkpoints"); size != before {
			return errorf("the log grew from %d to %d", before, size)
		}
		return nil
	})
	line := " up to size " + strconv.FormatUint(size, 10)
	eventually(t, "both signatures are in the evidence", func() error {
		r := s.run(t, "witness", "list").want(t, 0)
		if strings.Count(r.out, " "+strconv.FormatUint(size, 10)+" ") != 2 {
			return errorf("%s", r.out)
		}
		return nil
	})
	r := s.verified(t, 0)
	for _, w := range []string{"w1", "w2"} {
		if !strings.Contains(r.out, "cosigned by witness.example.com/"+w) || !strings.Contains(r.out, line) {
			t.Errorf("verify: %s", r.out)
		}
	}
	s.verified(t, 0, "--witness", key+".pub", "--witness", other+".pub")
	s.verified(t, 0, "--witness", key+".pub", "--session", "small-1")

	// A bundle has them without being told.
	bundle, public := filepath.Join(dir, "with.zip"), filepath.Join(dir, "checkpoint.pub")
	s.run(t, "export", "--session", "small-1", "--out", bundle).want(t, 0)
	ok(t, os.WriteFile(public, []byte(s.info(t).PublicKey+"\n"), 0o600))
	if r := s.run(t, "verify", "--bundle", bundle, "--key", public, "--witness", key+".pub", "--witness", other+".pub").want(t, 0); strings.Count(r.out, "cosigned by") != 2 {
		t.Errorf("%s", r.out)
	}
	s.run(t, "verify", "--bundle", plain, "--key", public, "--witness", key+".pub").want(t, 1)
	if code, out := python(t, "--bundle", bundle, "--key", public, "--witness", other+".pub"); code != 0 || !strings.Contains(out, "cosigned by witness.example.com/w2 at 20") {
		t.Errorf("exit %d\n%s", code, out)
	}

	// The log's key signs another history, and it is published.
	fork := s.signCheckpoint(t, shard, size, [32]byte{7})
	_, err := s.service(t, "auditor").RequestMsg(&nats.Msg{Subject: "gov.checkpoints.GOV", Data: []byte(fork)}, patience)
	ok(t, err)
	for range 2 {
		s.run(t, "witness", "run", "--key", key).want(t, 1).says(t, "another history")
	}
	kept, err := os.ReadFile(key + ".state.refused-" + strconv.FormatUint(size, 10))
	if err != nil || string(kept) != fork {
		t.Errorf("what it refused is not kept: %v %s", err, kept)
	}
	s.run(t, "witness", "distrust", "witness.example.com/w2").want(t, 0)
	s.run(t, "witness", "distrust", "witness.example.com/w2").want(t, 2).oneLine(t, "no witness")
}
