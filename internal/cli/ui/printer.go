package ui

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"

	"github.com/mattn/go-isatty"

	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events"
)

// Printer writes output for display: aligned, and in colour only on a terminal. It is safe for
// concurrent use.
type Printer struct {
	mu     sync.Mutex
	w      io.Writer
	colour bool
}

// NewPrinter prints in colour if w is a terminal and NO_COLOR is not set.
func NewPrinter(w io.Writer) *Printer {
	f, isFile := w.(*os.File)
	return &Printer{w: w, colour: isFile && isatty.IsTerminal(f.Fd()) && os.Getenv("NO_COLOR") == ""}
}

// ANSI colours.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Blue   = "34"
	Bold   = "1"
	Faint  = "2"
)

// Paint colours a text if the printer uses colours.
func (p *Printer) Paint(code, s string) string {
	if !p.colour || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Printf writes text that must be safe to print (see Clean).
func (p *Printer) Printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format, args...)
}

// Line writes one line unchanged and returns the error of writing.
func (p *Printer) Line(text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := fmt.Fprintln(p.w, text)
	return err
}

// VerdictColour is the colour of each verdict.
var VerdictColour = map[events.Verdict]string{events.Allow: Green, events.Ask: Yellow, events.Defer: Yellow, events.Deny: Red}

// SeverityColour is the colour of each severity.
var SeverityColour = map[events.Severity]string{
	events.SeverityInfo: Faint, events.SeverityLow: Blue, events.SeverityMedium: Yellow, events.SeverityHigh: Red, events.SeverityCritical: Red,
}

// StateColour is the colour of each state of a call.
var StateColour = map[events.CallState]string{events.CallCompleted: Green, events.CallFailed: Yellow, events.CallDenied: Red,
	events.CallAbandoned: Yellow, events.CallOrphaned: Red, events.CallOpen: Blue}

// MatchColour is the colour of each result of comparing a call's arguments.
var MatchColour = map[string]string{"equal": Green, "drift": Red, "inconclusive": Yellow}

// CleanLines is Clean for text of several lines and any length.
func CleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = Clean(l, len(l)+1)
	}
	return strings.Join(lines, "\n")
}

// marks is how many characters a column may hold, since any number of marks can combine.
const marks = 4

// Clean makes text from a producer safe to print: it replaces control characters, which could move
// the cursor or forge a line, and characters that are drawn as nothing, so that two names that differ
// do not look the same. It cuts the text to the width most, in columns.
func Clean(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && !names.IsInvisible(r) {
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

// Decision prints a decision in one line.
func (p *Printer) Decision(d events.Decision) {
	p.Printf("%s  %s  %s %s %s\n", p.Paint(Faint, d.DecidedAt.Format("15:04:05.000")), p.Verdict(d),
		Pad(d.Tool, 24), Pad(cmp.Or(d.ToolCallID, "-"), 20), Clean(ReasonCodes(d.Reasons), 80))
}

// Verdict is the verdict of a decision for a list. What was only observed does not look like a
// permission.
func (p *Printer) Verdict(d events.Decision) string {
	text := p.Paint(VerdictColour[d.Verdict], Pad(string(d.Verdict), 5))
	if d.ObservedOnly() {
		text = p.Paint(Yellow, Pad(string(d.Verdict), 5)+" (observed: would be "+Clean(string(d.EnforcedVerdict()), 10)+")")
	}
	return text
}

// Finding prints a finding and its remedy.
func (p *Printer) Finding(f events.Finding) {
	rule := p.Paint(Bold, Clean(f.Rule, 40))
	if f.Enforced {
		rule += "  " + p.Paint(Red, "enforced")
	}
	p.Printf("%s  %s  %s\n", p.Paint(SeverityColour[f.Severity], Pad(string(f.Severity), 8)), rule, Clean(f.Explanation, 400))
	if f.Remedy != "" {
		p.Printf("          %s\n", p.Paint(Faint, Clean(f.Remedy, 400)))
	}
}

// ReasonCodes lists the codes of reasons.
func ReasonCodes(reasons []events.Reason) string {
	list := make([]string, 0, len(reasons))
	for _, r := range reasons {
		code := r.Code
		if r.Action != "" { // an action has no part in the verdict
			code += " (" + r.Action + ")"
		}
		list = append(list, code)
	}
	return strings.Join(list, ", ")
}
