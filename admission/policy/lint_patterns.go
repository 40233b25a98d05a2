package policy

import (
	"fmt"
	"slices"
	"strings"

	celast "cel.dev/cel-go/common/ast"

	"github.com/countersign-dev/countersign/admission/policy/functions"
	"github.com/countersign-dev/countersign/admission/policy/internal/expr"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// checkPatterns finds entries of match and patterns of hosts that match nothing, or not what they look like.
func (p *lintedPolicy) checkPatterns() {
	for _, entry := range p.Match.Protocols {
		if !newOperand([]string{entry}).matchesAny(subject.Protocols) {
			p.warn(p.line, "", LintDeadPattern, fmt.Sprintf("match.protocols has %q, which is none of %s", entry, strings.Join(subject.Protocols, ", ")))
		}
	}
	p.checkToolPatterns(p.line, "", p.Match.Tools)
	for _, r := range p.Rules {
		p.checkToolPatterns(r.line, p.Name+"/"+r.Name, r.narrowedMatch().Tools)
	}
	for _, e := range p.exprs {
		p.checkHosts(e, e.root())
	}
}

// checkToolPatterns finds entries that look like regular expressions.
func (p *lintedPolicy) checkToolPatterns(line int, rule string, tools []string) {
	for _, entry := range tools {
		if strings.ContainsAny(entry, `^$()|[]\+`) {
			p.warn(line, rule, LintDeadPattern, fmt.Sprintf("match.tools has %q, which is compared as it stands: * and ? are its only wildcards", entry))
		}
	}
}

// checkHosts finds constant patterns of host.matches that no host matches.
func (p *lintedPolicy) checkHosts(at expression, e celast.Expr) {
	if function, args := expr.Call(e); function == functions.HostMatches && len(args) == 2 {
		for _, pattern := range p.constantTexts(args[1]) {
			if !functions.IsHostPattern(pattern) {
				p.warn(at.line, at.rule, LintDeadPattern, fmt.Sprintf("host.matches has the pattern %q, which no host matches: write a host without scheme, port and path, or *. and a host", pattern))
			}
		}
	}
	for _, c := range expr.Children(e) {
		p.checkHosts(at, c)
	}
}

// constantTexts are the texts of a list that is written out, or is a param.
func (p *lintedPolicy) constantTexts(e celast.Expr) (texts []string) {
	switch e.Kind() {
	case celast.ListKind:
		for _, item := range e.AsList().Elements() {
			if text := expr.LiteralText(item); text != "" {
				texts = append(texts, text)
			}
		}
	case celast.IdentKind:
		name, isParam := strings.CutPrefix(e.AsIdent(), paramsPrefix)
		if list, isList := p.Params[name].([]any); isParam && isList {
			for _, item := range list {
				if text, isText := item.(string); isText {
					texts = append(texts, text)
				}
			}
		}
	}
	return texts
}

// checkEffect finds rules and policies that have not the effect that they are written for.
func (p *lintedPolicy) checkEffect() {
	for _, r := range p.Rules {
		if r.Verdict == events.Allow && r.Limit != nil {
			p.warn(r.Limit.line, p.Name+"/"+r.Name, LintDeadRule, "a limit matches what goes beyond it, so that this rule allows nothing within it: allow without a limit, and ask or deny with one")
		}
	}
	if restricts := func(r ruleSpec) bool { return r.Verdict != events.Allow }; p.Fallback && p.scopeLevel() == ScopeGlobal && slices.ContainsFunc(p.Rules, restricts) {
		p.add(p.place, "", LintFallbackFloor, SeverityInfo, "the global policy is a fallback: where another policy lists the tool by its exact name, it neither asks nor denies")
	}
}
