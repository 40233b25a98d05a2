package ui

import (
	"fmt"
	"time"
)

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
