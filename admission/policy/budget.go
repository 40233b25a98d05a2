package policy

import (
	"context"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	celfunctions "cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/countersign-dev/countersign/admission/policy/functions"
)

// budget bounds what the conditions may use on one call: steps, bytes, counters, and the time until
// the request's deadline. Policies that decide share one budget; policies that only warn or audit
// share another, so that a policy on trial denies nothing. An exhausted budget stays exhausted:
// every later condition is a fault, and no error that CEL ignores (x || true) hides it.
type budget struct {
	ctx    context.Context // nil: there is no deadline
	steps  uint64
	bytes  int64
	counts int   // at most MaxCounts
	fault  Fault // why no condition may be evaluated any more
}

// budgetName is the name under which the interpreter finds the budget of an evaluation. No
// expression can contain this name.
const budgetName = "@budget"

// Sizes of values as a budget counts them, in bytes. They are lower bounds without texts and
// elements, which are added.
const (
	scalarSize          = 16
	listSize            = 32
	mapSize             = 64
	bytesPerPatternStep = 64 // of a compiled pattern
)

// spend charges n bytes that an expression creates, and ends the evaluation if the budget has
// too few.
func (b *budget) spend(n int64) {
	if b.bytes += n; b.bytes > MaxCallBytes || b.bytes < 0 {
		b.fault = FaultMemory
		panic(errMemory)
	}
}

// bytesLeft returns how many bytes may still be created.
func (b *budget) bytesLeft() int64 { return MaxCallBytes - b.bytes }

// checkDeadline records the fault of a request after its deadline.
func (b *budget) checkDeadline() {
	if b.ctx == nil || b.fault != "" {
		return
	}
	select {
	case <-b.ctx.Done():
		b.fault = FaultDeadline
	default:
	}
}

var errMemory = interpreter.EvalCancelledError{Cause: interpreter.MemoryLimitExceeded, Message: "the conditions make too much of the request"}

// program is a planned expression.
type program struct {
	cel.Program
	loops bool // it has a comprehension, so it looks at the deadline while it runs
}

// run evaluates a program within a budget.
func (p *program) run(v cel.Activation, b *budget) (out ref.Val, cost uint64, err error) {
	var details *cel.EvalDetails
	if p.loops && b.ctx != nil {
		out, details, err = p.ContextEval(b.ctx, v)
	} else {
		out, details, err = p.Eval(v)
	}
	if c := details.ActualCost(); c != nil {
		cost = *c
	}
	if b.steps += cost; b.fault == "" && b.steps > MaxCallSteps {
		b.fault = FaultLimit
	}
	if b.fault == "" && faultOf(err) == FaultMemory {
		b.fault = FaultMemory
	}
	b.checkDeadline()
	return out, cost, err
}

// meterNode wraps every node of a program that creates a value, so that the node charges its
// size to the budget. A value that is only passed on costs nothing.
func meterNode(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch node := node.(type) {
	case interpreter.InterpretableConst:
		return node, nil
	case interpreter.InterpretableConstructor:
		for _, v := range node.InitVals() {
			if _, constant := v.(interpreter.InterpretableConst); !constant {
				return &meteredConstructor{node}, nil
			}
		}
	case interpreter.InterpretableCall:
		switch function := node.Function(); {
		case function == operators.Add && len(node.Args()) == 2:
			return &meteredSum{InterpretableCall: node, left: node.Args()[0], right: node.Args()[1]}, nil
		case nonAllocating[function]:
		case function == "matches" && len(node.Args()) == 2:
			return &meteredPattern{node}, nil
		default:
			return &meteredCall{node}, nil
		}
	}
	return node, nil
}

