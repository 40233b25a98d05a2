package canonical

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

// FixedTime parses a time in events.TimeLayout from 1970 on. It may reject other valid times.
func FixedTime(b []byte) (t time.Time, ok bool) {
	const layout = events.TimeLayout
	if len(b) != len(layout) || b[10] != 'T' || b[19] != '.' || b[len(layout)-1] != 'Z' {
		return t, false
	}
	t, err := events.ParseTime(string(b))
	return t, err == nil && t.Unix() >= 0
}
