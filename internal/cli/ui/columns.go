package ui

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// columns is how many terminal columns a text takes: two for a wide character (East Asian) or an
// emoji, none for a combining mark.
func columns(text string) int {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return uniseg.StringWidth(text)
		}
	}
	return len(text)
}

// cutAt cuts a text so that head takes at most width columns. Grapheme clusters stay whole.
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

// Fill pads text to a column width. Wider text shifts the rest of its line.
func Fill(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-columns(text)))
}

// Pad fits text from a producer into a column width: it is padded or cut.
func Pad(text string, width int) string { return Fill(Clean(text, width), width) }

// Listing is a table with columns as wide as their widest cells.
type Listing [][]string

// Row adds a row.
func (l *Listing) Row(cells ...string) { *l = append(*l, cells) }

// Print writes the rows. The last cell of a row is not padded.
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
