package report

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events"
)

// maxMarks is how many combining marks may be on one letter; more would cover the neighbouring lines.
const maxMarks = 2

// visible makes a text from a record safe to read. It keeps at most most characters, and replaces every
// character that would not be seen as itself (controls, line breaks, directional overrides,
// characters that are drawn as nothing, too many marks on a letter) by its number, as in ⟨U+202E⟩.
func visible(s string, most int) string {
	var b strings.Builder
	n, marks := 0, 0
	for _, r := range s {
		if n >= most {
			b.WriteRune('…')
			break
		}
		n++
		if unicode.In(r, unicode.Mn, unicode.Me) {
			marks++
		} else {
			marks = 0
		}
		if r == ' ' || unicode.IsPrint(r) && !names.IsInvisible(r) && marks <= maxMarks {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		}
	}
	return b.String()
}

// Lengths of texts on the page, in characters.
const (
	shortText = 80
	longText  = 600
)

func shortVisible(s string) string { return visible(s, shortText) }
func longVisible(s string) string  { return visible(s, longText) }

// formatTime formats a time in UTC, to the millisecond; "" for the zero time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}

func formatEventTime(t events.Time) string { return formatTime(t.Time) }

// shortDigest shortens a digest so that a reader can compare it by eye; the records have the whole one.
// It omits the id of the session's key, which all digests under that key share.
func shortDigest(s string) string {
	form, hex, found := strings.Cut(s, ":")
	if _, own, keyed := strings.Cut(hex, ":"); keyed {
		hex = own
	}
	if !found || len(hex) <= 16 {
		return shortVisible(s)
	}
	return visible(form, 20) + ":" + visible(hex[:16], 16) + "…"
}

// countWord is a number with its noun: 1 record, 2 records.
func countWord(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
