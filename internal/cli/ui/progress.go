package ui

import (
	"fmt"
	"os"
	"time"

	"github.com/mattn/go-isatty"
)

// How often progress is printed: frequently in place on a terminal, rarely as separate lines
// elsewhere. Steps shorter than progressAfter print nothing.
const (
	progressAfter    = 2 * time.Second
	progressTerminal = 100 * time.Millisecond
	progressLines    = 5 * time.Second
)

// Progress prints the progress of a long step on standard error.
type Progress struct {
	io       Stdio
	terminal bool
	shown    bool // a line is on the terminal
	begun    time.Time
	last     time.Time
}

// NewProgress starts a step; its first line is due at once.
func NewProgress(io Stdio) *Progress {
	f, isFile := io.Err.(*os.File)
	return &Progress{io: io, terminal: isFile && isatty.IsTerminal(f.Fd()), begun: time.Now()}
}

// Due reports whether progress should be printed again.
func (p *Progress) Due(now time.Time) bool {
	every := progressLines
	if p.terminal {
		every = progressTerminal
	}
	if now.Sub(p.last) < every {
		return false
	}
	p.last = now
	return true
}

// Tell prints the progress.
func (p *Progress) Tell(text string) {
	if p.terminal {
		fmt.Fprintf(p.io.Err, "\r\x1b[K%s", text)
		p.shown = true
		return
	}
	fmt.Fprintln(p.io.Err, text)
}

// End ends the line on a terminal.
func (p *Progress) End() {
	if p.shown {
		fmt.Fprintln(p.io.Err)
		p.shown = false
	}
}

// ShowProgress prints the progress of stages in bytes, each from its start.
func ShowProgress(io Stdio) func(stage string, done, total int64) {
	p := NewProgress(io)
	var stage string
	var over bool // the stage's last line is printed
	return func(s string, done, total int64) {
		if s != stage {
			p.End()
			stage, over, p.last = s, false, time.Time{}
		}
		ended := total > 0 && done >= total
		if over || !p.Due(time.Now()) && !ended {
			return
		}
		over = ended
		switch {
		case total > 0:
			p.Tell(fmt.Sprintf("%s: %d of %d MB", s, done/1e6, total/1e6))
		case done > 0:
			p.Tell(fmt.Sprintf("%s: %d MB", s, done/1e6))
		default:
			p.Tell(s)
		}
		if ended {
			p.End()
		}
	}
}

// CountProgress prints the progress of a count that takes longer than progressAfter.
func CountProgress(io Stdio, what string) func(done, total uint64) {
	p := NewProgress(io)
	return func(done, total uint64) {
		now := time.Now()
		if now.Sub(p.begun) < progressAfter || !p.Due(now) && done != total {
			return
		}
		p.Tell(fmt.Sprintf("%s: %d of %d records", what, done, total))
		if done == total {
			p.End()
		}
	}
}
