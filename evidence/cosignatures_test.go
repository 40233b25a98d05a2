package evidence

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence/tree"
)

// Signatures of several witnesses over one checkpoint are one set, wherever they
// were kept, and each says when.
func TestCosignaturesAreJoined(t *testing.T) {
	f := newFixture(t)
	f.session()
	known := note.VerifierList(f.verifier)
	w1, v1 := witness(t, "witness.example.com/w1")
	w2, v2 := witness(t, "witness.example.com/w2")
	sign := func(w tree.Witness, text string, at time.Time) string {
		t.Helper()
		out, _, err := tree.Cosign(w, text, known, nil, nil, at)
		must(t, err)
		return out
	}
	one, two := sign(w1, f.checkpoint(), testStart), sign(w2, f.checkpoint(), testStart.Add(time.Hour))
	for text, want := range map[string]bool{f.checkpoint(): false, one: true, "": false, "no note": false} {
		if tree.HasCosignature(text) != want {
			t.Errorf("has a cosignature: %t of %q", !want, text)
		}
	}
	both, err := tree.MergeSignatures(one, two, one)
	must(t, err)
	got := tree.Cosignatures(both, []note.Verifier{v2, v1})
	if len(got) != 2 || got[0].Witness != w2.Name() || !got[0].At.Equal(testStart.Add(time.Hour).Truncate(time.Second)) || got[1].Size != 13 || strings.Count(both, "— ") != 3 {
		t.Fatalf("%+v\n%s", got, both)
	}
	if kept, err := tree.KeepSignatures(both, f.verifier, v1); err != nil || kept != one {
		t.Errorf("%v\n%s", err, kept)
	}
	for name, notes := range map[string][]string{"none": nil, "no note": {"x"}, "no signatures": {"x\n\n"}, "another text": {one, strings.Replace(two, "\n13\n", "\n14\n", 1)}} {
		if _, err := tree.MergeSignatures(notes...); !errors.Is(err, tree.ErrCheckpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Two notes with one witness each are as good as one with both.
	verify := func(quorum int, notes ...string) Report {
		o := VerifyOptions{Shard: testShard, Keys: []note.Verifier{f.verifier}, Witnesses: []note.Verifier{v1, v2}, Quorum: quorum}
		for _, text := range notes {
			o.Checkpoints = append(o.Checkpoints, Published{"here", text})
		}
		v := NewVerifier(o)
		for _, r := range f.rows() {
			v.Row(r)
		}
		return v.Finish()
	}
	if rep := verify(0, one, two); !rep.OK || rep.Witnessed != 13 || len(rep.Cosigned) != 2 {
		t.Errorf("%+v", rep)
	}
	if rep := verify(0, one, one); rep.OK || rep.ByCode[CodeWitnesses] != 1 || len(rep.Cosigned) != 1 {
		t.Errorf("one witness twice is taken for two: %+v", rep)
	}
	// Who is only known is told of, and asked for nothing.
	v := NewVerifier(VerifyOptions{Shard: testShard, Keys: []note.Verifier{f.verifier}, Cosigners: []note.Verifier{v1, v2}, Checkpoints: []Published{{"here", two}}})
	for _, r := range f.rows() {
		v.Row(r)
	}
	if rep := v.Finish(); !rep.OK || len(rep.Cosigned) != 1 || rep.Cosigned[0].Witness != w2.Name() || rep.Witnessed != 0 {
		t.Errorf("%+v", rep)
	}
}

// FuzzCosignatures: whatever is handed in, nothing counts that no witness signed, and
// what is kept or joined is a checkpoint that the log signed, of the same text.
func FuzzCosignatures(f *testing.F) {
	x := newFixture(f)
	x.session()
	w, v := witness(f, "witness.example.com/w1")
	good, _, err := tree.Cosign(w, x.checkpoint(), note.VerifierList(x.verifier), nil, nil, testStart)
	must(f, err)
	for _, seed := range []string{good, x.checkpoint(), "", "\n\n", "a\n\n— b c\n", strings.Replace(good, "— witness", "— witnes", 1), good + good, strings.TrimSuffix(good, "\n"), strings.Replace(good, "\n13\n", "\n14\n", 1)} {
		f.Add(seed)
	}
	text, _, _ := strings.Cut(good, "\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		tree.HasCosignature(in)
		if list := tree.Cosignatures(in, []note.Verifier{v}); len(list) > 0 && !strings.HasPrefix(in, text) {
			t.Errorf("counted: %q", in)
		}
		kept, err := tree.KeepSignatures(in, x.verifier, v)
		if err == nil && !strings.HasPrefix(kept, text) {
			t.Errorf("kept: %q of %q", kept, in)
		}
		if joined, err := tree.MergeSignatures(good, in); err == nil {
			if _, err := tree.OpenCheckpoint(joined, note.VerifierList(x.verifier)); err != nil && len(joined) < maxCheckpoint && strings.Count(joined, "\n") < 50 {
				if _, err := note.Open([]byte(in), note.VerifierList(x.verifier)); err == nil {
					t.Errorf("joined, and opens no more: %q", joined)
				}
			}
		}
	})
}
