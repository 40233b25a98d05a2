package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/evidence"
)

// Evidence under another key says that first: everything else follows from it.
func TestAnotherKeyIsSaidFirst(t *testing.T) {
	rep := evidence.Report{Shard: "GOV@a", Records: 3, Total: 2, ByCode: map[evidence.Code]int{evidence.CodeKeyVouch: 1, evidence.CodeCheckpoint: 1}, Findings: []evidence.Finding{
		{Code: evidence.CodeKeyVouch, Detail: "not vouched for"}, {Code: evidence.CodeCheckpoint, Field: "checkpoint.txt", Detail: "not signed by a known key"}}}
	foremost(&rep)
	var out bytes.Buffer
	printReport(newPrinter(&out), rep)
	lines := strings.Split(out.String(), "\n")
	if len(lines) < 4 || !strings.Contains(lines[1], "signed by the key that was given") || !strings.Contains(lines[2], "checkpoint_invalid") || !strings.Contains(lines[3], "key_vouch") {
		t.Errorf("%s", out.String())
	}
	rep.Signed = 3 // one that holds is there: the key is right
	out.Reset()
	if printReport(newPrinter(&out), rep); strings.Contains(out.String(), "that was given") {
		t.Errorf("%s", out.String())
	}
}
