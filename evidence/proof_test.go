package evidence

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/tree"
)

func (f *fixture) proof(seq uint64) string {
	f.t.Helper()
	path, err := tree.InclusionProof(f, f.tree.Size(), seq)
	must(f.t, err)
	return FormatProof(string(f.built[seq-1].Canonical), seq, path, f.checkpoint())
}

func TestProof(t *testing.T) {
	f := newFixture(t)
	f.session()
	in := ProofInput{Keys: []note.Verifier{f.verifier}}
	for seq := uint64(1); seq <= 13; seq++ {
		in.Text = f.proof(seq)
		if rep, rec, err := VerifyProof(in); err != nil || !rep.OK || rec.Seq != seq || rep.Signed != 13 || rep.Records != 1 {
			t.Fatalf("%d: %v %+v", seq, err, rep)
		}
	}
	good := f.proof(7)
	path, err := tree.InclusionProof(f, 13, 7)
	must(t, err)
	for name, tc := range map[string]struct{ text, want string }{
		"another record":   {FormatProof(string(f.built[5].Canonical), 7, path, f.checkpoint()), "column_mismatch@7 inclusion_proof@7"},
		"another index":    {strings.Replace(good, "index 6\n", "index 5\n", 1), "column_mismatch@6 inclusion_proof@6"},
		"beyond the tree":  {strings.Replace(good, "index 6\n", "index 60\n", 1), "column_mismatch@61 not_signed@61"},
		"a hash less":      {strings.Replace(good, path[1].String()+"\n", "", 1), "inclusion_proof@7"},
		"unsigned":         {strings.Replace(good, "\n13\n", "\n12\n", 1), "checkpoint_invalid@0"},
		"of another shard": {strings.Replace(good, "dev/GOV", "dev/VOG", 1), "checkpoint_invalid@0 wrong_shard@7"},
	} {
		in.Text = tc.text
		if rep, _, err := VerifyProof(in); err != nil || rep.OK || codes(rep) != tc.want {
			t.Errorf("%s: %v %s, want %s", name, err, codes(rep), tc.want)
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "another head": strings.Replace(good, "@v1", "@v2", 1), "no record": strings.Replace(good, "extra ", "extra !", 1),
		"no extra": strings.Replace(good, "extra ", "", 1), "no index": strings.Replace(good, "index ", "", 1), "another spelling": strings.Replace(good, "index 6", "index 06", 1),
		"a broken hash": strings.Replace(good, path[0].String(), "AAAA", 1), "no checkpoint": good[:len(good)-200], "too large": good + strings.Repeat("x", MaxProofSize),
	} {
		in.Text = text
		if rep, _, err := VerifyProof(in); err == nil {
			t.Errorf("%s is read: %+v", name, rep)
		} else if !errors.Is(err, ErrProof) && !errors.Is(err, tree.ErrCheckpoint) && !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w, v := witness(t, "w")
	signed, _, err := tree.Cosign(w, f.checkpoint(), note.VerifierList(f.verifier), nil, nil, testStart)
	must(t, err)
	in.Witnesses = []note.Verifier{v}
	for want, checkpoint := range map[string]string{"": signed, "witness_quorum@0": f.checkpoint()} {
		in.Text = FormatProof(string(f.built[6].Canonical), 7, path, checkpoint)
		if rep, _, err := VerifyProof(in); err != nil || codes(rep) != want {
			t.Errorf("%v %s, want %s", err, codes(rep), want)
		}
	}
}

func FuzzVerifyProof(f *testing.F) {
	fx := newFixture(f)
	fx.session()
	f.Add(fx.proof(1))
	f.Add(fx.proof(13))
	f.Add(proofHead + "\nextra \nindex 0\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		rep, rec, err := VerifyProof(ProofInput{Text: text, Keys: []note.Verifier{fx.verifier}})
		if err != nil || !rep.OK {
			return
		}
		if built := fx.built[rec.Seq-1]; HashRecord(built.Canonical) != built.Hash {
			t.Fatal("another record is proved")
		}
	})
}

func TestRetiredKeys(t *testing.T) {
	f := newFixture(t)
	f.session()
	in := f.sessionInput("sess-a")
	k := f.retirement()
	for name, tc := range map[string]struct {
		retired []events.KeyRetirement
		want    string
	}{
		"nothing retired":  {nil, ""},
		"retired later on": {[]events.KeyRetirement{k}, ""},
		"retired before":   {[]events.KeyRetirement{f.retiredAt(-1)}, "decision_key_retired@3 approval_key_retired@10"},
	} {
		problems, err := RetiredKeys(f.verifier, in.ReceiptKeys, tc.retired, func(yield func(Record) error) error {
			for _, row := range in.Rows {
				rec, err := ParseRecord([]byte(row.Record))
				if err := errors.Join(err, yield(rec)); err != nil {
					return err
				}
			}
			return nil
		})
		if got := codes(Report{Findings: problems}); err != nil || got != tc.want {
			t.Errorf("%s: %s, want %s (%v)", name, got, tc.want, err)
		}
	}
}
