package approvalscmd

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

var statusColour = map[approval.Status]string{
	approval.Pending: ui.Yellow, approval.Approved: ui.Green, approval.Consumed: ui.Green, approval.Denied: ui.Red, approval.Cancelled: ui.Faint, approval.Expired: ui.Faint,
}

// printWorkflowLine prints one line of a list.
func printWorkflowLine(p *ui.Printer, v approval.View, now time.Time) {
	p.Printf("%s  %s  %s %s %s\n", ui.Clean(v.WorkflowID, 48), p.Paint(statusColour[v.Status], ui.Pad(string(v.Status), 9)),
		ui.Pad(cmp.Or(v.Tool, "-"), 24), ui.Pad(v.Source, 16), ui.Clean(describeStatus(v, now), 100))
}

// describeStatus describes what a workflow waits for, or how it ended.
func describeStatus(v approval.View, now time.Time) string {
	switch {
	case v.Status == approval.Pending && v.Unapprovable:
		return fmt.Sprintf("can be denied only, %s left: %s", v.ExpiresAt.Sub(now).Round(time.Second), strings.Join(v.Reasons, ", "))
	case v.Status == approval.Pending:
		return fmt.Sprintf("%d of %d approved, %s left: %s", len(v.Approvers), v.Quorum, v.ExpiresAt.Sub(now).Round(time.Second), strings.Join(v.Reasons, ", "))
	case v.Status == approval.Approved:
		return fmt.Sprintf("by %s, not used yet, %s left", strings.Join(v.Approvers, ", "), v.ExpiresAt.Sub(now).Round(time.Second))
	case v.Status == approval.Consumed:
		return "used by decision " + v.ConsumedBy
	}
	text := ""
	if v.By != "" {
		text = "by " + v.By
	}
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	return text
}

// printPreview prints everything that a reviewer may see.
func printPreview(p *ui.Printer, v approval.View, now time.Time) {
	printWorkflowLine(p, v, now)
	pre := v.Preview
	if pre == nil {
		return
	}
	for _, row := range [][2]string{
		{"protocol", pre.Protocol}, {"publisher", pre.Source}, {"agent", pre.Agent}, {"only for", pre.ApprovalScope}, {"session", pre.Session}, {"calls", strings.Join(v.Calls, ", ")}, {"tool", pre.Tool},
		{"action", pre.Action}, {"resource kind", pre.Kind}, {"scope", pre.Scope}, {"directory", pre.Dir}, {"from agent", pre.FromAgent}, {"to agent", pre.ToAgent}, {"mandate", pre.Mandate},
		{"asked by", strings.TrimSpace(pre.Policy + " " + strings.Join(pre.Reasons, ", "))}, {"message", pre.Message}, {"reviewers", strings.Join(v.ReviewerGroups, ", ")},
		{"expires", v.ExpiresAt.String()}, {"resume", v.ResumePolicy},
	} {
		if row[1] != "" {
			p.Printf("  %-14s %s\n", row[0], ui.Clean(row[1], 200))
		}
	}
	if pre.Resource != nil {
		printItem(p, "resource", *pre.Resource)
	}
	for _, i := range pre.Arguments {
		printItem(p, "argument "+i.Path, i)
	}
	if pre.More > 0 {
		p.Printf("  and %d more arguments\n", pre.More)
	}
	p.Printf("  %-14s %s\n", "preview", v.PreviewDigest)
}

func printItem(p *ui.Printer, what string, i approval.Item) {
	text := i.Type
	if i.Size > 0 {
		text = fmt.Sprintf("%s of %d", i.Type, i.Size)
	}
	if i.Withheld {
		why := "withheld"
		if i.Why != "" {
			why += ": " + ui.Clean(i.Why, 40)
		}
		text = p.Paint(ui.Faint, text+" ("+why+")")
	} else {
		text = ui.Clean(i.Value, 250)
	}
	p.Printf("  %s %s\n", ui.Fill(ui.Clean(what, 60), 28), text)
}
