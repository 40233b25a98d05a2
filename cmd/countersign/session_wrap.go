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

// breakLines breaks text between words into lines of at most width characters;
// a word that is longer is cut.
func breakLines(text string, width int) (lines []string) {
	line := []rune{}
	flush := func() {
		if len(line) > 0 {
			lines = append(lines, string(line))
		}
		line = line[:0]
	}
	for _, field := range strings.Fields(text) {
		word := []rune(field)
		if len(line) > 0 && len(line)+1+len(word) > width {
			flush()
		}
		for len(word) > width {
			lines = append(lines, string(word[:width]))
			word = word[width:]
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		line = append(line, word...)
	}
	flush()
	return lines
}
