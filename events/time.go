package events

import (
	"errors"
	"strings"
	"time"
)

// ErrTime reports a text that is no RFC 3339 time. It does not quote the text, which may come
// from a producer.
var ErrTime = errors.New("the time is not RFC 3339 text")

// TimeLayout is the layout of every time stamp that Countersign writes: UTC, always nine
// fraction digits, so that equal instants have equal text and text order is time order.
const TimeLayout = "2006-01-02T15:04:05.000000000Z"

// Time is an instant in a record. Its JSON form is TimeLayout; the zero Time is
// the empty string. Reading accepts any RFC 3339 text.
type Time struct{ time.Time }

// At converts t to a record time, in UTC and without a monotonic reading.
func At(t time.Time) Time { return Time{t.UTC().Round(0)} }

func (t Time) String() string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(TimeLayout)
}

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// MarshalJSON implements json.Marshaler; it hides time.Time's own form.
func (t Time) MarshalJSON() ([]byte, error) { return []byte(`"` + t.String() + `"`), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Time) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*t = Time{}
		return nil
	}
	p, err := ParseTime(string(b))
	if err != nil {
		return err
	}
	*t = At(p)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(b []byte) error {
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return ErrTime
	}
	return t.UnmarshalText(b[1 : len(b)-1])
}

// ParseTime reads only RFC 3339 text (t and z may be in lower case; there are no leap seconds).
// Package time alone would also accept hours of one digit, a comma before the fraction and
// impossible offsets (Go issue 54580). Years outside 0 to 9999 in UTC are refused because
// TimeLayout cannot write them. The error is ErrTime.
func ParseTime(text string) (time.Time, error) {
	text = strings.ToUpper(text)
	const shape = "dddd-dd-ddTdd:dd:dd"
	if len(text) <= len(shape) || !matchesShape(text[:len(shape)], shape) || text[len(shape)] == ',' {
		return time.Time{}, ErrTime
	}
	if zone := text[len(text)-1:]; zone != "Z" {
		const offset = "+dd:dd"
		zone = "+" + text[max(0, len(text)-len(offset)+1):]
		if !matchesShape(zone, offset) || zone[1:3] > "23" || zone[4:] > "59" {
			return time.Time{}, ErrTime
		}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, ErrTime
	}
	if year := t.UTC().Year(); year < 0 || year > 9999 {
		return time.Time{}, ErrTime
	}
	return t, nil
}

// matchesShape compares a text with a shape in which d stands for any digit.
func matchesShape(text, shape string) bool {
	if len(text) != len(shape) {
		return false
	}
	for i := range len(text) {
		if digit := text[i] >= '0' && text[i] <= '9'; shape[i] == 'd' && !digit || shape[i] != 'd' && text[i] != shape[i] {
			return false
		}
	}
	return true
}
