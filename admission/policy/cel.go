package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
)

// newEnv declares what a condition sees.
func newEnv() (*cel.Env, error) {
	object := cel.MapType(cel.StringType, cel.DynType)
	opts := []cel.EnvOption{
		cel.CustomTypeAdapter(values{types.DefaultTypeAdapter}),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(MaxExpression),
		cel.ParserRecursionLimit(64),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
		ext.Strings(ext.StringsVersion(5)),
		ext.Sets(),
		cel.Variable("risk", object),
		cel.Variable("args", object),
		cel.Variable("event", object),
		cel.Variable("resource", cel.DynType),
		cel.Variable("now", cel.TimestampType),
	}
	for _, name := range []string{"tenant", "source", "protocol", "tool", "action", "resource_kind", "resource_scope", "session", "agent", "from_agent", "to_agent"} {
		opts = append(opts, cel.Variable(name, cel.StringType))
	}
	return cel.NewEnv(opts...)
}

// condition is a compiled when. A nil program is the constant true.
type condition struct{ program cel.Program }

// compile checks a condition and plans it. The error names no file or line.
func compile(env *cel.Env, when string) (condition, error) {
	ast, issues := env.Compile(when)
	if issues != nil && issues.Err() != nil {
		return condition{}, celIssues(issues)
	}
	if t := ast.OutputType(); t != cel.BoolType {
		return condition{}, fmt.Errorf("when must be true or false, and this is of type %s; compare it with something", t)
	}
	if strings.TrimSpace(when) == "true" {
		return condition{}, nil
	}
	est, err := env.EstimateCost(ast, sizes{})
	if err != nil {
		return condition{}, fmt.Errorf("the cost of when cannot be estimated: %w", err)
	}
	if est.Max > MaxStaticCost {
		return condition{}, fmt.Errorf("when may cost more than %d steps; nest fewer loops and compare shorter texts", MaxStaticCost)
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(MaxRuntimeCost))
	if err != nil {
		return condition{}, fmt.Errorf("when cannot be compiled: %w", err)
	}
	return condition{program: program}, nil
}

func celIssues(issues *cel.Issues) error {
	var b strings.Builder
	b.WriteString("when is not valid CEL")
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
	out, _, err := c.program.Eval(v)
	var cancelled interpreter.EvalCancelledError
	switch {
	case errors.As(err, &cancelled):
		return false, FaultLimit
	case err != nil:
		return false, FaultEvaluation
	}
	if b, isBool := out.(types.Bool); isBool {
		return bool(b), ""
	}
	return false, FaultEvaluation
}

// sizes is what the static estimate assumes about the input.
type sizes struct{}

func (sizes) EstimateSize(cost.AstNode) *cost.SizeEstimate {
	return &cost.SizeEstimate{Min: 0, Max: assumedSize}
}

func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// values gives CEL the trees of strictjson as they are, without copying them.
type values struct{ types.Adapter }

func (a values) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case json.Number:
		return number(v)
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	default:
		return a.Adapter.NativeToValue(v)
	}
}

// number goes by the value, not by how it was written: 1, 1.0 and 1e0 have the
// same canonical form, so a policy must not tell them apart.
func number(n json.Number) ref.Val {
	f, err := n.Float64()
	if err != nil {
		return types.NewErr("a number is beyond what a double can hold")
	}
	if f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
		return types.Int(int64(f))
	}
	return types.Double(f)
}

// vars is the activation of one request.
type vars struct{ in *Input }

func (v vars) Parent() cel.Activation { return nil }

func (v vars) ResolveName(name string) (any, bool) {
	read, known := variables[name]
	if !known {
		return nil, false
	}
	return read(v.in), true
}

var variables = map[string]func(*Input) any{
	"tenant":         func(in *Input) any { return in.Tenant },
	"source":         func(in *Input) any { return in.Source },
	"protocol":       func(in *Input) any { return in.Protocol },
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
	"now":            func(in *Input) any { return in.Now.In(time.UTC) },
}
