package policy

import (
	"cmp"
	"context"
	"slices"
	"time"

	"cel.dev/cel-go/cel"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenttool"
	"github.com/countersign-dev/countersign/events/casefold"
)

// EvaluatorName is the name under which a policy set gives its reasons.
const EvaluatorName = "tool_policy"

// Input is one proposed call as policies see it. Maps are read only; numbers in
// them are json.Number, as strictjson makes them.
type Input struct {
	Tenant, Source, Protocol    string
	EventType                   string // of the request, as its protocol calls it
	Tool, Action                string
	ResourceKind, ResourceScope string
	Resource                    any // string, map[string]any or nil
	Session, Agent              string
	FromAgent, ToAgent          string // of a handoff, which has no Tool
	Risk, Args, Event           map[string]any
	Catalog                     map[string]any // the tool catalogue's entry for Tool; nil: none is known
	RawArguments                bool           // Args holds only the text of arguments that are not JSON
	Now                         time.Time

	// Context carries the request's deadline; nil for none. If it ends before all conditions
	// are evaluated, the verdict is deny and Result.DeadlineExceeded is true.
	Context context.Context

	// Counters returns earlier counts to rules with a limit. With nil those rules deny;
	// NoCounts is for decisions that keep no state.
	Counters Counters

	// Observe makes the reasons say in WouldVerdict what each of them decides, for
	// Result.Observed. It changes no verdict.
	Observe bool

	agentTool *agenttool.Tool // of Tool; nil until a condition asks
}

// describeTool is the variable agent_tool.
func (in *Input) describeTool() agenttool.Tool {
	if in.agentTool == nil {
		t := agenttool.Describe(in.Tool, in.Args, in.Event)
		in.agentTool = &t
	}
	return *in.agentTool
}

// riskOperands are the members of Risk that match.risks is compared with, beside the catalogue's risk.
var riskOperands = [...]string{"operation_risk", "risk_class", "level"}

// unstatedRisk is the risk in Catalog of a tool for which the catalogue states none.
const unstatedRisk = "unknown"

// riskIrreversible is the word for a request with irreversible true in its Risk.
const riskIrreversible = "irreversible"

// Result is the result of a set: the strictest verdict and every reason.
type Result struct {
	Verdict      events.Verdict
	Reasons      []events.Reason // never empty; those of policies that do not decide (Reason.Action) come last
	Policy       string          // the policy of the rule that gave the verdict; "" if none did
	Code         string          // that rule's reason; "" if no rule gave the verdict
	Message      string          // that rule's message, for people; may be empty
	ResultMode   string          // ModeToolResult if every rule with this verdict has it, else ModeThrow
	Fault        Fault           // the first failure to evaluate a condition; "" if there was none
	ExpiresAfter time.Duration   // the shortest lifetime that a matching policy sets; 0 if none does
	Approval     approval.Terms  // with ask and defer: terms that satisfy every rule that asks
	Asks         []string        // the rules that decide ask, as POLICY/RULE
	Counts       []Count         // the counters that were read, and that the call adds to if it is allowed
	Warnings     []string        // for the caller, from policies that only warn

	// DeadlineExceeded reports that Input.Context ended first. The verdict is then no function of the
	// input, and a record cannot be checked against it.
	DeadlineExceeded bool

	// Failed reports that the deny is no verdict of a policy: the input is bad, or state of the
	// service is not known. Observed does not lift it.
	Failed bool
}

// Fault is the reason why a condition has no value.
type Fault string

// The faults.
const (
	FaultEvaluation Fault = "evaluation" // a missing key, a wrong type, …
	FaultLimit      Fault = "limit"      // MaxRuntimeCost or MaxCallSteps; the deterministic form of a deadline
	FaultMemory     Fault = "memory"     // MaxCallBytes
	FaultDeadline   Fault = "deadline"   // Input.Context has ended
	FaultCounters   Fault = "counters"   // the count of a limit is not known
)

// faultCodes maps faults to reason codes.
var faultCodes = map[Fault]string{FaultEvaluation: CodePolicyError, FaultLimit: CodePolicyError,
	FaultMemory: CodePolicyMemory, FaultDeadline: CodePolicyDeadline, FaultCounters: CodeCounters}

// IsFault reports whether a reason code says that a rule could not be evaluated.
func IsFault(code string) bool {
	for _, c := range faultCodes {
		if c == code {
			return true
		}
	}
	return false
}

// DefaultWarning is the warning of a rule that has no message.
const DefaultWarning = "policy_warning"

// NoRuleMatched reports whether the tenant has policies and none of their rules matched. The
// verdict is then deny, although no rule decided it.
func (res Result) NoRuleMatched() bool {
	return len(res.Reasons) > 0 && res.Reasons[0].Code == CodeNoMatch && res.Reasons[0].Policy == "" &&
		(len(res.Reasons) == 1 || res.Reasons[1].Action != "")
}

