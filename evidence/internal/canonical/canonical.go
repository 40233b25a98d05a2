// Package canonical writes the RFC 8785 form of JSON values.
package canonical

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Append appends the RFC 8785 form of a tree that strictjson.Parse made. It refuses other Go types,
// and texts that are not UTF-8: strictjson would write U+FFFD.
func Append(dst []byte, tree any) ([]byte, error) {
	if err := checkTree(tree); err != nil {
		return nil, err
	}
	return strictjson.FromTree(tree).AppendCanonical(dst), nil
}

func checkTree(tree any) (err error) {
	switch v := tree.(type) {
	case nil, bool, json.Number:
	case string:
		return checkText(v)
	case []any:
		for _, item := range v {
			if err = checkTree(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, member := range v {
			if err = cmp.Or(checkText(key), checkTree(member)); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("canonical form: a %T is no JSON value", v)
	}
	return nil
}

var errText = errors.New("canonical form: a text is not UTF-8")

func checkText(s string) error {
	if !utf8.ValidString(s) {
		return errText
	}
	return nil
}

// AppendString appends the RFC 8785 form of a text. It refuses what is not UTF-8.
func AppendString(dst []byte, s string) ([]byte, error) {
	if err := checkText(s); err != nil {
		return nil, err
	}
	return strictjson.AppendString(dst, s), nil
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
