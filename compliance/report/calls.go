package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// callRow is a call as its newest record has it.
type callRow struct {
	Seq                          uint64
	Tool, Call, State, Outcome   string
	Verdict, Match, Order, Rules string
	Occurrence                   int
}

// calls keeps the newest record of each call.
type calls struct {
	rows map[string]*callRow // by call id
	more bool                // there are further ones
}

func (c *calls) add(r evidence.Record, call events.Call) {
	row := c.rows[call.CallID]
	if row == nil {
		if len(c.rows) >= MaxRows {
			c.more = true
			return
		}
		if c.rows == nil {
			c.rows = map[string]*callRow{}
		}
		row = &callRow{}
		c.rows[call.CallID] = row
	}
	*row = callRow{Seq: r.Seq, Tool: short(call.Tool), Call: short(call.ToolCallID), State: short(string(call.State)), Outcome: short(call.Outcome),
		Verdict: short(string(call.Verdict)), Match: matchWord(call), Order: orderWord(call), Occurrence: call.Occurrence}
	for i, rule := range call.Findings {
		if i == 12 {
			row.Rules += " …"
			break
		}
		row.Rules += " " + short(rule)
	}
	row.Rules = strings.TrimSpace(row.Rules)
}

func (c *calls) grouped() groups[callRow] {
	list := c.list()
	g := grouped(list, len(list))
	g.More = c.more
	return g
}

func (c *calls) list() []callRow {
	out := make([]callRow, 0, len(c.rows))
	for _, r := range c.rows {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b callRow) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}

var matchWords = map[string]string{
	"equal": "same arguments", "drift": "other arguments than were admitted", "inconclusive": "cannot be told",
}

func matchWord(c events.Call) string {
	if c.Match == "" {
		return ""
	}
	return or(matchWords[c.Match], short(c.Match))
}

// orderWord says, by the log's sequences, whether the verdict was there before
// the execution was reported.
func orderWord(c events.Call) string {
	switch {
	case c.ExecutionSeq == 0 && c.DecisionSeq == 0:
		return "neither verdict nor execution"
	case c.ExecutionSeq == 0:
		return fmt.Sprintf("verdict at %d, no execution", c.DecisionSeq)
	case c.DecisionSeq == 0:
		return fmt.Sprintf("no verdict, execution at %d", c.ExecutionSeq)
	case c.DecisionSeq < c.ExecutionSeq:
		return fmt.Sprintf("yes: %d before %d", c.DecisionSeq, c.ExecutionSeq)
	}
	return fmt.Sprintf("no: %d after %d", c.DecisionSeq, c.ExecutionSeq)
}

func (b *Builder) call(r evidence.Record, row *timelineRow) {
	c, err := events.DecodeRecord[events.Call](r.Body)
	if err != nil {
		row.What = "does not read as a call"
		return
	}
	b.agents.add(short(c.Agent))
	b.calls.add(r, c)
	row.What, row.Label = fmt.Sprintf("call, occurrence %d", c.Occurrence), short(string(c.State))
	row.Detail = facts("tool", c.Tool, "call", c.ToolCallID, "outcome", c.Outcome)
}

// policyRow is a policy or mandate that decisions name.
type policyRow struct {
	Kind, Name, Revision, Digest string
	Decisions                    int
}

// policyRefs counts by what decisions were made.
type policyRefs struct {
	rows  []*policyRow
	index map[policyRow]*policyRow
	more  int
}

func (p *policyRefs) add(d events.Decision) {
	if d.Policy != nil {
		p.count(policyRow{Kind: "policy", Name: short(d.Policy.Name), Revision: fmt.Sprint(d.Policy.Revision), Digest: short(d.Policy.Digest)})
	}
	if d.Mandate != nil {
		p.count(policyRow{Kind: "mandate", Name: short(d.Mandate.ID), Digest: short(d.Mandate.Hash)})
	}
}

func (p *policyRefs) count(key policyRow) {
	row := p.index[key]
	if row == nil {
		if len(p.rows) >= MaxNames {
			p.more++
			return
		}
		if p.index == nil {
			p.index = map[policyRow]*policyRow{}
		}
		kept := key
		row = &kept
		p.index[key], p.rows = row, append(p.rows, row)
	}
	row.Decisions++
}