// AdvisoryOnly is the result without a match when another evaluator decides: an allow without a
// reason, with the reasons of policies that do not decide.
func (res Result) AdvisoryOnly() Result {
	aside := slices.IndexFunc(res.Reasons, func(r events.Reason) bool { return r.Action != "" })
	out := Result{Verdict: events.Allow, Counts: res.Counts, Warnings: res.Warnings}
	if aside >= 0 {
		out.Reasons = res.Reasons[aside:]
	}
	return out
}

// Observed is the result in mode observe (docs/adr/0030), and the verdict that the policies gave.
// Every reason stays, with what it would have decided, and nothing is refused for it. A failed
// result stays as it is, and so does an allow; would is "" for the former.
func (res Result) Observed() (observed Result, would events.Verdict) {
	reasons := slices.Clone(res.Reasons)
	for i := range reasons {
		switch r := &reasons[i]; {
		case r.Action != "": // of a policy that decides in no mode
		case res.Failed || res.Verdict == events.Allow:
			r.WouldVerdict = ""
		default:
			r.Action, r.WouldVerdict = ActionObserve, cmp.Or(r.WouldVerdict, events.Deny)
		}
	}
	if res.Reasons = reasons; res.Failed {
		return res, ""
	}
	if res.Verdict == events.Allow {
		return res, events.Allow
	}
	observed = Result{Verdict: events.Allow, Reasons: reasons, ExpiresAfter: res.ExpiresAfter, Counts: res.Counts, Warnings: res.Warnings, DeadlineExceeded: res.DeadlineExceeded}
	observed.Warnings = append(slices.Clip(res.Warnings), "mode observe: the policies would give "+string(res.Verdict))
	return observed, res.Verdict
}

// Evaluate evaluates every policy that matches the call.
func (s *Set) Evaluate(in Input) Result {
	switch {
	case s == nil || !s.anyCoverage.covers(&in):
		return Result{Verdict: events.Deny, ResultMode: ModeThrow, Reasons: []events.Reason{{Evaluator: EvaluatorName, Code: CodeNoPolicy}}}
	case in.isHandoff():
		in.Tool = ""
		if !names.ValidTool(in.FromAgent) || !names.ValidTool(in.ToAgent) {
			return refuseInput(CodeInvalidAgent)
		}
	case in.Tool != "" && !names.ValidTool(in.Tool):
		return refuseInput(CodeInvalidToolName)
	}
	var room [len(riskOperands) + 2]string
	words := riskWords(room[:0], in.Risk, in.Catalog)
	if !names.IsClean(in.Source) || !names.IsClean(in.Protocol) || !names.IsClean(in.EventType) || !names.IsClean(in.Action) || !names.IsClean(in.ResourceKind) || slices.ContainsFunc(words, isUncleanText) {
		return refuseInput(CodeInvalidOperand)
	}
	if !names.ValidArguments(in.Args) {
		return refuseInput(CodeInvalidArgName)
	}
	return s.judgeInput(&in, words)
}

func isUncleanText(v string) bool { return !names.IsClean(v) }

// refuseInput denies an input that no policy is to see.
func refuseInput(code string) Result {
	return Result{Verdict: events.Deny, ResultMode: ModeThrow, Failed: true, Reasons: []events.Reason{{Evaluator: EvaluatorName, Code: code}}}
}

