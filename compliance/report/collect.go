package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/compliance/internal/protocol"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// timelineRow is one record in the timeline.
type timelineRow struct {
	Seq            uint64
	Time, ISO      string
	Kind, What     string
	Detail, Policy string
	Label          string // a verdict, state or severity, with its own style
	Redacted       int
}

type decisionRow struct {
	Seq                         uint64
	Time, ISO                   string
	Verdict, Observed           string
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
	id                               findingID
	Rule, Severity, Explanation, Fix string
	Meaning                          string // of the rule, from the catalogue
	Seqs                             string
	Enforced, Retracts, Retracted    bool
}

// findingID is what a retraction names a finding by, beside the shard.
type findingID struct{ rule, id string }

// readRecord adds a record to the page's tables and returns its row of the timeline.
func (b *Builder) readRecord(r evidence.Record) timelineRow {
	row := timelineRow{Seq: r.Seq, Time: formatEventTime(r.BrokerTime), ISO: r.BrokerTime.String(), Kind: kindWord(r.Kind), Redacted: len(r.Redactions)}
	if r.Reason != "" {
		row.What, row.Detail = "no body in the evidence", "reason: "+shortVisible(r.Reason)
		return row
	}
	if f := recordReaders[r.Kind]; f != nil {
		f(b, r, &row)
	}
	return row
}

var recordReaders = map[string]func(*Builder, evidence.Record, *timelineRow){
	evidence.KindRequest:  (*Builder).addEvent,
	evidence.KindEvent:    (*Builder).addEvent,
	evidence.KindDecision: (*Builder).addDecision,
	evidence.KindCall:     (*Builder).addCall,
	evidence.KindFinding:  (*Builder).addFinding,
	evidence.KindApproval: (*Builder).addApproval,
	evidence.KindControl:  (*Builder).addControl,
}

var kindWords = map[string]string{evidence.KindCall: "execution", evidence.KindUnparseable: "unreadable"}

func kindWord(kind string) string {
	if word, known := kindWords[kind]; known {
		return word
	}
	return shortVisible(kind)
}

// addEvent reads a producer's event. The page shows only names and identifiers of it.
func (b *Builder) addEvent(r evidence.Record, row *timelineRow) {
	p, _ := b.src.Space.Parse(r.Subject)
	e := protocol.Of(p.Protocol).Summarize(r.Body)
	b.agents.add(shortVisible(e.Agent))
	b.sources.add(shortVisible(p.Publisher))
	b.protocols.add(shortVisible(p.Protocol))
	row.What = shortVisible(cmp.Or(e.Type, p.Type))
	if r.Kind == evidence.KindRequest {
		row.What = "asked for admission: " + row.What
	}
	row.Detail = joinNonEmpty("tool", e.Tool, "call", e.Call, "protocol", p.Protocol, "from", p.Publisher)
	b.chainCheck.addSessionEnd(r, p)
}

// joinNonEmpty joins names and values, without the empty ones.
func joinNonEmpty(pairs ...string) string {
	var out []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, pairs[i]+" "+shortVisible(pairs[i+1]))
		}
	}
	return strings.Join(out, " · ")
}

func (b *Builder) addDecision(r evidence.Record, row *timelineRow) {
	d, err := events.DecodeRecord[events.Decision](r.Body)
	if err != nil {
		row.What = "does not read as a decision"
		return
	}
	b.verdicts[d.Verdict]++
	if d.ObservedOnly() {
		b.observed++
	}
	b.agents.add(shortVisible(d.Agent))
	b.sources.add(shortVisible(d.Source))
	b.protocols.add(shortVisible(d.Protocol))
	b.policies.addDecision(d)
	out := decisionRow{Seq: r.Seq, Time: row.Time, ISO: row.ISO, Verdict: shortVisible(string(d.Verdict)), Observed: observedText(d), Tool: shortVisible(cmp.Or(d.Tool, d.Action)), Call: shortVisible(d.ToolCallID),
		Agent: shortVisible(cmp.Or(d.Agent, d.Source)), Protocol: shortVisible(d.Protocol), ID: shortVisible(d.DecisionID), Digest: shortDigest(d.ArgsDigest)}
	for i, reason := range d.Reasons {
		if i == 12 {
			out.Reasons = append(out.Reasons, reasonRow{Code: fmt.Sprintf("and %d more", len(d.Reasons)-i)})
			break
		}
		out.Reasons = append(out.Reasons, reasonOf(reason))
	}
	if d.Policy != nil {
		out.Policy = fmt.Sprintf("%s, revision %d", shortVisible(d.Policy.Name), d.Policy.Revision)
	}
	if d.Mandate != nil {
		out.Mandate = shortVisible(d.Mandate.ID)
	}
	if d.Approval != nil {
		out.Workflow = shortVisible(d.Approval.WorkflowID)
	}
	b.decisions.add(out)
	row.What, row.Label, row.Policy = "verdict", out.Verdict, out.Policy
	row.Detail = joinNonEmpty("tool", d.Tool, "call", d.ToolCallID)
	if out.Observed != "" {
		row.Detail += " · " + out.Observed
	}
	if len(out.Reasons) > 0 {
		row.Detail += " · because " + out.Reasons[0].Code
	}
}

