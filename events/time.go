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
	return string(t.appendTo(make([]byte, 0, len(TimeLayout))))
}

// appendTo appends the text of a non-zero time. It is three times as fast as package time with
// TimeLayout.
func (t Time) appendTo(b []byte) []byte {
	u := t.UTC()
	year, month, day := u.Date()
	if year < 0 || year > 9999 {
		return u.AppendFormat(b, TimeLayout)
	}
	hour, minute, second := u.Clock()
	b = append(appendDigits(b, year, 4), '-')
	b = append(appendDigits(b, int(month), 2), '-')
	b = append(appendDigits(b, day, 2), 'T')
	b = append(appendDigits(b, hour, 2), ':')
	b = append(appendDigits(b, minute, 2), ':')
	b = append(appendDigits(b, second, 2), '.')
	return append(appendDigits(b, u.Nanosecond(), 9), 'Z')
}

// appendDigits appends the last n decimal digits of a number.
func appendDigits(b []byte, number, n int) []byte {
	end := len(b) + n
	b = append(b, "000000000"[:n]...)
	for i := end - 1; number > 0; i-- {
		b[i] = '0' + byte(number%10)
		number /= 10
	}
	return b
}

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// MarshalJSON implements json.Marshaler; it hides time.Time's own form.
func (t Time) MarshalJSON() ([]byte, error) { return []byte(`"` + t.String() + `"`), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Time) UnmarshalText(b []byte) error { return t.setText(string(b)) }

func (t *Time) setText(s string) error {
	if s == "" {
		*t = Time{}
		return nil
	}
	p, err := ParseTime(s)
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
	if t, ok := ParsePlainTime(text); ok {
		return t, nil
	}
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

// ParsePlainTime reads the usual form, RFC 3339 in UTC on a day of the month that every month
// has, at a fraction of the cost. ok is false for any other text, valid or not.
func ParsePlainTime(text string) (t time.Time, ok bool) {
	const shape = "dddd-dd-ddTdd:dd:dd"
	last := len(text) - 1
	if last < len(shape) || last > len(shape)+10 || text[last] != 'Z' ||
		text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' {
		return t, false
	}
	century, year, month, day := twoDigits(text), twoDigits(text[2:]), twoDigits(text[5:]), twoDigits(text[8:])
	hour, minute, second := twoDigits(text[11:]), twoDigits(text[14:]), twoDigits(text[17:])
	if century > 99 || year > 99 || month < 1 || month > 12 || day < 1 || day > 28 || hour > 23 || minute > 59 || second > 59 {
		return t, false
	}
	nano := 0
	if fraction := text[len(shape):last]; fraction != "" {
		if fraction[0] != '.' || len(fraction) == 1 {
			return t, false
		}
		for i := 1; i <= 9; i++ {
			nano *= 10
			if i < len(fraction) {
				if fraction[i] < '0' || fraction[i] > '9' {
					return t, false
				}
				nano += int(fraction[i] - '0')
			}
		}
	}
	return time.Date(100*century+year, time.Month(month), day, hour, minute, second, nano, time.UTC), true
}

// twoDigits is the number that a text begins with, more than 99 if it does not begin with two
// digits.
func twoDigits(text string) int {
	tens, ones := text[0]-'0', text[1]-'0'
	if tens > 9 || ones > 9 {
		return 100
	}
	return 10*int(tens) + int(ones)
}
