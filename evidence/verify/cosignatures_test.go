package verify_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// Signatures of several witnesses over one checkpoint are one set, wherever they
// were kept, and each says when.
func TestCosignaturesAreJoined(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	known := note.VerifierList(f.Verifier)
	w1, v1 := evidencetest.NewWitness(t, "witness.example.com/w1")
	w2, v2 := evidencetest.NewWitness(t, "witness.example.com/w2")
	sign := func(w tree.Witness, text string, at time.Time) string {
		t.Helper()
		out, _, err := tree.Cosign(w, text, known, nil, nil, at)
		evidencetest.Must(t, err)
		return out
	}
	one, two := sign(w1, f.Checkpoint(), evidencetest.Start), sign(w2, f.Checkpoint(), evidencetest.Start.Add(time.Hour))
	both, err := tree.MergeSignatures(one, two, one)
	evidencetest.Must(t, err)
	got := tree.Cosignatures(both, []note.Verifier{v2, v1})
	if len(got) != 2 || got[0].Witness != w2.Name() || !got[0].At.Equal(evidencetest.Start.Add(time.Hour).Truncate(time.Second)) || got[1].Size != 13 || strings.Count(both, "— ") != 3 {
		t.Fatalf("%+v\n%s", got, both)
	}
	if kept, err := tree.KeepSignatures(both, f.Verifier, v1); err != nil || kept != one {
		t.Errorf("%v\n%s", err, kept)
	}
	for name, notes := range map[string][]string{"none": nil, "no note": {"x"}, "no signatures": {"x\n\n"}, "another text": {one, strings.Replace(two, "\n13\n", "\n14\n", 1)}} {
		if _, err := tree.MergeSignatures(notes...); !errors.Is(err, tree.ErrCheckpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Two notes with one witness each are as good as one with both.
	verifyNotes := func(quorum int, notes ...string) verify.Report {
		o := verify.Options{Shard: evidencetest.Shard, Keys: []note.Verifier{f.Verifier}, Witnesses: []note.Verifier{v1, v2}, Quorum: quorum}
		for _, text := range notes {
			o.Checkpoints = append(o.Checkpoints, verify.Published{Source: "here", Text: text})
		}
		v := verify.NewVerifier(o)
		for _, r := range f.Rows() {
			v.Row(r)
		}
		return v.Finish()
	}
	if rep := verifyNotes(0, one, two); !rep.OK || rep.Witnessed != 13 || len(rep.Cosigned) != 2 {
		t.Errorf("%+v", rep)
	}
	if rep := verifyNotes(0, one, one); rep.OK || rep.ByCode[verify.CodeWitnesses] != 1 || len(rep.Cosigned) != 1 {
		t.Errorf("one witness twice is taken for two: %+v", rep)
	}
	// Who is only known is told of, and asked for nothing.
	v := verify.NewVerifier(verify.Options{Shard: evidencetest.Shard, Keys: []note.Verifier{f.Verifier}, Cosigners: []note.Verifier{v1, v2}, Checkpoints: []verify.Published{{Source: "here", Text: two}}})
	for _, r := range f.Rows() {
		v.Row(r)
	}
	if rep := v.Finish(); !rep.OK || len(rep.Cosigned) != 1 || rep.Cosigned[0].Witness != w2.Name() || rep.Witnessed != 0 {
		t.Errorf("%+v", rep)
	}
}

// verify demands the witnesses that it is told of.
func TestWitnessesAreDemanded(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	known := note.VerifierList(f.Verifier)
	a, va := evidencetest.NewWitness(t, "a")
	b, vb := evidencetest.NewWitness(t, "b")
	_, vc := evidencetest.NewWitness(t, "c")
	one, _, err := tree.Cosign(a, f.Checkpoint(), known, nil, nil, evidencetest.Start)
	evidencetest.Must(t, err)
	both, _, err := tree.Cosign(b, one, known, nil, nil, evidencetest.Start)
	evidencetest.Must(t, err)
	f.Log(evidencetest.EventSubject, nil, []byte(evidencetest.PlainEvent))
	newest := f.Checkpoint()
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
		o := f.Options()
		o.Checkpoints = []verify.Published{{Source: "stored", Text: newest}, {Source: "file", Text: tc.note}}
		o.Witnesses, o.Quorum = tc.witnesses, tc.quorum
		rep := evidencetest.VerifyRows(o, f.Rows())
		if codes(rep) != tc.want || rep.OK && len(tc.witnesses) > 0 && rep.Witnessed != 13 {
			t.Errorf("%s: %s, want %s (%+v)", name, codes(rep), tc.want, rep)
		}
	}
	// A session needs the proof that the newest checkpoint extends the witnessed one.
	in := f.SessionInput("sess-a")
	in.Witnesses = []note.Verifier{va}
	if rep := verify.Session(in); codes(rep) != "witness_quorum@0" {
		t.Error(codes(rep))
	}
	proof, err := tree.ConsistencyProof(f, 13, 14)
	evidencetest.Must(t, err)
	in.Older = []verify.Extension{{Published: verify.Published{Source: "file", Text: one}, Proof: proof}}
	if rep := verify.Session(in); !rep.OK || rep.Witnessed != 13 {
		t.Error(codes(rep))
	}
}
