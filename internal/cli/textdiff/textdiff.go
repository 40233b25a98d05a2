// Package textdiff compares two texts line by line for display (policy diff, policy push). Begin with Compare.
package textdiff

import (
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// noLineEnd marks a last line without a line end.
const noLineEnd = "  (no line end)"

func withLineEnd(s string) []byte {
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += noLineEnd + "\n"
	}
	return []byte(s)
}

// headerLines are the lines before the first hunk: they name the files.
const headerLines = 3

// Compare returns the changes from one text to another as lines of a unified diff, without line
// ends: "@@ -1,3 +1,3 @@", then the lines of the hunk, each after ' ', '-' or '+'. Equal texts have
// none. A missing line end at the end of a text counts as a change.
func Compare(from, to string) []string {
	lines := strings.Split(string(diff.Diff("", withLineEnd(from), "", withLineEnd(to))), "\n")
	if len(lines) < headerLines {
		return nil
	}
	return lines[headerLines : len(lines)-1]
}
