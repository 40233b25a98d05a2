package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// Columns of a timeline: sequence, others between, time, kind.
const (
	stepHead   = "%8d %6s  %s  %s  "
	stepIndent = 41
)

// printSession prints a session for display.
func printSession(p *ui.Printer, s evidencereader.Session, steps []step, tree *sessionTree) {
	first, last := steps[0].At, steps[len(steps)-1].At
	p.Printf("%s\n", p.Paint(ui.Bold, fmt.Sprintf("session %s of tenant %s", ui.Clean(s.Session, 80), ui.Clean(s.Tenant, 40))))
	p.Printf("  shard %s: %s, %s\n", ui.Clean(s.Shard, 80), ui.Plural(len(steps), "record"), overview(steps))
	p.Printf("  %s to %s UTC (%s)\n\n", first.UTC().Format("2006-01-02 15:04:05.000"), last.UTC().Format("2006-01-02 15:04:05.000"), ui.ShortDuration(last.Sub(first.Time)))
	if tree != nil {
		tree.print(p, s.Session)
	}
	p.Printf("%s\n", p.Paint(ui.Faint, fmt.Sprintf("%8s %6s  %-12s  %-9s", "seq", "others", "time (UTC)", "kind")))
	retracted := retractedFindings(steps)
	day := ""
	for _, st := range steps {
		if d := st.At.UTC().Format("2006-01-02"); d != day {
			if day != "" {
				p.Printf("%16s  %s\n", "", p.Paint(ui.Faint, d))
			}
			day = d
		}
		printStep(p, st, retracted)
	}
	p.Printf("\n")
}

func printStep(p *ui.Printer, st step, retracted map[findingID]bool) {
	if st.Missing > 0 {
		p.Printf("%16s  %s\n", "", p.Paint(ui.Red, fmt.Sprintf("%s of this session missing here: run countersign verify", ui.Plural(int(st.Missing), "record"))))
	}
	if pause := time.Duration(st.Pause * float64(time.Second)); pause >= pauseShown {
		p.Printf("%16s  %s\n", "", p.Paint(ui.Faint, "… "+ui.ShortDuration(pause)+" later"))
	}
	others := ""
	if st.Others > 0 {
		others = fmt.Sprintf("+%d", st.Others)
	}
	p.Printf(stepHead, st.Seq, others, p.Paint(ui.Faint, st.At.UTC().Format("15:04:05.000")), ui.Pad(st.Kind, 9))
	switch tell, known := tellers[st.Kind]; {
	case st.Expired != "":
		p.Printf("%s\n", p.Paint(ui.Yellow, ui.Clean(st.Expired, 160)))
	case st.Problem != "":
		p.Printf("%s\n", p.Paint(ui.Red, "not a record: run countersign verify"))
	case st.Reason != "":
		p.Printf("%s\n", p.Paint(ui.Yellow, "no body: "+ui.Clean(st.Reason, 60)+"; the bytes are in quarantine"))
	case !known:
		p.Printf("\n")
	default:
		tell(p, st, retracted)
	}
	if len(st.Redactions) > 0 {
		p.Wrapped(stepIndent, "", "redacted: "+redacted(st.Redactions), ui.Yellow)
	}
}

// tellers print a record of a kind: the rest of its line, and the lines below it.
var tellers = map[string]func(*ui.Printer, step, map[findingID]bool){
	evidence.KindRequest: tellEvent, evidence.KindEvent: tellEvent, evidence.KindDecision: tellDecision, evidence.KindCall: tellCall,
	evidence.KindFinding: tellFinding, evidence.KindApproval: tellApproval,
}

// decodeBody decodes a body. Members that do not fit stay empty.
func decodeBody[T any](p *ui.Printer, st step) (v T, ok bool) {
	if err := json.Unmarshal(st.Body, &v); err != nil {
		p.Printf("%s\n", p.Paint(ui.Yellow, "a body that does not read as one"))
		return v, false
	}
	return v, true
}

// told has the members that events of all protocols may have.
type told struct {
	EventType  string `json:"event_type"`
	Type       string `json:"type"`
	ToolName   string `json:"tool_name"`
	Tool       any    `json:"tool"`
	ToolCallID string `json:"tool_call_id"`
	Summary    string `json:"summary_normal"`
	Status     string `json:"status"`
	Decision   string `json:"decision"`
	Metadata   struct {
		ToolCallID string `json:"tool_call_id"`
		Execution  struct {
			Outcome string `json:"outcome"`
		} `json:"execution"`
	} `json:"metadata"`
}

