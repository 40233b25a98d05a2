package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// Columns of a timeline: sequence, others between, time, kind.
const (
	stepHead   = "%8d %6s  %s  %s  "
	stepIndent = 41
)

// printSession writes a session as people read it.
func printSession(p *printer, s evidencereader.Session, steps []step, kin *family) {
	first, last := steps[0].At, steps[len(steps)-1].At
	p.printf("%s\n", p.paint(bold, fmt.Sprintf("session %s of tenant %s", clean(s.Session, 80), clean(s.Tenant, 40))))
	p.printf("  shard %s: %s, %s\n", clean(s.Shard, 80), plural(len(steps), "record"), overview(steps))
	p.printf("  %s to %s UTC (%s)\n\n", first.UTC().Format("2006-01-02 15:04:05.000"), last.UTC().Format("2006-01-02 15:04:05.000"), short(last.Sub(first.Time)))
	if kin != nil {
		kin.print(p, s.Session)
	}
	p.printf("%s\n", p.paint(faint, fmt.Sprintf("%8s %6s  %-12s  %-9s", "seq", "others", "time (UTC)", "kind")))
	withdrawn := withdrawals(steps)
	day := ""
	for _, st := range steps {
		if d := st.At.UTC().Format("2006-01-02"); d != day {
			if day != "" {
				p.printf("%16s  %s\n", "", p.paint(faint, d))
			}
			day = d
		}
		printStep(p, st, withdrawn)
	}
	p.printf("\n")
}

func printStep(p *printer, st step, withdrawn map[string]bool) {
	if st.Missing > 0 {
		p.printf("%16s  %s\n", "", p.paint(red, fmt.Sprintf("%s of this session missing here: run countersign verify", plural(int(st.Missing), "record"))))
	}
	if pause := time.Duration(st.Pause * float64(time.Second)); pause >= pauseShown {
		p.printf("%16s  %s\n", "", p.paint(faint, "… "+short(pause)+" later"))
	}
	others := ""
	if st.Others > 0 {
		others = fmt.Sprintf("+%d", st.Others)
	}
	p.printf(stepHead, st.Seq, others, p.paint(faint, st.At.UTC().Format("15:04:05.000")), pad(st.Kind, 9))
	switch tell, known := tellers[st.Kind]; {
	case st.Expired != "":
		p.printf("%s\n", p.paint(yellow, clean(st.Expired, 160)))
	case st.Problem != "":
		p.printf("%s\n", p.paint(red, "not a record: run countersign verify"))
	case st.Reason != "":
		p.printf("%s\n", p.paint(yellow, "no body: "+clean(st.Reason, 60)+"; the bytes are in quarantine"))
	case !known:
		p.printf("\n")
	default:
		tell(p, st, withdrawn)
	}
	if len(st.Redactions) > 0 {
		p.wrapped(stepIndent, "", "redacted: "+redacted(st.Redactions), yellow)
	}
}

// tellers write what a record of a kind says: the rest of its line, and lines
// below it.
var tellers = map[string]func(*printer, step, map[string]bool){
	evidence.KindRequest: tellEvent, evidence.KindEvent: tellEvent, evidence.KindDecision: tellDecision, evidence.KindCall: tellCall,
	evidence.KindFinding: tellFinding, evidence.KindApproval: tellApproval,
}

// read decodes a body; what does not fit stays empty.
func read[T any](p *printer, st step) (v T, ok bool) {
	if err := json.Unmarshal(st.Body, &v); err != nil {
		p.printf("%s\n", p.paint(yellow, "a body that does not read as one"))
		return v, false
	}
	return v, true
}

// told is what events of all protocols may have.
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

func tellEvent(p *printer, st step, _ map[string]bool) {
	var e told
	_ = json.Unmarshal(st.Body, &e) // members of another type stay empty
	tool, _ := e.Tool.(string)
	kind := or(e.EventType, or(e.Type, subjectType(st.subject)))
	text := join("  ", kind, or(e.ToolName, tool), or(e.ToolCallID, e.Metadata.ToolCallID), or(e.Metadata.Execution.Outcome, e.Status))
	p.printf("%s\n", clean(text, max(p.width()-stepIndent, minWidth)))
	p.wrapped(stepIndent, "", e.Summary, faint)
}

