package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a condition may name a zone, and a machine need not have them

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"

	"github.com/countersign-dev/countersign/admission/policy/functions"
	"github.com/countersign-dev/countersign/admission/policy/internal/expr"
)

// newEnv declares the variables and functions of conditions.
func newEnv() (*cel.Env, error) {
	opts := []cel.EnvOption{
		functions.Option(),
		func(env *cel.Env) (*cel.Env, error) {
			return cel.CustomTypeAdapter(treeAdapter{env.CELTypeAdapter()})(env)
		},
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(MaxExpression),
		cel.ParserRecursionLimit(64),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
		ext.Strings(ext.StringsVersion(5)),
		ext.Sets(),
	}
	for _, v := range requestVariables {
		opts = append(opts, cel.Variable(v.Name, v.celType))
	}
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, err
	}
	guards, err := withGrowthChecks(env)
	if err != nil {
		return nil, err
	}
	return env.Extend(guards...)
}

// RequestVariable is a variable that every condition has: a part of the request, or what is known about
// it. The reference page of the language is made from Name, Type and Meaning.
type RequestVariable struct {
	Name    string
	Type    string // text, map, timestamp, object, or "text or object"
	Meaning string

	celType *cel.Type
}

// RequestVariables lists the variables of conditions.
func RequestVariables() []RequestVariable { return slices.Clone(requestVariables) }

// requestVariables are the variables of conditions.
var requestVariables = []RequestVariable{
	textVariable("tenant", "authenticated"),
	textVariable("source", "the authenticated publisher"),
	textVariable("protocol", "the protocol of the subject, such as `agenthook`"),
	textVariable("event_type", "as the protocol calls it"),
	textVariable("tool", "empty if the request has none"),
	textVariable("action", "as the request says; `confirm` for an AAEP awaiting.confirmation"),
	textVariable("resource_kind", "as the request says"),
	textVariable("resource_scope", "as the request says"),
	{"resource", "text or object", "as the request says", cel.DynType},
	textVariable("session", "empty if the request has none"),
	textVariable("agent", "what the request says of itself: a claim"),
	textVariable("from_agent", "of a handoff, the agent that hands over"),
	textVariable("to_agent", "of a handoff, the agent that takes over"),
	mapVariable("risk", "what the request says, under the request's names (AgentHook: `operation_risk`, `risk_class`, `data_exfiltration_risk`, `requires_human_approval`, "+
		"`writes_external_system`, `idempotent`, `contains_secret`), and two derived entries, for AAEP the only ones: `level` (`low`, `medium`, `high`; an unknown word counts as high; "+
		"absent if the request says nothing) and `irreversible`. A [tool catalogue](../publishers.md#tool-catalogue) raises these two"),
	mapVariable("args", "the tool's input; empty for AAEP, which has no arguments; the payload of a handoff"),
	mapVariable("event", "the whole request without the publisher's claims: its own `admission_verdict`, `approval`, `annotations`, and attestation, trust and identity blocks"),
	mapVariable("catalog", "what the tenant's tool catalogue says about the tool; `catalog.known` is always there"),
	{"agent_tool", "object", "what the tool of a coding agent does: a [Tool](#tool)", cel.ObjectType("agenttool.Tool")},
	{"now", "timestamp", "the time of the decision, UTC; `now.getHours(\"Europe/Berlin\")` is the hour there, by the machine's table of zones or, where it lacks the zone, the program's", cel.TimestampType},
}

func textVariable(name, meaning string) RequestVariable {
	return RequestVariable{name, "text", meaning, cel.StringType}
}

func mapVariable(name, meaning string) RequestVariable {
	return RequestVariable{name, "map", meaning, cel.MapType(cel.StringType, cel.DynType)}
}

// condition is a compiled when. A nil program is the constant true.
type condition struct {
	program *program

	// The condition begins by comparing this variable with these values. With any other value
	// it is false, and nothing else in it is evaluated.
	variable string
	values   []string
}

// compileCondition compiles a when. The error names no file or line.
func (sc *policyEnv) compileCondition(when string) (condition, error) {
	ast, err := sc.checkExpression("when", when)
	if err != nil {
		return condition{}, err
	}
	if t := ast.OutputType(); t != cel.BoolType {
		return condition{}, fmt.Errorf("when must be true or false, and this is of type %s; compare it with something", t)
	}
	if strings.TrimSpace(when) == "true" {
		return condition{}, nil
	}
	if _, err := sc.estimateCost("when", ast); err != nil {
		return condition{}, err
	}
	c := condition{}
	c.variable, c.values = expr.RequiredValues(expr.Conjuncts(ast.NativeRep().Expr())[0])
	c.program, err = sc.planProgram("when", ast)
	return c, err
}

