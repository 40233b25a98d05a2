package verify_test

import (
	"os"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// The pages that list problem codes and detectors.
const (
	codesDoc     = "../../docs/reference/reason-codes.md"
	detectorsDoc = "../../docs/reference/detectors.md"
)

// TestDocumentedCodes keeps the list of problem codes and detectors complete.
func TestDocumentedCodes(t *testing.T) {
	doc, err := os.ReadFile(codesDoc)
	evidencetest.Must(t, err)
	detectors, err := os.ReadFile(detectorsDoc)
	evidencetest.Must(t, err)
	report, err := os.ReadFile("report.go")
	evidencetest.Must(t, err)
	for line := range strings.SplitSeq(string(report), "\n") {
		if _, value, ok := strings.Cut(line, " Code = \""); ok {
			code, _, _ := strings.Cut(value, "\"")
			if !strings.Contains(string(doc), "`"+code+"`") {
				t.Errorf("%s does not explain %s", codesDoc, code)
			}
		}
	}
	for _, name := range append(redact.Detectors(), redact.ClassDetectors()...) {
		if !strings.Contains(string(detectors), "`"+name+"`") {
			t.Errorf("%s does not explain detector %s", detectorsDoc, name)
		}
	}
}
