package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// RuleText is a rule as it was written, for explanations.
type RuleText struct {
	Policy  string         `json:"policy"`
	Rule    string         `json:"rule"`
	Action  string         `json:"action,omitempty"` // ActionWarn, ActionAudit; "" for enforce
	When    string         `json:"when"`
	Limit   string         `json:"limit,omitempty"` // e.g. "10 per 1h0m0s by session"
	Verdict events.Verdict `json:"verdict"`
	Reason  string         `json:"reason"`
	Message string         `json:"message,omitempty"`
	File    string         `json:"file"`
	Line    int            `json:"line"`
}

// ID returns the name of the rule in reasons.
func (r RuleText) ID() string { return r.Policy + "/" + r.Rule }

// Rules lists the rules of the policies in docs, by policy and then in document order.
func Rules(docs []Document) ([]RuleText, error) {
	src, err := readAll(docs)
	if err != nil {
		return nil, err
	}
	var list []RuleText
	for _, s := range src.policies {
		for _, r := range s.Rules {
			list = append(list, RuleText{Policy: s.Name, Rule: r.Name, Action: s.Action, When: r.When, Limit: r.Limit.text(),
				Verdict: r.Verdict, Reason: r.Reason, Message: r.Message, File: s.file, Line: r.line})
		}
	}
	slices.SortStableFunc(list, func(a, b RuleText) int { return strings.Compare(a.Policy, b.Policy) })
	return list, nil
}

func (l *limitSpec) text() string {
	if l == nil {
		return ""
	}
	text := fmt.Sprintf("%d per %s", l.Max, l.Per)
	if len(l.By) > 0 {
		text += " by " + strings.Join(l.By, ", ")
	}
	if l.Amount != "" {
		text += ", amount " + l.Amount
	}
	return text
}