// compileAmount compiles the amount of a limit, and returns its definition. Without an expression there is
// none.
func (sc *policyEnv) compileAmount(expression string) (amount *program, definition string, err error) {
	if expression == "" {
		return nil, "", nil
	}
	ast, err := sc.checkExpression("limit.amount", expression)
	if err != nil {
		return nil, "", err
	}
	if t := ast.OutputType(); t != cel.IntType && t != cel.DynType {
		return nil, "", fmt.Errorf("limit.amount must be a whole number, and this is of type %s; int(…) makes one", t)
	}
	if _, err := sc.estimateCost("limit.amount", ast); err != nil {
		return nil, "", err
	}
	amount, err = sc.planProgram("limit.amount", ast)
	return amount, sc.definitionOf(expression, ast), err
}

func (sc *policyEnv) checkExpression(what, expression string) (*cel.Ast, error) {
	ast, issues := sc.env.Compile(expression)
	if issues != nil && issues.Err() != nil {
		return nil, celIssues(what, issues)
	}
	if zone := sc.findBadZone(ast.NativeRep().Expr()); zone != "" {
		return nil, fmt.Errorf("%s names the time zone %.64q, which is none; write one as \"Europe/Berlin\" or \"+01:00\"", what, zone)
	}
	return ast, nil
}

// zoneFunctions take a time zone as their argument.
var zoneFunctions = []string{
	overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDayOfYear, overloads.TimeGetDate, overloads.TimeGetDayOfMonth,
	overloads.TimeGetDayOfWeek, overloads.TimeGetHours, overloads.TimeGetMinutes, overloads.TimeGetSeconds, overloads.TimeGetMilliseconds,
}

// findBadZone finds a constant time zone that is none, or that of the machine: the condition would fail, or say
// another thing on each machine.
func (sc *policyEnv) findBadZone(e celast.Expr) string {
	if function, args := expr.Call(e); len(args) == 1 && slices.Contains(zoneFunctions, function) {
		zone := sc.constantText(args[0])
		if zone == "Local" || types.IsError(types.Timestamp{}.Receive(function, "", []ref.Val{types.String(zone)})) {
			return zone
		}
	}
	for _, c := range expr.Children(e) {
		if zone := sc.findBadZone(c); zone != "" {
			return zone
		}
	}
	return ""
}

// constantText is a text that is written out, or is a param; "" for any other expression.
func (sc *policyEnv) constantText(e celast.Expr) string {
	if e.Kind() == celast.IdentKind && sc.names != nil {
		text, _ := sc.names.params[e.AsIdent()].(types.String)
		return string(text)
	}
	return expr.LiteralText(e)
}

// estimateCost returns the static cost of an expression, including the variables that it uses
// directly or indirectly.
func (sc *policyEnv) estimateCost(what string, ast *cel.Ast) (uint64, error) {
	est, err := sc.env.EstimateCost(ast, sc.sizes)
	if err != nil {
		return 0, fmt.Errorf("the cost of %s cannot be estimated: %w", what, err)
	}
	total := est.Max
	for _, name := range referencedNames(ast, variablesPrefix) {
		total += min(sc.sizes.variables[name], MaxStaticCost)
	}
	if total > MaxStaticCost || total < est.Max {
		return 0, fmt.Errorf("%s may cost more than %d steps; nest fewer loops and compare shorter texts", what, MaxStaticCost)
	}
	return total, nil
}

func (sc *policyEnv) planProgram(what string, ast *cel.Ast) (*program, error) {
	planned, err := sc.env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostTracking(callCosts{}), cel.CostLimit(MaxRuntimeCost),
		cel.CustomDecoratorV2(meterNode), cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be compiled: %w", what, err)
	}
	return &program{planned, hasLoop(ast.NativeRep().Expr())}, nil
}

// interruptEvery is the number of loop rounds between two checks of the deadline.
const interruptEvery = 64

// hasLoop reports whether an expression has a comprehension.
func hasLoop(e celast.Expr) bool {
	return e.Kind() == celast.ComprehensionKind || slices.ContainsFunc(expr.Children(e), hasLoop)
}

func celIssues(what string, issues *cel.Issues) error {
	var b strings.Builder
	b.WriteString(what + " is not valid CEL")
	for _, e := range issues.Errors() {
		fmt.Fprintf(&b, "; at %d:%d %s", e.Location.Line(), e.Location.Column()+1, e.Message)
	}
	return fmt.Errorf("%s", b.String())
}

// holds evaluates a condition. Any error, a panic of the interpreter included,
// is a fault and must deny.
func (c condition) holds(v cel.Activation) (matched bool, fault Fault) {
	if c.program == nil {
		return true, ""
	}
	out, fault := runProgram(c.program, v)
	if fault != "" {
		return false, fault
	}
	if b, isBool := out.(types.Bool); isBool {
		return bool(b), ""
	}
	return false, FaultEvaluation
}

