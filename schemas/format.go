package schemas

import "github.com/santhosh-tekuri/jsonschema/v5"

// formats are the supported formats of strings, with the text of a violation.
var formats = map[string]struct {
	test  func(any) bool
	plain func(string) bool // true for most texts that satisfy test, and only for those; nil if there is none
	what  string
}{
	"date-time":    {isDateTime, plainTime, "an RFC 3339 date and time with zone"},
	"uri":          {jsonschema.Formats["uri"], nil, "an absolute URI"},
	"uuid":         {jsonschema.Formats["uuid"], plainUUID, "a UUID"},
	"json-pointer": {jsonschema.Formats["json-pointer"], nil, "a JSON pointer"},
}

// IsDateTime reports whether s is a time of the format date-time.
func IsDateTime(s string) bool { return plainTime(s) || isDateTime(s) }

// isDateTime is the library's test with one gap closed: the library reads the fields of the
// time with a function that accepts a sign, so 2026-01-01T+1:-0:+3Z would pass.
func isDateTime(v any) bool {
	s, ok := v.(string)
	if !ok {
		return true
	}
	return jsonschema.Formats["date-time"](v) && !signsInTime(s)
}

// signsInTime looks for a sign in place of a digit, in the time of day and the offset of a text
// that the library accepted.
func signsInTime(s string) bool {
	for _, i := range []int{11, 12, 14, 15, 17, 18} {
		if !isDigit(s[i]) {
			return true
		}
	}
	if last := s[len(s)-1]; last == 'Z' || last == 'z' {
		return false
	}
	offset := s[len(s)-5:]
	return !isDigit(offset[0]) || !isDigit(offset[1]) || !isDigit(offset[3]) || !isDigit(offset[4])
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }
