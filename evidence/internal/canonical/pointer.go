package canonical

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Locate follows a JSON pointer in a JSON text. It returns the pointer's last token and the value:
// a string, nil for null, and false for any other value.
func Locate(text []byte, pointer string) (value any, last string, ok bool) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, "", false
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(text))
	for token := range strings.SplitSeq(pointer[1:], "/") {
		last = strictjson.UnescapePointer(token)
		if !enterMember(d, last) {
			return nil, "", false
		}
	}
	switch d.PeekKind() {
	case '"':
		s, err := d.ReadToken()
		return s.String(), last, err == nil
	case 'n':
		return nil, last, true
	}
	return false, last, true
}

// enterMember moves the decoder before the member or element that a token names in the next value.
func enterMember(d *jsontext.Decoder, token string) bool {
	begin, err := d.ReadToken()
	if err != nil {
		return false
	}
	isObject := begin.Kind() == '{'
	if !isObject && begin.Kind() != '[' {
		return false
	}
	for i := 0; d.PeekKind() != '}' && d.PeekKind() != ']'; i++ {
		name := strconv.Itoa(i)
		if isObject {
			key, err := d.ReadToken()
			if err != nil {
				return false
			}
			name = key.String()
		}
		if name == token {
			return true
		}
		if d.SkipValue() != nil {
			return false
		}
	}
	return false
}
