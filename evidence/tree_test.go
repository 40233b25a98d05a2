package evidence

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/tree"
)

func recordHash(i int) [32]byte { return [32]byte(derived(string(rune(i)) + "/leaf")) }

func TestTreeAgreesWithTlog(t *testing.T) {
	f := newFixture(t)
	var roots []tlog.Hash
	for n := range 130 {
		root, err := tlog.TreeHash(int64(n), f)
		must(t, err)
		if got := f.tree.Root(); got != root || f.tree.Size() != int64(n) {
			t.Fatalf("size %d: root %s, tlog says %s", n, got, root)
		}
		roots = append(roots, root)
		peaks, err := f.ReadHashes(tree.FrontierIndexes(int64(n)))
		must(t, err)
		restored, err := tree.New(int64(n), peaks)
		must(t, err)
		clone := restored.Clone()
		h := recordHash(n)
		want, err := tlog.StoredHashes(int64(n), h[:], f)
		must(t, err)
		nodes := restored.Append(h)
		for i, node := range f.tree.Append(h) {
			if node.Hash != want[i] || node != nodes[i] || node.Index != int64(len(f.hashes)) {
				t.Fatalf("size %d: node %d differs", n, i)
			}
			f.hashes = append(f.hashes, node.Hash)
		}
		if clone.Root() != root {
			t.Fatalf("size %d: appending changed the clone", n)
		}
	}
	size := f.tree.Size()
	for n := uint64(1); n <= uint64(size); n++ {
		p, err := tree.InclusionProof(f, size, n)
		must(t, err)
		h := recordHash(int(n) - 1)
		if !tree.CheckInclusion(p, size, f.tree.Root(), n, h) {
			t.Fatalf("leaf %d is not proved", n)
		}
		if tree.CheckInclusion(p, size, f.tree.Root(), n, recordHash(999)) || tree.CheckInclusion(p, size, f.tree.Root(), n%uint64(size)+1, h) {
			t.Fatalf("leaf %d proves something else", n)
		}
	}
	newer := tree.Checkpoint{Shard: testShard, Size: size, Root: f.tree.Root()}
	for n := int64(1); n < size; n++ {
		p, err := tree.ConsistencyProof(f, n, size)
		must(t, err)
		if !tree.CheckConsistency(p, tree.Checkpoint{Shard: testShard, Size: n, Root: roots[n]}, newer) {
			t.Fatalf("%d is no beginning of %d", n, size)
		}
		if tree.CheckConsistency(p, tree.Checkpoint{Shard: testShard, Size: n, Root: roots[n-1]}, newer) || tree.CheckConsistency(p, tree.Checkpoint{Shard: "x", Size: n, Root: roots[n]}, newer) {
			t.Fatalf("%d: another tree is a beginning too", n)
		}
	}
	if !tree.CheckConsistency(nil, tree.Checkpoint{Shard: testShard, Root: roots[0]}, newer) {
		t.Error("the empty tree is no beginning")
	}
}

