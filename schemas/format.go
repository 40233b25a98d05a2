package schemas

import (
	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/events"
)

// formats are the supported formats of strings, with the text of a violation.
var formats = map[string]struct {
	test func(string) bool
	what string
}{
	"date-time":    {IsDateTime, "an RFC 3339 date and time with zone"},
	"uri":          {libraryFormat("uri"), "an absolute URI"},
	"uuid":         {isUUID, "a UUID"},
	"json-pointer": {libraryFormat("json-pointer"), "a JSON pointer"},
}

// libraryFormat is the library's test of a format. It takes an any, so each text costs an
// allocation: the formats of every event have tests of their own.
func libraryFormat(name string) func(string) bool {
	test := jsonschema.Formats[name]
	return func(s string) bool { return test(s) }
}

// IsDateTime reports whether s is a time of the format date-time. What events.ParseTime refuses
// is left to the library, which knows leap seconds. The library's test has a gap that is closed here: it reads the fields of the time
// with a function that accepts a sign, so 2026-01-01T+1:-0:+3Z would pass.
func IsDateTime(s string) bool {
	_, err := events.ParseTime(s)
	return err == nil || jsonschema.Formats["date-time"](s) && !signsInTime(s)
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

// isUUID reports whether s is a UUID without urn:uuid:, braces or missing hyphens.
func isUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }
