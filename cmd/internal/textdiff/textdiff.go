// Package textdiff compares two texts line by line, for people.
package textdiff

import (
	"fmt"
	"strings"
)

const (
	// context is how many unchanged lines are shown around a change.
	contextLines = 3
	// maxEdits bounds the search for the smallest difference, whose memory grows
	// with its square. What differs in more lines is shown as replaced whole.
	maxEdits = 1_000
)

// Op says what happened to a line.
type Op byte

// The operations, as they are printed.
const (
	Keep   Op = ' '
	Remove Op = '-'
	Add    Op = '+'
)

// Line is one line of a difference, without its end.
type Line struct {
	Op   Op
	Text string
}

// Hunk is a change with what stands around it. Its numbers count from 1.
type Hunk struct {
	OldAt, OldLines, NewAt, NewLines int
	Lines                            []Line
}

// Header is the line that begins a hunk in a unified diff.
func (h Hunk) Header() string {
	return fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.OldAt, h.OldLines, h.NewAt, h.NewLines)
}

// Compare gives the changes from one text to another, none if they are equal. A
// line end that is missing at the end of a text counts as a change.
func Compare(from, to string) []Hunk {
	a, b := lines(from), lines(to)
	var head, tail int
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var all []Line
	for _, l := range a[:head] {
		all = append(all, Line{Keep, l})
	}
	all = append(all, shortestEdits(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, l := range a[len(a)-tail:] {
		all = append(all, Line{Keep, l})
	}
	return cutHunks(all)
}

// noLineEnd marks a last line without an end.
const noLineEnd = "  (no line end)"

func lines(s string) []string {
	if s == "" {
		return nil
	}
	if !strings.HasSuffix(s, "\n") {
		s += noLineEnd + "\n"
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// shortestEdits is Myers' greedy algorithm: the shortest list of removals and additions.
func shortestEdits(a, b []string) []Line {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return replaced(a, b)
	}
	limit := min(n+m, maxEdits)
	furthest := make([]int, 2*limit+3) // by diagonal
	mid := limit + 1
	var trace [][]int // what could be reached before each further edit
	for d := 0; d <= limit; d++ {
		trace = append(trace, append([]int(nil), furthest[mid-d-1:mid+d+2]...))
		for k := -d; k <= d; k += 2 {
			x := furthest[mid+k-1] + 1
			if k == -d || k != d && furthest[mid+k-1] < furthest[mid+k+1] {
				x = furthest[mid+k+1]
			}
			for x < n && x-k < m && a[x] == b[x-k] {
				x++
			}
			if furthest[mid+k] = x; x >= n && x-k >= m {
				return followTrace(a, b, trace)
			}
		}
	}
	return replaced(a, b)
}

// followTrace follows the trace from its end to its beginning.
func followTrace(a, b []string, trace [][]int) []Line {
	var rev []Line
	x, y := len(a), len(b)
	for d := len(trace) - 1; d >= 0; d-- {
		at := func(k int) int { return trace[d][k+d+1] }
		k := x - y
		from := k - 1
		if k == -d || k != d && at(k-1) < at(k+1) {
			from = k + 1
		}
		px := at(from)
		py := px - from
		if d == 0 {
			px, py = 0, 0
		}
		for x > px && y > py { // a diagonal: equal lines
			rev = append(rev, Line{Keep, a[x-1]})
			x, y = x-1, y-1
		}
		switch {
		case d > 0 && x > px:
			rev = append(rev, Line{Remove, a[x-1]})
		case d > 0:
			rev = append(rev, Line{Add, b[y-1]})
		}
		x, y = px, py
	}
	out := make([]Line, len(rev))
	for i, l := range rev {
		out[len(rev)-1-i] = l
	}
	return out
}

func replaced(a, b []string) (out []Line) {
	for _, l := range a {
		out = append(out, Line{Remove, l})
	}
	for _, l := range b {
		out = append(out, Line{Add, l})
	}
	return out
}

// cutHunks cuts a list of lines into changes with their context.
func cutHunks(all []Line) (list []Hunk) {
	oldAt, newAt := 1, 1
	var h *Hunk
	quiet := 0 // unchanged lines at the end of h
	for i, l := range all {
		if l.Op != Keep && h == nil {
			before := all[max(0, i-contextLines):i]
			h = &Hunk{OldAt: oldAt - len(before), NewAt: newAt - len(before)}
			for _, b := range before {
				h.addLine(b)
			}
		}
		if h != nil {
			h.addLine(l)
			if quiet++; l.Op != Keep {
				quiet = 0
			}
			if quiet > 2*contextLines {
				h.trimEnd(quiet - contextLines)
				list, h = append(list, *h), nil
			}
		}
		if l.Op != Add {
			oldAt++
		}
		if l.Op != Remove {
			newAt++
		}
	}
	if h != nil {
		h.trimEnd(max(0, quiet-contextLines))
		list = append(list, *h)
	}
	return list
}

func (h *Hunk) addLine(l Line) {
	h.Lines = append(h.Lines, l)
	if l.Op != Add {
		h.OldLines++
	}
	if l.Op != Remove {
		h.NewLines++
	}
}

// trimEnd takes unchanged lines off the end.
func (h *Hunk) trimEnd(n int) {
	h.Lines = h.Lines[:len(h.Lines)-n]
	h.OldLines, h.NewLines = h.OldLines-n, h.NewLines-n
}
