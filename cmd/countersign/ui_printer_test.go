package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

func TestColourIsForTerminals(t *testing.T) {
	var out bytes.Buffer
	newPrinter(&out).decision(events.Decision{Verdict: events.Deny})
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
	p := &printer{w: &out, colour: true}
	if got := p.paint(red, "x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
}

func TestReportExitCodes(t *testing.T) {
	for want, err := range map[int]error{
		exitOK: nil, exitFailed: errors.New("x"), exitUsage: fmt.Errorf("y: %w", usageError{Err: errors.New("x")}),
		exitPending: exitCode(exitPending), exitDenied: fmt.Errorf("y: %w", exitCode(exitDenied)),
	} {
		var out bytes.Buffer
		if got := report("countersign", stdio{err: &out}, err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
	var out bytes.Buffer
	if got := report("countersign", stdio{err: &out}, fmt.Errorf("starting: %w", context.Canceled)); got != exitFailed || out.Len() > 0 {
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
		endList(stdio{out: &out, err: &err}, newPrinter(&out), c.json, 2, c.more, "call")
		if out.String() != c.out || err.String() != c.err {
			t.Errorf("json %v, more %v: %q and %q", c.json, c.more, out.String(), err.String())
		}
	}
}
