package ui

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Plural formats a count of something, in the singular for one.
func Plural(n int, what string) string {
	switch base, y := strings.CutSuffix(what, "y"); {
	case n == 1:
	case y && !strings.ContainsAny(base[len(base)-1:], "aeiou"):
		what = base + "ies"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Counted is Plural with the verb that follows it, such as "is" and "are".
func Counted(n int, what, one, many string) string {
	if n != 1 {
		one = many
	}
	return Plural(n, what) + " " + one
}

// Sequences lists log sequences, only the first few if there are many.
func Sequences(list []uint64) string {
	const most = 8
	texts := make([]string, 0, most)
	for _, s := range list[:min(most, len(list))] {
		texts = append(texts, fmt.Sprint(s))
	}
	if len(list) > most {
		texts = append(texts, "…")
	}
	return strings.Join(texts, ", ")
}

// ShortDuration formats a duration with about three digits.
func ShortDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", d.Seconds()*1000)
	case d < time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

const (
	defaultWidth = 100
	MinWidth     = 60
	maxWidth     = 160
	mostWrapped  = 4000 // characters of one text from a producer
)

// Width is the number of columns to use: the terminal's, or COLUMNS if it is set.
func (p *Printer) Width() int {
	n, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	if f, is := p.w.(*os.File); is && n == 0 {
		n = terminalWidth(f)
	}
	if n <= 0 {
		n = defaultWidth
	}
	return min(max(n, MinWidth), maxWidth)
}

// terminalWidth is 0 if f is not a terminal.
func terminalWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// Wrapped prints text from a producer below a heading: indented, with a label before its first
// line, broken between words. An empty text prints nothing.
func (p *Printer) Wrapped(indent int, label, text, colour string) {
	if text == "" {
		return
	}
	margin := strings.Repeat(" ", indent)
	for i, line := range breakLines(Clean(text, mostWrapped), max(p.Width()-indent-len(label), MinWidth/2)) {
		if i > 0 {
			label = strings.Repeat(" ", len(label))
		}
		p.Printf("%s%s%s\n", margin, label, p.Paint(colour, line))
	}
}

// breakLines breaks text between words into lines of at most width columns, which must be four or
// more; a longer word is cut.
func breakLines(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && columns(line)+1+columns(word) > width {
			lines, line = append(lines, line), ""
		}
		for columns(word) > width {
			var head string
			head, word = cutAt(word, width)
			lines = append(lines, head)
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
