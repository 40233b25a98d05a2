package ui

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
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

// maxDays bounds a duration in days: longer ones leave the range of a duration.
const maxDays = 36_500

// ParseMoment parses a time, or a duration back from now, such as 24h or 7d; "" is now.
func ParseMoment(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil && n <= maxDays {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if d, err := time.ParseDuration(cmp.Or(text, "0s")); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := events.ParseTime(text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%.60q is neither a duration such as 24h or 7d nor an RFC 3339 time such as 2026-11-20T09:00:00Z", text)
}