func riskWords(words []string, risk, catalog map[string]any) []string {
	if w, _ := catalog["risk"].(string); w != "" && w != unstatedRisk {
		words = append(words, w)
	}
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

// judgement collects the verdict of one evaluation.
type judgement struct {
	in               *Input
	query            indexQuery
	out              Result
	advisory         []events.Reason   // of policies that do not decide
	approvalTerms    []*approval.Terms // of the rules that ask
	tenantGaveReason bool              // a policy of the tenant's own gave a reason

	enforced, trial budget // of policies that decide, and of those that do not
}

func (s *Set) judgeInput(in *Input, words []string) Result {
	j := judgement{in: in, out: Result{Verdict: events.Allow}, enforced: budget{ctx: in.Context}, trial: budget{ctx: in.Context}, query: indexQuery{handoff: in.isHandoff(),
		indexKey: indexKey{tenant: in.Tenant, name: casefold.String(in.indexName()), action: in.Action, event: in.EventType}}}
	var room [64]int
	candidates := s.index.find(room[:0], j.query)
	accepted := s.applyLevel(&j, words, candidates, false)
	if s.hasDefaults && !j.tenantGaveReason {
		accepted = s.applyLevel(&j, words, candidates, true) || accepted
	}
	out := &j.out
	if len(out.Reasons) == 0 {
		code := CodeNoMatch
		if !s.enforcedCoverage.covers(in) {
			code = CodeNoPolicy
		}
		out.addVerdict(events.Deny, events.Reason{Evaluator: EvaluatorName, Code: code}, "", nil)
	}
	if in.RawArguments && !accepted {
		// A rule that reads arguments has seen none of these. Only a policy that accepts raw
		// arguments can allow the call.
		out.addVerdict(events.Deny, events.Reason{Evaluator: EvaluatorName, Code: CodeInvalidArgs}, "", nil)
		out.Failed = true
	}
	if out.Verdict == events.Ask || out.Verdict == events.Defer {
		out.Approval = combineTerms(j.approvalTerms)
	}
	out.Reasons = append(out.Reasons, j.advisory...)
	out.DeadlineExceeded = j.enforced.fault == FaultDeadline || j.trial.fault == FaultDeadline
	return *out
}

// applyLevel applies the policies of scope default, or all others. It reports whether one that
// decides accepts raw arguments.
func (s *Set) applyLevel(j *judgement, words []string, candidates []int, defaults bool) (accepted bool) {
	in := j.in
	overruled := s.fallbacksOverruled(in, words, candidates, defaults)
	for _, i := range candidates {
		p := s.policies[i]
		if (p.level == ScopeDefault) != defaults || p.builtin && in.isPolicyOnly() || p.fallback && overruled || !p.matchesBesidesNames(in, words) {
			continue
		}
		switch exact, folded := p.matches(in); {
		case exact:
			accepted = j.applyPolicy(p) && p.acceptRaw && p.action == "" || accepted
		case folded:
			// A rule that restricts read_file must also restrict Read_File: an executor that
			// ignores case would run the same tool.
			j.addReason(p, events.Deny, events.Reason{Evaluator: EvaluatorName, Code: caseCode(in), Policy: p.name}, nil)
		}
	}
	return accepted
}

func (p *policy) matchesBesidesNames(in *Input, words []string) bool {
	return p.tenants.matches(in.Tenant) && p.sources.matches(in.Source) && p.protocols.matches(in.Protocol) && p.eventTypes.matches(in.EventType) &&
		p.actions.matches(in.Action) && p.kinds.matches(in.ResourceKind) && p.risks.matchesAny(words)
}

func caseCode(in *Input) string {
	if in.isHandoff() {
		return CodeAgentNameCase
	}
	return CodeToolNameCase
}

func (j *judgement) budgetOf(p *policy) *budget {
	if p.action != "" {
		return &j.trial
	}
	return &j.enforced
}

// applyPolicy evaluates every rule that may apply and reports whether one gave a reason. The loop
// never ends early: a later rule may be stricter, and every reason is kept.
func (j *judgement) applyPolicy(p *policy) (gaveReason bool) {
	b := j.budgetOf(p)
	var v cel.Activation = inputActivation{j.in, b}
	if p.names != nil {
		v = &policyActivation{inputActivation: inputActivation{j.in, b}, names: p.names}
	}
	if p.ruleIndex == nil {
		for i := range p.rules {
			gaveReason = j.applyRule(p, &p.rules[i], v) || gaveReason
		}
	} else {
		var room [64]int
		q := j.query
		q.tenant, q.handoff = "", false
		if j.query.handoff {
			q.name = "" // rules select by tools, and a handoff has none
		}
		for _, i := range p.ruleIndex.find(room[:0], q) {
			gaveReason = j.applyRule(p, &p.rules[i], v) || gaveReason
		}
	}
	if gaveReason && p.action == "" && p.expiresAfter > 0 && (j.out.ExpiresAfter == 0 || p.expiresAfter < j.out.ExpiresAfter) {
		j.out.ExpiresAfter = p.expiresAfter
	}
	return gaveReason
}

// applyRule applies one rule and reports whether it gave a reason: it matched, its condition failed, or
// only the case of the tool's name differs.
func (j *judgement) applyRule(p *policy, r *rule, v cel.Activation) (gaveReason bool) {
	if !r.actions.matches(j.in.Action) || !r.eventTypes.matches(j.in.EventType) {
		return false
	}
	if !r.tools.matches(j.in.Tool) {
		folded := r.verdict != events.Allow && j.in.Tool != "" && r.foldedTools.matches(j.query.name)
		if folded {
			j.addReason(p, events.Deny, events.Reason{Evaluator: EvaluatorName, Code: CodeToolNameCase, Policy: p.name}, nil)
		}
		return folded
	}
	holds, fault := r.when.holds(v)
	if holds && r.limit != nil {
		holds, fault = j.exceedsLimit(p, r, v)
	}
	switch {
	case fault != "":
		j.addReason(p, events.Deny, events.Reason{Evaluator: EvaluatorName, Code: faultCodes[fault], Policy: r.id}, nil)
		if p.action == "" {
			j.out.Fault = cmp.Or(j.out.Fault, fault)
			j.out.Failed = j.out.Failed || fault == FaultCounters || fault == FaultDeadline
		}
	case holds:
		j.addReason(p, r.verdict, events.Reason{Evaluator: EvaluatorName, Code: r.reason, Policy: r.id}, r)
	default:
		return false
	}
	return true
}
