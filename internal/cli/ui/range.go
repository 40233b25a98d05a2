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

// ParseSince parses --since, which may be empty, and checks --limit.
func ParseSince(text string, limit int) (since time.Time, err error) {
	if limit < 0 {
		return since, UsageError{Err: fmt.Errorf("--limit %d is below zero", limit)}
	}
	if text == "" {
		return since, nil
	}
	if since, err = ParseMoment(text, time.Now()); err != nil {
		return since, UsageError{Err: fmt.Errorf("--since %w", err)}
	}
	return since, nil
}

// LimitAndOne is one more than limit, to find out whether there is more; 0 stays 0 (all).
func LimitAndOne(limit int) int {
	if limit == 0 {
		return 0
	}
	return limit + 1
}

// Newest returns the last rows up to a limit, 0 for all, and whether there are more.
func Newest[T any](rows []T, limit int) (shown []T, more bool) {
	if limit > 0 && len(rows) > limit {
		return rows[len(rows)-limit:], true
	}
	return rows, false
}

// EndList prints how many items were listed and whether that is all. JSON output contains only
// items, so a cut is reported on standard error: otherwise a count of the lines would be taken
// for the total.
func EndList(io Stdio, p *Printer, json bool, n int, more bool, what string) {
	text := Plural(n, what)
	if more {
		text = "the newest " + text + "; there are more (--limit, --since)"
	}
	switch {
	case !json:
		p.Printf("%s\n", p.Paint(Faint, text))
	case more:
		fmt.Fprintf(io.Err, "note: %s\n", text)
	}
}
