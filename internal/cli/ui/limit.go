package ui

import (
	"fmt"
	"time"
)

// ParseSince reads --since, the zero time without one, and checks --limit.
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

// LimitAndOne asks for one more than is shown, to see whether there is more.
func LimitAndOne(limit int) int {
	if limit == 0 {
		return 0
	}
	return limit + 1
}

// Newest gives the last rows up to a limit, 0 for all, and whether there are more.
func Newest[T any](rows []T, limit int) (shown []T, more bool) {
	if limit > 0 && len(rows) > limit {
		return rows[len(rows)-limit:], true
	}
	return rows, false
}

// EndList says how much of something was listed, and whether that is all of it. A
// list for programs is JSON and nothing else; that it was cut must be said all the
// same, or a count of its lines would be taken for the number there is.
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
