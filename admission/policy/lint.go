package policy

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
)

// Finding is an error in policies, or something that looks like a mistake.
type Finding struct {
	Document string   `json:"document"`
	Line     int      `json:"line"` // from 1
	Rule     string   `json:"rule,omitempty"`
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Remedy   string   `json:"remedy,omitempty"`
}

// Severity grades a finding.
type Severity string

// The severities. Only an error prevents the use of a set.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityInfo    Severity = "info"
)

// Codes of findings.
const (
	LintDoesNotCompile    = "does_not_compile"   // an error: the set cannot be used, and the message says where
	LintMissingHas        = "missing_has"        // a condition reads a member of args, event, resource, risk or catalog without has()
	LintMissingKnown      = "missing_known"      // a rule allows by what a text holds, and does not ask whether all of it is known
	LintDeadRule          = "dead_rule"          // the condition is false whatever the call, or asks for what match leaves out
	LintShadowedRule      = "shadowed_rule"      // whenever the rule matches, a stricter one does too
	LintDuplicateRule     = "duplicate_rule"     // another rule says the same
	LintCatchAllAllow     = "catch_all_allow"    // a rule allows every call that no other one objects to
	LintUnusedParam       = "unused_param"       // no expression reads it
	LintUnusedVariable    = "unused_variable"    // no expression reads it
	LintUnusedGroup       = "unused_group"       // no approval names it
	LintNothingEnforced   = "nothing_enforced"   // every policy of the set only warns or audits
	LintLimitWithoutBy    = "limit_without_by"   // all callers of a tenant share one counter
	LintUnreachableQuorum = "unreachable_quorum" // a tenant has fewer reviewers in the groups than must approve
	LintClaimAlone        = "claim_alone"        // an allow or a counter rests only on what the runtime says of itself: action, risk, resource, session, agent
	LintEvaluatorAlone    = "evaluator_alone"    // no policy of a tenant speaks of all calls over a protocol with an evaluator of its own, which then alone decides
	LintDeadPattern       = "dead_pattern"       // a pattern matches nothing, or not what it looks like: an unknown protocol, a host with a scheme or port, a regular expression among tools
	LintFallbackFloor     = "fallback_floor"     // a global policy that asks or denies is a fallback, which a tenant's policy silences
	LintUnboundedGrowth   = "unbounded_growth"   // a loop makes a new text or list of a part of the request in every round, or one call multiplies two sizes of it
)

// remedies says what to do about a finding of each code.
var remedies = map[string]string{
	LintDoesNotCompile:    "correct it; nothing in the set is used before",
	LintMissingHas:        "ask has() first, in the same condition: a missing key denies with policy_error, unless another part of a || is true",
	LintMissingKnown:      "ask for known first, or deny what is not known with a rule of the same policy: of a text that is not understood the lists are empty or short",
	LintDeadRule:          "remove the rule or correct its match or condition",
	LintShadowedRule:      "remove it, or narrow the stricter rule",
	LintDuplicateRule:     "remove one of them",
	LintCatchAllAllow:     "name tools, actions or a condition, and in place of evaluators-only write a policy with match.protocols; what no rule allows is denied anyway",
	LintUnusedParam:       "remove it, or use it",
	LintUnusedVariable:    "remove it, or use it",
	LintUnusedGroup:       "remove it, or name it in an approval",
	LintNothingEnforced:   "add a policy that enforces; until then every call is denied",
	LintLimitWithoutBy:    "say by: [source] or by: [session] if one caller must not use up what others have left",
	LintUnreachableQuorum: "add members to the groups for that tenant, or lower the quorum",
	LintClaimAlone:        "decide on tool, arguments, source or catalogue as well: a runtime can claim anything, and a claim may only make a verdict stricter",
	LintEvaluatorAlone:    "a runtime may choose its protocol: add a policy with these match.protocols that denies such calls or asks, or one that allows them (when: 'true') if their evaluator is meant to decide alone",
	LintDeadPattern:       "correct it: entries of match are compared with the whole value",
	LintFallbackFloor:     "leave fallback out if the policy must hold for every tenant and tool",
	LintUnboundedGrowth:   "compare without making a new text (==, startsWith, contains, in), or bound size() first; a request that is too large for it is denied with policy_memory",
}

// LintCodes lists the codes of findings, sorted.
func LintCodes() []string { return slices.Sorted(maps.Keys(remedies)) }

