package tree_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
)

func recordHash(i int) [32]byte { return [32]byte(evidencetest.Derived(string(rune(i)) + "/leaf")) }

func TestTreeAgreesWithTlog(t *testing.T) {
	f := evidencetest.New(t)
	var roots []tlog.Hash
	for n := range 130 {
		root, err := tlog.TreeHash(int64(n), f)
		evidencetest.Must(t, err)
		if got := f.Tree.Root(); got != root || f.Tree.Size() != int64(n) {
			t.Fatalf("size %d: root %s, tlog says %s", n, got, root)
		}
		roots = append(roots, root)
		peaks, err := f.ReadHashes(tree.FrontierIndexes(int64(n)))
		evidencetest.Must(t, err)
		restored, err := tree.New(int64(n), peaks)
		evidencetest.Must(t, err)
		clone := restored.Clone()
		h := recordHash(n)
		want, err := tlog.StoredHashes(int64(n), h[:], f)
		evidencetest.Must(t, err)
		nodes := restored.Append(h)
		for i, node := range f.Tree.Append(h) {
			if node.Hash != want[i] || node != nodes[i] || node.Index != int64(len(f.Hashes)) {
				t.Fatalf("size %d: node %d differs", n, i)
			}
			f.Hashes = append(f.Hashes, node.Hash)
		}
		if clone.Root() != root {
			t.Fatalf("size %d: appending changed the clone", n)
		}
	}
	size := f.Tree.Size()
	for n := uint64(1); n <= uint64(size); n++ {
		p, err := tree.InclusionProof(f, size, n)
		evidencetest.Must(t, err)
		h := recordHash(int(n) - 1)
		if !tree.CheckInclusion(p, size, f.Tree.Root(), n, h) {
			t.Fatalf("leaf %d is not proved", n)
		}
		if tree.CheckInclusion(p, size, f.Tree.Root(), n, recordHash(999)) || tree.CheckInclusion(p, size, f.Tree.Root(), n%uint64(size)+1, h) {
			t.Fatalf("leaf %d proves something else", n)
		}
	}
	newer := tree.Checkpoint{Shard: evidencetest.Shard, Size: size, Root: f.Tree.Root()}
	for n := int64(1); n < size; n++ {
		p, err := tree.ConsistencyProof(f, n, size)
		evidencetest.Must(t, err)
		if !tree.CheckConsistency(p, tree.Checkpoint{Shard: evidencetest.Shard, Size: n, Root: roots[n]}, newer) {
			t.Fatalf("%d is no beginning of %d", n, size)
		}
		if tree.CheckConsistency(p, tree.Checkpoint{Shard: evidencetest.Shard, Size: n, Root: roots[n-1]}, newer) || tree.CheckConsistency(p, tree.Checkpoint{Shard: "x", Size: n, Root: roots[n]}, newer) {
			t.Fatalf("%d: another tree is a beginning too", n)
		}
	}
	if !tree.CheckConsistency(nil, tree.Checkpoint{Shard: evidencetest.Shard, Root: roots[0]}, newer) {
		t.Error("the empty tree is no beginning")
	}
}

func TestTreeRefuses(t *testing.T) {
	f := evidencetest.New(t)
	if _, err := tree.New(3, make([]tlog.Hash, 1)); !errors.Is(err, tree.ErrTree) {
		t.Error(err)
	}
	if _, err := tree.New(-1, nil); !errors.Is(err, tree.ErrTree) {
		t.Error(err)
	}
	for _, seq := range []uint64{0, 2, 1 << 63} {
		if _, err := tree.InclusionProof(f, 1, seq); seq != 1<<63 && !errors.Is(err, tree.ErrTree) {
			t.Errorf("seq %d: %v", seq, err)
		}
		if tree.CheckInclusion(nil, 1, tlog.Hash{}, seq, [32]byte{}) {
			t.Errorf("seq %d is included", seq)
		}
	}
	if _, err := tree.ConsistencyProof(f, 2, 1); !errors.Is(err, tree.ErrTree) {
		t.Error(err)
	}
}

