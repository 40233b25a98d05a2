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
	FromAgent, ToAgent          string // of a handoff, which has no Tool
	Risk, Args, Event           map[string]any
	RawArguments                bool // Args only holds the text of arguments that are not JSON
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
	Code         string          // that rule's reason; "" if no rule gave the verdict
	Message      string          // that rule's message, for people; may be empty
	Mode         string          // ModeToolResult if every rule with this verdict says so, else ModeThrow
	Fault        Fault           // the first failure to evaluate a condition; "" if there was none
	ExpiresAfter time.Duration   // the shortest lifetime that a matching policy sets; 0 if none does
}

// Fault says why a condition has no value.
type Fault string

// The faults.
const (
	FaultEvaluation Fault = "evaluation" // a missing key, a wrong type, …
	FaultLimit      Fault = "limit"      // MaxRuntimeCost; the deterministic form of a deadline
)

// Silent reports whether the tenant has policies and none of their rules matched:
// the verdict is then deny, but nobody has spoken on the call.
func (v Verdicts) Silent() bool {
	return len(v.Reasons) == 1 && v.Reasons[0].Code == CodeNoMatch && v.Reasons[0].Policy == ""
}

// Evaluate judges one call by every policy that matches it.
func (s *Set) Evaluate(in Input) Verdicts {
	switch {
	case s == nil || !s.tenants.includes(in.Tenant), in.isGate() && !s.gated[in.Protocol].includes(in.Tenant):
		return refuse(CodeNoPolicy)
	case in.handoff():
		in.Tool = ""
		if !ToolName(in.FromAgent) || !ToolName(in.ToAgent) {
			return refuse(CodeInvalidAgent)
		}
	case in.Tool != "" && !ToolName(in.Tool):
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
	return Verdicts{Verdict: events.Deny, Mode: ModeThrow, Reasons: []events.Reason{{Evaluator: Evaluator, Code: code}}}
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
	accepted := !in.RawArguments
	candidates := s.candidates(in)
	overruled := s.overruled(in, words, candidates)
	for _, i := range candidates {
		p := s.policies[i]
		if p.builtin && in.isGate() || p.fallback && overruled || !p.matchesBesidesNames(in, words) {
			continue
		}
		switch exact, folded := p.matches(in); {
		case exact:
			accepted = p.apply(vars{in}, &out) && p.acceptRaw || accepted
		case folded:
			// A rule that restricts read_file was written for whatever runs
			// read_file; an executor that does not mind case would run it as
			// Read_File too.
			out.add(events.Deny, events.Reason{Evaluator: Evaluator, Code: caseCode(in), Policy: p.name}, p.name, rule{})
		}
	}
	if len(out.Reasons) == 0 {
		out = refuse(CodeNoMatch)
	}
	if !accepted {
		// A rule that looks at arguments has seen none. Only a policy that says
		// it knows what to do with the bare text can let it pass.
		out.add(events.Deny, events.Reason{Evaluator: Evaluator, Code: CodeInvalidArgs}, "", rule{})
	}
	return out
}

// candidates are the policies that the index cannot exclude, in order.
func (s *Set) candidates(in *Input) []int {
	handoff := in.handoff()
	list := slices.Clone(s.index[indexKey{handoff: handoff}])
	list = append(list, s.index[indexKey{tenant: in.Tenant, handoff: handoff}]...)
	if name := in.name(); name != "" {
		folded := fold(name)
		list = append(list, s.index[indexKey{name: folded, handoff: handoff}]...)
		list = append(list, s.index[indexKey{in.Tenant, folded, handoff}]...)
	}
	slices.Sort(list)
	return slices.Compact(list) // an absent tenant would find the first list twice
}

func (p *policy) matchesBesidesNames(in *Input, words []string) bool {
	return p.tenants.matches(in.Tenant) && p.sources.matches(in.Source) && p.protocols.matches(in.Protocol) &&
		p.actions.matches(in.Action) && p.kinds.matches(in.ResourceKind) && p.riskWords.matchesAny(words)
}

func caseCode(in *Input) string {
	if in.handoff() {
		return CodeAgentNameCase
	}
	return CodeToolNameCase
}

// apply evaluates every rule and reports whether one matched. There is no way
// out of the loop before its end: a later rule may be stricter, and every reason
// is kept.
func (p *policy) apply(v vars, out *Verdicts) (matched bool) {
	for _, r := range p.rules {
		holds, fault := r.when.holds(v)
		switch {
		case fault != "":
			out.add(events.Deny, events.Reason{Evaluator: Evaluator, Code: CodePolicyError, Policy: r.id}, p.name, rule{})
			if out.Fault == "" {
				out.Fault = fault
			}
		case holds:
			out.add(r.verdict, events.Reason{Evaluator: Evaluator, Code: r.reason, Policy: r.id}, p.name, r)
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
// it stand. Among equals the first rule that has a message speaks, and one that
// is not soft makes the whole verdict hard. r is the rule that spoke, or none.
func (v *Verdicts) add(verdict events.Verdict, reason events.Reason, policy string, r rule) {
	first := len(v.Reasons) == 0
	v.Reasons = append(v.Reasons, reason)
	switch stricter := verdict.Strictness() - v.Verdict.Strictness(); {
	case first || stricter > 0:
		v.Verdict, v.Policy, v.Code, v.Message, v.Mode = verdict, policy, r.reason, r.message, ModeThrow
		if r.soft {
			v.Mode = ModeToolResult
		}
	case stricter == 0:
		if v.Message == "" && r.message != "" {
			v.Policy, v.Code, v.Message = policy, r.reason, r.message
		}
		if !r.soft {
			v.Mode = ModeThrow
		}
	}
}
