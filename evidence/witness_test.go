package evidence

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/tree"
)

func witness(t testing.TB, name string) (tree.Witness, note.Verifier) {
	t.Helper()
	skey, vkey, err := tree.NewWitnessKey(bytes.NewReader(derived(name)), name)
	must(t, err)
	w, err := tree.WitnessSigner(skey + "\n")
	must(t, err)
	v, err := tree.NewWitness(vkey)
	must(t, err)
	if w.Name() != name || v.Name() != name {
		t.Fatalf("%s %s", w.Name(), v.Name())
	}
	return w, v
}

// The example of c2sp.org/tlog-cosignature: its key is not public, but its form
// is. A signature made here verifies, at its time only, over its text only.
func TestCosign(t *testing.T) {
	f := newFixture(t)
	f.session()
	known := note.VerifierList(f.verifier)
	w, v := witness(t, "witness.example.com/w1")
	out, c, err := tree.Cosign(w, f.checkpoint(), known, nil, nil, testStart)
	must(t, err)
	if c.Size != 13 || !strings.HasPrefix(out, f.checkpoint()) || len(tree.Cosigners(out, []note.Verifier{v})) != 1 {
		t.Fatalf("%+v\n%s", c, out)
	}
	if again, err := tree.OpenCheckpoint(out, known); err != nil || again.Root != c.Root {
		t.Fatalf("the log's own signature: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := strings.Fields(lines[len(lines)-1])
	raw, err := base64.StdEncoding.DecodeString(last[2])
	must(t, err)
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
		"other size": strings.Replace(out, "\n13\n", "\n14\n", 1), "cut": out[:len(out)-5], "none": f.checkpoint(), "nothing": "",
		"too long": out + strings.Repeat("x", maxCheckpoint),
	} {
		if len(tree.Cosigners(text, []note.Verifier{v})) != 0 {
			t.Errorf("%s: counts", name)
		}
	}
	if _, stranger := witness(t, "witness.example.com/w2"); len(tree.Cosigners(out, []note.Verifier{stranger})) != 0 {
		t.Error("another witness's key")
	}
}

// A witness signs what extends what it signed before, and nothing else.
func TestCosignKeepsToOneHistory(t *testing.T) {
	f := newFixture(t)
	f.session()
	older := f.checkpoint()
	known := note.VerifierList(f.verifier)
	w, _ := witness(t, "w")
	_, first, err := tree.Cosign(w, older, known, nil, nil, testStart)
	must(t, err)
	f.log(eventSubject, nil, []byte(plainEvent))
	f.log(eventSubject, nil, []byte(plainEvent))
	proof, err := tree.ConsistencyProof(f, first.Size, f.tree.Size())
	must(t, err)
	_, second, err := tree.Cosign(w, f.checkpoint(), known, &first, proof, testStart)
	must(t, err)
	if _, _, err := tree.Cosign(w, f.checkpoint(), known, &second, nil, testStart); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if _, _, err := tree.Cosign(w, older, known, &second, proof, testStart); !errors.Is(err, tree.ErrRollback) {
		t.Errorf("an older one: %v", err)
	}
	forked := first
	forked.Root = tlog.Hash{1}
	same := second
	same.Root = tlog.Hash{1}
	for name, old := range map[string]tree.Checkpoint{"another history": forked, "another root of this size": same} {
		if out, _, err := tree.Cosign(w, f.checkpoint(), known, &old, proof, testStart); !errors.Is(err, tree.ErrFork) || out != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := tree.Cosign(w, f.checkpoint(), known, &first, proof[:1], testStart); !errors.Is(err, tree.ErrFork) {
		t.Errorf("half a proof: %v", err)
	}
	other := first
	other.Shard = "GOV@other"
	if _, _, err := tree.Cosign(w, f.checkpoint(), known, &other, proof, testStart); !errors.Is(err, tree.ErrCheckpoint) {
		t.Errorf("another shard: %v", err)
	}
	if _, _, err := tree.Cosign(w, strings.Replace(f.checkpoint(), "\n15\n", "\n16\n", 1), known, nil, nil, testStart); !errors.Is(err, tree.ErrCheckpoint) {
		t.Errorf("not signed by the log: %v", err)
	}
}

func TestWitnessKeys(t *testing.T) {
	skey, vkey, err := tree.NewWitnessKey(bytes.NewReader(derived("x")), "w")
	must(t, err)
	_, checkpoint, err := signing.NewCheckpointKey(bytes.NewReader(derived("x")))
	must(t, err)
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
		if _, _, err := tree.NewWitnessKey(bytes.NewReader(derived("x")), name); !errors.Is(err, tree.ErrWitnessKey) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if _, _, err := tree.NewWitnessKey(strings.NewReader("short"), "w"); !errors.Is(err, tree.ErrWitnessKey) {
		t.Error(err)
	}
	w, err := tree.WitnessSigner(skey)
	must(t, err)
	if text := fmt.Sprintf("%v %+v %#v", w, w, w); strings.Contains(text, "[") {
		t.Errorf("prints its key: %s", text)
	}
}

// verify demands the witnesses that it is told of.
func TestWitnessesAreDemanded(t *testing.T) {
	f := newFixture(t)
	f.session()
	known := note.VerifierList(f.verifier)
	a, va := witness(t, "a")
	b, vb := witness(t, "b")
	_, vc := witness(t, "c")
	one, _, err := tree.Cosign(a, f.checkpoint(), known, nil, nil, testStart)
	must(t, err)
	both, _, err := tree.Cosign(b, one, known, nil, nil, testStart)
	must(t, err)
	f.log(eventSubject, nil, []byte(plainEvent))
	newest := f.checkpoint()
	forged := strings.Replace(both, "\n13\n", "\n12\n", 1)
	for name, tc := range map[string]struct {
		note      string
		witnesses []note.Verifier
		quorum    int
		want      string
	}{
		"both of two":     {both, []note.Verifier{va, vb}, 0, ""},
		"one of two":      {one, []note.Verifier{va, vb}, 1, ""},
		"one, both asked": {one, []note.Verifier{va, vb}, 0, "witness_quorum@0"},
		"two of three":    {both, []note.Verifier{va, vb, vc}, 2, ""},
		"three of three":  {both, []note.Verifier{va, vb, vc}, 3, "witness_quorum@0"},
		"one key twice":   {one, []note.Verifier{va, va}, 2, "witness_quorum@0"},
		"none":            {newest, []note.Verifier{va}, 0, "witness_quorum@0"},
		"not asked":       {one, nil, 0, ""},
		"of a forged one": {forged, []note.Verifier{va}, 0, "checkpoint_invalid@0 witness_quorum@0"},
	} {
		o := f.options()
		o.Checkpoints = []Published{{"stored", newest}, {"file", tc.note}}
		o.Witnesses, o.Quorum = tc.witnesses, tc.quorum
		rep := verifyRows(o, f.rows())
		if codes(rep) != tc.want || rep.OK && len(tc.witnesses) > 0 && rep.Witnessed != 13 {
			t.Errorf("%s: %s, want %s (%+v)", name, codes(rep), tc.want, rep)
		}
	}
	// A session needs the proof that the newest checkpoint extends the witnessed one.
	in := f.sessionInput("sess-a")
	in.Witnesses = []note.Verifier{va}
	if rep := VerifySession(in); codes(rep) != "witness_quorum@0" {
		t.Error(codes(rep))
	}
	proof, err := tree.ConsistencyProof(f, 13, 14)
	must(t, err)
	in.Older = []Extension{{Published{"file", one}, proof}}
	if rep := VerifySession(in); !rep.OK || rep.Witnessed != 13 {
		t.Error(codes(rep))
	}
}

func FuzzCosigners(f *testing.F) {
	fx := newFixture(f)
	fx.session()
	w, v := witness(f, "w")
	out, _, err := tree.Cosign(w, fx.checkpoint(), note.VerifierList(fx.verifier), nil, nil, testStart)
	must(f, err)
	f.Add(out)
	f.Add(fx.checkpoint())
	text, _, _ := strings.Cut(out, "\n\n")
	f.Fuzz(func(t *testing.T, signed string) {
		if len(tree.Cosigners(signed, []note.Verifier{v})) > 0 && !strings.HasPrefix(signed, text+"\n\n") {
			t.Fatalf("counts for another text: %q", signed)
		}
	})
}
