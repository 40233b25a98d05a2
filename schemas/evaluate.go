package schemas

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// kind is a set of JSON types. An integer is a number with an integral value, in any notation.
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

var valueKinds = [256]kind{strictjson.KindObject: kindObject, strictjson.KindArray: kindArray, strictjson.KindString: kindString,
	strictjson.KindTrue: kindBoolean, strictjson.KindFalse: kindBoolean, strictjson.KindNull: kindNull, strictjson.KindNumber: kindNumber}

// has reports whether v is of one of the types in k.
func (k kind) has(v strictjson.Value) bool {
	return k&valueKinds[v.Kind()] != 0 || k&kindInteger != 0 && v.Kind() == strictjson.KindNumber && isInteger(v.Text())
}

// isInteger relies on strictjson, which accepts only numbers that a float64 holds faithfully.
func isInteger(lit string) bool {
	f, err := strconv.ParseFloat(lit, 64)
	return err == nil && f == math.Trunc(f)
}

// node is one schema in evaluable form.
type node struct {
	kinds       kind // 0: any
	kindMessage string
	keywords    []keyword
}

// keyword is one constraint of a schema. Values of a type that it does not concern satisfy it.
type keyword interface {
	validate(v strictjson.Value, c *collector) bool
}

// validate reports whether v satisfies n and records every violation in the collector, if
// there is one.
func (n *node) validate(v strictjson.Value, c *collector) bool {
	if n.kinds != 0 && !n.kinds.has(v) {
		return c.fail("type", n.kindMessage)
	}
	ok := true
	for _, k := range n.keywords {
		if !k.validate(v, c) {
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

func (k constant) validate(v strictjson.Value, c *collector) bool {
	return equalScalar(v, k.value) || c.fail("const", k.message)
}

type enumeration struct {
	values  []any
	message string
}

func (k enumeration) validate(v strictjson.Value, c *collector) bool {
	for _, want := range k.values {
		if equalScalar(v, want) {
			return true
		}
	}
	return c.fail("enum", k.message)
}

// equalScalar compares a value of a document with one of a schema, which is a scalar:
// unsupportedKeyword refuses others.
func equalScalar(v strictjson.Value, want any) bool {
	switch want := want.(type) {
	case nil:
		return v.Kind() == strictjson.KindNull
	case string:
		return v.IsText(want)
	case bool:
		return v.Kind() == strictjson.KindTrue && want || v.Kind() == strictjson.KindFalse && !want
	case json.Number:
		return v.Kind() == strictjson.KindNumber && sameNumber(v.Text(), string(want))
	default:
		return false
	}
}

func sameNumber(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// stringLength counts Unicode code points, as JSON Schema does.
type stringLength struct{ min, max int }

func (k stringLength) validate(v strictjson.Value, c *collector) bool {
	if v.Kind() != strictjson.KindString {
		return true
	}
	n := len(v.Text())
	if n >= k.min && n <= k.max && n < 2 || n >= utf8.UTFMax*k.min && n <= k.max {
		return true // true for any number of bytes per character
	}
	n = utf8.RuneCountInString(v.Text())
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
	message string
}

func (k pattern) validate(v strictjson.Value, c *collector) bool {
	return v.Kind() != strictjson.KindString || k.re.MatchString(v.Text()) || c.fail("pattern", k.message)
}

type format struct {
	test    func(string) bool
	message string
}

func (k format) validate(v strictjson.Value, c *collector) bool {
	return v.Kind() != strictjson.KindString || k.test(v.Text()) || c.fail("format", k.message)
}

type numberBound struct {
	keyword string
	limit   float64
	upper   bool
	message string
}

func (k numberBound) validate(v strictjson.Value, c *collector) bool {
	if v.Kind() != strictjson.KindNumber {
		return true
	}
	f, err := strconv.ParseFloat(v.Text(), 64)
	if err == nil && (k.upper && f <= k.limit || !k.upper && f >= k.limit) {
		return true
	}
	return c.fail(k.keyword, k.message)
}
