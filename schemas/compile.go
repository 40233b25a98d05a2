package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/events/strictjson"
)

type librarySchema = jsonschema.Schema

// errNoLoading is the error of every attempt to load an external schema.
var errNoLoading = errors.New("schemas are never loaded from outside the program")

// newLibrary returns a compiler that knows only the given schemas.
func newLibrary(sources map[string][]byte) (*jsonschema.Compiler, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat = true
	c.ExtractAnnotations = true
	c.LoadURL = func(string) (io.ReadCloser, error) { return nil, errNoLoading }
	c.Formats["date-time"] = func(v any) bool {
		s, ok := v.(string)
		return !ok || IsDateTime(s)
	}
	for name, src := range sources {
		if err := c.AddResource(Base+name+"/v1", bytes.NewReader(src)); err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
	}
	return c, nil
}

// planner converts compiled schemas to nodes, each one once.
type planner struct{ planned map[*librarySchema]*node }

// planNode returns the node of s. It refuses a keyword that nodes do not evaluate, so that no
// part of a schema is silently ignored.
func (p planner) planNode(s *librarySchema) (*node, error) {
	if n, ok := p.planned[s]; ok {
		return n, nil
	}
	if what := unsupportedKeyword(s); what != "" {
		return nil, fmt.Errorf("%s: %s is not evaluated here", s.Location, what)
	}
	n := &node{}
	p.planned[s] = n
	n.kinds, n.kindMessage = kindsOf(s.Types), "must be "+describeTypes(s.Types)
	n.keywords = append(n.keywords, scalarKeywords(s)...)
	for _, part := range []func(*librarySchema) ([]keyword, error){p.planObject, p.planArray, p.planInPlace} {
		ks, err := part(s)
		if err != nil {
			return nil, err
		}
		n.keywords = append(n.keywords, ks...)
	}
	return n, nil
}

// unsupportedKeyword returns the first keyword of s that nodes do not evaluate.
func unsupportedKeyword(s *librarySchema) string {
	_, formatKnown := formats[s.Format]
	for _, k := range []struct {
		name string
		used bool
	}{
		{"a boolean schema", s.Always != nil},
		{"const or enum of an array or object", slices.ContainsFunc(slices.Concat(s.Constant, s.Enum), isComposite)},
		{"format " + s.Format, s.Format != "" && !formatKnown},
		{"$recursiveRef", s.RecursiveRef != nil},
		{"$dynamicRef", s.DynamicRef != nil},
		{"not", s.Not != nil},
		{"oneOf", len(s.OneOf) > 0},
		{"maxProperties", s.MaxProperties != -1},
		{"propertyNames", s.PropertyNames != nil},
		{"patternProperties", len(s.PatternProperties) > 0},
		{"dependencies", len(s.Dependencies) > 0},
		{"dependentRequired", len(s.DependentRequired) > 0},
		{"dependentSchemas", len(s.DependentSchemas) > 0},
		{"unevaluatedProperties", s.UnevaluatedProperties != nil},
		{"items of an older draft", s.Items != nil || s.AdditionalItems != nil},
		{"contains", s.Contains != nil},
		{"unevaluatedItems", s.UnevaluatedItems != nil},
		{"content", s.ContentEncoding != "" || s.ContentMediaType != "" || s.ContentSchema != nil},
		{"exclusive bounds", s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil},
		{"multipleOf", s.MultipleOf != nil},
	} {
		if k.used {
			return k.name
		}
	}
	return ""
}

func isComposite(v any) bool { return (kindArray | kindObject).has(strictjson.FromTree(v)) }

func scalarKeywords(s *librarySchema) []keyword {
	var ks []keyword
	if len(s.Constant) > 0 {
		ks = append(ks, constant{s.Constant[0], "must be " + literalJSON(s.Constant[0])})
	}
	if len(s.Enum) > 0 {
		ks = append(ks, enumeration{s.Enum, "must be one of " + literalList(s.Enum)})
	}
	if s.MinLength > 0 || s.MaxLength != -1 {
		ks = append(ks, stringLength{s.MinLength, s.MaxLength})
	}
	if s.Pattern != nil {
		ks = append(ks, pattern{s.Pattern, "must match " + s.Pattern.String()})
	}
	if s.Format != "" {
		ks = append(ks, format{formats[s.Format].test, "must be " + formats[s.Format].what})
	}
	if s.Minimum != nil {
		ks = append(ks, numberBound{keyword: "minimum", limit: toFloat(s.Minimum), message: "must be at least " + s.Minimum.RatString()})
	}
	if s.Maximum != nil {
		ks = append(ks, numberBound{keyword: "maximum", limit: toFloat(s.Maximum), upper: true, message: "must be at most " + s.Maximum.RatString()})
	}
	return ks
}

