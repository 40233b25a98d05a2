package report

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// timelineRow is one record.
type timelineRow struct {
	Seq            uint64
	Time, ISO      string
	Kind, What     string
	Detail, Policy string
	Label          string // a verdict, state or severity, with a look of its own
	Redacted       int
}

type decisionRow struct {
	Seq                         uint64
	Time, ISO                   string
	Verdict                     string
	Tool, Call, Agent, Protocol string
	Reasons                     []reasonRow
	Policy, Mandate, Workflow   string
	ID, Digest                  string
}

type reasonRow struct{ Code, Evaluator, Policy, Path, Note string }

type approvalRow struct {
	Seq                                      uint64
	Time, ISO                                string
	Workflow, Act, Status, Who, Tool, Reason string
	Saw, Action, Expires                     string
}

type findingRow struct {
	Seq                              uint64
	ID, Withdraws                    string
	Rule, Severity, Explanation, Fix string
	Meaning                          string // of the rule, from the catalogue
	Seqs                             string
	Enforced, Withdrawn              bool
}

// read takes a record apart into the page's tables and gives its row of the
// timeline.
func (b *Builder) read(r evidence.Record) timelineRow {
	row := timelineRow{Seq: r.Seq, Time: when(r.BrokerTime), ISO: r.BrokerTime.String(), Kind: kindWord(r.Kind), Redacted: len(r.Redactions)}
	if r.Reason != "" {
		row.What, row.Detail = "no body in the evidence", "reason: "+short(r.Reason)
		return row
	}
	if f := readers[r.Kind]; f != nil {
		f(b, r, &row)
	}
	return row
}

var readers = map[string]func(*Builder, evidence.Record, *timelineRow){
	evidence.KindRequest:  (*Builder).event,
	evidence.KindEvent:    (*Builder).event,
	evidence.KindDecision: (*Builder).decision,
	evidence.KindCall:     (*Builder).call,
	evidence.KindFinding:  (*Builder).finding,
	evidence.KindApproval: (*Builder).approval,
	evidence.KindControl:  (*Builder).control,
}

var kindWords = map[string]string{evidence.KindCall: "execution", evidence.KindUnparseable: "unreadable"}

func kindWord(kind string) string {
	if word, known := kindWords[kind]; known {
		return word
	}
	return short(kind)
}

// event reads a producer's event, of which only names and identifiers are shown.
func (b *Builder) event(r evidence.Record, row *timelineRow) {
	var e struct {
		EventType  string `json:"event_type"`
		Type       string `json:"type"`
		ToolName   string `json:"tool_name"`
		Tool       string `json:"tool"`
		ToolCallID string `json:"tool_call_id"`
		AgentID    string `json:"agent_id"`
		Metadata   struct {
			ToolCallID string `json:"tool_call_id"`
		} `json:"metadata"`
		Producer struct {
			AgentID string `json:"agent_id"`
		} `json:"producer"`
	}
	_ = json.Unmarshal(r.Body, &e) // members of other types are left empty
	p, _ := b.src.Space.Parse(r.Subject)
	b.agents.add(short(or(e.AgentID, e.Producer.AgentID)))
	b.sources.add(short(p.Publisher))
	b.protocols.add(short(p.Protocol))
	row.What = short(or(e.EventType, e.Type, p.Type))
	if r.Kind == evidence.KindRequest {
		row.What = "asked for admission: " + row.What
	}
	row.Detail = facts("tool", or(e.ToolName, e.Tool), "call", or(e.Metadata.ToolCallID, e.ToolCallID), "protocol", p.Protocol, "from", p.Publisher)
	b.complete.event(r, p)
}

// facts joins names and values, leaving out the empty ones.
func facts(pairs ...string) string {
	var out []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, pairs[i]+" "+short(pairs[i+1]))
		}
	}
	return strings.Join(out, " · ")
}

