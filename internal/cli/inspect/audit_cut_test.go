package inspect

import (
	"bytes"
	"iter"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// By another system's key no checkpoint would count, and all evidence would be behind the newest one.
func TestNewestCheckpoint(t *testing.T) {
	keyOf := func(seed byte) (note.Signer, note.Verifiers) {
		private, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		signer, err := signing.CheckpointSigner(private)
		if err != nil {
			t.Fatal(err)
		}
		v, err := signing.CheckpointVerifier(public)
		if err != nil {
			t.Fatal(err)
		}
		return signer, note.VerifierList(v)
	}
	own, ownKey := keyOf(1)
	other, otherKey := keyOf(2)
	type checkpoint struct {
		by    note.Signer
		shard string
		size  int64
	}
	read := 0
	published := func(list ...checkpoint) iter.Seq2[verify.Published, error] {
		return func(yield func(verify.Published, error) bool) {
			for read = 0; read < len(list); {
				c := list[read]
				text, err := tree.SignCheckpoint(c.by, tree.Checkpoint{Shard: c.shard, Size: c.size})
				if read++; !yield(verify.Published{Text: text}, err) {
					return
				}
			}
		}
	}
	const shard, earlier = "GOV@2", "GOV@1"
	for name, tt := range map[string]struct {
		list  []checkpoint
		known note.Verifiers
		most  uint64
		want  uint64
		reads int
		err   string
	}{
		"none":                        {known: ownKey, most: 9},
		"the newest":                  {list: []checkpoint{{own, shard, 8}, {own, shard, 5}}, known: ownKey, most: 9, want: 8, reads: 1},
		"not above the evidence":      {list: []checkpoint{{own, shard, 12}, {own, shard, 8}, {own, shard, 5}}, known: ownKey, most: 9, want: 8, reads: 2},
		"all above the evidence":      {list: []checkpoint{{own, shard, 12}}, known: ownKey, most: 9, reads: 1},
		"one that is not of this log": {list: []checkpoint{{other, shard, 9}, {own, shard, 8}}, known: ownKey, most: 9, want: 8, reads: 2},
		"of an earlier log":           {list: []checkpoint{{own, earlier, 8}}, known: ownKey, most: 9, reads: 1},
		"by another system's key":     {list: []checkpoint{{own, shard, 12}, {own, shard, 8}}, known: otherKey, most: 9, reads: 2, err: "opens none of the 2 published checkpoints"},
	} {
		got, err := newestCheckpoint(published(tt.list...), shard, tt.known, tt.most)
		if got != tt.want || read != tt.reads || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %d after %d (%v), want %d after %d", name, got, read, err, tt.want, tt.reads)
		}
	}
}
