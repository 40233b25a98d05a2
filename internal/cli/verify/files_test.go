package verify

import (
	"bytes"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/ui/uitest"
)

// Evidence under another key says that first: everything else follows from it.
func TestAnotherKeyIsSaidFirst(t *testing.T) {
	rep := verify.Report{Shard: "GOV@a", Records: 3, Total: 2, ByCode: map[verify.Code]int{verify.CodeKeyVouch: 1, verify.CodeCheckpoint: 1}, Findings: []verify.Finding{
		{Code: verify.CodeKeyVouch, Detail: "not vouched for"}, {Code: verify.CodeCheckpoint, Field: "checkpoint.txt", Detail: "not signed by a known key"}}}
	foremost(&rep)
	var out bytes.Buffer
	PrintReport(ui.NewPrinter(&out), rep)
	lines := strings.Split(out.String(), "\n")
	if len(lines) < 4 || !strings.Contains(lines[1], "signed by the key that was given") || !strings.Contains(lines[2], "checkpoint_invalid") || !strings.Contains(lines[3], "key_vouch") {
		t.Errorf("%s", out.String())
	}
	rep.Signed = 3 // one that holds is there: the key is right
	out.Reset()
	if PrintReport(ui.NewPrinter(&out), rep); strings.Contains(out.String(), "that was given") {
		t.Errorf("%s", out.String())
	}
}

func TestReportIsHarmless(t *testing.T) {
	var out bytes.Buffer
	PrintReport(ui.NewPrinter(&out), verify.Report{Shard: uitest.Hostile, Session: uitest.Hostile, OK: true})
	uitest.Harmless(t, out.String(), 2)
}

// A program that reads the JSON learns what was not checked.
func TestReportHasTheNotes(t *testing.T) {
	var out bytes.Buffer
	if err := (&Cmd{JSON: true}).report(ui.Stdio{Out: &out}, []verify.Report{{OK: true, Records: 7}}, "report.html was made by another version"); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, `"notes":["report.html was made by another version"]`) || !strings.Contains(text, `"ok":true`) || !strings.Contains(text, `"records":7`) {
		t.Error(text)
	}
}

// The log that can be read may be another incarnation than the shard's, and none of its checkpoints may be there.
func TestReportSaysWhatWasNotCompared(t *testing.T) {
	for name, tc := range map[string]struct {
		log  *system.EvidenceLog
		want string
	}{
		"no server":                    {nil, "NOT compared with the published checkpoints and the log"},
		"the shard's log":              {&system.EvidenceLog{Shard: "GOV@old"}, ""},
		"a newer log":                  {&system.EvidenceLog{Shard: "GOV@now"}, "NOT compared with the published checkpoints and the log"},
		"a newer log, and checkpoints": {&system.EvidenceLog{Shard: "GOV@now"}, "NOT compared with the log, which is gone"},
	} {
		got := notCompared(tc.log, "GOV@old", map[string]bool{"GOV@old": strings.HasSuffix(name, "checkpoints")})
		session := (&Cmd{}).sessionBasis(verify.Report{Shard: "GOV@old"}, tc.log)
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") || strings.Contains(session, "NOT compared") != (tc.want != "") {
			t.Errorf("%s: %q; of a session %q", name, got, session)
		}
	}
}
