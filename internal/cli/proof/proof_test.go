package proof

import (
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/storage/engine"
)

// A proved answer does not download an engine: it says how to get one.
func TestOwnEngineIsNotFetched(t *testing.T) {
	t.Setenv("PATH", "")
	if _, _, err := ownEngine(t.Context(), t.TempDir()); !errors.Is(err, engine.ErrNotFetched) || !strings.Contains(err.Error(), "countersign engine fetch") {
		t.Errorf("%v", err)
	}
}

// What an answer rests on says what is left out of it, and what could be missing.
func TestBasis(t *testing.T) {
	whole := []verify.Report{{Shard: "old", Signed: 9, AfterCheckpoint: 2}, {Shard: "now", Signed: 100, AfterCheckpoint: 1}}
	for name, tc := range map[string]struct {
		p             Prover
		whole         []verify.Report
		says, saysNot string
	}{
		"all is signed":        {Prover{shard: "now", last: 100}, []verify.Report{{Shard: "now", Signed: 100}}, "nothing is missing", "not signed"},
		"some is not":          {Prover{shard: "now", last: 100}, whole, "3 records not signed yet and not in this answer", "nothing is missing"},
		"the log has more":     {Prover{shard: "now", last: 105}, whole, "7 records not signed yet and not in this answer", "nothing is missing"},
		"no server to ask":     {Prover{}, whole[1:], "after the newest stored checkpoint (size 100) could be missing", "nothing is missing"},
		"an older log":         {Prover{shard: "now", last: 100}, []verify.Report{{Shard: "old", Signed: 9}, {Shard: "now", Signed: 100}}, "records of an older one after its newest stored checkpoint could be missing", "nothing is missing"},
		"the same, all signed": {Prover{}, []verify.Report{{Shard: "now", Signed: 7}}, "after the newest stored checkpoint (size 7) could be missing", "nothing is missing"},
	} {
		if b := tc.p.basis(tc.whole); !b.Proved || !strings.Contains(b.Text, tc.says) || strings.Contains(b.Text, tc.saysNot) || b.note != "" && !strings.Contains(b.Text, b.note) {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// A record that its signature does not hold for is on the log, and in the answer. The answer says so, and
// that it is not proved.
func TestBasisOfForgedRecords(t *testing.T) {
	rep := verify.Report{Shard: "now", Signed: 100, Total: 2, Findings: []verify.Finding{{Code: verify.CodeApprovalUnsigned, Seq: 47}, {Code: verify.CodeDecisionSignature, Seq: 50}}}
	b := (&Prover{shard: "now", last: 100}).basis([]verify.Report{rep})
	const want = "NOT proved: 2 problems in the verified records, the first approval_unsigned at sequence 47 of shard now: run countersign verify"
	if b.Proved || b.note != want || !strings.Contains(b.Text, "none of them is missing") && !strings.Contains(b.Text, "nothing is missing") || !strings.Contains(b.Text, want) {
		t.Errorf("%+v", b)
	}
}

// A signature that could not be checked may be anybody's: the answer is NOT proved.
func TestBasisOfUncheckedSignatures(t *testing.T) {
	b := (&Prover{shard: "now", last: 100}).basis([]verify.Report{{Shard: "now", Signed: 100, SignaturesUnchecked: 2}})
	if want := "NOT proved: 2 signatures not checked"; b.Proved || !strings.HasPrefix(b.note, want) || !strings.Contains(b.Text, want) {
		t.Errorf("%+v", b)
	}
}