func tellEvent(p *ui.Printer, st step, _ map[findingID]bool) {
	var e told
	_ = json.Unmarshal(st.Body, &e) // members of other types stay empty
	tool, _ := e.Tool.(string)
	kind := cmp.Or(e.EventType, cmp.Or(e.Type, subjectType(st.subject)))
	text := join("  ", kind, cmp.Or(e.ToolName, tool), cmp.Or(e.ToolCallID, e.Metadata.ToolCallID), cmp.Or(e.Metadata.Execution.Outcome, e.Status))
	p.Printf("%s\n", ui.Clean(text, max(p.Width()-stepIndent, ui.MinWidth)))
	p.Wrapped(stepIndent, "", e.Summary, ui.Faint)
}

// subjectType is the type at the end of a subject.
func subjectType(subj string) string {
	tokens := strings.SplitN(subj, ".", 7)
	return tokens[len(tokens)-1]
}

func tellDecision(p *ui.Printer, st step, _ map[findingID]bool) {
	d, ok := decodeBody[events.Decision](p, st)
	if !ok {
		return
	}
	text := join("  ", d.Tool, d.ToolCallID)
	if d.NativeVerdict != "" && d.NativeVerdict != string(d.Verdict) {
		text += "  (" + d.Protocol + ": " + d.NativeVerdict + ")"
	}
	p.Printf("%s  %s\n", p.Verdict(d), ui.Clean(text, 100))
	for _, r := range d.Reasons {
		p.Wrapped(stepIndent, "", reasonText(r), "")
	}
	if a := d.Approval; a != nil {
		p.Wrapped(stepIndent, "", "approval "+a.WorkflowID+" "+a.Status, ui.Yellow)
	}
	p.Wrapped(stepIndent, "", policyText(d), ui.Faint)
}

func reasonText(r events.Reason) string {
	text := r.Code + " (" + r.Evaluator
	for _, more := range []string{r.Policy, r.Path} {
		if more != "" {
			text += ", " + more
		}
	}
	text += ")"
	if r.Action != "" {
		text += fmt.Sprintf(", %s only: would have been %s", r.Action, r.WouldVerdict)
	}
	return text
}

func policyText(d events.Decision) string {
	text := "decision " + d.DecisionID
	if d.Policy != nil {
		text += fmt.Sprintf(", policy %s revision %d", cmp.Or(d.Policy.Name, "-"), d.Policy.Revision)
	}
	if d.Mandate != nil {
		text += ", mandate " + d.Mandate.ID
	}
	return text
}

func tellCall(p *ui.Printer, st step, _ map[findingID]bool) {
	c, ok := decodeBody[events.Call](p, st)
	if !ok {
		return
	}
	p.Printf("%s  %s\n", p.Paint(ui.StateColour[c.State], ui.Pad(string(c.State), 9)), ui.Clean(join("  ", c.Tool, callName(c), c.Outcome), 100))
	if c.Match != "" {
		p.Wrapped(stepIndent, "", join(": ", "admitted and executed arguments: "+c.Match, mismatch(c)), ui.MatchColour[c.Match])
	}
	for _, line := range linksOf(c) {
		p.Wrapped(stepIndent, "", line, ui.Faint)
	}
	decided, started, ran := durationsOf(c)
	var words []string
	if c.DecisionSeq > 0 && c.ExecutionSeq > 0 {
		words = append(words, order(c.DecisionSeq, c.ExecutionSeq))
	}
	for _, d := range []struct {
		what string
		long time.Duration
	}{{"decided in ", decided}, {"started after ", started}, {"ran ", ran}} {
		if d.long >= 0 {
			words = append(words, d.what+ui.ShortDuration(d.long))
		}
	}
	p.Wrapped(stepIndent, "", strings.Join(words, ", "), ui.Faint)
	p.Wrapped(stepIndent, "its producer says: ", claimText(c.Claimed), ui.Faint)
	if len(c.Findings) > 0 {
		p.Wrapped(stepIndent, "", "broke "+strings.Join(c.Findings, ", "), ui.Red)
	}
}