func toFloat(r *big.Rat) float64 { f, _ := r.Float64(); return f }

func (p planner) planObject(s *librarySchema) ([]keyword, error) {
	var ks []keyword
	if s.MinProperties > 0 {
		ks = append(ks, minProperties(s.MinProperties))
	}
	if len(s.Required) > 0 {
		ks = append(ks, required(s.Required))
	}
	if len(s.Properties) == 0 && s.AdditionalProperties == nil {
		return ks, nil
	}
	known := map[string]*node{}
	for name, sub := range s.Properties {
		n, err := p.planNode(sub)
		if err != nil {
			return nil, err
		}
		known[name] = n
	}
	props := properties{known: known}
	switch extra := s.AdditionalProperties.(type) {
	case bool:
		props.closed = !extra
	case *librarySchema:
		n, err := p.planNode(extra)
		if err != nil {
			return nil, err
		}
		props.additional = n
	}
	return append(ks, props), nil
}

func (p planner) planArray(s *librarySchema) ([]keyword, error) {
	var ks []keyword
	if s.MinItems > 0 || s.MaxItems != -1 {
		ks = append(ks, itemCount{s.MinItems, s.MaxItems})
	}
	if s.UniqueItems {
		ks = append(ks, uniqueItems{})
	}
	prefix, err := p.planAll(s.PrefixItems)
	if err != nil {
		return nil, err
	}
	it := itemSchemas{prefix: prefix}
	if s.Items2020 != nil {
		if it.rest, err = p.planNode(s.Items2020); err != nil {
			return nil, err
		}
	}
	if it.rest != nil || len(prefix) > 0 {
		ks = append(ks, it)
	}
	return ks, nil
}

// planInPlace plans the keywords that apply further schemas to the same value.
func (p planner) planInPlace(s *librarySchema) ([]keyword, error) {
	var ks []keyword
	if s.Ref != nil {
		n, err := p.planNode(s.Ref)
		if err != nil {
			return nil, err
		}
		ks = append(ks, allOf{n})
	}
	ns, err := p.planAll(s.AllOf)
	if err != nil {
		return nil, err
	}
	if len(ns) > 0 {
		ks = append(ks, allOf(ns))
	}
	if ns, err = p.planAll(s.AnyOf); err != nil {
		return nil, err
	}
	if len(ns) > 0 {
		ks = append(ks, anyOf{ns, "must be " + describeAnyOf(s)})
	}
	if s.If == nil {
		return ks, nil
	}
	branches, err := p.planAll([]*librarySchema{s.If, s.Then, s.Else})
	if err != nil {
		return nil, err
	}
	return append(ks, conditional{branches[0], branches[1], branches[2]}), nil
}

// planAll plans each schema; a nil one stays nil.
func (p planner) planAll(list []*librarySchema) ([]*node, error) {
	ns := make([]*node, len(list))
	for i, s := range list {
		if s == nil {
			continue
		}
		var err error
		if ns[i], err = p.planNode(s); err != nil {
			return nil, err
		}
	}
	return ns, nil
}

// fieldsOf returns the keys that s and the schemas it builds on define.
func fieldsOf(s *librarySchema) map[string]bool {
	fields := map[string]bool{}
	if s == nil {
		return fields
	}
	for name := range s.Properties {
		fields[name] = true
	}
	maps.Copy(fields, fieldsOf(s.Ref))
	return fields
}

// describeAnyOf describes the allowed values of a schema with alternatives.
func describeAnyOf(s *librarySchema) string {
	if s.Title != "" {
		return s.Title
	}
	return fmt.Sprintf("one of %d alternatives", len(s.AnyOf))
}

var typeWords = map[string]string{"null": "null", "boolean": "a boolean", "number": "a number",
	"integer": "an integer", "string": "a string", "array": "an array", "object": "an object"}

func describeTypes(types []string) string {
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = typeWords[t]
	}
	return strings.Join(words, " or ")
}

func literalList(vs []any) string {
	words := make([]string, len(vs))
	for i, v := range vs {
		words[i] = literalJSON(v)
	}
	return strings.Join(words, ", ")
}

// literalJSON writes a value of a schema as JSON.
func literalJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "the value in the schema" // cannot happen: it was read from JSON
	}
	return string(b)
}
