package ui

import (
	"cmp"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// ParseNow parses --now.
func ParseNow(text string) (time.Time, error) {
	if text == "" {
		return time.Now(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fmt.Errorf("--now %q is not an RFC 3339 time such as 2026-11-20T09:00:00Z", text)
	}
	return t, nil
}

// ParseMoment parses a time, or a duration back from now; "" is now.
func ParseMoment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(cmp.Or(text, "0s")); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := events.ParseTime(text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%.60q is neither a duration such as 24h nor an RFC 3339 time such as 2026-11-20T09:00:00Z", text)
}
