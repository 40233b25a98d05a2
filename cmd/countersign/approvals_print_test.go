package main

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
)

func TestApprovalColumns(t *testing.T) {
	sameColumns(t, map[string]func(io stdio, p *printer, text string){
		"a workflow": func(_ stdio, p *printer, x string) {
			printWorkflowLine(p, approval.View{Tool: x, Source: x}, time.Time{})
		},
		"an argument": func(_ stdio, p *printer, x string) { printItem(p, x, approval.Item{Value: "v"}) },
	})
}
