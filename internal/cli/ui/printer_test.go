package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

func TestColourIsForTerminals(t *testing.T) {
	var out bytes.Buffer
	NewPrinter(&out).Decision(events.Decision{Verdict: events.Deny})
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
	p := &Printer{w: &out, colour: true}
	if got := p.Paint(Red, "x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
}

func TestReportExitCodes(t *testing.T) {
	for want, err := range map[int]error{
		ExitOK: nil, ExitFailed: errors.New("x"), ExitUsage: fmt.Errorf("y: %w", UsageError{Err: errors.New("x")}),
		ExitPending: ExitCode(ExitPending), ExitDenied: fmt.Errorf("y: %w", ExitCode(ExitDenied)),
	} {
		var out bytes.Buffer
		if got := report("countersign", Stdio{Err: &out}, err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
	child := fmt.Errorf("another program: %w", &exec.ExitError{ProcessState: &os.ProcessState{}})
	if got := report("countersign", Stdio{Err: io.Discard}, child); got != ExitFailed {
		t.Errorf("another program's exit code: %d, want %d", got, ExitFailed)
	}
	var out bytes.Buffer
	if got := report("countersign", Stdio{Err: &out}, fmt.Errorf("starting: %w", context.Canceled)); got != ExitFailed || out.Len() > 0 {
		t.Errorf("interrupted: %d %q", got, out.String())
	}
}

// A list that was cut says so: to people at its end, to programs beside it.
func TestEndOfAList(t *testing.T) {
	for _, c := range []struct {
		json     bool
		more     bool
		out, err string
	}{
		{false, false, "2 calls\n", ""},
		{false, true, "the newest 2 calls; there are more (--limit, --since)\n", ""},
		{true, false, "", ""},
		{true, true, "", "note: the newest 2 calls; there are more (--limit, --since)\n"},
	} {
		var out, err bytes.Buffer
		EndList(Stdio{Out: &out, Err: &err}, NewPrinter(&out), c.json, 2, c.more, "call")
		if out.String() != c.out || err.String() != c.err {
			t.Errorf("json %v, more %v: %q and %q", c.json, c.more, out.String(), err.String())
		}
	}
}
