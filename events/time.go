package events

import (
	"fmt"
	"time"
)

// TimeLayout is how every time stamp that Countersign writes looks: UTC, always
// nine fraction digits, so that equal instants have equal text and text order
// is time order.
const TimeLayout = "2006-01-02T15:04:05.000000000Z"

// Time is an instant in a record. Its JSON form is TimeLayout; the zero Time is
// the empty string. Reading accepts any RFC 3339 text.
type Time struct{ time.Time }

// At makes a record time of t, in UTC and without a monotonic reading.
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
	p, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return fmt.Errorf("time %.40q is not RFC 3339", b)
	}
	*t = At(p)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(b []byte) error {
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return fmt.Errorf("time %.40q is not a JSON string", b)
	}
	return t.UnmarshalText(b[1 : len(b)-1])
}