func TestCheckpoint(t *testing.T) {
	f := evidencetest.New(t)
	known := note.VerifierList(f.Verifier)
	want := tree.Checkpoint{Shard: evidencetest.Shard, Size: 42, Root: tlog.Hash(evidencetest.Derived("root")), Extensions: []string{"time 2026-11-20T06:42:00Z"}}
	text, err := tree.SignCheckpoint(f.Signer, want)
	evidencetest.Must(t, err)
	got, err := tree.OpenCheckpoint(text, known)
	evidencetest.Must(t, err)
	peek, err := tree.PeekCheckpoint(text)
	evidencetest.Must(t, err)
	if got.Text() != want.Text() || peek.Text() != want.Text() || got.Size != 42 || got.Extensions[0] != want.Extensions[0] {
		t.Errorf("%+v", got)
	}
	wskey, wvkey, err := note.GenerateKey(bytes.NewReader(bytes.Repeat(evidencetest.Derived("w"), 4)), "witness.example")
	evidencetest.Must(t, err)
	witness, err := note.NewSigner(wskey)
	evidencetest.Must(t, err)
	n, err := note.Open([]byte(text), known)
	evidencetest.Must(t, err)
	witnessed, err := note.Sign(n, witness)
	evidencetest.Must(t, err)
	if _, err := tree.OpenCheckpoint(string(witnessed), known); err != nil {
		t.Errorf("with a witness: %v", err)
	}
	wv, err := note.NewVerifier(wvkey)
	evidencetest.Must(t, err)
	for name, bad := range map[string]string{
		"empty":      "",
		"size":       strings.Replace(text, "\n42\n", "\n43\n", 1),
		"shard":      strings.Replace(text, "GOV@", "GOW@", 1),
		"no newline": strings.TrimSuffix(text, "\n"),
		"huge":       text + strings.Repeat(" ", maxCheckpoint),
	} {
		if _, err := tree.OpenCheckpoint(bad, known); !errors.Is(err, tree.ErrCheckpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tree.OpenCheckpoint(text, note.VerifierList(wv)); !errors.Is(err, tree.ErrCheckpoint) {
		t.Errorf("another key: %v", err)
	}
	for _, bad := range []tree.Checkpoint{{Shard: "a b"}, {Shard: "a", Size: -1}, {Shard: "a", Extensions: []string{""}}, {Shard: "a", Extensions: []string{"x\ny"}}} {
		if _, err := tree.SignCheckpoint(f.Signer, bad); !errors.Is(err, tree.ErrCheckpoint) {
			t.Errorf("%+v was signed", bad)
		}
	}
	for _, bad := range []string{"", "x\n1\nAA==\n", "countersign.dev/s\n01\n" + want.Root.String() + "\n", "countersign.dev/s\n1\n" + want.Root.String(), "countersign/key/v1\n1\n" + want.Root.String() + "\n"} {
		if _, err := tree.ParseCheckpointText(bad); !errors.Is(err, tree.ErrCheckpoint) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := signing.CheckpointSigner(wskey); !errors.Is(err, signing.ErrCheckpointKey) || strings.Contains(err.Error(), wskey[20:]) {
		t.Error(err)
	}
	if _, err := signing.CheckpointVerifier(wvkey); !errors.Is(err, signing.ErrCheckpointKey) {
		t.Error(err)
	}
	if _, _, err := signing.NewCheckpointKey(strings.NewReader("short")); err == nil {
		t.Error("a short seed passed")
	}
}

func FuzzCheckpoint(f *testing.F) {
	x := evidencetest.New(f)
	x.Session()
	f.Add(x.Checkpoint())
	f.Add("countersign.dev/s\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := tree.PeekCheckpoint(text); err == nil && !strings.HasPrefix(text, c.Text()) {
			t.Errorf("%q reads as %+v", text, c)
		}
		if c, err := tree.OpenCheckpoint(text, note.VerifierList(x.Verifier)); err == nil && c.Size != x.Tree.Size() {
			t.Errorf("%q was accepted", text)
		}
	})
}

func TestVouch(t *testing.T) {
	f := evidencetest.New(t)
	known := note.VerifierList(f.Verifier)
	k := f.KeyRecord()
	if !signing.CheckKeyRecord(known, k) {
		t.Fatal("our own vouch does not hold")
	}
	for name, change := range map[string]func(*events.KeyRecord){
		"kid":   func(k *events.KeyRecord) { k.KeyID = "0000000000000000" },
		"use":   func(k *events.KeyRecord) { k.Use = "other" },
		"alg":   func(k *events.KeyRecord) { k.Algorithm = "ES256" },
		"key":   func(k *events.KeyRecord) { k.PublicKey = strings.Repeat("A", 43) },
		"none":  func(k *events.KeyRecord) { k.Vouch = "" },
		"other": func(k *events.KeyRecord) { k.Vouch = f.Checkpoint() },
	} {
		bad := k
		change(&bad)
		if signing.CheckKeyRecord(known, bad) {
			t.Errorf("another %s is vouched for", name)
		}
	}
	if signing.CheckKeyRecord(note.VerifierList(), k) {
		t.Error("vouched for by nobody we know")
	}
	if _, err := signing.SignKeyRecord(f.Signer, events.KeyRecord{KeyID: "a b", Use: "receipt", Algorithm: "EdDSA"}); err == nil {
		t.Error("vouched for no key")
	}
}

// maxCheckpoint is the bound of package tree on the text of a checkpoint.
const maxCheckpoint = 64 << 10

func BenchmarkTreeAppend(b *testing.B) {
	var t tree.Tree
	for b.Loop() {
		t.Append([32]byte{})
	}
}