// nonAllocating lists the functions that create no text, list or map.
var nonAllocating = map[string]bool{
	operators.Equals: true, operators.NotEquals: true, operators.In: true, operators.OldIn: true, operators.Index: true,
	operators.Less: true, operators.LessEquals: true, operators.Greater: true, operators.GreaterEquals: true,
	operators.LogicalAnd: true, operators.LogicalOr: true, operators.LogicalNot: true, operators.Conditional: true, operators.NotStrictlyFalse: true,
	operators.Subtract: true, operators.Multiply: true, operators.Divide: true, operators.Modulo: true, operators.Negate: true,
	"size": true, "startsWith": true, "endsWith": true, "contains": true, "indexOf": true, "lastIndexOf": true, "dyn": true,
	"sets.contains": true, "sets.equivalent": true, "sets.intersects": true, "int": true, "uint": true, "double": true, "bool": true,
}

func budgetOf(frame *interpreter.ExecutionFrame) *budget {
	b, _ := frame.ResolveName(budgetName)
	return b.(*budget)
}

// meteredConstructor meters a list or map literal in an expression.
type meteredConstructor struct {
	interpreter.InterpretableConstructor
}

func (m *meteredConstructor) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	out := m.InterpretableConstructor.Exec(frame)
	b := budgetOf(frame)
	b.spend(sizeWithin(out, b.bytesLeft()))
	return out
}

func (m *meteredConstructor) Eval(v interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(v, m.Exec)
}

// meteredCall meters a call that creates at most a multiple of its arguments. Functions that
// can create more are checked by growthBounds before the call.
type meteredCall struct{ interpreter.InterpretableCall }

func (m *meteredCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	out := m.InterpretableCall.Exec(frame)
	switch out.(type) {
	case types.String, types.Bytes, traits.Lister, traits.Mapper, traits.FieldTester:
		b := budgetOf(frame)
		b.spend(sizeWithin(out, b.bytesLeft()))
	}
	return out
}

func (m *meteredCall) Eval(v interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(v, m.Exec)
}

// meteredPattern meters a match with a pattern that is not known before the call.
type meteredPattern struct{ interpreter.InterpretableCall }

func (m *meteredPattern) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if pattern, ok := m.Args()[1].Exec(frame).(types.String); ok {
		budgetOf(frame).spend(patternSize(string(pattern)))
	}
	return m.InterpretableCall.Exec(frame)
}

func (m *meteredPattern) Eval(v interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(v, m.Exec)
}

// maxRepeats is the largest repeat count that package regexp accepts, nested repeats
// multiplied.
const maxRepeats = 1000

// patternSize bounds the size of a compiled pattern: one step per byte, multiplied by its
// repeat counts ({2,8}).
func patternSize(pattern string) int64 {
	if len(pattern) > MaxPatternOfCall {
		return MaxCallBytes + 1
	}
	repeats := int64(1)
	for rest := pattern; ; {
		_, after, found := strings.Cut(rest, "{")
		if !found {
			return max(int64(len(pattern)), 1) * min(repeats, maxRepeats) * bytesPerPatternStep
		}
		count, tail, _ := strings.Cut(after, "}")
		low, high, _ := strings.Cut(count, ",")
		n, _ := strconv.Atoi(low)
		m, _ := strconv.Atoi(high)
		repeats = min(repeats*int64(max(n, m, 1)), maxRepeats)
		rest = tail
	}
}

// meteredSum meters +. It charges before it concatenates. For two lists it charges the second
// only, so that a loop that appends to a list pays for every element once; no list is larger
// than the request and everything charged.
type meteredSum struct {
	interpreter.InterpretableCall
	left, right interpreter.InterpretableV2
}

