package policy

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Evaluator is the name under which a policy set gives its reasons.
const Evaluator = "tool_policy"

// Input is one proposed call as policies see it. Maps are read only; numbers in
// them are json.Number, as strictjson makes them.
type Input struct {
	Tenant, Source, Protocol    string
	Tool, Action                string
	ResourceKind, ResourceScope string
	Resource                    any // string, map[string]any or nil
	Session, Agent              string
	Risk, Args, Event           map[string]any
	Now                         time.Time
}

// riskOperands are the members of Risk that match.risks is compared with.
var riskOperands = []string{"operation_risk", "risk_class", "level"}

// riskIrreversible is the word for a request whose Risk has irreversible true.
const riskIrreversible = "irreversible"

// Verdicts is what a set says: the strictest verdict and every reason.
type Verdicts struct {
	Verdict      events.Verdict
	Reasons      []events.Reason // never empty
	Policy       string          // the policy whose rule gave the verdict; "" if none did
	Message      string          // that rule's message, for people; may be empty
	ExpiresAfter time.Duration   // the shortest lifetime that a matching policy sets; 0 if none does
}

// Evaluate judges one call by every policy that matches it.
func (s *Set) Evaluate(in Input) Verdicts {
	if s == nil || !s.tenants.matches(in.Tenant) {
		return refuse(CodeNoPolicy)
	}
	if in.Tool != "" && !ToolName(in.Tool) {
		return refuse(CodeInvalidToolName)
	}
	words := riskWords(in.Risk)
	if !slices.ContainsFunc([]string{in.Source, in.Protocol, in.Action, in.ResourceKind}, unclean) && !slices.ContainsFunc(words, unclean) {
		return s.judge(&in, words)
	}
	return refuse(CodeInvalidOperand)
}

func unclean(v string) bool { return !clean(v) }

func refuse(code string) Verdicts {
	return Verdicts{Verdict: events.Deny, Reasons: []events.Reason{{Evaluator: Evaluator, Code: code}}}
}

func riskWords(risk map[string]any) []string {
	var words []string
	for _, key := range riskOperands {
		if w, ok := risk[key].(string); ok && w != "" {
			words = append(words, w)
		}
	}
	if yes, _ := risk[riskIrreversible].(bool); yes {
		words = append(words, riskIrreversible)
	}
	return words
}

func (s *Set) judge(in *Input, words []string) Verdicts {
	out := Verdicts{Verdict: events.Allow}
	decided := false
	for _, i := range s.candidates(in) {
		p := s.policies[i]
		if !p.matchesBesidesTool(in, words) {
			continue
		}
		switch {
		case p.tools.matches(in.Tool):
			decided = p.apply(vars{in}, &out) || decided
		case p.foldedTools != nil && p.foldedTools.matches(fold(in.Tool)):
			// A rule that restricts read_file was written for whatever runs
			// read_file; an executor that does not mind case would run it as
			// Read_File too.
			out.add(events.Deny, events.Reason{Evaluator: Evaluator, Code: CodeToolNameCase, Policy: p.name}, p.name, "")
			decided = true
		}
	}
	if !decided {
		return refuse(CodeNoMatch)
	}
	return out
}

// candidates are the policies that the index cannot exclude, in order.
func (s *Set) candidates(in *Input) []int {
	list := slices.Clone(s.index[indexKey{}])
	list = append(list, s.index[indexKey{tenant: in.Tenant}]...)
	if in.Tool != "" {
		folded := fold(in.Tool)
		list = append(list, s.index[indexKey{tool: folded}]...)
		list = append(list, s.index[indexKey{in.Tenant, folded}]...)
	}
	slices.Sort(list)
	return slices.Compact(list) // an absent tenant would find the first list twice
}

func (p *policy) matchesBesidesTool(in *Input, words []string) bool {
	return p.tenants.matches(in.Tenant) && p.sources.matches(in.Source) && p.protocols.matches(in.Protocol) &&
		p.actions.matches(in.Action) && p.kinds.matches(in.ResourceKind) && p.riskWords.matchesAny(words)
}

// apply evaluates every rule and reports whether one matched. There is no way
// out of the loop before its end: a later rule may be stricter, and every reason
// is kept.
func (p *policy) apply(v vars, out *Verdicts) (matched bool) {
	for _, r := range p.rules {
		holds, ok := r.when.holds(v)
		switch {
		case !ok:
			out.add(events.Deny, events.Reason{Evaluator: Evaluator, Code: CodePolicyError, Policy: r.id}, p.name, "")
		case holds:
			out.add(r.verdict, events.Reason{Evaluator: Evaluator, Code: r.reason, Policy: r.id}, p.name, r.message)
		default:
			continue
		}
		matched = true
	}
	if matched && p.expiresAfter > 0 && (out.ExpiresAfter == 0 || p.expiresAfter < out.ExpiresAfter) {
		out.ExpiresAfter = p.expiresAfter
	}
	return matched
}

// add keeps the reason and, if the verdict is stricter than what there is, lets
// it stand. Among equals the first rule that has a message speaks.
func (v *Verdicts) add(verdict events.Verdict, r events.Reason, policy, message string) {
	first := len(v.Reasons) == 0
	v.Reasons = append(v.Reasons, r)
	switch stricter := verdict.Strictness() - v.Verdict.Strictness(); {
	case first || stricter > 0:
		v.Verdict, v.Policy, v.Message = verdict, policy, message
	case stricter == 0 && v.Message == "" && message != "":
		v.Policy, v.Message = policy, message
	}
}
