package tree_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// The example of c2sp.org/tlog-cosignature: its key is not public, but its form
// is. A signature made here verifies, at its time only, over its text only.
func TestCosign(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	known := note.VerifierList(f.Verifier)
	w, v := evidencetest.NewWitness(t, "witness.example.com/w1")
	out, c, err := tree.Cosign(w, f.Checkpoint(), known, nil, nil, evidencetest.Start)
	evidencetest.Must(t, err)
	if c.Size != 13 || !strings.HasPrefix(out, f.Checkpoint()) || len(tree.Cosigners(out, []note.Verifier{v})) != 1 {
		t.Fatalf("%+v\n%s", c, out)
	}
	if again, err := tree.OpenCheckpoint(out, known); err != nil || again.Root != c.Root {
		t.Fatalf("the log's own signature: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := strings.Fields(lines[len(lines)-1])
	raw, err := base64.StdEncoding.DecodeString(last[2])
	evidencetest.Must(t, err)
	if len(raw) != 4+8+64 {
		t.Fatalf("%d bytes", len(raw))
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 1
		text := strings.Replace(out, last[2], base64.StdEncoding.EncodeToString(bad), 1)
		if len(tree.Cosigners(text, []note.Verifier{v})) != 0 {
			t.Errorf("byte %d changed, and it counts", i)
		}
	}
	for name, text := range map[string]string{
		"other size": strings.Replace(out, "\n13\n", "\n14\n", 1), "cut": out[:len(out)-5], "none": f.Checkpoint(), "nothing": "",
		"too long": out + strings.Repeat("x", maxCheckpoint),
	} {
		if len(tree.Cosigners(text, []note.Verifier{v})) != 0 {
			t.Errorf("%s: counts", name)
		}
	}
	if _, stranger := evidencetest.NewWitness(t, "witness.example.com/w2"); len(tree.Cosigners(out, []note.Verifier{stranger})) != 0 {
		t.Error("another witness's key")
	}
}

// A witness signs what extends what it signed before, and nothing else.
func TestCosignKeepsToOneHistory(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	older := f.Checkpoint()
	known := note.VerifierList(f.Verifier)
	w, _ := evidencetest.NewWitness(t, "w")
	_, first, err := tree.Cosign(w, older, known, nil, nil, evidencetest.Start)
	evidencetest.Must(t, err)
	f.Log(evidencetest.EventSubject, nil, []byte(evidencetest.PlainEvent))
	f.Log(evidencetest.EventSubject, nil, []byte(evidencetest.PlainEvent))
	proof, err := tree.ConsistencyProof(f, first.Size, f.Tree.Size())
	evidencetest.Must(t, err)
	_, second, err := tree.Cosign(w, f.Checkpoint(), known, &first, proof, evidencetest.Start)
	evidencetest.Must(t, err)
	if _, _, err := tree.Cosign(w, f.Checkpoint(), known, &second, nil, evidencetest.Start); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if _, _, err := tree.Cosign(w, older, known, &second, proof, evidencetest.Start); !errors.Is(err, tree.ErrRollback) {
		t.Errorf("an older one: %v", err)
	}
	forked := first
	forked.Root = tlog.Hash{1}
	same := second
	same.Root = tlog.Hash{1}
	for name, old := range map[string]tree.Checkpoint{"another history": forked, "another root of this size": same} {
		if out, _, err := tree.Cosign(w, f.Checkpoint(), known, &old, proof, evidencetest.Start); !errors.Is(err, tree.ErrFork) || out != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := tree.Cosign(w, f.Checkpoint(), known, &first, proof[:1], evidencetest.Start); !errors.Is(err, tree.ErrFork) {
		t.Errorf("half a proof: %v", err)
	}
	other := first
	other.Shard = "GOV@other"
	if _, _, err := tree.Cosign(w, f.Checkpoint(), known, &other, proof, evidencetest.Start); !errors.Is(err, tree.ErrCheckpoint) {
		t.Errorf("another shard: %v", err)
	}
	if _, _, err := tree.Cosign(w, strings.Replace(f.Checkpoint(), "\n15\n", "\n16\n", 1), known, nil, nil, evidencetest.Start); !errors.Is(err, tree.ErrCheckpoint) {
		t.Errorf("not signed by the log: %v", err)
	}
}

func TestWitnessKeys(t *testing.T) {
	skey, vkey, err := tree.NewWitnessKey(bytes.NewReader(evidencetest.Derived("x")), "w")
	evidencetest.Must(t, err)
	_, checkpoint, err := signing.NewCheckpointKey(bytes.NewReader(evidencetest.Derived("x")))
	evidencetest.Must(t, err)
	for _, bad := range []string{"", "w", vkey[:20], "v" + vkey[1:], strings.Replace(vkey, "+B", "+A", 1), checkpoint, skey, vkey + "AAAA", "w w" + vkey[1:]} {
		if _, err := tree.NewWitness(bad); !errors.Is(err, tree.ErrWitnessKey) {
			t.Errorf("%q is a public key: %v", bad, err)
		}
	}
	for _, bad := range []string{"", vkey, skey[:30], strings.Replace(skey, "+w+", "+v+", 1)} {
		if _, err := tree.WitnessSigner(bad); !errors.Is(err, tree.ErrWitnessKey) || strings.Contains(err.Error(), skey[30:]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, name := range []string{"", "a b", "a+b", "ä", signing.CheckpointKeyName, strings.Repeat("x", 300)} {
		if _, _, err := tree.NewWitnessKey(bytes.NewReader(evidencetest.Derived("x")), name); !errors.Is(err, tree.ErrWitnessKey) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if _, _, err := tree.NewWitnessKey(strings.NewReader("short"), "w"); !errors.Is(err, tree.ErrWitnessKey) {
		t.Error(err)
	}
	w, err := tree.WitnessSigner(skey)
	evidencetest.Must(t, err)
	if text := fmt.Sprintf("%v %+v %#v", w, w, w); strings.Contains(text, "[") {
		t.Errorf("prints its key: %s", text)
	}
}

// A line that is not valid does not come along, and hides no valid one of the same key behind it.
func TestKeepSignatures(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	w, v := evidencetest.NewWitness(t, "witness.example.com/w1")
	good, _, err := tree.Cosign(w, f.Checkpoint(), note.VerifierList(f.Verifier), nil, nil, evidencetest.Start)
	evidencetest.Must(t, err)
	later, _, err := tree.Cosign(w, f.Checkpoint(), note.VerifierList(f.Verifier), nil, nil, evidencetest.Start.Add(time.Hour))
	evidencetest.Must(t, err)
	own, second := strings.TrimPrefix(good, f.Checkpoint()), strings.TrimPrefix(later, f.Checkpoint())
	wrong := strings.Replace(own, "A", "B", 1)
	for name, in := range map[string]string{
		"as it is": good, "in the other order": strings.Replace(good, "\n\n", "\n\n"+own, 1), "a wrong one in front": strings.Replace(good, "\n\n", "\n\n"+wrong, 1),
		"another's": good + "— other.example/w AAAAAAAA\n", "no line at all": good + "x\n", "twice": good + second,
	} {
		kept, err := tree.KeepSignatures(in, f.Verifier, v, v)
		if err != nil || len(kept) != len(good) || len(tree.Cosigners(kept, []note.Verifier{v})) != 1 {
			t.Errorf("%s: %v\n%s", name, err, kept)
		}
	}
	for name, in := range map[string]string{"none that is known": strings.Replace(good, "\n13\n", "\n14\n", 1), "no note": "x", "too long": good + strings.Repeat("x", maxCheckpoint)} {
		if kept, err := tree.KeepSignatures(in, f.Verifier, v); !errors.Is(err, tree.ErrCheckpoint) {
			t.Errorf("%s: %v %q", name, err, kept)
		}
	}
}

func FuzzCosigners(f *testing.F) {
	fx := evidencetest.New(f)
	fx.Session()
	w, v := evidencetest.NewWitness(f, "w")
	out, _, err := tree.Cosign(w, fx.Checkpoint(), note.VerifierList(fx.Verifier), nil, nil, evidencetest.Start)
	evidencetest.Must(f, err)
	f.Add(out)
	f.Add(fx.Checkpoint())
	text, _, _ := strings.Cut(out, "\n\n")
	f.Fuzz(func(t *testing.T, signed string) {
		if len(tree.Cosigners(signed, []note.Verifier{v})) > 0 && !strings.HasPrefix(signed, text+"\n\n") {
			t.Fatalf("counts for another text: %q", signed)
		}
	})
}

// FuzzCosignatures: whatever is handed in, nothing counts that no witness signed, and
// what is kept or joined is a checkpoint that the log signed, of the same text.
func FuzzCosignatures(f *testing.F) {
	x := evidencetest.New(f)
	x.Session()
	w, v := evidencetest.NewWitness(f, "witness.example.com/w1")
	good, _, err := tree.Cosign(w, x.Checkpoint(), note.VerifierList(x.Verifier), nil, nil, evidencetest.Start)
	evidencetest.Must(f, err)
	for _, seed := range []string{good, x.Checkpoint(), "", "\n\n", "a\n\n— b c\n", strings.Replace(good, "— witness", "— witnes", 1), good + good, strings.TrimSuffix(good, "\n"), strings.Replace(good, "\n13\n", "\n14\n", 1)} {
		f.Add(seed)
	}
	text, _, _ := strings.Cut(good, "\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		if list := tree.Cosignatures(in, []note.Verifier{v}); len(list) > 0 && !strings.HasPrefix(in, text) {
			t.Errorf("counted: %q", in)
		}
		kept, err := tree.KeepSignatures(in, x.Verifier, v)
		if err == nil && !strings.HasPrefix(kept, text) {
			t.Errorf("kept: %q of %q", kept, in)
		}
		if joined, err := tree.MergeSignatures(good, in); err == nil {
			if _, err := tree.OpenCheckpoint(joined, note.VerifierList(x.Verifier)); err != nil && len(joined) < maxCheckpoint && strings.Count(joined, "\n") < 50 {
				if _, err := note.Open([]byte(in), note.VerifierList(x.Verifier)); err == nil {
					t.Errorf("joined, and opens no more: %q", joined)
				}
			}
		}
	})
}
