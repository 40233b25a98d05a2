package tree

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// keyPair makes a signing key of a name.
func keyPair(t *testing.T, name string) (note.Signer, note.Verifiers) {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer, note.VerifierList(verifier)
}

// An intent is signed by the checkpoint's key and passes for no checkpoint; a checkpoint passes for no
// intent.
func TestIntents(t *testing.T) {
	signer, known := keyPair(t, "example.org/log")
	_, strangers := keyPair(t, "example.org/other")
	c := Checkpoint{Shard: "GOV@20261120T064150.123456789Z", Size: 3, Root: tlog.Hash{1}}
	text, err := SignIntent(signer, c)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := OpenIntent(text, known); err != nil || got.Shard != c.Shard || got.Size != c.Size || got.Root != c.Root {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := OpenCheckpoint(text, known); err == nil {
		t.Error("an intent passes for a checkpoint")
	}
	checkpoint, err := SignCheckpoint(signer, c)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]struct {
		text  string
		known note.Verifiers
	}{
		"a checkpoint":     {checkpoint, known},
		"of a stranger":    {text, strangers},
		"changed":          {strings.Replace(text, "\n3\n", "\n4\n", 1), known},
		"too long":         {text + strings.Repeat("x", maxCheckpoint), known},
		"without a note":   {"", known},
		"of another shape": {strings.Replace(text, "\n3\n", "\n03\n", 1), known},
	} {
		if _, err := OpenIntent(bad.text, bad.known); !errors.Is(err, ErrCheckpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIntentsThatAreNotSigned(t *testing.T) {
	signer, _ := keyPair(t, "example.org/log")
	valid := Checkpoint{Shard: "GOV@20261120T064150.123456789Z", Size: 3}
	for name, change := range map[string]func(*Checkpoint){
		"no shard": func(c *Checkpoint) { c.Shard = "" }, "two lines": func(c *Checkpoint) { c.Shard += "\n4" }, "negative": func(c *Checkpoint) { c.Size = -1 },
		"extended": func(c *Checkpoint) { c.Extensions = []string{"x"} },
	} {
		c := valid
		change(&c)
		if _, err := SignIntent(signer, c); !errors.Is(err, ErrCheckpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// However leaves are appended (with their hashes, without them, or as whole subtrees), the root is one.
func TestAppendSubtrees(t *testing.T) {
	const leaves = 37
	var hashes []tlog.Hash
	var list []tlog.Hash // of the nodes, by their index
	whole := new(Tree)
	for i := range leaves {
		record := [32]byte{byte(i)}
		hashes = append(hashes, LeafHash(record))
		for _, n := range whole.Append(record) {
			for int64(len(list)) <= n.Index {
				list = append(list, tlog.Hash{})
			}
			list[n.Index] = n.Hash
		}
	}
	leafwise, subtrees := new(Tree), new(Tree)
	for _, h := range hashes {
		leafwise.AppendLeaf(h)
	}
	for _, part := range []struct{ level, at int }{{3, 0}, {3, 8}, {2, 16}, {2, 20}, {3, 24}, {2, 32}, {0, 36}} {
		if !subtrees.AppendSubtree(part.level, list[tlog.StoredHashIndex(part.level, int64(part.at>>part.level))]) {
			t.Fatalf("level %d at %d is refused", part.level, part.at)
		}
	}
	for name, other := range map[string]*Tree{"leaf by leaf": leafwise, "in subtrees": subtrees} {
		if other.Size() != whole.Size() || other.Root() != whole.Root() {
			t.Errorf("%s: size %d, root %s, want %d and %s", name, other.Size(), other.Root(), whole.Size(), whole.Root())
		}
	}
	for _, level := range []int{-1, 1, 3, 53} { // 37 is odd, so that only a leaf can follow
		if before := subtrees.Root(); subtrees.AppendSubtree(level, hashes[0]) || subtrees.Root() != before {
			t.Errorf("level %d is appended to %d leaves", level, leaves)
		}
	}
}

func TestDistinctKeys(t *testing.T) {
	var list []note.Verifier
	for _, name := range []string{"a", "b", "a"} {
		_, public, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte(name), 64)), name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := note.NewVerifier(public)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	if got := DistinctKeys(list); len(got) != 2 || got[0].Name() != "a" || got[1].Name() != "b" {
		t.Errorf("%d keys", len(got))
	}
}
