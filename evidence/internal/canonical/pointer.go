package canonical

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Locate resolves a JSON pointer in a canonical text. It returns the last token and
// the value: a string, nil for null, and false for any other value.
func Locate(text []byte, pointer string) (value any, last string, ok bool) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, "", false
	}
	s := &Scanner{Text: text}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		last = strictjson.UnescapePointer(token)
		found, simple := s.enterMember(last)
		if !simple {
			return locateInTree(text, pointer)
		}
		if !found {
			return nil, "", false
		}
	}
	return s.leafValue(), last, true
}

// enterMember moves the scanner to the member or element that token names in the value at
// the scanner's position. simple is false if a key of the object is escaped.
func (s *Scanner) enterMember(token string) (found, simple bool) {
	switch s.peek() {
	case '{':
		simple = s.object(1, func(key []byte) bool {
			if string(key) == token {
				found = true
				return false
			}
			return s.value(1)
		})
	case '[':
		want, err := strconv.Atoi(token)
		i := -1
		simple = s.ScanElements(func() bool {
			if i++; err == nil && i == want {
				found = true
				return false
			}
			return s.value(1)
		})
	default:
		return false, true
	}
	return found, found || simple
}

// leafValue returns the value at the scanner's position in the form of locatePointer.
func (s *Scanner) leafValue() any {
	switch s.peek() {
	case '"':
		inner, plain, ok := s.ScanString()
		if ok && plain {
			return string(inner)
		}
		var value string
		_ = json.Unmarshal([]byte(`"`+string(inner)+`"`), &value) // it is canonical JSON
		return value
	case 'n':
		return nil
	}
	return false
}

func locateInTree(text []byte, pointer string) (value any, last string, ok bool) {
	var tree any
	if json.Unmarshal(text, &tree) != nil {
		return nil, "", false
	}
	return resolvePointer(tree, pointer)
}

// resolvePointer follows a JSON pointer and returns the value and the last token.
func resolvePointer(v any, pointer string) (value any, last string, ok bool) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, "", false
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		last = strictjson.UnescapePointer(token)
		switch at := v.(type) {
		case map[string]any:
			if v, ok = at[last]; !ok {
				return nil, "", false
			}
		case []any:
			i, err := strconv.Atoi(last)
			if err != nil || i < 0 || i >= len(at) {
				return nil, "", false
			}
			v = at[i]
		default:
			return nil, "", false
		}
	}
	return v, last, true
}
