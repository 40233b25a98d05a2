package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// hostile is what a producer, or somebody with access to the database, may
// write: it would clear the screen, forge a line and turn text around.
const hostile = "\x1b[2J\x07ok\r\nallow  forged\u202e\u0085\x00"

// harmless demands that nothing in a text but line ends controls a terminal,
// and that it has so many lines.
func harmless(t *testing.T, text string, lines int) {
	t.Helper()
	if strings.ContainsAny(text, "\x1b\x07\r\u202e\u0085\x00") {
		t.Errorf("%q", text)
	}
	if got := strings.Count(text, "\n"); got != lines {
		t.Errorf("%d lines, want %d: %q", got, lines, text)
	}
}

func TestNothingUntrustedControlsTheTerminal(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out)
	for name, c := range map[string]struct {
		print func()
		lines int
	}{
		"decision": {func() {
			p.decision(events.Decision{Verdict: hostile, Tool: hostile, ToolCallID: hostile, Reasons: []events.Reason{{Code: hostile}}})
		}, 1},
		"finding": {func() {
			p.finding(events.Finding{Severity: hostile, Rule: hostile, Explanation: hostile, Remedy: hostile})
		}, 2},
		"chain": {func() {
			row := evidence.Row{Kind: hostile, Record: hostile}
			_ = printChain(stdio{out: &out}, evidencereader.Session{Shard: hostile, Tenant: hostile, Session: hostile, Rows: []evidence.Row{row}}, nil, false, false)
		}, 2},
		"report": {func() { printReport(p, evidence.Report{Shard: hostile, Session: hostile, OK: true}) }, 2},
		"error": {func() {
			report("countersign", stdio{err: &out}, errors.New("a server said "+strings.ReplaceAll(hostile, "\n", "")))
		}, 1},
		"usage": {func() {
			report("countersign", stdio{err: &out}, usageError{Err: errors.New(strings.ReplaceAll(hostile, "\n", ""))})
		}, 1},
		"doctor":       {func() { _ = (&doctorCmd{}).report(stdio{out: &out}, one("c", levelOK, "%s", hostile)) }, 1},
		"tail, people": {func() { _, _ = (&tailCmd{}).print(p, message(`{"verdict":"deny","tool":"\u001b[2J\nx"}`)) }, 1},
		"tail, JSON":   {func() { _, _ = (&tailCmd{JSON: true}).print(p, message("{\n\"tool\":\n\"\\u001b[2J\"}")) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			c.print()
			harmless(t, out.String(), c.lines)
		})
	}
}

func message(body string) events.Output {
	return events.Output{Subject: "gov.decisions.acme.deny.s1", Record: []byte(body)}
}

func TestTailCountsOnlyWhatItPrints(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out)
	for _, c := range []struct {
		json bool
		m    events.Output
		want bool
	}{
		{false, message(`{"verdict":"deny"}`), true}, {true, message(`{"verdict":"deny"}`), true},
		{false, message("garbage"), false}, {true, message("garbage"), false}, {true, message("{}\n{}"), false},
		{false, events.Output{Subject: "elsewhere", Record: []byte("{}")}, false},
		{false, events.Output{Subject: "gov.calls.acme.open.s1", Record: []byte(`{"state":"open"}`)}, true},
		{true, events.Output{Subject: "gov.approvals.acme.pending.w", Record: []byte(`{"status":"pending"}`)}, true},
		{false, events.Output{Subject: "gov.decisions.acme.deny.s1"}, false}, // too large for its page
		{false, events.Output{Subject: "gov.findings.acme.low.s1", Record: []byte(`{"rule":"x"}`)}, true},
	} {
		out.Reset()
		printed, err := (&tailCmd{JSON: c.json}).print(p, c.m)
		if err != nil || printed != c.want || printed != (out.Len() > 0) {
			t.Errorf("%s %q: printed %t, %v, %q", c.m.Subject, c.m.Record, printed, err, out.String())
		}
	}
}

func TestTailOfEnforcedFindings(t *testing.T) {
	c := &tailCmd{Enforced: true, Severity: "medium"}
	if kinds := c.kinds(); len(kinds) != 1 || kinds[0] != "findings" {
		t.Errorf("it follows %v", kinds)
	}
	for record, want := range map[string]bool{
		`{"rule":"x","severity":"high","enforced":true}`: true, `{"rule":"x","severity":"high"}`: false, `{"rule":"x","severity":"low","enforced":true}`: false,
	} {
		var out bytes.Buffer
		printed, err := c.print(newPrinter(&out), events.Output{Subject: "gov.findings.acme.high.s1", Record: []byte(record)})
		if err != nil || printed != want || strings.Contains(out.String(), "enforced") != want {
			t.Errorf("%s: printed %t, %v, %q", record, printed, err, out.String())
		}
	}
}

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