func TestTreeRefuses(t *testing.T) {
	f := newFixture(t)
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
	f := newFixture(t)
	known := note.VerifierList(f.verifier)
	want := tree.Checkpoint{Shard: testShard, Size: 42, Root: tlog.Hash(derived("root")), Extensions: []string{"time 2026-11-20T06:42:00Z"}}
	text, err := tree.SignCheckpoint(f.signer, want)
	must(t, err)
	got, err := tree.OpenCheckpoint(text, known)
	must(t, err)
	peek, err := tree.PeekCheckpoint(text)
	must(t, err)
	if got.Text() != want.Text() || peek.Text() != want.Text() || got.Size != 42 || got.Extensions[0] != want.Extensions[0] {
		t.Errorf("%+v", got)
	}
	wskey, wvkey, err := note.GenerateKey(bytes.NewReader(bytes.Repeat(derived("w"), 4)), "witness.example")
	must(t, err)
	witness, err := note.NewSigner(wskey)
	must(t, err)
	n, err := note.Open([]byte(text), known)
	must(t, err)
	witnessed, err := note.Sign(n, witness)
	must(t, err)
	if _, err := tree.OpenCheckpoint(string(witnessed), known); err != nil {
		t.Errorf("with a witness: %v", err)
	}
	wv, err := note.NewVerifier(wvkey)
	must(t, err)
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
		if _, err := tree.SignCheckpoint(f.signer, bad); !errors.Is(err, tree.ErrCheckpoint) {
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
	x := newFixture(f)
	x.session()
	f.Add(x.checkpoint())
	f.Add("countersign.dev/s\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := tree.PeekCheckpoint(text); err == nil && !strings.HasPrefix(text, c.Text()) {
			t.Errorf("%q reads as %+v", text, c)
		}
		if c, err := tree.OpenCheckpoint(text, note.VerifierList(x.verifier)); err == nil && c.Size != x.tree.Size() {
			t.Errorf("%q was accepted", text)
		}
	})
}

func TestVouch(t *testing.T) {
	f := newFixture(t)
	known := note.VerifierList(f.verifier)
	k := f.keyRecord()
	if !signing.CheckKeyRecord(known, k) {
		t.Fatal("our own vouch does not hold")
	}
	for name, change := range map[string]func(*events.KeyRecord){
		"kid":   func(k *events.KeyRecord) { k.KeyID = "0000000000000000" },
		"use":   func(k *events.KeyRecord) { k.Use = "other" },
		"alg":   func(k *events.KeyRecord) { k.Algorithm = "ES256" },
		"key":   func(k *events.KeyRecord) { k.PublicKey = strings.Repeat("A", 43) },
		"none":  func(k *events.KeyRecord) { k.Vouch = "" },
		"other": func(k *events.KeyRecord) { k.Vouch = f.checkpoint() },
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
	if _, err := signing.SignKeyRecord(f.signer, events.KeyRecord{KeyID: "a b", Use: "receipt", Algorithm: "EdDSA"}); err == nil {
		t.Error("vouched for no key")
	}
}

func TestWrapKey(t *testing.T) {
	wrapping, key, nonce := derived("wrapping"), derived("key"), derived("nonce")[:12]
	wrapped, err := WrapSessionSecret(wrapping, "acme", "s", key, nonce)
	must(t, err)
	got, err := UnwrapSessionSecret(wrapping, "acme", "s", wrapped)
	must(t, err)
	if !bytes.Equal(got, key) || bytes.Contains(wrapped, key[:8]) {
		t.Error("not the key, or in the clear")
	}
	for i := range wrapped {
		bad := bytes.Clone(wrapped)
		bad[i] ^= 1
		if _, err := UnwrapSessionSecret(wrapping, "acme", "s", bad); !errors.Is(err, ErrUnwrap) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	for name, err := range map[string]error{
		"tenant":   second(UnwrapSessionSecret(wrapping, "acm", "es", wrapped)),
		"session":  second(UnwrapSessionSecret(wrapping, "acme", "t", wrapped)),
		"wrapping": second(UnwrapSessionSecret(derived("other"), "acme", "s", wrapped)),
		"short":    second(UnwrapSessionSecret(wrapping, "acme", "s", wrapped[:20])),
		"nil":      second(UnwrapSessionSecret(wrapping, "acme", "s", nil)),
	} {
		if !errors.Is(err, ErrUnwrap) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"wrapping": second(WrapSessionSecret(wrapping[:31], "a", "s", key, nonce)),
		"key":      second(WrapSessionSecret(wrapping, "a", "s", key[:16], nonce)),
		"nonce":    second(WrapSessionSecret(wrapping, "a", "s", key, nonce[:8])),
	} {
		if !errors.Is(err, ErrKeys) {
			t.Errorf("short %s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
