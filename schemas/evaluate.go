package schemas

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// kind is a set of JSON types. An integer is a number whose value has no
// fraction, however it is written.
type kind uint8

const (
	kindNull kind = 1 << iota
	kindBoolean
	kindNumber
	kindInteger
	kindString
	kindArray
	kindObject
)

var kindNames = map[string]kind{"null": kindNull, "boolean": kindBoolean, "number": kindNumber,
	"integer": kindInteger, "string": kindString, "array": kindArray, "object": kindObject}

func kindsOf(types []string) kind {
	var k kind
	for _, t := range types {
		k |= kindNames[t]
	}
	return k
}

// has reports whether v is of one of the types in k.
func (k kind) has(v any) bool {
	switch v := v.(type) {
	case nil:
		return k&kindNull != 0
	case bool:
		return k&kindBoolean != 0
	case string:
		return k&kindString != 0
	case []any:
		return k&kindArray != 0
	case map[string]any:
		return k&kindObject != 0
	case json.Number:
		return k&kindNumber != 0 || k&kindInteger != 0 && isInteger(v)
	default:
		return false
	}
}

// isInteger relies on strictjson: a number it lets pass is the float64 it names.
func isInteger(v json.Number) bool {
	f, err := strconv.ParseFloat(string(v), 64)
	return err == nil && f == math.Trunc(f)
}

// node is one schema, ready to be evaluated.
type node struct {
	kinds       kind // 0: any
	kindMessage string
	keywords    []keyword
}

// keyword is one demand of a schema. It holds for every value of a type that it
// does not speak of.
type keyword interface {
	validateTree(v any, c *collector) bool
	// validateFlat is holds without a collector, for a value that was read flat.
	validateFlat(v strictjson.Value) bool
}

// validateTree reports whether v satisfies n and tells the collector, if there is one,
// of everything that does not.
func (n *node) validateTree(v any, c *collector) bool {
	if n.kinds != 0 && !n.kinds.has(v) {
		return c.fail("type", n.kindMessage)
	}
	ok := true
	for _, k := range n.keywords {
		if !k.validateTree(v, c) {
			if ok = false; c.shouldStop() {
				return false
			}
		}
	}
	return ok
}

type constant struct {
	value   any
	message string
}

func (k constant) validateTree(v any, c *collector) bool {
	return equalScalar(v, k.value) || c.fail("const", k.message)
}

type enumeration struct {
	values  []any
	message string
}

func (k enumeration) validateTree(v any, c *collector) bool {
	for _, want := range k.values {
		if equalScalar(v, want) {
			return true
		}
	}
	return c.fail("enum", k.message)
}

// equalScalar compares a value of a document with one of a schema, which is a scalar:
// unsupported refuses others.
func equalScalar(v, want any) bool {
	switch want := want.(type) {
	case nil:
		return v == nil
	case string:
		s, ok := v.(string)
		return ok && s == want
	case bool:
		b, ok := v.(bool)
		return ok && b == want
	case json.Number:
		n, ok := v.(json.Number)
		return ok && sameNumber(n, want)
	default:
		return false
	}
}

func sameNumber(a, b json.Number) bool {
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	return errX == nil && errY == nil && x == y
}

// stringLength counts Unicode code points, as JSON Schema does.
type stringLength struct{ min, max int }

func (k stringLength) validateTree(v any, c *collector) bool {
	s, ok := v.(string)
	if !ok || len(s) <= k.max && k.min <= 0 {
		return true
	}
	n := utf8.RuneCountInString(s)
	if n < k.min {
		return c.fail("minLength", "must have at least "+strconv.Itoa(k.min)+" characters")
	}
	if k.max != -1 && n > k.max {
		return c.fail("maxLength", "must have at most "+strconv.Itoa(k.max)+" characters")
	}
	return true
}

type pattern struct {
	re      *regexp.Regexp
	plain   *matcher // decides the same; nil for patterns that need more
	message string
}

func (k pattern) match(s string) bool {
	if k.plain != nil {
		return k.plain.match(s)
	}
	return k.re.MatchString(s)
}

func (k pattern) validateTree(v any, c *collector) bool {
	s, ok := v.(string)
	return !ok || k.match(s) || c.fail("pattern", k.message)
}

type format struct {
	test    func(any) bool
	plain   func(string) bool // a yes is one of test, too; nil for formats that have none
	message string
}

func (k format) validateTree(v any, c *collector) bool {
	if s, ok := v.(string); ok && k.plain != nil && k.plain(s) {
		return true
	}
	return k.test(v) || c.fail("format", k.message)
}

type numberBound struct {
	keyword string
	limit   float64
	upper   bool
	message string
}

func (k numberBound) validateTree(v any, c *collector) bool {
	n, ok := v.(json.Number)
	if !ok {
		return true
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err == nil && (k.upper && f <= k.limit || !k.upper && f >= k.limit) {
		return true
	}
	return c.fail(k.keyword, k.message)
}
