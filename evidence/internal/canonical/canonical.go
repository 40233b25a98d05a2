// Package canonical writes the RFC 8785 form of JSON values.
package canonical

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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

// AppendReplaced appends the RFC 8785 form of a parsed document with other members. It refuses the
// same trees as Append.
func AppendReplaced(dst []byte, root strictjson.Value, list []strictjson.Replacement) ([]byte, error) {
	for i := range list {
		if err := checkTree(list[i].Tree); err != nil {
			return nil, err
		}
	}
	return root.Replace(list).AppendCanonical(dst), nil
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

// FirstDifference returns the index of the first byte in which a and b differ, or the length of the
// shorter one.
func FirstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
