package suggest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events/agenttool"
)

// Bounds of the rules of one shape. Calls beyond them are left out.
const (
	maxCombinations = 1000 // different calls
	maxShapeRules   = 16
	maxLiteral      = 200 // bytes of a text that stands in a condition; a longer one is a param
)

// around are the fields of a call besides its arguments that policies read and that differ between calls of
// one tool. Ids and times are no such fields: a rule that fixed them would permit nothing.
var around = []struct {
	expression string
	value      func(policy.Input) any
}{
	{"source", func(in policy.Input) any { return in.Source }},
	{"agent", func(in policy.Input) any { return in.Agent }},
	{"resource_scope", func(in policy.Input) any { return in.ResourceScope }},
	{"resource", func(in policy.Input) any { return in.Resource }},
	{"agent_tool.kind", func(in policy.Input) any { return agenttool.Describe(in.Tool, in.Args, in.Event).Kind }},
	{"agent_tool.dir", func(in policy.Input) any { return agenttool.Describe(in.Tool, in.Args, in.Event).Dir }},
}

// Quoted are the values of a call that a rule quotes, without its arguments.
func Quoted(in policy.Input) []any {
	list := []any{in.EventType, in.Action, in.ResourceKind, orEmpty(in.Risk)}
	for _, f := range around {
		list = append(list, f.value(in))
	}
	return list
}

func argumentExpression(name string) string { return "args[" + strconv.Quote(name) + "]" }

// combination is the values of one call, in the order of the shape's fields.
type combination struct {
	values []any
	calls  int
}

// combinationOf is the values of a call, and a name that tells them apart.
func (s *shape) combinationOf(in policy.Input) (name string, values []any) {
	for _, f := range around {
		values = append(values, f.value(in))
	}
	for _, name := range sortedKeys(s.arguments) {
		values = append(values, in.Args[name])
	}
	return CanonicalForm(values), values
}

// fields are the expressions of the values of a combination.
func (s *shape) fields() (list []string) {
	for _, f := range around {
		list = append(list, f.expression)
	}
	for _, name := range sortedKeys(s.arguments) {
		list = append(list, argumentExpression(name))
	}
	return list
}

// exact is the conditions that together permit the calls of a shape that were seen, and no other combination
// of their values.
type exact struct {
	conditions []string
	calls      []int // of each condition
	lists      map[string][]string
}

// exactConditions returns the conditions behind base, or why there are none. param makes names of params.
func (s *shape) exactConditions(base []string, param func() string) (e exact, problem string) {
	if s.tooMany {
		return e, "it was called in more different ways than a rule lists"
	}
	e.lists = map[string][]string{}
	fields, varies := s.fields(), s.varyingFields()
	fixed := slices.Clone(base)
	for i, expression := range fields {
		if slices.Contains(varies, i) {
			continue
		}
		condition, problem := e.equals(expression, s.anyCombination().values[i], param)
		if problem != "" {
			return e, problem
		}
		fixed = append(fixed, condition)
	}
	before := strings.Join(fixed, " && ")
	switch {
	case len(varies) == 0:
		e.conditions, e.calls = []string{before}, []int{s.calls}
	case len(varies) == 1 && s.listsTexts(varies[0]):
		e.conditions, e.calls = []string{before + " && " + e.oneOf(fields[varies[0]], s.texts(varies[0]), param)}, []int{s.calls}
	default:
		problem = e.addCombinations(s, before, varies)
	}
	if problem == "" && slices.ContainsFunc(e.conditions, func(c string) bool { return len(c) > maxWhen }) {
		problem = "it needs a longer rule than there can be"
	}
	return e, problem
}

// varyingFields are the fields with more than one value.
func (s *shape) varyingFields() (list []int) {
	first := s.anyCombination()
	for i := range first.values {
		for _, c := range s.combinations {
			if CanonicalForm(c.values[i]) != CanonicalForm(first.values[i]) {
				list = append(list, i)
				break
			}
		}
	}
	return list
}

func (s *shape) anyCombination() combination { return *s.combinations[sortedKeys(s.combinations)[0]] }

// listsTexts reports whether all values of a field are texts that a param can hold.
func (s *shape) listsTexts(field int) bool {
	for _, c := range s.combinations {
		if text, is := c.values[field].(string); !is || utf8.RuneCountInString(text) > maxText {
			return false
		}
	}
	return true
}

func (s *shape) texts(field int) (list []string) {
	for _, c := range s.combinations {
		list = append(list, c.values[field].(string))
	}
	slices.Sort(list)
	return list
}

// equals is the condition that a field has a value.
func (e *exact) equals(expression string, v any, param func() string) (condition, problem string) {
	if text, is := v.(string); is && len(text) > maxLiteral && utf8.RuneCountInString(text) <= maxText && strings.TrimSpace(text) != "" {
		return e.oneOf(expression, []string{text}, param), ""
	}
	literal, ok := literalOf(v)
	if !ok {
		return "", "a value of " + expression + " cannot be written in a rule"
	}
	return expression + " == " + literal, ""
}

// oneOf is the condition that a field is one of several texts.
func (e *exact) oneOf(expression string, texts []string, param func() string) string {
	l := limit{}.ofTexts(texts, expression, param)
	for p, list := range l.lists {
		e.lists[p] = list
	}
	return l.condition
}

// addCombinations lists the combinations of the varying fields, in as many conditions as they need.
func (e *exact) addCombinations(s *shape, before string, varies []int) (problem string) {
	fields, expressions := s.fields(), []string{}
	for _, i := range varies {
		expressions = append(expressions, fields[i])
	}
	open := before + " && [" + strings.Join(expressions, ", ") + "] in ["
	list, calls, size := []string{}, 0, len(open)
	end := func() {
		e.conditions, e.calls = append(e.conditions, open+strings.Join(list, ", ")+"]"), append(e.calls, calls)
		list, calls, size = nil, 0, len(open)
	}
	for _, name := range sortedKeys(s.combinations) {
		c, values := s.combinations[name], []any{}
		for _, i := range varies {
			values = append(values, c.values[i])
		}
		literal, ok := literalOf(values)
		if !ok {
			return "a value cannot be written in a rule"
		}
		if len(list) > 0 && size+len(literal)+3 > maxWhen {
			end()
		}
		list, calls, size = append(list, literal), calls+c.calls, size+len(literal)+2
	}
	if end(); len(e.conditions) > maxShapeRules {
		return fmt.Sprintf("it was called in %d different ways, more than rules list", len(s.combinations))
	}
	return ""
}
