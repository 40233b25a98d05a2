package ui

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// columns is how many columns of a terminal a text takes: two for a wide character
// (East Asian) or an emoji, none for a mark that combines with what is before it.
func columns(text string) int {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return uniseg.StringWidth(text)
		}
	}
	return len(text)
}

// cutAt cuts a text so that its head takes at most so many columns. What readers
// see as one character stays whole.
func cutAt(text string, width int) (head, rest string) {
	rest = text
	for state := -1; rest != ""; {
		_, behind, taken, next := uniseg.FirstGraphemeClusterInString(rest, state)
		if width -= taken; width < 0 {
			break
		}
		rest, state = behind, next
	}
	return text[:len(text)-len(rest)], rest
}

// Fill writes text into a column. What is wider moves the rest of its line.
func Fill(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-columns(text)))
}

// Pad writes text from a producer into a column; what is wider is cut.
func Pad(text string, width int) string { return Fill(Clean(text, width), width) }

// Listing is what is printed in columns, each as wide as the widest of its cells.
type Listing [][]string

// Row adds a row.
func (l *Listing) Row(cells ...string) { *l = append(*l, cells) }

// Print writes the rows. Nothing is filled up behind the last cell of one.
func (l Listing) Print(w io.Writer) error {
	var widths []int
	for _, row := range l {
		for i, cell := range row[:len(row)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(cell))
		}
	}
	var text strings.Builder
	for _, row := range l {
		last := len(row) - 1
		for i, cell := range row[:last] {
			text.WriteString(Fill(cell, widths[i]+2))
		}
		text.WriteString(row[last] + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}
