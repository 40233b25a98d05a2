package auditor

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/witnessbucket"
	"github.com/countersign-dev/countersign/streams"
)

// outsider is a witness with a user of its own.
type outsider struct {
	tree.Witness
	vkey string
}

func newOutsider(t *testing.T, name string) outsider {
	t.Helper()
	skey, vkey, err := tree.NewWitnessKey(bytes.NewReader(bytes.Repeat([]byte(name[:1]), 32)), name)
	servicetest.OK(t, err)
	w, err := tree.WitnessSigner(skey)
	servicetest.OK(t, err)
	return outsider{w, vkey}
}

// What witnesses hand in is stored once it holds, once; what does not hold is
// passed over, and a fork is made known.
func TestSignaturesOfWitnesses(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	audited(t, n, flags(n, dsn, 100))
	a := standing(t, flags(n, dsn, 100))
	log, err := signing.CheckpointVerifier(a.verifierKey)
	servicetest.OK(t, err)
	newest, err := a.db.LatestCheckpoint(t.Context(), a.shard)
	servicetest.OK(t, err)

	w, stranger := newOutsider(t, "a.example/w"), newOutsider(t, "b.example/w")
	sign := func(by outsider, text string) string {
		t.Helper()
		out, _, err := tree.Cosign(by.Witness, text, note.VerifierList(log), nil, nil, time.Unix(1795161600, 0))
		servicetest.OK(t, err)
		return out
	}
	ownOf := func(shard string, size int64, root byte) string {
		t.Helper()
		out, err := tree.SignCheckpoint(a.signer, tree.Checkpoint{Shard: shard, Size: size, Root: [32]byte{root}})
		servicetest.OK(t, err)
		return out
	}
	own := func(size int64, root byte) string { return ownOf(a.shard, size, root) }
	put := func(user, key, text string) error {
		ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
		defer cancel()
		kv, err := n.JS(user).KeyValue(ctx, streams.BucketWitnesses)
		servicetest.OK(t, err)
		_, err = kv.Put(ctx, key, []byte(text))
		return err
	}
	servicetest.OK(t, put("operator", witnessbucket.TrustedKey(w.Name()), w.vkey))
	box := witnessbucket.SignedKey("witness", a.shard)
	c := &cosignatures{shardAccess: a.shardAccess, checkpoints: a.checkpoints, verifier: log, loggedRefusals: map[uint64]bool{}}
	stored := func() (notes []string) {
		t.Helper()
		for one, err := range a.db.CosignedCheckpoints(t.Context(), a.shard, 0) {
			servicetest.OK(t, err)
			notes = append(notes, one.Note)
		}
		return notes
	}
	for name, text := range map[string]string{
		"nothing": "", "text": "hello\n\n— a b\n", "not signed by a witness": newest.Note, "signed by a stranger": sign(stranger, newest.Note),
		"ahead of the log": sign(w, own(int64(newest.Size)+100, 1)), "not stored again yet": sign(w, own(int64(newest.Size)-1, 9)), "of another stream": sign(w, ownOf("EAST@20261120T064150.123456789Z", 1, 1)), "too large": strings.Repeat("x", witnessbucket.MaxNote+1),
		"for another time": strings.Replace(sign(w, newest.Note), "— a.example/w ", "— a.example/w A", 1),
	} {
		servicetest.OK(t, put("witness", box, text))
		if err := c.pollBucket(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := stored(); len(got) != 0 {
			t.Fatalf("%s is stored: %s", name, got)
		}
	}
	// A signature that does not count does not come along.
	servicetest.OK(t, put("witness", box, sign(w, sign(stranger, newest.Note))))
	for range 2 {
		servicetest.OK(t, c.pollBucket(t.Context()))
		c.version = streams.BucketVersion{} // as after a restart
		if got := stored(); len(got) != 1 || got[0] != sign(w, newest.Note) {
			t.Fatalf("stored: %q", got)
		}
	}
	// An older database does not have the checkpoint yet.
	ownerOf(t, dsn)("ALTER TABLE checkpoints DELETE WHERE 1")
	servicetest.OK(t, c.pollBucket(t.Context()))
	servicetest.OK(t, a.checkpoints.restore(t.Context(), 0, newest.Size))
	servicetest.OK(t, c.pollBucket(t.Context()))
	if got := stored(); len(got) != 1 {
		t.Errorf("once the checkpoint is there: %q", got)
	}
	latest, err := a.db.LatestCheckpoint(t.Context(), a.shard)
	if err != nil || latest.Size != newest.Size || latest.Root != newest.Root {
		t.Errorf("%+v, %v", latest, err)
	}
	// What the log's key signed and is not of this log is made known until it is gone, whatever its size.
	for name, tc := range map[string]struct{ text, says string }{
		"another root":                        {own(int64(newest.Size), 9), "another history"},
		"of a size that the log never signed": {own(int64(newest.Size)-1, 9), "no such checkpoint"},
		"of an incarnation that never was":    {ownOf(a.stream+"@20200101T000000.000000000Z", 1_000_000, 9), "no such checkpoint"},
	} {
		servicetest.OK(t, put("witness", box, sign(w, tc.text)))
		for range 2 {
			if err := c.pollBucket(t.Context()); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("%s goes by: %v", name, err)
			}
		}
	}
	servicetest.OK(t, put("witness", box, sign(w, newest.Note)))
	servicetest.OK(t, c.pollBucket(t.Context()))
	holds(t, n, dsn)
}

// A witness can hand in under its own name, and nothing else.
func TestAWitnessCanOnlyHandIn(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	nc := n.Conn(string(streams.RoleWitness))
	for subj, may := range map[string]bool{
		"$KV.witnesses.signed.witness.GOV": true, "$KV.witnesses.signed.operator.GOV": false, "$KV.witnesses.trusted.mine": false, "$KV.policies.acme": false,
		"gov.checkpoints.GOV": false, "gov.control.GOV.key": false, "$JS.API.STREAM.MSG.GET.GOV": false,
	} {
		servicetest.OK(t, nc.Publish(subj, []byte("{}")))
		servicetest.OK(t, nc.Flush()) // the server's refusal comes before its answer to this
		err := nc.LastError()
		got := err == nil || !strings.Contains(err.Error(), strconv.Quote(subj))
		if got != may {
			t.Errorf("a witness may publish on %s: %t, want %t", subj, got, may)
		}
	}
}
