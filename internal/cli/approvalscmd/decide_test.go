package approvalscmd

import (
	"testing"

	"github.com/countersign-dev/countersign/admission/approval"
)

// The note about a missing reason stands where the correlator makes the finding AH-C-108: at decided workflows.
func TestLacksReason(t *testing.T) {
	for _, c := range []struct {
		code   approval.Code
		reason string
		want   bool
	}{
		{approval.CodeApproved, "", true}, {approval.CodeDenied, "", true}, {approval.CodeApproved, "agreed", false},
		{approval.CodeRecorded, "", false}, {approval.CodeCancelled, "", false}, {approval.CodeSelf, "", false},
	} {
		if got := lacksReason(c.code, c.reason); got != c.want {
			t.Errorf("%s %q: %v", c.code, c.reason, got)
		}
	}
}
