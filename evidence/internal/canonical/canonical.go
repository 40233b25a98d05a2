// Package canonical writes the RFC 8785 form of JSON values.
package canonical

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Append appends the RFC 8785 form of a tree that strictjson.Parse
// made. It is strictjson.Canonical without the detour through a JSON text.
func Append(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		if v {
			return append(dst, "true"...), nil
		}
		return append(dst, "false"...), nil
	case string:
		return AppendString(dst, v)
	case json.Number:
		return appendNumber(dst, string(v))
	case []any:
		return appendArray(dst, v)
	case map[string]any:
		return appendObject(dst, v)
	default:
		return nil, fmt.Errorf("canonical form: a %T is no JSON value", v)
	}
}

func AppendString(dst []byte, s string) ([]byte, error) {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	return out, nil
}

// appendNumber copies integers: strictjson accepts only integers that a float64 holds, and
// JSON has one spelling for each of them except -0.
func appendNumber(dst []byte, lit string) ([]byte, error) {
	if !strings.ContainsAny(lit, ".eE") && lit != "-0" {
		return append(dst, lit...), nil
	}
	b, err := strictjson.CanonicalBytes([]byte(lit))
	return append(dst, b...), err
}

func appendArray(dst []byte, list []any) (_ []byte, err error) {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = Append(dst, v); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendObject(dst []byte, m map[string]any) (_ []byte, err error) {
	var buf [24]string
	keys := buf[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, CompareKeys)
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = AppendString(dst, k); err != nil {
			return nil, err
		}
		dst = append(dst, ':')
		if dst, err = Append(dst, m[k]); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// CompareKeys orders keys as RFC 8785 does: by UTF-16 code units. That differs
// from byte order only where a rune beyond U+FFFF meets one above U+D7FF.
func CompareKeys(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) || a[i] < 0xEE && b[i] < 0xEE { // U+E000 and above begin with 0xEE and more
		return strings.Compare(a[i:], b[i:])
	}
	if !strings.ContainsFunc(a, beyondSurrogates) && !strings.ContainsFunc(b, beyondSurrogates) {
		return strings.Compare(a, b)
	}
	x, y := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
	for i := range min(len(x), len(y)) {
		if c := cmp.Compare(x[i], y[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

func beyondSurrogates(r rune) bool { return r > 0xD7FF }

func FirstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