func (m *meteredSum) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	left := m.left.Exec(frame)
	if types.IsUnknownOrError(left) {
		return left
	}
	right := m.right.Exec(frame)
	if types.IsUnknownOrError(right) {
		return right
	}
	id := m.OverloadID()
	switch l := left.(type) {
	case types.String:
		if r, ok := right.(types.String); ok {
			id = addString
			budgetOf(frame).spend(scalarSize + int64(len(l)) + int64(len(r)))
		}
	case types.Bytes:
		if r, ok := right.(types.Bytes); ok {
			id = addBytes
			budgetOf(frame).spend(scalarSize + int64(len(l)) + int64(len(r)))
		}
	case traits.Lister:
		b := budgetOf(frame)
		b.spend(sizeWithin(right, b.bytesLeft()))
	}
	var out ref.Val
	if adder, ok := left.(traits.Adder); ok {
		out = adder.Add(right)
	} else {
		out = types.NewErrWithNodeID(m.ID(), "no such overload: %s", m.Function())
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, m.ID(), overload{m.Function(), id}, left, right, out)
	}
	return out
}

func (m *meteredSum) Eval(v interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(v, m.Exec)
}

// overload describes a call to the cost tracker.
type overload struct{ function, id string }

func (o overload) Function() string   { return o.function }
func (o overload) OverloadID() string { return o.id }

// Overloads of + that cost what they copy.
const (
	addString = "add_string"
	addBytes  = "add_bytes"
)

// sizeWithin is the size of a value if nothing in it were shared: a list that holds the same
// text twice counts it twice. Above limit the walk ends early and returns a number above limit.
func sizeWithin(v any, limit int64) int64 {
	n := int64(scalarSize)
	switch v := v.(type) {
	case types.String:
		return n + int64(len(v))
	case types.Bytes:
		return n + int64(len(v))
	case string:
		return n + int64(len(v))
	case functions.Sized:
		return n + v.Size()
	case traits.Mapper:
		if plain, ok := v.Value().(map[string]any); ok {
			return sizeWithin(plain, limit)
		}
		n = mapSize
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			key := it.Next()
			n += sizeWithin(key, limit-n)
			if value, found := v.Find(key); found && n <= limit {
				n += sizeWithin(value, limit-n)
			}
		}
	case traits.Lister:
		if plain, ok := v.Value().([]any); ok {
			return sizeWithin(plain, limit)
		}
		n = listSize
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			n += sizeWithin(it.Next(), limit-n)
		}
	case map[string]any:
		n = mapSize
		for key, value := range v {
			if n += int64(len(key)) + scalarSize; n > limit {
				break
			}
			n += sizeWithin(value, limit-n)
		}
	case []any:
		n = listSize
		for _, e := range v {
			if n > limit {
				break
			}
			n += sizeWithin(e, limit-n)
		}
	case ref.Val: // an object, as the functions return them
		if sized, ok := v.Value().(functions.Sized); ok {
			return n + sized.Size()
		}
	}
	return n
}

// growthBounds are the functions of which one call can create far more than its arguments hold.
// Each entry bounds in bytes what a call would create; a call that would create more than
// MaxCallBytes is not made.
var growthBounds = map[string]func(args []ref.Val) int64{
	"replace": replacedSize,
	"join":    joinedSize,
	"format":  formattedSize,
}

func lengthOf(v ref.Val) int64 {
	s, _ := v.(types.String)
	return int64(len(s))
}

func replacedSize(args []ref.Val) int64 {
	text, _ := args[0].(types.String)
	old, _ := args[1].(types.String)
	hits := int64(strings.Count(string(text), string(old)))
	if len(args) == 4 {
		if n, ok := args[3].(types.Int); ok && n >= 0 {
			hits = min(hits, int64(n))
		}
	}
	return lengthOf(args[0]) + multiplyCapped(hits, lengthOf(args[2]))
}

// multiplyCapped multiplies two sizes and stops above MaxCallBytes.
func multiplyCapped(a, b int64) int64 {
	if a > 0 && b > MaxCallBytes/a {
		return MaxCallBytes + 1
	}
	return a * b
}

func joinedSize(args []ref.Val) int64 {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return 0
	}
	n := sizeWithin(list, MaxCallBytes)
	if len(args) == 2 {
		count, _ := list.Size().(types.Int)
		n += multiplyCapped(int64(count), lengthOf(args[1]))
	}
	return n
}

