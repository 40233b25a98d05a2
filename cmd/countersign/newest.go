package main

import (
	"fmt"
	"time"
)

func sinceFlag(text string, limit int) (since time.Time, err error) {
	if limit < 0 {
		return since, usageError{Err: fmt.Errorf("--limit %d is below zero", limit)}
	}
	if text == "" {
		return since, nil
	}
	if since, err = moment(text, time.Now()); err != nil {
		return since, usageError{Err: fmt.Errorf("--since %w", err)}
	}
	return since, nil
}

// oneMore asks for one more than is shown, to see whether there is more.
func oneMore(limit int) int {
	if limit == 0 {
		return 0
	}
	return limit + 1
}

func newest[T any](rows []T, limit int) (shown []T, more bool) {
	if limit > 0 && len(rows) > limit {
		return rows[len(rows)-limit:], true
	}
	return rows, false
}

// endList says how much of something was listed, and whether that is all of it. A
// list for programs is JSON and nothing else; that it was cut must be said all the
// same, or a count of its lines would be taken for the number there is.
func endList(io stdio, p *printer, json bool, n int, more bool, what string) {
	text := plural(n, what)
	if more {
		text = "the newest " + text + "; there are more (--limit, --since)"
	}
	switch {
	case !json:
		p.printf("%s\n", p.paint(faint, text))
	case more:
		fmt.Fprintf(io.err, "note: %s\n", text)
	}
}