// runProgram runs a program. A variable that exceeds its cost is a fault even where CEL could
// do without its value.
func runProgram(planned *program, v cel.Activation) (ref.Val, Fault) {
	e, scoped := v.(*policyActivation)
	if scoped {
		e.costExceeded = false
	}
	b := budgetIn(v)
	if b.checkDeadline(); b.fault != "" {
		return nil, b.fault
	}
	out, _, err := planned.run(v, b)
	switch {
	case b.fault != "":
		return nil, b.fault
	case scoped && e.costExceeded:
		return nil, FaultLimit
	}
	return out, faultOf(err)
}

// budgetIn is the budget of an activation of this package.
func budgetIn(v cel.Activation) *budget {
	b, _ := v.ResolveName(budgetName)
	return b.(*budget)
}

func faultOf(err error) Fault {
	var cancelled interpreter.EvalCancelledError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.MemoryLimitExceeded:
		return FaultMemory
	case errors.As(err, &cancelled):
		return FaultLimit
	}
	return FaultEvaluation
}

// sizeEstimates tells the static estimate which input sizes to assume, and what params and
// variables really cost.
type sizeEstimates struct{ params, variables map[string]uint64 }

func (s sizeEstimates) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	if e := n.Expr(); e != nil && e.Kind() == celast.IdentKind {
		if size, known := s.params[e.AsIdent()]; known {
			return &cost.SizeEstimate{Min: 0, Max: max(size, 1)}
		}
	}
	if functions.IsResultList(n.Type(), n.Expr()) {
		return &cost.SizeEstimate{Min: 0, Max: assumedResults}
	}
	return &cost.SizeEstimate{Min: 0, Max: assumedSize}
}

// sizeOf is the size of a constant as CEL counts it.
func sizeOf(v any) uint64 {
	switch v := v.(type) {
	case string:
		return uint64(len(v))
	case []any:
		return uint64(len(v))
	case map[string]any:
		return uint64(len(v))
	}
	return 1
}

// EstimateCallCost implements cost.Estimator for the functions that read a text of the request.
func (s sizeEstimates) EstimateCallCost(function, _ string, _ *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
	base, perUnit, known := functions.Cost(function)
	if !known {
		return nil
	}
	return &cost.CallEstimate{CostEstimate: cost.Estimate{Min: base, Max: base + perUnit*assumedSize/bytesPerStep*uint64(len(args))}}
}

// treeAdapter gives CEL the trees of strictjson without copying them.
type treeAdapter struct{ types.Adapter }

func (a treeAdapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case json.Number:
		return numberValue(v)
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	default:
		return a.Adapter.NativeToValue(v)
	}
}

// numberValue converts by value, not by spelling: 1, 1.0 and 1e0 have the same canonical form,
// so a policy must not distinguish them.
func numberValue(n json.Number) ref.Val {
	f, err := n.Float64()
	if err != nil {
		return types.NewErr("a number is beyond what a double can hold")
	}
	if f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
		return types.Int(int64(f))
	}
	return types.Double(f)
}

// inputActivation is the activation of one request.
type inputActivation struct {
	in     *Input
	budget *budget
}

func (v inputActivation) Parent() cel.Activation { return nil }

func (v inputActivation) ResolveName(name string) (any, bool) {
	read, known := inputVariables[name]
	if name == budgetName {
		return v.budget, true
	}
	if !known {
		return nil, false
	}
	return read(v.in), true
}

var inputVariables = map[string]func(*Input) any{
	"tenant":         func(in *Input) any { return in.Tenant },
	"source":         func(in *Input) any { return in.Source },
	"protocol":       func(in *Input) any { return in.Protocol },
	"event_type":     func(in *Input) any { return in.EventType },
	"tool":           func(in *Input) any { return in.Tool },
	"action":         func(in *Input) any { return in.Action },
	"resource":       func(in *Input) any { return in.Resource },
	"resource_kind":  func(in *Input) any { return in.ResourceKind },
	"resource_scope": func(in *Input) any { return in.ResourceScope },
	"session":        func(in *Input) any { return in.Session },
	"agent":          func(in *Input) any { return in.Agent },
	"from_agent":     func(in *Input) any { return in.FromAgent },
	"to_agent":       func(in *Input) any { return in.ToAgent },
	"risk":           func(in *Input) any { return in.Risk },
	"args":           func(in *Input) any { return in.Args },
	"event":          func(in *Input) any { return in.Event },
	"catalog": func(in *Input) any {
		if in.Catalog == nil {
			return unlistedTool
		}
		return in.Catalog
	},
	"agent_tool": func(in *Input) any { return in.describeTool() },
	"now":        func(in *Input) any { return in.Now.In(time.UTC) },
}

// unlistedTool is the catalogue entry of every tool where there is no catalogue.
var unlistedTool = map[string]any{"known": false}
