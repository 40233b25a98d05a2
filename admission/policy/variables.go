package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/strictyaml"
)

// variableSpec is a named expression of a policy. It may use the variables before it.
type variableSpec struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`

	line, exprLine int
}

func (r *reader) readVariable(n *yaml.Node, s *spec) {
	v := variableSpec{line: n.Line}
	r.Mapping(n, "a variable", strictyaml.Fields{
		"name": func(n *yaml.Node) { v.Name, _ = r.readIdent(n, "the variable's name") },
		"expression": func(n *yaml.Node) {
			v.exprLine = n.Line
			r.Text("the variable's expression", MaxExpression, &v.Expression)(n)
		},
	}, "name", "expression")
	if v.Name != "" && slices.ContainsFunc(s.Variables, func(o variableSpec) bool { return o.Name == v.Name }) {
		r.Fail(n, "two variables are named %s", v.Name)
	}
	s.Variables = append(s.Variables, v)
}

// Prefixes of the names of params and variables in expressions.
const (
	paramsPrefix    = "params."
	variablesPrefix = "variables."
)

// policyNames are the constants and variables of one policy.
type policyNames struct {
	params    map[string]ref.Val
	variables map[string]int
	programs  []*program
}

// policyEnv is the CEL environment of one policy.
type policyEnv struct {
	env   *cel.Env
	sizes sizeEstimates
	names *policyNames // nil if the policy has neither params nor variables

	definitions map[string]string // of params and variables: a hash of all that gives one its value, but for the call
}

// newPolicyEnv adds a policy's params and variables to the shared environment. The errors name
// file and line.
func newPolicyEnv(base *cel.Env, s spec) (*policyEnv, []error) {
	sc := &policyEnv{env: base, sizes: sizeEstimates{params: map[string]uint64{}, variables: map[string]uint64{}}, definitions: map[string]string{}}
	if len(s.Params)+len(s.Variables) == 0 {
		return sc, nil
	}
	sc.names = &policyNames{params: map[string]ref.Val{}, variables: map[string]int{}}
	var opts []cel.EnvOption
	for name, v := range s.Params {
		full := paramsPrefix + name
		sc.names.params[full], sc.sizes.params[full] = valueOf(v), sizeOf(v)
		text, _ := json.Marshal(v) // cannot fail: it was read from YAML
		sc.definitions[full] = hashFields([]string{string(text)})
		opts = append(opts, cel.Variable(full, typeOf(v)))
	}
	env, err := base.Extend(opts...)
	if err != nil {
		return sc, []error{s.fail("policy %s: its params cannot be declared: %v", s.Name, err)}
	}
	sc.env = env
	var errs []error
	for _, v := range s.Variables {
		if err := sc.defineVariable(v); err != nil {
			errs = append(errs, place{s.file, v.exprLine}.fail("policy %s, variable %s: %v", s.Name, v.Name, err))
		}
	}
	return sc, errs
}

// defineVariable compiles a variable and declares it for the following expressions. An invalid
// variable is declared all the same, so that no mistake is reported twice.
func (sc *policyEnv) defineVariable(v variableSpec) error {
	full, kind := variablesPrefix+v.Name, cel.DynType
	ast, err := sc.checkExpression("the expression", v.Expression)
	var planned *program
	if err == nil {
		kind = ast.OutputType()
		sc.definitions[full] = sc.definitionOf(v.Expression, ast)
		sc.sizes.variables[full], err = sc.estimateCost("the expression", ast)
	}
	if err == nil {
		planned, err = sc.planProgram("the expression", ast)
	}
	env, extendErr := sc.env.Extend(cel.Variable(full, kind))
	if extendErr != nil {
		return fmt.Errorf("it cannot be declared: %w", extendErr)
	}
	sc.env = env
	sc.names.variables[full] = len(sc.names.programs)
	sc.names.programs = append(sc.names.programs, planned)
	return err
}

// definitionOf is a hash of an expression with the params and variables that it reads, directly or not.
func (sc *policyEnv) definitionOf(expression string, ast *cel.Ast) string {
	fields := []string{expression}
	for _, prefix := range []string{paramsPrefix, variablesPrefix} {
		for _, name := range referencedNames(ast, prefix) {
			fields = append(fields, name, sc.definitions[name])
		}
	}
	return hashFields(fields)
}

// referencedNames lists the names with a prefix that a checked expression refers to.
func referencedNames(ast *cel.Ast, prefix string) []string {
	var list []string
	for _, r := range ast.NativeRep().ReferenceMap() {
		if strings.HasPrefix(r.Name, prefix) && !slices.Contains(list, r.Name) {
			list = append(list, r.Name)
		}
	}
	slices.Sort(list)
	return list
}

// policyActivation is the activation of one policy for one call. It caches the value of every
// variable: each is evaluated at most once, and only if an expression reads it.
type policyActivation struct {
	inputActivation
	names        *policyNames
	memo         []ref.Val
	spent        uint64 // by all variables so far
	costExceeded bool   // a variable without a value was read, because it costs too much
}

// ResolveName implements cel.Activation.
func (e *policyActivation) ResolveName(name string) (any, bool) {
	if v, known := e.names.params[name]; known {
		return v, true
	}
	if i, known := e.names.variables[name]; known {
		return e.variableValue(i), true
	}
	return e.inputActivation.ResolveName(name)
}

var errVariableCost = types.NewErr("the variables of the policy cost more than %d steps", MaxRuntimeCost)

func (e *policyActivation) variableValue(i int) ref.Val {
	if e.memo == nil {
		e.memo = make([]ref.Val, len(e.names.programs))
	}
	if e.memo[i] == nil {
		e.memo[i] = e.computeVariable(i)
	}
	if e.memo[i] == errVariableCost {
		e.costExceeded = true
	}
	return e.memo[i]
}

func (e *policyActivation) computeVariable(i int) ref.Val {
	if e.spent > MaxRuntimeCost {
		return errVariableCost
	}
	out, cost, err := e.names.programs[i].run(e, e.budget)
	e.spent += cost
	switch {
	case e.spent > MaxRuntimeCost, faultOf(err) == FaultLimit, e.budget.fault != "":
		return errVariableCost
	case err != nil:
		return types.WrapErr(err)
	}
	return out
}
