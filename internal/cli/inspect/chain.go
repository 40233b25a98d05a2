// Package inspect has the commands that show evidence: chain, session, calls, findings and the
// questions of audit. Each command is a type with a Run method, which the command line's parser
// (kong) calls. Package evidence has the records, evidencereader reads them and package proof
// proves lists complete.
package inspect

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// ChainCmd is `countersign chain`.
type ChainCmd struct {
	target.Flags
	proof.ProveFlags
	Session string `help:"The session." required:"" type:"session"`
	JSON    bool   `name:"json" help:"Print the records as they are stored, one a line, each with its hash."`
}

func (c *ChainCmd) Run(ctx context.Context, io ui.Stdio) error {
	t, l, err := system.FindEvidence(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	parts, restsOn, err := c.session(ctx, io, l, t)
	if err != nil {
		return system.SuggestSession(ctx, l.DB, t.Tenant, c.Session, err)
	}
	for _, p := range parts {
		gone, err := proof.WhyExpired(ctx, p.Why, p.Rows)
		if err != nil {
			return err
		}
		if err := PrintChain(io, p.Session, gone, c.JSON, restsOn.Proved); err != nil {
			return err
		}
	}
	proof.PrintBasis(io, c.JSON, len(parts), restsOn)
	return nil
}

// session returns the session's records, proved complete if --proved is given.
func (c *ChainCmd) session(ctx context.Context, io ui.Stdio, l evidencereader.Reader, t *target.Target) (parts []evidencereader.ProvedSession, b proof.Basis, err error) {
	if !c.Proved {
		parts, err = proof.UnprovedSession(ctx, l, t.Tenant, c.Session)
		return parts, proof.OnIndex, err
	}
	p, err := proof.NewProver(ctx, io, l, t, c.Key)
	if err != nil {
		return nil, b, err
	}
	return p.Session(ctx, t.Tenant, c.Session)
}

// chainLine is one record in the JSON output. An expired record is replaced by its columns.
type chainLine struct {
	Record     json.RawMessage `json:"record"`
	RecordHash string          `json:"record_hash"`
	Expired    *expiredLine    `json:"expired,omitempty"`
	Proved     bool            `json:"proved"` // all records of the session are proved present and unchanged
}

// expiredLine is what remains of a record after its text expired. Its kind, subject, time and body
// digest are the database's statement and cannot be proved.
type expiredLine struct {
	Why        string      `json:"why"`
	Shard      string      `json:"shard"`
	Seq        uint64      `json:"seq"`
	Kind       string      `json:"kind"`
	Subject    string      `json:"subject"`
	BrokerTime events.Time `json:"broker_time"`
	BodyDigest string      `json:"body_digest"`
	Unproved   []string    `json:"unproved"` // members that cannot be proved
}

// unprovedColumns are the columns of an expired record that cannot be proved.
var unprovedColumns = []string{"kind", "subject", "broker_time", "body_digest"}

func printChainJSON(io ui.Stdio, s evidencereader.Session, gone map[uint64]string, proved bool) error {
	for _, r := range s.Rows {
		line := chainLine{Record: json.RawMessage(r.Record), RecordHash: hex.EncodeToString(r.RecordHash[:]), Proved: proved}
		if r.Expired() {
			line.Record = json.RawMessage("null")
			line.Expired = &expiredLine{gone[r.Seq], r.Shard, r.Seq, r.Kind, r.Subject, events.At(r.BrokerTime), r.BodyDigest, unprovedColumns}
		}
		if err := ui.WriteJSON(io, line); err != nil {
			return err
		}
	}
	return nil
}

// PrintChain prints a session; gone has, by sequence, why records have no text.
func PrintChain(io ui.Stdio, s evidencereader.Session, gone map[uint64]string, asJSON, proved bool) error {
	if asJSON {
		return printChainJSON(io, s, gone, proved)
	}
	p := ui.NewPrinter(io.Out)
	p.Printf("%s\n", p.Paint(ui.Bold, fmt.Sprintf("session %s of tenant %s, shard %s: %d records", ui.Clean(s.Session, 60), ui.Clean(s.Tenant, 40), ui.Clean(s.Shard, 80), len(s.Rows))))
	for _, r := range s.Rows {
		p.Printf("%6d  %s  %s %s  %s\n", r.Seq, p.Paint(ui.Faint, r.BrokerTime.UTC().Format("15:04:05.000")), ui.Pad(r.Kind, 11),
			p.Paint(ui.Faint, hex.EncodeToString(r.RecordHash[:4])), summary(p, r, gone[r.Seq]))
	}
	return nil
}

// summary describes a record in one line.
func summary(p *ui.Printer, r evidence.Row, gone string) string {
	if gone != "" {
		return p.Paint(ui.Yellow, ui.Clean(gone, 160))
	}
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err != nil {
		return p.Paint(ui.Red, "not a record: run countersign verify")
	}
	text := "no body: " + ui.Clean(rec.Reason, 40)
	if say, known := summaries[r.Kind]; known && rec.Reason == "" {
		if text, err = say(p, rec.Body); err != nil {
			text = "a body that does not read as one"
		}
	}
	if n := len(rec.Redactions); n > 0 {
		text += p.Paint(ui.Yellow, fmt.Sprintf("  (%d redacted)", n))
	}
	return text
}

var summaries = map[string]func(p *ui.Printer, body []byte) (string, error){
	evidence.KindRequest:  eventSummary,
	evidence.KindEvent:    eventSummary,
	evidence.KindDecision: decisionSummary,
	evidence.KindCall:     callSummary,
	evidence.KindFinding:  findingSummary,
	evidence.KindApproval: func(_ *ui.Printer, b []byte) (string, error) {
		var a events.Approval
		err := json.Unmarshal(b, &a)
		return ui.Clean(a.Status+" "+a.WorkflowID, 100), err
	},
	evidence.KindControl: func(*ui.Printer, []byte) (string, error) { return "", nil },
}

func eventSummary(_ *ui.Printer, b []byte) (string, error) {
	var e struct {
		EventType string `json:"event_type"`
		Type      string `json:"type"`
		ToolName  string `json:"tool_name"`
		Tool      string `json:"tool"`
		Summary   string `json:"summary_normal"`
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return "", err
	}
	text := cmp.Or(e.EventType, e.Type)
	if tool := cmp.Or(e.ToolName, e.Tool); tool != "" {
		text += "  " + tool
	}
	if e.Summary != "" {
		text += "  " + e.Summary
	}
	return ui.Clean(text, 110), nil
}

func decisionSummary(p *ui.Printer, b []byte) (string, error) {
	var d events.Decision
	if err := json.Unmarshal(b, &d); err != nil {
		return "", err
	}
	return p.Paint(ui.VerdictColour[d.Verdict], ui.Clean(string(d.Verdict), 5)) + "  " + ui.Clean(d.Tool+"  "+ui.ReasonCodes(d.Reasons), 100), nil
}

func callSummary(p *ui.Printer, b []byte) (string, error) {
	var c events.Call
	if err := json.Unmarshal(b, &c); err != nil {
		return "", err
	}
	text := ui.Clean(fmt.Sprintf("%s  %s #%d", c.State, c.Tool, c.Occurrence), 80)
	if len(c.Findings) > 0 {
		text += p.Paint(ui.Red, ui.Clean(fmt.Sprintf("  %v", c.Findings), 100))
	}
	return text, nil
}

func findingSummary(p *ui.Printer, b []byte) (string, error) {
	var f events.Finding
	if err := json.Unmarshal(b, &f); err != nil {
		return "", err
	}
	return p.Paint(ui.SeverityColour[f.Severity], ui.Clean(string(f.Severity), 8)+"  "+ui.Clean(f.Rule, 40)) + "  " + ui.Clean(f.Explanation, 300), nil
}