func order(decision, execution uint64) string {
	if decision < execution {
		return fmt.Sprintf("decided at %d, before it was said to have run at %d", decision, execution)
	}
	return fmt.Sprintf("decided at %d, AFTER it was said to have run at %d", decision, execution)
}

func tellFinding(p *ui.Printer, st step, retracted map[findingID]bool) {
	f, ok := decodeBody[events.Finding](p, st)
	if !ok {
		return
	}
	note := ""
	switch {
	case retracted[findingID{f.Rule, f.FindingID}]:
		note = "  " + p.Paint(ui.Yellow, "(taken back later)")
	case f.IsRetraction():
		note = "  " + p.Paint(ui.Yellow, "(takes an earlier one back)")
	}
	p.Printf("%s  %s%s\n", p.Paint(ui.SeverityColour[f.Severity], ui.Pad(string(f.Severity), 8)), p.Paint(ui.Bold, ui.Clean(f.Rule, 60)), note)
	p.Wrapped(stepIndent, "", f.Explanation, "")
	if len(f.Seqs) > 0 {
		p.Wrapped(stepIndent, "", "proved by "+ui.Sequences(f.Seqs), ui.Faint)
	}
	p.Wrapped(stepIndent, "do: ", f.Remedy, "")
}

func tellApproval(p *ui.Printer, st step, _ map[findingID]bool) {
	a, ok := decodeBody[events.Approval](p, st)
	if !ok {
		return
	}
	text := cmp.Or(a.Tool, a.ToolCallID)
	if a.Act != "" && a.Act != a.Status {
		text = a.Act + "  " + text
	}
	if a.Approver != "" {
		text += "  by " + a.Approver
	}
	p.Printf("%s  %s\n", p.Paint(approvalColour[a.Status], ui.Pad(a.Status, 9)), ui.Clean(text, 100))
	p.Wrapped(stepIndent, "", a.Reason, "")
	if a.Refused != "" {
		p.Wrapped(stepIndent, "refused: ", a.Refused, ui.Red)
	}
	p.Wrapped(stepIndent, "", "workflow "+a.WorkflowID, ui.Faint)
}

var approvalColour = map[string]string{"pending": ui.Yellow, "approved": ui.Green, "denied": ui.Red, "expired": ui.Red, "cancelled": ui.Yellow, "consumed": ui.Green}

// join joins the words that are not empty.
func join(sep string, words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), sep)
}

// redacted counts redactions by detector.
func redacted(list []evidence.Redaction) string {
	counts := map[string]int{}
	var names []string
	for _, r := range list {
		if counts[r.Detector]++; counts[r.Detector] == 1 {
			names = append(names, r.Detector)
		}
	}
	for i, n := range names {
		if counts[n] > 1 {
			names[i] = fmt.Sprintf("%s (%d)", n, counts[n])
		}
	}
	return strings.Join(names, ", ")
}

// findingID is what a retraction names a finding by, in one shard.
type findingID struct{ rule, id string }

// retractedFindings are the findings that a later one retracts.
func retractedFindings(steps []step) map[findingID]bool {
	list := map[findingID]bool{}
	for _, st := range steps {
		var f events.Finding
		if st.Kind == evidence.KindFinding && json.Unmarshal(st.Body, &f) == nil && f.IsRetraction() {
			list[findingID{f.Rule, f.Retracts}] = true
		}
	}
	return list
}

// overview counts decisions, calls and findings among the records that have their text.
func overview(steps []step) string {
	retracted := retractedFindings(steps)
	calls, findings, decisions, expired := map[string]bool{}, 0, 0, 0
	for _, st := range steps {
		if st.Expired != "" {
			expired++
			continue
		}
		switch st.Kind {
		case evidence.KindDecision:
			decisions++
		case evidence.KindCall:
			var c struct {
				CallID string `json:"call_id"`
			}
			_ = json.Unmarshal(st.Body, &c)
			calls[c.CallID] = true
		case evidence.KindFinding:
			var f events.Finding
			_ = json.Unmarshal(st.Body, &f)
			if !f.IsRetraction() && !retracted[findingID{f.Rule, f.FindingID}] {
				findings++
			}
		}
	}
	text := ui.Plural(decisions, "decision") + ", " + ui.Plural(len(calls), "call") + ", " + ui.Plural(findings, "finding")
	if expired > 0 {
		text += "; not counted: " + ui.Plural(expired, "expired record")
	}
	return text
}
