package format

import (
	"cmp"
	"strconv"
	"strings"
	"unicode"

	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
)

// newCEF makes the encoder of ArcSight's Common Event Format, version 0: a header of seven fields and
// an extension of key=value pairs. A line is one event, without the syslog header that a transport
// adds.
func newCEF(w *encode.Writer) encode.Encoder {
	c := cefWriter{w}
	return siemEncoder{w, c.writeDecision, c.writeCall, c.writeApproval, c.writeFinding}
}

type cefWriter struct{ w *encode.Writer }

// cefEvent is one event before it is formatted.
type cefEvent struct {
	signature, name string
	severity        int
	pairs           []string // key, value, key, value; empty values are omitted
}

// cefHeader escapes a field of the header: a pipe ends it, and it has no line breaks.
var cefHeader = strings.NewReplacer(`\`, `\\`, `|`, `\|`, "\r\n", " ", "\n", " ", "\r", " ")

// cefValue escapes a value of the extension: the next key= ends it, and its line breaks are written as
// \n and \r.
var cefValue = strings.NewReplacer(`\`, `\\`, `=`, `\=`, "\n", `\n`, "\r", `\r`)

// cefText makes a text safe for a line: UTF-8, without control characters except line breaks, and
// without what is not seen as itself: separators that some readers treat as the end of a line,
// directional overrides, characters that are drawn as nothing.
func cefText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r':
			return r
		case !unicode.IsPrint(r) || names.IsInvisible(r):
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// formatLine formats the event.
func (e cefEvent) formatLine(version string) string {
	var b strings.Builder
	b.WriteString("CEF:0")
	for _, field := range []string{"Countersign", "Countersign", version, e.signature, e.name, strconv.Itoa(e.severity)} {
		b.WriteByte('|')
		b.WriteString(cefHeader.Replace(cefText(field)))
	}
	sep := "|"
	for i := 0; i+1 < len(e.pairs); i += 2 {
		if e.pairs[i+1] == "" {
			continue
		}
		// Readers trim blanks at the ends of a value.
		value := strings.Trim(cefText(e.pairs[i+1]), " ")
		b.WriteString(sep + e.pairs[i] + "=" + cefValue.Replace(value))
		sep = " "
	}
	if sep == "|" {
		b.WriteString(sep)
	}
	return b.String()
}

func (c cefWriter) writeEvent(i encode.Item, e cefEvent) error {
	r := i.Record
	p := encode.ProofOf(i, "")
	e.pairs = append([]string{"rt", strconv.FormatInt(r.BrokerTime.UnixMilli(), 10)}, e.pairs...)
	e.pairs = append(e.pairs, "cs1Label", "tenant", "cs1", r.Tenant)
	if r.Session != "" {
		e.pairs = append(e.pairs, "cs2Label", "session", "cs2", encode.SafeName(r.Session))
	}
	e.pairs = append(e.pairs, "cs3Label", "evidence", "cs3", p.Shard+"/"+encode.FormatUint(p.Seq)+" "+p.RecordHash)
	return c.w.WriteLine([]byte(e.formatLine(c.w.Version)))
}

// labelledField is a custom field with its label, or nil if it has no value.
func labelledField(field, label, value string) []string {
	if value == "" {
		return nil
	}
	return []string{field + "Label", label, field, value}
}

func (c cefWriter) writeDecision(i encode.Item, d events.Decision) error {
	e := cefEvent{"decision." + string(d.Verdict), "Tool call: " + string(d.Verdict), gradeOf(verdictGrades, d.Verdict).cef, []string{
		"act", string(d.Verdict), "outcome", cmp.Or(cefOutcomes[d.Verdict], "failure"), "reason", strings.Join(encode.DecidingCodes(d), " "), "externalId", d.DecisionID,
		"app", d.Protocol, "sproc", cmp.Or(d.Tool, d.Action), "suser", d.Agent, "shost", d.Source,
	}}
	e.pairs = append(e.pairs, labelledField("cs4", "tool call", d.ToolCallID)...)
	if d.Policy != nil {
		e.pairs = append(e.pairs, labelledField("cs5", "policy", d.Policy.Name)...)
	}
	e.pairs = append(e.pairs, labelledField("cs6", "verdict if enforced", observedVerdict(d))...)
	return c.writeEvent(i, e)
}

var cefOutcomes = map[events.Verdict]string{events.Allow: "success", events.Ask: "pending", events.Defer: "pending", events.Deny: "failure"}

func (c cefWriter) writeCall(i encode.Item, call events.Call) error {
	begin, end := callSpan(call)
	e := cefEvent{"call." + string(call.State), "Tool call " + string(call.State), gradeOf(stateGrades, call.State).cef, []string{
		"act", string(call.Verdict), "outcome", call.Outcome, "reason", strings.Join(call.Findings, " "), "externalId", call.CallID, "app", call.Protocol,
		"sproc", call.Tool, "suser", call.Agent, "shost", call.Source, "start", unixMilliseconds(begin), "end", unixMilliseconds(end),
	}}
	e.pairs = append(e.pairs, labelledField("cs4", "tool call", call.ToolCallID)...)
	return c.writeEvent(i, e)
}

func unixMilliseconds(t events.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

func (c cefWriter) writeApproval(i encode.Item, a events.Approval) error {
	act := cmp.Or(a.Act, a.Status)
	e := cefEvent{"approval." + act, "Approval: " + act, approvalGrade.cef, []string{
		"act", act, "outcome", a.Status, "reason", a.Refused, "externalId", a.WorkflowID, "sproc", a.Tool, "suser", a.Approver, "shost", a.Source,
	}}
	e.pairs = append(e.pairs, labelledField("cs4", "tool call", a.ToolCallID)...)
	return c.writeEvent(i, e)
}

func (c cefWriter) writeFinding(i encode.Item, f events.Finding) error {
	name := "Finding: " + f.Rule
	if f.Retracts != "" {
		name = "Finding retracted: " + f.Rule
	}
	e := cefEvent{"finding." + f.Rule, name, gradeOf(findingGrades, f.Severity).cef, []string{
		"cat", string(f.Severity), "externalId", f.FindingID, "msg", f.Explanation, "shost", f.Source,
	}}
	e.pairs = append(e.pairs, labelledField("cs4", "tool call", f.ToolCallID)...)
	e.pairs = append(e.pairs, labelledField("cs5", "withdraws", f.Retracts)...)
	return c.writeEvent(i, e)
}
