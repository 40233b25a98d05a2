package policy

import (
	"cmp"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/strictyaml"
)

// paramsDoc is a document of kind Params: constants that policies share.
type paramsDoc struct {
	name   string
	values map[string]any
	place
}

// identForm is the form of a name after "params." or "variables.".
var identForm = regexp.MustCompile(`^[a-z][A-Za-z0-9_]*$`)

// celWords are the reserved words of CEL.
var celWords = strings.Fields("as break const continue else false for function if import in let loop namespace null package return true var void while")

// readIdent reads a name for a constant or variable.
func (r *reader) readIdent(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode || strictyaml.Tagged(n) || len(n.Value) > 63 || !identForm.MatchString(n.Value) || slices.Contains(celWords, n.Value) {
		r.Fail(n, "%s %.64q must look like %s and be no word of CEL's own", what, n.Value, identForm)
		return "", false
	}
	return n.Value, true
}

// readParams reads a mapping of names to constants.
func (r *reader) readParams(n *yaml.Node, what string, into *map[string]any) {
	if n.Kind != yaml.MappingNode || strictyaml.Tagged(n) {
		r.Fail(n, "%s must be a mapping of names to constants", what)
		return
	}
	if len(n.Content) == 0 {
		r.Fail(n, "%s is empty; leave the key out or give it something", what)
	}
	if len(n.Content)/2 > MaxParams {
		r.Fail(n, "%s has more than %d entries", what, MaxParams)
		return
	}
	values := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, ok := r.readIdent(n.Content[i], "the param")
		if !ok {
			continue
		}
		if _, twice := values[name]; twice {
			r.Fail(n.Content[i], "%s has the key %q twice", what, name)
		}
		values[name] = r.readConstant(n.Content[i+1], name, 0)
	}
	*into = values
}

// readOwnParams reads spec.params.
func (r *reader) readOwnParams(n *yaml.Node, s *spec) {
	r.readParams(n, "spec.params", &s.Params)
	s.paramLines = map[string]int{}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		s.paramLines[n.Content[i].Value] = n.Content[i].Line
	}
}

const maxParamDepth = 4

// readConstant reads the value of a param: string, int64, float64, bool, []any or
// map[string]any.
func (r *reader) readConstant(n *yaml.Node, name string, depth int) any {
	switch {
	case strictyaml.Tagged(n), n.Kind == yaml.AliasNode, depth > maxParamDepth:
		r.Fail(n, "the param %s has a tag, an alias or more than %d levels", name, maxParamDepth)
	case n.Kind == yaml.ScalarNode:
		return r.readScalar(n, name)
	case len(n.Content) == 0:
		r.Fail(n, "the param %s is empty or has something empty in it; leave it out or give it a value", name)
	case n.Kind == yaml.SequenceNode && len(n.Content) <= MaxParamEntries:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			list = append(list, r.readConstant(c, name, depth+1))
		}
		return list
	case n.Kind == yaml.MappingNode && len(n.Content)/2 <= MaxParamEntries:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if _, twice := m[k.Value]; twice || k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" || k.Value == "" {
				r.Fail(k, "a key of the param %s is there twice, or is not a text that says something", name)
				continue
			}
			m[k.Value] = r.readConstant(n.Content[i+1], name, depth+1)
		}
		return m
	default:
		r.Fail(n, "the param %s has more than %d entries in one list or mapping", name, MaxParamEntries)
	}
	return nil
}

func (r *reader) readScalar(n *yaml.Node, name string) any {
	var err error
	switch n.ShortTag() {
	case "!!str":
		if strings.TrimSpace(n.Value) == "" || utf8.RuneCountInString(n.Value) > MaxParamText {
			r.Fail(n, "a text of the param %s is empty or has more than %d characters", name, MaxParamText)
		}
		return n.Value
	case "!!bool":
		var v bool
		if err = n.Decode(&v); err == nil {
			return v
		}
	case "!!int":
		var v int64
		if err = n.Decode(&v); err == nil && v >= -MaxAmount && v <= MaxAmount {
			return v
		}
	case "!!float":
		var v float64
		if err = n.Decode(&v); err == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
	}
	r.Fail(n, "the param %s must be a text (put it in quotes), true or false, a number within ±2^53, or a list or mapping of such", name)
	return nil
}

// resolveParams adds the constants of paramsFrom to each policy's own params.
func (src *documentSet) resolveParams() (errs []error) {
	docs := map[string]paramsDoc{}
	for _, d := range src.params {
		docs[d.name] = d
	}
	for i := range src.policies {
		s := &src.policies[i]
		from := map[string]string{}
		merged := maps.Clone(s.Params)
		if merged == nil && len(s.paramsFrom) > 0 {
			merged = map[string]any{}
		}
		for _, ref := range s.paramsFrom {
			at := place{s.file, ref.line}
			d, known := docs[ref.name]
			if !known {
				errs = append(errs, at.fail("policy %s: paramsFrom names %s, and there is no document of kind %s with that name", s.Name, ref.name, kindParams))
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(d.values)) {
				if _, taken := merged[name]; taken {
					errs = append(errs, at.fail("policy %s: the param %s of %s is there already, from %s", s.Name, name, ref.name, cmp.Or(from[name], "spec.params")))
					continue
				}
				merged[name], from[name] = d.values[name], ref.name
			}
		}
		if len(merged) > MaxParams {
			errs = append(errs, s.fail("policy %s has more than %d params", s.Name, MaxParams))
		}
		s.Params = merged
	}
	return errs
}

// typeOf is the CEL type of a constant.
func typeOf(v any) *cel.Type {
	switch v := v.(type) {
	case string:
		return cel.StringType
	case bool:
		return cel.BoolType
	case int64:
		return cel.IntType
	case float64:
		return cel.DoubleType
	case []any:
		return cel.ListType(commonType(slices.Values(v)))
	case map[string]any:
		return cel.MapType(cel.StringType, commonType(maps.Values(v)))
	}
	return cel.DynType
}

// commonType is the type that all values share, dyn if there is none.
func commonType(values func(yield func(any) bool)) *cel.Type {
	var t *cel.Type
	for v := range values {
		switch other := typeOf(v); {
		case t == nil:
			t = other
		case !t.IsExactType(other):
			return cel.DynType
		}
	}
	if t == nil {
		return cel.DynType
	}
	return t
}

// valueOf converts a constant to a CEL value.
func valueOf(v any) ref.Val {
	adapter := treeAdapter{types.DefaultTypeAdapter}
	list, isList := v.([]any)
	if !isList {
		return adapter.NativeToValue(v)
	}
	elems, texts := make([]ref.Val, len(list)), map[string]bool{}
	for i, e := range list {
		elems[i] = valueOf(e)
		if s, ok := e.(string); ok {
			texts[s] = true
		}
	}
	out := types.NewRefValList(adapter, elems)
	if len(texts) > 0 {
		return textList{out, texts}
	}
	return out
}

// textList finds a text in a list with a map lookup instead of a scan: a list of domains may be
// long.
type textList struct {
	traits.Lister
	texts map[string]bool
}

// Contains implements traits.Container.
func (l textList) Contains(v ref.Val) ref.Val {
	if s, ok := v.(types.String); ok {
		return types.Bool(l.texts[string(s)])
	}
	return l.Lister.Contains(v)
}
