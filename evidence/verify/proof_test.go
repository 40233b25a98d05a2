package verify_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

func proofOf(f *evidencetest.Fixture, seq uint64) string {
	f.T.Helper()
	path, err := tree.InclusionProof(f, f.Tree.Size(), seq)
	evidencetest.Must(f.T, err)
	return verify.FormatProof(string(f.Built[seq-1].Canonical), seq, path, f.Checkpoint())
}

func TestProof(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	in := verify.ProofInput{Keys: []note.Verifier{f.Verifier}}
	for seq := uint64(1); seq <= 13; seq++ {
		in.Text = proofOf(f, seq)
		if rep, rec, err := verify.Proof(in); err != nil || !rep.OK || rec.Seq != seq || rep.Signed != 13 || rep.Records != 1 {
			t.Fatalf("%d: %v %+v", seq, err, rep)
		}
	}
	good := proofOf(f, 7)
	path, err := tree.InclusionProof(f, 13, 7)
	evidencetest.Must(t, err)
	for name, tc := range map[string]struct{ text, want string }{
		"another record":   {verify.FormatProof(string(f.Built[5].Canonical), 7, path, f.Checkpoint()), "column_mismatch@7 inclusion_proof@7"},
		"another index":    {strings.Replace(good, "index 6\n", "index 5\n", 1), "column_mismatch@6 inclusion_proof@6"},
		"beyond the tree":  {strings.Replace(good, "index 6\n", "index 60\n", 1), "column_mismatch@61 not_signed@61"},
		"a hash less":      {strings.Replace(good, path[1].String()+"\n", "", 1), "inclusion_proof@7"},
		"unsigned":         {strings.Replace(good, "\n13\n", "\n12\n", 1), "checkpoint_invalid@0"},
		"of another shard": {strings.Replace(good, "dev/GOV", "dev/VOG", 1), "checkpoint_invalid@0 wrong_shard@7"},
	} {
		in.Text = tc.text
		if rep, _, err := verify.Proof(in); err != nil || rep.OK || codes(rep) != tc.want {
			t.Errorf("%s: %v %s, want %s", name, err, codes(rep), tc.want)
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "another head": strings.Replace(good, "@v1", "@v2", 1), "no record": strings.Replace(good, "extra ", "extra !", 1),
		"no extra": strings.Replace(good, "extra ", "", 1), "no index": strings.Replace(good, "index ", "", 1), "another spelling": strings.Replace(good, "index 6", "index 06", 1),
		"a broken hash": strings.Replace(good, path[0].String(), "AAAA", 1), "no checkpoint": good[:len(good)-200], "too large": good + strings.Repeat("x", verify.MaxProofSize),
	} {
		in.Text = text
		if rep, _, err := verify.Proof(in); err == nil {
			t.Errorf("%s is read: %+v", name, rep)
		} else if !errors.Is(err, verify.ErrProof) && !errors.Is(err, tree.ErrCheckpoint) && !errors.Is(err, evidence.ErrRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w, v := evidencetest.NewWitness(t, "w")
	signed, _, err := tree.Cosign(w, f.Checkpoint(), note.VerifierList(f.Verifier), nil, nil, evidencetest.Start)
	evidencetest.Must(t, err)
	in.Witnesses = []note.Verifier{v}
	for want, checkpoint := range map[string]string{"": signed, "witness_quorum@0": f.Checkpoint()} {
		in.Text = verify.FormatProof(string(f.Built[6].Canonical), 7, path, checkpoint)
		if rep, _, err := verify.Proof(in); err != nil || codes(rep) != want {
			t.Errorf("%v %s, want %s", err, codes(rep), want)
		}
	}
}

func FuzzVerifyProof(f *testing.F) {
	fx := evidencetest.New(f)
	fx.Session()
	f.Add(proofOf(fx, 1))
	f.Add(proofOf(fx, 13))
	f.Add(verify.ProofHead + "\nextra \nindex 0\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		rep, rec, err := verify.Proof(verify.ProofInput{Text: text, Keys: []note.Verifier{fx.Verifier}})
		if err != nil || !rep.OK {
			return
		}
		if built := fx.Built[rec.Seq-1]; evidence.HashRecord(built.Canonical) != built.Hash {
			t.Fatal("another record is proved")
		}
	})
}

func TestRetiredKeys(t *testing.T) {
	f := evidencetest.New(t)
	f.Session()
	in := f.SessionInput("sess-a")
	k := f.Retirement()
	for name, tc := range map[string]struct {
		retired []events.KeyRetirement
		want    string
	}{
		"nothing retired":  {nil, ""},
		"retired later on": {[]events.KeyRetirement{k}, ""},
		"retired before":   {[]events.KeyRetirement{f.RetiredAt(-1)}, "decision_key_retired@3 approval_key_retired@10"},
	} {
		problems, err := verify.RetiredKeys(f.Verifier, in.ReceiptKeys, tc.retired, func(yield func(evidence.Record) error) error {
			for _, row := range in.Rows {
				rec, err := evidence.ParseRecord([]byte(row.Record))
				if err := errors.Join(err, yield(rec)); err != nil {
					return err
				}
			}
			return nil
		})
		if got := codes(verify.Report{Findings: problems}); err != nil || got != tc.want {
			t.Errorf("%s: %s, want %s (%v)", name, got, tc.want, err)
		}
	}
}
