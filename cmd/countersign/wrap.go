package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const (
	defaultWidth = 100
	minWidth     = 60
	maxWidth     = 160
	mostWrapped  = 4000 // characters of one text from a producer
)

// width is how many columns there are to write in: the terminal's, or what
// COLUMNS says where it is none.
func (p *printer) width() int {
	n, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	if f, is := p.w.(*os.File); is && n == 0 {
		n = terminalWidth(f)
	}
	if n <= 0 {
		n = defaultWidth
	}
	return min(max(n, minWidth), maxWidth)
}

// terminalWidth is 0 for what is no terminal.
func terminalWidth(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size))); failed != 0 {
		return 0
	}
	return int(size.columns)
}

// wrapped prints text from a producer below a heading: indented, with a label
// before its first line, broken between words. Nothing is printed for no text.
func (p *printer) wrapped(indent int, label, text, colour string) {
	if text == "" {
		return
	}
	margin := strings.Repeat(" ", indent)
	for i, line := range breakLines(clean(text, mostWrapped), max(p.width()-indent-len(label), minWidth/2)) {
		if i > 0 {
			label = strings.Repeat(" ", len(label))
		}
		p.printf("%s%s%s\n", margin, label, p.paint(colour, line))
	}
}

// breakLines breaks text between words into lines of at most width columns, which
// are four or more; a word that is longer is cut.
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
