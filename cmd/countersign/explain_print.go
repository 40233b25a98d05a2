package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
)

func printExplanation(p *printer, x *explanation, now time.Time) {
	d := x.Decision
	p.printf("%s  %s\n", p.paint(verdictColour[d.Verdict], p.paint(bold, clean(string(d.Verdict), 10))), clean(d.DecisionID, 60))
	age := now.Sub(d.DecidedAt.Time).Round(time.Second)
	p.row("decided", "%s (%s ago), sequence %d, request %s", d.DecidedAt.UTC().Format("2006-01-02 15:04:05.000Z"), age, x.Seq, requestSeq(x))
	p.row("asked by", "%s", joined(" ", "tenant "+d.Tenant, "source "+d.Source, named("agent", d.Agent), named("session", d.Session)))
	p.row("call", "%s", joined("  ", d.Protocol, or(d.Tool, "-"), named("call", d.ToolCallID), named("action", d.Action), named("on", d.ResourceKind), named("known as", d.CanonicalTool)))
	p.row("signature", "%s", signatureText(p, x.Signature))
	if t := x.Policies; t != nil {
		p.row("policies", "revision %d%s  %s", t.Revision, pushedBy(events.PolicySet{Author: t.Author, Message: t.Message, PushedAt: t.PushedAt}), clean(t.Digest, 80))
		if t.Error != "" {
			p.row("", "%s", p.paint(red, "did not compile: "+clean(t.Error, 400)))
		}
	}
	if m := d.Mandate; m != nil {
		p.row("mandate", "%s  %s", clean(m.ID, 120), clean(m.Hash, 80))
	}
	p.printf("%s\n", p.paint(bold, "why"))
	for _, r := range x.Reasons {
		printReason(p, r)
	}
	printInputs(p, d)
	if len(x.Approvals) > 0 || d.Approval != nil {
		printWorkflow(p, x)
	}
	printReplay(p, x.Replay, d.Verdict)
	printRequest(p, x)
}

// row prints a name and what it stands for.
func (p *printer) row(name, format string, args ...any) {
	p.printf("  %-10s %s\n", name, fmt.Sprintf(format, args...))
}

func named(name, value string) string {
	if value == "" {
		return ""
	}
	return name + " " + value
}

func joined(sep string, parts ...string) string {
	var list []string
	for _, part := range parts {
		if part != "" {
			list = append(list, clean(part, 120))
		}
	}
	return strings.Join(list, sep)
}

func requestSeq(x *explanation) string {
	if x.RequestSeq == 0 {
		return "not in the log"
	}
	return fmt.Sprint(x.RequestSeq)
}

func signatureText(p *printer, s signatureCheck) string {
	switch {
	case !s.Valid:
		return p.paint(red, "INVALID: "+clean(s.Problem, 200))
	case !s.Vouched:
		return p.paint(yellow, "holds, key "+clean(s.KeyID, 60)+"; "+clean(s.Problem, 200))
	}
	return p.paint(green, "holds") + ", key " + clean(s.KeyID, 60) + ", which the checkpoint key vouches for"
}

func printReason(p *printer, r reasonThen) {
	text := fmt.Sprintf("%s  %s", clean(r.Evaluator, 20), clean(r.Code, 64))
	if r.Path != "" {
		text += "  at " + clean(r.Path, 256)
	}
	if r.Action != "" {
		text += fmt.Sprintf("  (%s only: would be %s)", clean(r.Action, 10), clean(string(r.WouldVerdict), 10))
	}
	p.printf("  %s\n", text)
	if r.Rule == nil {
		if r.Policy != "" {
			p.printf("      policy %s\n", clean(r.Policy, 130))
		}
		return
	}
	p.printf("      %s\n", p.paint(faint, clean(fmt.Sprintf("rule %s (%s:%d) gives %s", r.Rule.ID(), r.Rule.File, r.Rule.Line, r.Rule.Verdict), 300)))
	p.printf("      when: %s\n", clean(r.Rule.When, 2_000))
	if r.Rule.Limit != "" {
		p.printf("      limit: %s\n", clean(r.Rule.Limit, 400))
	}
	if r.Rule.Message != "" {
		p.printf("      says: %s\n", clean(r.Rule.Message, 1_024))
	}
}

// printInputs prints what else was known. None of it is an argument.
func printInputs(p *printer, d events.Decision) {
	known := map[string]any{}
	if d.Inputs != nil {
		known["state"] = d.Inputs
	}
	if d.Publishers != nil {
		known["publishers"] = d.Publishers
	}
	if len(d.Counts) > 0 {
		known["counters"] = d.Counts
	}
	if len(known) == 0 {
		return
	}
	p.printf("%s\n", p.paint(bold, "what else was known"))
	for _, name := range []string{"state", "publishers", "counters"} {
		if v, there := known[name]; there {
			b, err := json.Marshal(v)
			if err == nil {
				p.row(name, "%s", clean(string(b), 2_000))
			}
		}
	}
}

func printWorkflow(p *printer, x *explanation) {
	p.printf("%s\n", p.paint(bold, "approval"))
	if a := x.Decision.Approval; a != nil {
		p.printf("  workflow %s, %s\n", clean(a.WorkflowID, 128), clean(a.Status, 20))
	}
	for _, a := range x.Approvals {
		p.printf("  %6d  %s %s\n", a.Seq, pad(a.Status, 9), joined("  ", named("by", a.Approver), a.Reason))
	}
}

func printReplay(p *printer, r replayed, recorded events.Verdict) {
	switch {
	case r.Same && r.Verdict != recorded:
		p.printf("%s\n", p.paint(green, fmt.Sprintf("replayed: same verdict and reasons; the approval workflow made %s of %s", recorded, r.Verdict)))
	case r.Same:
		p.printf("%s\n", p.paint(green, "replayed: same verdict and reasons"))
	case len(r.Cannot) > 0:
		p.printf("%s\n", p.paint(yellow, "cannot be replayed: "+clean(strings.Join(r.Cannot, "; "), 600)))
	default:
		p.printf("%s\n", p.paint(red, "replayed: DIFFERS"))
		for _, d := range r.Differences {
			p.printf("  %s\n", clean(d.String(), 600))
		}
	}
	p.printf("  digests: %s\n", r.Digests)
}

func printRequest(p *printer, x *explanation) {
	text := x.RawRequest
	if len(x.Request) > 0 {
		text = string(x.Request)
	}
	if text == "" {
		return
	}
	p.printf("%s\n%s\n", p.paint(bold, "request, with its raw arguments (do not pass it on)"), cleanLines(text))
}