// formattedSize bounds the result of format. Every clause writes one argument once. A number
// takes up to about 400 digits; quotes and escapes in lists and maps at most double a text.
func formattedSize(args []ref.Val) int64 {
	list, ok := args[1].(traits.Lister)
	if !ok {
		return 0
	}
	count, _ := list.Size().(types.Int)
	return lengthOf(args[0]) + 2*sizeWithin(list, MaxCallBytes) + multiplyCapped(int64(count), 512)
}

// withGrowthChecks makes the functions of growthBounds check the size of their result first.
func withGrowthChecks(env *cel.Env) (opts []cel.EnvOption, err error) {
	for name, bound := range growthBounds {
		decl := env.Functions()[name]
		bindings, err := decl.Bindings()
		if err != nil {
			return nil, err
		}
		byID := map[string]*celfunctions.Overload{}
		for _, b := range bindings {
			byID[b.Operator] = b
		}
		for _, o := range decl.OverloadDecls() {
			declare := cel.Overload
			if o.IsMemberFunction() {
				declare = cel.MemberOverload
			}
			opts = append(opts, cel.Function(name, declare(o.ID(), o.ArgTypes(), o.ResultType(), checkedBinding(byID[o.ID()], bound))))
		}
	}
	return opts, nil
}

// checkedBinding is the binding of a function that checks its bound before it runs.
func checkedBinding(f *celfunctions.Overload, bound func([]ref.Val) int64) cel.OverloadOpt {
	check := func(args ...ref.Val) {
		if bound(args) > MaxCallBytes {
			panic(errMemory)
		}
	}
	switch {
	case f.Unary != nil:
		return cel.UnaryBinding(func(a ref.Val) ref.Val { check(a); return f.Unary(a) })
	case f.Binary != nil:
		return cel.BinaryBinding(func(a, b ref.Val) ref.Val { check(a, b); return f.Binary(a, b) })
	}
	return cel.FunctionBinding(func(args ...ref.Val) ref.Val { check(args...); return f.Function(args...) })
}

// callCosts prices calls with an overload that CEL knows only at run time. Without it a loop over a
// long text would cost as much as one over a short text.
type callCosts struct{}

// CallCost implements cost.ActualCostEstimator.
func (callCosts) CallCost(function, id string, args []ref.Val, _ ref.Val) *uint64 {
	var bytes int64
	switch {
	case len(args) == 0:
		return nil
	case (function == operators.Equals || function == operators.NotEquals) && len(args) == 2:
		bytes = smallerSize(args[0], args[1])
	case function == operators.In && len(args) == 2:
		if list, ok := args[1].(traits.Lister); ok {
			bytes = sizeWithin(list, MaxCallBytes)
		}
	case functions.Is(function):
		base, perUnit, _ := functions.Cost(function)
		extra := uint64(0)
		for _, a := range args {
			bytes += sizeWithin(a, MaxCallBytes)
			if s, ok := a.(types.String); ok {
				extra += functions.ExtraCost(function, string(s))
			}
		}
		bytes = int64(base+extra)*bytesPerStep + bytes*int64(perUnit)
	case id != "":
		return nil // CEL's default cost
	default:
		bytes = sizeWithin(args[0], MaxCallBytes)
	}
	steps := max(uint64(bytes)/bytesPerStep, 1)
	return &steps
}

// smallerSize is the smaller size of two values. It walks about as much of the larger one as of the
// smaller one: a loop may compare a list of 100,000 numbers with each of them.
func smallerSize(a, b ref.Val) int64 {
	for limit := int64(1 << 10); ; limit *= 4 {
		n := min(sizeWithin(a, limit), sizeWithin(b, limit))
		if n <= limit || limit >= MaxCallBytes {
			return n
		}
	}
}

// bytesPerStep is how many bytes one step covers.
const bytesPerStep = 16