// Lint returns the errors and likely mistakes of a set of documents, in the order of documents
// and lines. For documents that do not compile it returns the errors of Compile and nothing
// else.
func Lint(docs []Document) []Finding {
	l := &linter{}
	if _, err := Compile(docs); err != nil {
		l.addCompileErrors(docs, err)
		return l.sortedFindings(docs)
	}
	l.src, _ = readAll(docs)
	_ = l.src.resolveReferences()
	env, err := newEnv()
	if err != nil {
		return nil
	}
	for i := range l.src.policies {
		if s := &l.src.policies[i]; !s.builtin {
			l.policies = append(l.policies, l.parsePolicy(env, s))
		}
	}
	for _, p := range l.policies {
		p.checkPresence()
		p.checkKnown()
		p.checkDeadRules()
		p.checkCatchAll()
		p.checkUnused()
		p.checkLimits()
		p.checkGrowth()
		p.checkPatterns()
		p.checkEffect()
		p.checkClaims()
		p.byClaims()
	}
	l.checkDuplicates()
	l.checkWholeSet()
	l.checkBuiltin()
	l.checkJudged()
	return l.sortedFindings(docs)
}

type linter struct {
	src      documentSet
	policies []*lintedPolicy
	findings []Finding
}

func (l *linter) add(at place, rule, code string, severity Severity, message string) {
	l.findings = append(l.findings, Finding{at.file, max(at.line, 1), rule, code, severity, message, remedies[code]})
}

func (l *linter) sortedFindings(docs []Document) []Finding {
	order := map[string]int{}
	for i, d := range docs {
		order[d.Name] = i
	}
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(order[a.Document], order[b.Document]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(l.findings)
}

// addCompileErrors converts the errors of Compile to findings.
func (l *linter) addCompileErrors(docs []Document, err error) {
	var one *Error
	switch joined, many := err.(interface{ Unwrap() []error }); {
	case many:
		for _, e := range joined.Unwrap() {
			l.addCompileErrors(docs, e)
		}
	case errors.As(err, &one):
		l.add(place{one.File, one.Line}, "", LintDoesNotCompile, SeverityError, one.Msg)
	default:
		name := ""
		if len(docs) > 0 {
			name = docs[0].Name
		}
		l.add(place{name, 1}, "", LintDoesNotCompile, SeverityError, strings.TrimPrefix(err.Error(), "policy: "))
	}
}

// lintedPolicy is one policy with its parsed expressions.
type lintedPolicy struct {
	*linter
	*spec
	variables map[string]celast.Expr // by their full names
	exprs     []expression           // of variables, conditions and amounts
	when      []expression           // of each rule
	sc        *policyEnv
}

type expression struct {
	ast  *cel.Ast
	line int
	rule string // policy/rule; "" for a variable
}

func (e expression) root() celast.Expr { return e.ast.NativeRep().Expr() }

// parsePolicy cannot fail: the set has compiled.
func (l *linter) parsePolicy(env *cel.Env, s *spec) *lintedPolicy {
	p := &lintedPolicy{linter: l, spec: s, variables: map[string]celast.Expr{}}
	p.sc, _ = newPolicyEnv(env, *s)
	if p.sc.names == nil {
		p.sc.names = &policyNames{}
	}
	for _, v := range s.Variables {
		if ast, err := p.sc.checkExpression("", v.Expression); err == nil {
			e := expression{ast, v.exprLine, ""}
			p.variables[variablesPrefix+v.Name] = e.root()
			p.exprs = append(p.exprs, e)
		}
	}
	for _, r := range s.Rules {
		ast, err := p.sc.checkExpression("", r.When)
		if err != nil {
			continue
		}
		e := expression{ast, r.whenLine, s.Name + "/" + r.Name}
		p.when, p.exprs = append(p.when, e), append(p.exprs, e)
		if r.Limit != nil && r.Limit.Amount != "" {
			if ast, err := p.sc.checkExpression("", r.Limit.Amount); err == nil {
				p.exprs = append(p.exprs, expression{ast, r.Limit.amountLine, e.rule})
			}
		}
	}
	return p
}

// placeAt returns the place of a line of the policy's file.
func (p *lintedPolicy) placeAt(line int) place { return place{p.file, line} }

func (p *lintedPolicy) warn(line int, rule, code, message string) {
	p.add(p.placeAt(line), rule, code, SeverityWarning, message)
}