func (b *Builder) decision(r evidence.Record, row *timelineRow) {
	d, err := events.DecodeRecord[events.Decision](r.Body)
	if err != nil {
		row.What = "does not read as a decision"
		return
	}
	b.verdicts[d.Verdict]++
	b.agents.add(short(d.Agent))
	b.sources.add(short(d.Source))
	b.protocols.add(short(d.Protocol))
	b.policies.add(d)
	out := decisionRow{Seq: r.Seq, Time: row.Time, ISO: row.ISO, Verdict: short(string(d.Verdict)), Tool: short(or(d.Tool, d.Action)), Call: short(d.ToolCallID),
		Agent: short(or(d.Agent, d.Source)), Protocol: short(d.Protocol), ID: short(d.DecisionID), Digest: digest(d.ArgsDigest)}
	for i, reason := range d.Reasons {
		if i == 12 {
			out.Reasons = append(out.Reasons, reasonRow{Code: fmt.Sprintf("and %d more", len(d.Reasons)-i)})
			break
		}
		out.Reasons = append(out.Reasons, reasonOf(reason))
	}
	if d.Policy != nil {
		out.Policy = fmt.Sprintf("%s, revision %d", short(d.Policy.Name), d.Policy.Revision)
	}
	if d.Mandate != nil {
		out.Mandate = short(d.Mandate.ID)
	}
	if d.Approval != nil {
		out.Workflow = short(d.Approval.WorkflowID)
	}
	b.decisions.add(out)
	row.What, row.Label, row.Policy = "verdict", out.Verdict, out.Policy
	row.Detail = facts("tool", d.Tool, "call", d.ToolCallID)
	if len(out.Reasons) > 0 {
		row.Detail += " · because " + out.Reasons[0].Code
	}
}

func reasonOf(r events.Reason) reasonRow {
	out := reasonRow{Code: short(r.Code), Evaluator: short(r.Evaluator), Policy: short(r.Policy), Path: short(r.Path)}
	if r.Action != "" {
		out.Note = "only " + short(r.Action) + "s: has no part in the verdict"
		if r.Would != "" {
			out.Note += ", would be " + short(string(r.Would))
		}
	}
	return out
}

func (b *Builder) finding(r evidence.Record, row *timelineRow) {
	f, err := events.DecodeRecord[events.Finding](r.Body)
	if err != nil {
		row.What = "does not read as a finding"
		return
	}
	out := findingRow{Seq: r.Seq, ID: f.FindingID, Withdraws: f.Withdraws, Rule: short(f.Rule), Severity: short(string(f.Severity)), Explanation: long(f.Explanation),
		Fix: long(f.Remedy), Enforced: f.Enforced}
	meaning, fix := ruleText(f.Rule)
	out.Meaning, out.Fix = meaning, or(out.Fix, fix)
	for i, s := range f.Seqs {
		if i == 12 {
			out.Seqs += " …"
			break
		}
		out.Seqs += fmt.Sprintf(" %d", s)
	}
	out.Seqs = strings.TrimSpace(out.Seqs)
	b.findings.add(out)
	b.glance.finding(f)
	row.What, row.Label, row.Detail = short(f.Rule), out.Severity, Visible(f.Explanation, 160)
	if f.Withdraws != "" {
		row.What = "finding withdrawn: " + row.What
	}
}

// ruleText says what a rule is about and what its finding asks for.
func ruleText(rule string) (meaning, fix string) {
	for _, r := range correlation.Rules() {
		if r.Name == rule {
			return "", r.Remedy // its findings explain themselves
		}
	}
	for _, c := range catalogue.All() {
		if c.ID == rule {
			return c.Explanation, c.Remedy
		}
	}
	return "", ""
}

func (b *Builder) approval(r evidence.Record, row *timelineRow) {
	a, err := events.DecodeRecord[events.Approval](r.Body)
	if err != nil {
		row.What = "does not read as an approval"
		return
	}
	out := approvalRow{Seq: r.Seq, Time: row.Time, ISO: row.ISO, Workflow: short(a.WorkflowID), Act: short(or(a.Act, a.Status)), Status: short(a.Status),
		Who: short(a.Approver), Tool: short(a.Tool), Reason: long(a.Reason), Saw: digest(a.PreviewDigest), Action: digest(a.ActionDigest), Expires: when(a.ExpiresAt)}
	if a.Refused != "" {
		out.Reason = strings.TrimSpace("refused: " + short(a.Refused) + " " + out.Reason)
	}
	b.approvals.add(out)
	b.glance.approval(a)
	row.What, row.Label = "approval: "+out.Act, out.Status
	row.Detail = facts("workflow", a.WorkflowID, "by", a.Approver, "tool", a.Tool)
}

func (b *Builder) control(r evidence.Record, row *timelineRow) {
	p, _ := b.src.Space.Parse(r.Subject)
	row.What = "change or state of the pipeline: " + short(or(p.Kind, "unknown"))
}

// publisherOf is the publisher whose event a record is.
func publisherOf(p subject.Parsed) string { return short(p.Publisher) }
