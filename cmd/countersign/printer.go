package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"

	"github.com/mattn/go-isatty"

	"github.com/countersign-dev/countersign/events"
)

// printer writes for people: aligned, and in colour on a terminal only.
// It may be used from several goroutines.
type printer struct {
	mu     sync.Mutex
	w      io.Writer
	colour bool
}

func newPrinter(w io.Writer) *printer {
	f, isFile := w.(*os.File)
	return &printer{w: w, colour: isFile && isatty.IsTerminal(f.Fd()) && os.Getenv("NO_COLOR") == ""}
}

// ANSI colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	bold   = "1"
	faint  = "2"
)

func (p *printer) paint(code, s string) string {
	if !p.colour || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format, args...)
}

// line writes one line as it is, and says whether it could be written.
func (p *printer) line(text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := fmt.Fprintln(p.w, text)
	return err
}

var verdictColour = map[events.Verdict]string{events.Allow: green, events.Ask: yellow, events.Defer: yellow, events.Deny: red}

var severityColour = map[events.Severity]string{
	events.SeverityInfo: faint, events.SeverityLow: blue, events.SeverityMedium: yellow, events.SeverityHigh: red, events.SeverityCritical: red,
}

var stateColour = map[events.CallState]string{events.CallCompleted: green, events.CallFailed: yellow, events.CallDenied: red,
	events.CallAbandoned: yellow, events.CallOrphaned: red, events.CallOpen: blue}

var matchColour = map[string]string{"equal": green, "drift": red, "inconclusive": yellow}

// cleanLines is clean for text that may have several lines and any length.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = clean(l, len(l)+1)
	}
	return strings.Join(lines, "\n")
}

// marks is how many characters may stand in a column: marks combine without end.
const marks = 4

// clean makes text from a producer safe to print: no control characters, which
// could move the cursor or forge a line, and at most so many columns wide.
func clean(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
	short := s
	if r := []rune(s); len(r) > marks*most {
		short = string(r[:marks*most])
	}
	if short == s && columns(s) <= most {
		return s
	}
	short, _ = cutAt(short, most-1)
	return short + "…"
}

func (p *printer) decision(d events.Decision) {
	p.printf("%s  %s  %s %s %s\n", p.paint(faint, d.DecidedAt.Format("15:04:05.000")),
		p.paint(verdictColour[d.Verdict], pad(string(d.Verdict), 5)),
		pad(d.Tool, 24), pad(cmp.Or(d.ToolCallID, "-"), 20), clean(codes(d.Reasons), 80))
}

func (p *printer) finding(f events.Finding) {
	rule := p.paint(bold, clean(f.Rule, 40))
	if f.Enforced {
		rule += "  " + p.paint(red, "enforced")
	}
	p.printf("%s  %s  %s\n", p.paint(severityColour[f.Severity], pad(string(f.Severity), 8)), rule, clean(f.Explanation, 400))
	if f.Remedy != "" {
		p.printf("          %s\n", p.paint(faint, clean(f.Remedy, 400)))
	}
}

func codes(reasons []events.Reason) string {
	list := make([]string, 0, len(reasons))
	for _, r := range reasons {
		code := r.Code
		if r.Action != "" { // it has no part in the verdict
			code += " (" + r.Action + ")"
		}
		list = append(list, code)
	}
	return strings.Join(list, ", ")
}
