package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
)

var statusColour = map[approval.Status]string{
	approval.Pending: yellow, approval.Approved: green, approval.Consumed: green, approval.Denied: red, approval.Cancelled: faint, approval.Expired: faint,
}

// printWorkflowLine prints one line of a list.
func printWorkflowLine(p *printer, v approval.View, now time.Time) {
	p.printf("%s  %s  %s %s %s\n", clean(v.WorkflowID, 48), p.paint(statusColour[v.Status], pad(string(v.Status), 9)),
		pad(cmp.Or(v.Tool, "-"), 24), pad(v.Source, 16), clean(standing(v, now), 100))
}

// standing says what a workflow waits for, or how it ended.
func standing(v approval.View, now time.Time) string {
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

// printPreview prints all that a reviewer may see.
func printPreview(p *printer, v approval.View, now time.Time) {
	printWorkflowLine(p, v, now)
	pre := v.Preview
	if pre == nil {
		return
	}
	for _, row := range [][2]string{
		{"protocol", pre.Protocol}, {"publisher", pre.Source}, {"agent", pre.Agent}, {"session", pre.Session}, {"calls", strings.Join(v.Calls, ", ")}, {"tool", pre.Tool},
		{"action", pre.Action}, {"resource kind", pre.Kind}, {"scope", pre.Scope}, {"from agent", pre.FromAgent}, {"to agent", pre.ToAgent}, {"mandate", pre.Mandate},
		{"asked by", strings.TrimSpace(pre.Policy + " " + strings.Join(pre.Reasons, ", "))}, {"message", pre.Message}, {"reviewers", strings.Join(v.ReviewerGroups, ", ")},
		{"expires", v.ExpiresAt.String()}, {"resume", v.ResumePolicy},
	} {
		if row[1] != "" {
			p.printf("  %-14s %s\n", row[0], clean(row[1], 200))
		}
	}
	if pre.Resource != nil {
		printItem(p, "resource", *pre.Resource)
	}
	for _, i := range pre.Arguments {
		printItem(p, "argument "+i.Path, i)
	}
	if pre.More > 0 {
		p.printf("  and %d more arguments\n", pre.More)
	}
	p.printf("  %-14s %s\n", "preview", v.PreviewDigest)
}

func printItem(p *printer, what string, i approval.Item) {
	text := i.Type
	if i.Size > 0 {
		text = fmt.Sprintf("%s of %d", i.Type, i.Size)
	}
	if i.Withheld {
		text = p.paint(faint, text+" (withheld)")
	} else {
		text = clean(i.Value, 250)
	}
	p.printf("  %s %s\n", fill(clean(what, 60), 28), text)
}
