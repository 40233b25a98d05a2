package ui_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/ui/uitest"
)

func TestPrinterColumns(t *testing.T) {
	uitest.SameColumns(t, map[string]func(io ui.Stdio, p *ui.Printer, text string){
		"a decision": func(_ ui.Stdio, p *ui.Printer, x string) {
			p.Decision(events.Decision{Verdict: events.Deny, Tool: x, ToolCallID: x})
		},
		"a listing": func(io ui.Stdio, _ *ui.Printer, x string) {
			_ = ui.Listing{{x, x, x}, {"abcd", "b", "c"}}.Print(io.Out)
		},
	})
}

func TestPrinterIsHarmless(t *testing.T) {
	const text = uitest.Hostile
	for name, c := range map[string]struct {
		print func(p *ui.Printer)
		lines int
	}{
		"decision": {func(p *ui.Printer) {
			p.Decision(events.Decision{Verdict: text, Tool: text, ToolCallID: text, Reasons: []events.Reason{{Code: text}}})
		}, 1},
		"finding": {func(p *ui.Printer) {
			p.Finding(events.Finding{Severity: text, Rule: text, Explanation: text, Remedy: text})
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c.print(ui.NewPrinter(&out))
			uitest.Harmless(t, out.String(), c.lines)
		})
	}
}

// What a server or a file says stands in errors.
func TestErrorsAreHarmless(t *testing.T) {
	text := strings.ReplaceAll(uitest.Hostile, "\n", "")
	for name, err := range map[string]error{"error": errors.New("a server said " + text), "usage": ui.UsageError{Err: errors.New(text)}} {
		t.Run(name, func(t *testing.T) {
			var commands struct {
				Fail failing `cmd:""`
			}
			commands.Fail.err = err
			var out bytes.Buffer
			ui.Program{Name: "countersign", Commands: &commands}.Run(t.Context(), []string{"fail"}, ui.Stdio{Out: &out, Err: &out})
			uitest.Harmless(t, out.String(), 1)
		})
	}
}

type failing struct{ err error }

func (f *failing) Run() error { return f.err }
