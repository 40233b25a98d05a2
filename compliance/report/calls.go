package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// callRow is a call according to its newest record.
type callRow struct {
	Seq                          uint64
	Tool, Call, State, Outcome   string
	Verdict, Match, Order, Rules string
	Occurrence                   int
}

// callTable keeps the newest record of each call.
type callTable struct {
	rows      map[string]*callRow // by call id
	truncated bool                // there are further calls
}

func (c *callTable) put(r evidence.Record, call events.Call) {
	row := c.rows[call.CallID]
	if row == nil {
		if len(c.rows) >= MaxRows {
			c.truncated = true
			return
		}
		if c.rows == nil {
			c.rows = map[string]*callRow{}
		}
		row = &callRow{}
		c.rows[call.CallID] = row
	}
	*row = callRow{Seq: r.Seq, Tool: shortVisible(call.Tool), Call: shortVisible(call.ToolCallID), State: shortVisible(string(call.State)), Outcome: shortVisible(call.Outcome),
		Verdict: shortVisible(string(call.Verdict)), Match: matchWord(call), Order: orderWord(call), Occurrence: call.Occurrence}
	for i, rule := range call.Findings {
		if i == 12 {
			row.Rules += " …"
			break
		}
		row.Rules += " " + shortVisible(rule)
	}
	row.Rules = strings.TrimSpace(row.Rules)
}

func (c *callTable) groupRows() groups[callRow] {
	list := c.sortedRows()
	g := groupRows(list, len(list))
	g.More = c.truncated
	return g
}

func (c *callTable) sortedRows() []callRow {
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
	return cmp.Or(matchWords[c.Match], shortVisible(c.Match))
}

// orderWord says, by the log's sequences, whether the verdict came before the report of the execution.
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

func (b *Builder) addCall(r evidence.Record, row *timelineRow) {
	c, err := events.DecodeRecord[events.Call](r.Body)
	if err != nil {
		row.What = "does not read as a call"
		return
	}
	b.agents.add(shortVisible(c.Agent))
	b.calls.put(r, c)
	row.What, row.Label = fmt.Sprintf("call, occurrence %d", c.Occurrence), shortVisible(string(c.State))
	row.Detail = joinNonEmpty("tool", c.Tool, "call", c.ToolCallID, "outcome", c.Outcome)
}

// policyRow is a policy or mandate that decisions name.
type policyRow struct {
	Kind, Name, Revision, Digest string
	Decisions                    int
}

// policyRefs counts the decisions by policy and mandate.
type policyRefs struct {
	rows      []*policyRow
	index     map[policyRow]*policyRow
	notListed int
}

func (p *policyRefs) addDecision(d events.Decision) {
	if d.Policy != nil {
		p.countDecision(policyRow{Kind: "policy", Name: shortVisible(d.Policy.Name), Revision: fmt.Sprint(d.Policy.Revision), Digest: shortVisible(d.Policy.Digest)})
	}
	if d.Mandate != nil {
		p.countDecision(policyRow{Kind: "mandate", Name: shortVisible(d.Mandate.ID), Digest: shortVisible(d.Mandate.Hash)})
	}
}

func (p *policyRefs) countDecision(key policyRow) {
	row := p.index[key]
	if row == nil {
		if len(p.rows) >= MaxNames {
			p.notListed++
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
