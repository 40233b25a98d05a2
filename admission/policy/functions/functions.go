// Package functions holds the functions of policy conditions that understand what agents do: shell
// texts, paths, addresses, SQL, patches and command lines. All are pure and bounded; none reads a
// file, a name server or a clock. What an argument does not tell is said to be unknown, in a member
// that conditions can deny on. Begin reading with Option and the table calls.
package functions

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"

	"github.com/countersign-dev/countersign/admission/policy/functions/shell"
	"github.com/countersign-dev/countersign/events/agenttool"
)

// Unknown stands for an unknown part of a text in the results.
const Unknown = shell.Unknown

// Sized is a result that knows how many bytes it holds, for the budget of a call.
type Sized interface{ Size() int64 }

// Option declares the functions and their types.
func Option() cel.EnvOption {
	return func(env *cel.Env) (*cel.Env, error) {
		env, err := ext.NativeTypes(ext.ParseStructTags(true), reflect.TypeOf(shell.Script{}), reflect.TypeOf(Address{}), reflect.TypeOf(SQL{}), reflect.TypeOf(Patch{}), reflect.TypeOf(View{}), reflect.TypeOf(agenttool.Tool{}))(env)
		if err != nil {
			return nil, err
		}
		for _, c := range calls {
			run := c.binding(env.CELTypeAdapter())
			if env, err = cel.Function(c.Name, cel.Overload(c.Name, c.args, c.result, run))(env); err != nil {
				return nil, err
			}
		}
		return env, nil
	}
}

func (c call) binding(adapter types.Adapter) cel.OverloadOpt {
	run := func(args ...ref.Val) ref.Val {
		native := make([]any, len(args))
		for i, a := range args {
			v, ok := c.nativeArgument(a)
			if !ok {
				return types.NewErr("%s does not take such an argument", c.Name)
			}
			native[i] = v
		}
		return adapter.NativeToValue(c.run(native))
	}
	switch len(c.args) {
	case 1:
		return cel.UnaryBinding(func(a ref.Val) ref.Val { return run(a) })
	case 2:
		return cel.BinaryBinding(func(a, b ref.Val) ref.Val { return run(a, b) })
	}
	return cel.FunctionBinding(run)
}

// nativeArgument is a text or a list of texts, or a tree for a function that takes any value.
func (c call) nativeArgument(v ref.Val) (any, bool) {
	if c.args[0] == cel.DynType {
		return treeOf(v)
	}
	switch v := v.(type) {
	case types.String:
		return string(v), true
	case traits.Lister:
		list := []string{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			s, ok := it.Next().(types.String)
			if !ok {
				return nil, false
			}
			list = append(list, string(s))
		}
		return list, true
	}
	return nil, false
}

// treeOf copies a value into a tree of maps, lists, texts, json.Numbers, bools and nils; ok is false
// for a value that no JSON has.
func treeOf(v ref.Val) (tree any, ok bool) {
	switch v := v.(type) {
	case types.String:
		return string(v), true
	case types.Bool:
		return bool(v), true
	case types.Null:
		return nil, true
	case types.Int:
		return json.Number(strconv.FormatInt(int64(v), 10)), true
	case types.Uint:
		return json.Number(strconv.FormatUint(uint64(v), 10)), true
	case types.Double:
		return json.Number(strconv.FormatFloat(float64(v), 'g', -1, 64)), true
	case traits.Mapper:
		return mapOf(v)
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			e, ok := treeOf(it.Next())
			if !ok {
				return nil, false
			}
			list = append(list, e)
		}
		return list, true
	}
	return nil, false
}

func mapOf(v traits.Mapper) (tree any, ok bool) {
	m := map[string]any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, isText := key.(types.String)
		if !isText {
			return nil, false
		}
		e, ok := treeOf(v.Get(key))
		if !ok {
			return nil, false
		}
		m[string(name)] = e
	}
	return m, true
}

// Grows reports whether the result of a function is about as large as its argument. The others are small
// whatever they are given.
func Grows(name string) bool {
	return name == "shell.parse" || name == "sql.statements" || name == "diff.files" || name == "cli.view"
}

// IsResultList reports whether an expression is a list in a result of a function: a list of objects, or
// a member that is a list of texts. Members of a request have no such type.
func IsResultList(t *cel.Type, e ast.Expr) bool {
	if t == nil || t.Kind() != types.ListKind || len(t.Parameters()) != 1 {
		return false
	}
	switch t.Parameters()[0].Kind() {
	case types.StructKind:
		return true
	case types.StringKind:
		return e != nil && e.Kind() == ast.SelectKind
	}
	return false
}

// Cost is what a call of a function costs, in steps of the budget: base, and perUnit for every 16 bytes
// of its arguments. known is false for another function.
func Cost(name string) (base, perUnit uint64, known bool) {
	for i := range calls {
		if calls[i].Name == name {
			return calls[i].base, calls[i].steps, true
		}
	}
	return 0, 0, false
}

// foldingSteps is what the folding of a byte outside ASCII costs: one character can become eighteen.
const foldingSteps = 30

// ExtraCost is what one text in the arguments adds to the Cost of a call, in steps: path functions convert
// the characters outside ASCII.
func ExtraCost(name, text string) uint64 {
	if !strings.HasPrefix(name, "path.") {
		return 0
	}
	n := uint64(0)
	for i := range len(text) {
		if text[i] >= 0x80 {
			n += foldingSteps
		}
	}
	return n
}

// Is reports whether a name is one of the functions.
func Is(name string) bool {
	_, _, known := Cost(name)
	return known
}