// observedText is what enforced policies would have given where a decision differs from it.
func observedText(d events.Decision) string {
	if !d.ObservedOnly() {
		return ""
	}
	return "only observed: would be " + shortVisible(string(d.EnforcedVerdict()))
}

func reasonOf(r events.Reason) reasonRow {
	out := reasonRow{Code: shortVisible(r.Code), Evaluator: shortVisible(r.Evaluator), Policy: shortVisible(r.Policy), Path: shortVisible(r.Path)}
	if r.Action != "" {
		out.Note = "only " + shortVisible(r.Action) + "s: has no part in the verdict"
		if r.WouldVerdict != "" {
			out.Note += ", would be " + shortVisible(string(r.WouldVerdict))
		}
	}
	return out
}

func (b *Builder) addFinding(r evidence.Record, row *timelineRow) {
	f, err := events.DecodeRecord[events.Finding](r.Body)
	if err != nil {
		row.What = "does not read as a finding"
		return
	}
	out := findingRow{Seq: r.Seq, id: findingID{f.Rule, f.FindingID}, Retracts: f.IsRetraction(), Rule: shortVisible(f.Rule), Severity: shortVisible(string(f.Severity)), Explanation: longVisible(f.Explanation),
		Fix: longVisible(f.Remedy), Enforced: f.Enforced}
	meaning, fix := ruleText(f.Rule)
	out.Meaning, out.Fix = meaning, cmp.Or(out.Fix, fix)
	for i, s := range f.Seqs {
		if i == 12 {
			out.Seqs += " …"
			break
		}
		out.Seqs += fmt.Sprintf(" %d", s)
	}
	out.Seqs = strings.TrimSpace(out.Seqs)
	b.findings.add(out)
	b.countFinding(f)
	row.What, row.Label, row.Detail = shortVisible(f.Rule), out.Severity, visible(f.Explanation, 160)
	if out.Retracts {
		row.What = "finding retracted: " + row.What
	}
}

// countFinding counts a finding while it stands.
func (b *Builder) countFinding(f events.Finding) {
	id, n := findingID{f.Rule, f.FindingID}, 1
	if f.IsRetraction() {
		b.summaryCounts.retracted++
		id, n = findingID{f.Rule, f.Retracts}, -1
		severity, stands := b.standing[id]
		if !stands {
			return // it is not here
		}
		f.Severity = severity
		delete(b.standing, id)
	} else {
		b.standing[id] = f.Severity
	}
	b.summaryCounts.addFindings(f, n)
	b.controlCounts.CountFinding(f.Rule, n)
}

// ruleText returns the meaning of a rule and the remedy for its findings.
func ruleText(rule string) (meaning, fix string) {
	for _, r := range correlation.Rules() {
		if r.Name == rule {
			return "", r.Remedy // its findings explain themselves
		}
	}
	for _, c := range checks.All() {
		if c.ID == rule {
			return c.Explanation, c.Remedy
		}
	}
	return "", ""
}

func (b *Builder) addApproval(r evidence.Record, row *timelineRow) {
	a, err := events.DecodeRecord[events.Approval](r.Body)
	if err != nil {
		row.What = "does not read as an approval"
		return
	}
	out := approvalRow{Seq: r.Seq, Time: row.Time, ISO: row.ISO, Workflow: shortVisible(a.WorkflowID), Act: shortVisible(cmp.Or(a.Act, a.Status)), Status: shortVisible(a.Status),
		Who: shortVisible(a.Approver), Tool: shortVisible(a.Tool), Reason: longVisible(a.Reason), Saw: shortDigest(a.PreviewDigest), Action: shortDigest(a.ActionDigest), Expires: formatEventTime(a.ExpiresAt)}
	if a.Refused != "" {
		out.Reason = strings.TrimSpace("refused: " + shortVisible(a.Refused) + " " + out.Reason)
	}
	b.approvals.add(out)
	b.summaryCounts.addApproval(a)
	row.What, row.Label = "approval: "+out.Act, out.Status
	row.Detail = joinNonEmpty("workflow", a.WorkflowID, "by", a.Approver, "tool", a.Tool)
}

func (b *Builder) addControl(r evidence.Record, row *timelineRow) {
	p, _ := b.src.Space.Parse(r.Subject)
	row.What = "change or state of the pipeline: " + shortVisible(cmp.Or(p.Kind, "unknown"))
}

// publisherOf is the publisher of the event in a record.
func publisherOf(p subject.Parsed) string { return shortVisible(p.Publisher) }
