package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

type chainCmd struct {
	target.Flags
	proveFlags
	Session string `help:"The session." required:"" type:"session"`
	JSON    bool   `name:"json" help:"Print the records as they are stored, one a line, each with its hash."`
}

func (c *chainCmd) Run(ctx context.Context, io stdio) error {
	t, l, err := evidenceOf(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	parts, restsOn, err := c.session(ctx, io, l, t)
	if err != nil {
		return err
	}
	for _, p := range parts {
		gone, err := whyGone(ctx, p.Why, p.Rows)
		if err != nil {
			return err
		}
		if err := printChain(io, p.Session, gone, c.JSON, c.Proved); err != nil {
			return err
		}
	}
	printBasis(io, c.JSON, len(parts), restsOn)
	return nil
}

// session gives the session's records: proved to be all, if that was asked for.
func (c *chainCmd) session(ctx context.Context, io stdio, l evidencereader.Reader, t *target.Target) (parts []evidencereader.ProvedSession, b basis, err error) {
	if !c.Proved {
		parts, err = unprovedSession(ctx, l, t.Tenant, c.Session)
		return parts, restsOnIndex, err
	}
	p, err := newProver(ctx, io, l, t, c.Key)
	if err != nil {
		return nil, b, err
	}
	return p.session(ctx, t.Tenant, c.Session)
}

// chainLine is one record as other programs read it. Of one that expired there is
// no record, and its columns instead.
type chainLine struct {
	Record     json.RawMessage `json:"record"`
	RecordHash string          `json:"record_hash"`
	Expired    *expiredLine    `json:"expired,omitempty"`
	Proved     bool            `json:"proved"` // all records of the session were shown to be here, unchanged
}

// expiredLine is what is left of a record whose text expired. Nothing proves kind,
// subject, time and body digest of such a record: they are what the database says.
type expiredLine struct {
	Why        string      `json:"why"`
	Shard      string      `json:"shard"`
	Seq        uint64      `json:"seq"`
	Kind       string      `json:"kind"`
	Subject    string      `json:"subject"`
	BrokerTime events.Time `json:"broker_time"`
	BodyDigest string      `json:"body_digest"`
	Unproved   []string    `json:"unproved"` // members that nothing proves
}

// unprovedColumns are what is said of an expired record and cannot be proved.
var unprovedColumns = []string{"kind", "subject", "broker_time", "body_digest"}

func printChainJSON(io stdio, s evidencereader.Session, gone map[uint64]string, proved bool) error {
	for _, r := range s.Rows {
		line := chainLine{Record: json.RawMessage(r.Record), RecordHash: hex.EncodeToString(r.RecordHash[:]), Proved: proved}
		if r.Expired() {
			line.Record = json.RawMessage("null")
			line.Expired = &expiredLine{gone[r.Seq], r.Shard, r.Seq, r.Kind, r.Subject, events.At(r.BrokerTime), r.BodyDigest, unprovedColumns}
		}
		if err := compactJSON(io, line); err != nil {
			return err
		}
	}
	return nil
}

// printChain prints a session; gone says why records have no text.
func printChain(io stdio, s evidencereader.Session, gone map[uint64]string, asJSON, proved bool) error {
	if asJSON {
		return printChainJSON(io, s, gone, proved)
	}
	p := newPrinter(io.out)
	p.printf("%s\n", p.paint(bold, fmt.Sprintf("session %s of tenant %s, shard %s: %d records", clean(s.Session, 60), clean(s.Tenant, 40), clean(s.Shard, 80), len(s.Rows))))
	for _, r := range s.Rows {
		p.printf("%6d  %s  %s %s  %s\n", r.Seq, p.paint(faint, r.BrokerTime.UTC().Format("15:04:05.000")), pad(r.Kind, 11),
			p.paint(faint, hex.EncodeToString(r.RecordHash[:4])), summary(p, r, gone[r.Seq]))
	}
	return nil
}

// summary says in one line what a record holds.
func summary(p *printer, r evidence.Row, gone string) string {
	if gone != "" {
		return p.paint(yellow, clean(gone, 160))
	}
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err != nil {
		return p.paint(red, "not a record: run countersign verify")
	}
	text := "no body: " + clean(rec.Reason, 40)
	if say, known := summaries[r.Kind]; known && rec.Reason == "" {
		if text, err = say(p, rec.Body); err != nil {
			text = "a body that does not read as one"
		}
	}
	if n := len(rec.Redactions); n > 0 {
		text += p.paint(yellow, fmt.Sprintf("  (%d redacted)", n))
	}
	return text
}

var summaries = map[string]func(p *printer, body []byte) (string, error){
	evidence.KindRequest:  eventSummary,
	evidence.KindEvent:    eventSummary,
	evidence.KindDecision: decisionSummary,
	evidence.KindCall:     callSummary,
	evidence.KindFinding:  findingSummary,
	evidence.KindApproval: func(_ *printer, b []byte) (string, error) {
		var a events.Approval
		err := json.Unmarshal(b, &a)
		return clean(a.Status+" "+a.WorkflowID, 100), err
	},
	evidence.KindControl: func(*printer, []byte) (string, error) { return "", nil },
}

func eventSummary(_ *printer, b []byte) (string, error) {
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
	text := or(e.EventType, e.Type)
	if tool := or(e.ToolName, e.Tool); tool != "" {
		text += "  " + tool
	}
	if e.Summary != "" {
		text += "  " + e.Summary
	}
	return clean(text, 110), nil
}

func decisionSummary(p *printer, b []byte) (string, error) {
	var d events.Decision
	if err := json.Unmarshal(b, &d); err != nil {
		return "", err
	}
	return p.paint(verdictColour[d.Verdict], clean(string(d.Verdict), 5)) + "  " + clean(d.Tool+"  "+codes(d.Reasons), 100), nil
}

func callSummary(p *printer, b []byte) (string, error) {
	var c events.Call
	if err := json.Unmarshal(b, &c); err != nil {
		return "", err
	}
	text := clean(fmt.Sprintf("%s  %s #%d", c.State, c.Tool, c.Occurrence), 80)
	if len(c.Findings) > 0 {
		text += p.paint(red, clean(fmt.Sprintf("  %v", c.Findings), 100))
	}
	return text, nil
}

func findingSummary(p *printer, b []byte) (string, error) {
	var f events.Finding
	if err := json.Unmarshal(b, &f); err != nil {
		return "", err
	}
	return p.paint(severityColour[f.Severity], clean(string(f.Severity), 8)+"  "+clean(f.Rule, 40)) + "  " + clean(f.Explanation, 300), nil
}
