package policycmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

func printExplanation(p *ui.Printer, x *explanation, now time.Time) {
	d := x.Decision
	p.Printf("%s  %s\n", p.Paint(ui.Bold, p.Verdict(d)), ui.Clean(d.DecisionID, 60))
	if d.Mode != "" {
		printRow(p, "mode", "%s", modeText(d))
	}
	age := now.Sub(d.DecidedAt.Time).Round(time.Second)
	printRow(p, "decided", "%s (%s ago), sequence %d, request %s", d.DecidedAt.UTC().Format("2006-01-02 15:04:05.000Z"), age, x.Seq, requestSeq(x))
	printRow(p, "asked by", "%s", joined(" ", "tenant "+d.Tenant, "source "+d.Source, named("agent", d.Agent), named("session", d.Session)))
	printRow(p, "call", "%s", joined("  ", d.Protocol, cmp.Or(d.Tool, "-"), named("call", d.ToolCallID), named("action", d.Action), named("on", d.ResourceKind), named("known as", d.CanonicalTool)))
	printRow(p, "signature", "%s", signatureText(p, x.Signature))
	if t := x.Policies; t != nil {
		printRow(p, "policies", "revision %d%s  %s", t.Revision, pushedBy(events.PolicySet{Author: t.Author, Message: t.Message, PushedAt: t.PushedAt}), ui.Clean(t.Digest, 80))
		if t.Error != "" {
			printRow(p, "", "%s", p.Paint(ui.Red, "did not compile: "+ui.Clean(t.Error, 400)))
		}
	}
	if m := d.Mandate; m != nil {
		printRow(p, "mandate", "%s  %s", ui.Clean(m.ID, 120), ui.Clean(m.Hash, 80))
	}
	p.Printf("%s\n", p.Paint(ui.Bold, "why"))
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

// modeText says what mode observe means for a decision.
func modeText(d events.Decision) string {
	mode := ui.Clean(d.Mode, 20)
	switch {
	case d.ObservedOnly():
		return fmt.Sprintf("%s: the policies were not enforced; they would have given %s", mode, ui.Clean(string(d.Would), 10))
	case d.Would != "":
		return mode + ": enforced policies would have given the same verdict"
	}
	return mode + ": the verdict is none of the policies' and is enforced in every mode"
}

// printRow prints a name and its value.
func printRow(p *ui.Printer, name, format string, args ...any) {
	p.Printf("  %-10s %s\n", name, fmt.Sprintf(format, args...))
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
			list = append(list, ui.Clean(part, 120))
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

func signatureText(p *ui.Printer, s signatureCheck) string {
	switch {
	case !s.Valid:
		return p.Paint(ui.Red, "INVALID: "+ui.Clean(s.Problem, 200))
	case !s.Vouched:
		return p.Paint(ui.Yellow, "holds, key "+ui.Clean(s.KeyID, 60)+"; "+ui.Clean(s.Problem, 200))
	}
	return p.Paint(ui.Green, "holds") + ", key " + ui.Clean(s.KeyID, 60) + ", which the checkpoint key vouches for"
}

func printReason(p *ui.Printer, r reasonThen) {
	text := fmt.Sprintf("%s  %s", ui.Clean(r.Evaluator, 20), ui.Clean(r.Code, 64))
	if r.Path != "" {
		text += "  at " + ui.Clean(r.Path, 256)
	}
	if r.Action != "" {
		text += fmt.Sprintf("  (%s only: would be %s)", ui.Clean(r.Action, 10), ui.Clean(string(r.WouldVerdict), 10))
	}
	p.Printf("  %s\n", text)
	if r.Rule == nil {
		if r.Policy != "" {
			p.Printf("      policy %s\n", ui.Clean(r.Policy, 130))
		}
		return
	}
	p.Printf("      %s\n", p.Paint(ui.Faint, ui.Clean(fmt.Sprintf("rule %s (%s:%d) gives %s", r.Rule.ID(), r.Rule.File, r.Rule.Line, r.Rule.Verdict), 300)))
	p.Printf("      when: %s\n", ui.Clean(r.Rule.When, 2_000))
	if r.Rule.Limit != "" {
		p.Printf("      limit: %s\n", ui.Clean(r.Rule.Limit, 400))
	}
	if r.Rule.Message != "" {
		p.Printf("      says: %s\n", ui.Clean(r.Rule.Message, 1_024))
	}
}

// printInputs prints the other inputs of the decision. None of them is an argument.
func printInputs(p *ui.Printer, d events.Decision) {
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
	p.Printf("%s\n", p.Paint(ui.Bold, "what else was known"))
	for _, name := range []string{"state", "publishers", "counters"} {
		if v, there := known[name]; there {
			b, err := json.Marshal(v)
			if err == nil {
				printRow(p, name, "%s", ui.Clean(string(b), 2_000))
			}
		}
	}
}

func printWorkflow(p *ui.Printer, x *explanation) {
	p.Printf("%s\n", p.Paint(ui.Bold, "approval"))
	if a := x.Decision.Approval; a != nil {
		p.Printf("  workflow %s, %s\n", ui.Clean(a.WorkflowID, 128), ui.Clean(a.Status, 20))
	}
	for _, a := range x.Approvals {
		p.Printf("  %6d  %s %s\n", a.Seq, ui.Pad(a.Status, 9), joined("  ", named("by", a.Approver), a.Reason))
	}
}

func printReplay(p *ui.Printer, r replayed, recorded events.Verdict) {
	switch {
	case r.Same && r.Verdict != recorded:
		p.Printf("%s\n", p.Paint(ui.Green, fmt.Sprintf("replayed: same verdict and reasons; the approval workflow made %s of %s", recorded, r.Verdict)))
	case r.Same:
		p.Printf("%s\n", p.Paint(ui.Green, "replayed: same verdict and reasons"))
	case len(r.Cannot) > 0:
		p.Printf("%s\n", p.Paint(ui.Yellow, "cannot be replayed: "+ui.Clean(strings.Join(r.Cannot, "; "), 600)))
	default:
		p.Printf("%s\n", p.Paint(ui.Red, "replayed: DIFFERS"))
		for _, d := range r.Differences {
			p.Printf("  %s\n", ui.Clean(d.String(), 600))
		}
	}
	p.Printf("  digests: %s\n", r.Digests)
}

func printRequest(p *ui.Printer, x *explanation) {
	text := x.RawRequest
	if len(x.Request) > 0 {
		text = string(x.Request)
	}
	if text == "" {
		return
	}
	p.Printf("%s\n%s\n", p.Paint(ui.Bold, "request, with its raw arguments (do not pass it on)"), ui.CleanLines(text))
}
