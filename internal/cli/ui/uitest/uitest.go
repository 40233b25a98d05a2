// Package uitest holds helpers for the tests of printed tables.
package uitest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// Hostile is text that a producer, or a user with write access to the database, could use to
// clear the screen, forge a line or reverse text.
const Hostile = "\x1b[2J\x07ok\r\nallow  forged\u202e\u0085\x00"

// Harmless requires that a text contains no terminal controls except line ends, and that it has
// so many lines.
func Harmless(t *testing.T, text string, lines int) {
	t.Helper()
	if strings.ContainsAny(text, "\x1b\x07\r\u202e\u0085\x00") {
		t.Errorf("%q", text)
	}
	if got := strings.Count(text, "\n"); got != lines {
		t.Errorf("%d lines, want %d: %q", got, lines, text)
	}
}

// SameColumns requires that each table has the same columns for texts of the same width in
// different scripts. A table prints the text that it is given.
func SameColumns(t *testing.T, tables map[string]func(io ui.Stdio, p *ui.Printer, text string)) {
	for name, printLine := range tables {
		t.Run(name, func(t *testing.T) {
			write := func(text string) string {
				var out bytes.Buffer
				printLine(ui.Stdio{Out: &out}, ui.NewPrinter(&out), text)
				return strings.ReplaceAll(out.String(), text, "ab")
			}
			plain := write("ab")
			if !strings.Contains(plain, "ab") {
				t.Fatalf("%q", plain)
			}
			for _, text := range []string{"金", "🚀", "e\u0301x"} {
				if got := write(text); got != plain {
					t.Errorf("%q:\n%s\nwant\n%s", text, got, plain)
				}
			}
		})
	}
}
