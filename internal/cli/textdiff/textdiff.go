// Package textdiff compares two texts line by line for display (policy diff, policy push). The
// comparison is go-internal/diff's; this package reads its hunks. Begin with Compare.
package textdiff

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Op is the operation on a line.
type Op byte

// The operations, as printed.
const (
	Keep   Op = ' '
	Remove Op = '-'
	Add    Op = '+'
)

// Line is one line of a difference, without its line end.
type Line struct {
	Op   Op
	Text string
}

// Hunk is a change with its context. Line numbers count from 1.
type Hunk struct {
	OldAt, OldLines, NewAt, NewLines int
	Lines                            []Line
}

// Header is the first line of a hunk in a unified diff.
func (h Hunk) Header() string {
	return fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.OldAt, h.OldLines, h.NewAt, h.NewLines)
}

// noLineEnd marks a last line without a line end.
const noLineEnd = "  (no line end)"

func withLineEnd(s string) []byte {
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += noLineEnd + "\n"
	}
	return []byte(s)
}

// Compare returns the changes from one text to another, none if they are equal. A missing line
// end at the end of a text counts as a change.
func Compare(from, to string) (hunks []Hunk) {
	rest := string(diff.Diff("", withLineEnd(from), "", withLineEnd(to)))
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		var h Hunk
		switch n, _ := fmt.Sscanf(line, "@@ -%d,%d +%d,%d @@", &h.OldAt, &h.OldLines, &h.NewAt, &h.NewLines); {
		case n > 0:
			hunks = append(hunks, h)
		case len(hunks) > 0: // not the header of the whole difference
			last := &hunks[len(hunks)-1]
			last.Lines = append(last.Lines, Line{Op(line[0]), line[1:]})
		}
	}
	return hunks
}
