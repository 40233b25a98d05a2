package aump

import (
	"encoding/json"
	"slices"
	"strings"

	wire "github.com/countersign-dev/countersign/events/aump"
)

// constraintHolds evaluates a machine-readable hard constraint. A fact that is missing, null or
// of another type than the operand violates it, whatever the operator: an unstated fact cannot
// satisfy a limit.
func constraintHolds(c wire.Rule, a wire.Action) bool {
	fact, there := lookupFact(c.Field, a)
	if c.Op == "exists" {
		want, said := c.Value.(bool)
		return there == (want || !said)
	}
	test, known := operators[c.Op]
	return there && known && test(fact, c.Value)
}

var operators = map[string]func(fact, value any) bool{
	"eq":     equalScalars,
	"ne":     func(fact, value any) bool { return noneOf(fact, []any{value}) },
	"lt":     orderedTest(func(f, v float64) bool { return f < v }),
	"lte":    orderedTest(func(f, v float64) bool { return f <= v }),
	"gt":     orderedTest(func(f, v float64) bool { return f > v }),
	"gte":    orderedTest(func(f, v float64) bool { return f >= v }),
	"in":     isAmong,
	"not_in": noneOf,
}

// lookupFact follows a path such as attributes.load.kg. Members are found by their exact names;
// null counts as missing.
func lookupFact(field string, a wire.Action) (fact any, there bool) {
	part, path, _ := strings.Cut(field, ".")
	fact = map[string]map[string]any{"attributes": a.Attributes, "terms": a.Terms}[part]
	for key := range strings.SplitSeq(path, ".") {
		m, ok := fact.(map[string]any)
		if !ok {
			return nil, false
		}
		fact = m[key]
	}
	return fact, fact != nil
}

func numberOf(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

func orderedTest(test func(fact, value float64) bool) func(fact, value any) bool {
	return func(fact, value any) bool {
		f, ok := numberOf(fact)
		v, also := numberOf(value)
		return ok && also && test(f, v)
	}
}

// equalScalars compares scalars; numbers by value, in any notation.
func equalScalars(a, b any) bool {
	if x, ok := numberOf(a); ok {
		y, also := numberOf(b)
		return also && x == y
	}
	return isScalar(a) && a == b
}

// isScalar reports whether v can be compared: a text, a number or a truth value.
func isScalar(v any) bool {
	switch v.(type) {
	case string, bool, json.Number:
		return true
	}
	return false
}

// sameType reports whether two values are of one type: "no" and false differ, but a limit on
// one says nothing about the other.
func sameType(a, b any) bool {
	switch a.(type) {
	case string:
		_, ok := b.(string)
		return ok
	case bool:
		_, ok := b.(bool)
		return ok
	case json.Number:
		_, ok := b.(json.Number)
		return ok
	}
	return false
}

func isAmong(fact, value any) bool {
	list, _ := value.([]any)
	return slices.ContainsFunc(list, func(v any) bool { return equalScalars(fact, v) })
}

// noneOf must not be evaded by spelling: texts that normalizeName makes equal are equal here.
func noneOf(fact, value any) bool {
	list, _ := value.([]any)
	text, isText := fact.(string)
	text = normalizeName(text)
	return slices.ContainsFunc(list, func(v any) bool { return sameType(fact, v) }) &&
		!slices.ContainsFunc(list, func(v any) bool {
			other, isOther := v.(string)
			return equalScalars(fact, v) || isText && isOther && text == normalizeName(other)
		})
}

// isTruthy converts an untyped value as the published evaluators do.
func isTruthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case json.Number:
		f, err := v.Float64()
		return err != nil || f != 0
	}
	return true
}
