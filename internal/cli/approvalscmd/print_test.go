package approvalscmd

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/ui/uitest"
)

func TestApprovalColumns(t *testing.T) {
	uitest.SameColumns(t, map[string]func(io ui.Stdio, p *ui.Printer, text string){
		"a workflow": func(_ ui.Stdio, p *ui.Printer, x string) {
			printWorkflowLine(p, approval.View{Tool: x, Source: x}, time.Time{})
		},
		"an argument": func(_ ui.Stdio, p *ui.Printer, x string) { printItem(p, x, approval.Item{Value: "v"}) },
	})
}