// subjectType is the type that a subject ends in.
func subjectType(subj string) string {
	tokens := strings.SplitN(subj, ".", 7)
	return tokens[len(tokens)-1]
}

func tellDecision(p *printer, st step, _ map[string]bool) {
	d, ok := read[events.Decision](p, st)
	if !ok {
		return
	}
	text := join("  ", d.Tool, d.ToolCallID)
	if d.NativeVerdict != "" && d.NativeVerdict != string(d.Verdict) {
		text += "  (" + d.Protocol + ": " + d.NativeVerdict + ")"
	}
	p.printf("%s  %s\n", p.paint(verdictColour[d.Verdict], pad(string(d.Verdict), 5)), clean(text, 100))
	for _, r := range d.Reasons {
		p.wrapped(stepIndent, "", reasonText(r), "")
	}
	if a := d.Approval; a != nil {
		p.wrapped(stepIndent, "", "approval "+a.WorkflowID+" "+a.Status, yellow)
	}
	p.wrapped(stepIndent, "", policyText(d), faint)
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
		text += fmt.Sprintf(", policy %s revision %d", or(d.Policy.Name, "-"), d.Policy.Revision)
	}
	if d.Mandate != nil {
		text += ", mandate " + d.Mandate.ID
	}
	return text
}

func tellCall(p *printer, st step, _ map[string]bool) {
	c, ok := read[events.Call](p, st)
	if !ok {
		return
	}
	p.printf("%s  %s\n", p.paint(stateColour[c.State], pad(string(c.State), 9)), clean(join("  ", c.Tool, callName(c), c.Outcome), 100))
	if c.Match != "" {
		p.wrapped(stepIndent, "", join(": ", "admitted and executed arguments: "+c.Match, mismatch(c)), matchColour[c.Match])
	}
	for _, line := range linksOf(c) {
		p.wrapped(stepIndent, "", line, faint)
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
			words = append(words, d.what+short(d.long))
		}
	}
	p.wrapped(stepIndent, "", strings.Join(words, ", "), faint)
	p.wrapped(stepIndent, "its producer says: ", claimText(c.Claimed), faint)
	if len(c.Findings) > 0 {
		p.wrapped(stepIndent, "", "broke "+strings.Join(c.Findings, ", "), red)
	}
}

func order(decision, execution uint64) string {
	if decision < execution {
		return fmt.Sprintf("decided at %d, before it was said to have run at %d", decision, execution)
	}
	return fmt.Sprintf("decided at %d, AFTER it was said to have run at %d", decision, execution)
}

func tellFinding(p *printer, st step, withdrawn map[string]bool) {
	f, ok := read[events.Finding](p, st)
	if !ok {
		return
	}
	note := ""
	switch {
	case withdrawn[f.FindingID]:
		note = "  " + p.paint(yellow, "(taken back later)")
	case f.Retracts != "":
		note = "  " + p.paint(yellow, "(takes an earlier one back)")
	}
	p.printf("%s  %s%s\n", p.paint(severityColour[f.Severity], pad(string(f.Severity), 8)), p.paint(bold, clean(f.Rule, 60)), note)
	p.wrapped(stepIndent, "", f.Explanation, "")
	if len(f.Seqs) > 0 {
		p.wrapped(stepIndent, "", "proved by "+sequences(f.Seqs), faint)
	}
	p.wrapped(stepIndent, "do: ", f.Remedy, "")
}

func tellApproval(p *printer, st step, _ map[string]bool) {
	a, ok := read[events.Approval](p, st)
	if !ok {
		return
	}
	text := or(a.Tool, a.ToolCallID)
	if a.Act != "" && a.Act != a.Status {
		text = a.Act + "  " + text
	}
	if a.Approver != "" {
		text += "  by " + a.Approver
	}
	p.printf("%s  %s\n", p.paint(approvalColour[a.Status], pad(a.Status, 9)), clean(text, 100))
	p.wrapped(stepIndent, "", a.Reason, "")
	if a.Refused != "" {
		p.wrapped(stepIndent, "refused: ", a.Refused, red)
	}
	p.wrapped(stepIndent, "", "workflow "+a.WorkflowID, faint)
}

var approvalColour = map[string]string{"pending": yellow, "approved": green, "denied": red, "expired": red, "cancelled": yellow, "consumed": green}

// join is what there is, with a separator between.
func join(sep string, words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), sep)
}

// redacted counts by detector.
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
