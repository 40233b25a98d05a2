package main

import (
	"fmt"
	"os"
	"time"

	"github.com/mattn/go-isatty"
)

// How often progress is told: quickly in place on a terminal, now and then as a
// line of its own elsewhere. What takes less than progressAfter says nothing.
const (
	progressAfter    = 2 * time.Second
	progressTerminal = 100 * time.Millisecond
	progressLines    = 5 * time.Second
)

// progress tells on standard error how far a long step is.
type progress struct {
	io       stdio
	terminal bool
	shown    bool // a line stands on the terminal
	begun    time.Time
	last     time.Time
}

func newProgress(io stdio) *progress {
	f, isFile := io.err.(*os.File)
	return &progress{io: io, terminal: isFile && isatty.IsTerminal(f.Fd()), begun: time.Now()}
}

// due reports whether it is time to tell again.
func (p *progress) due(now time.Time) bool {
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

func (p *progress) tell(text string) {
	if p.terminal {
		fmt.Fprintf(p.io.err, "\r\x1b[K%s", text)
		p.shown = true
		return
	}
	fmt.Fprintln(p.io.err, text)
}

func (p *progress) end() {
	if p.shown {
		fmt.Fprintln(p.io.err)
		p.shown = false
	}
}

// showProgress tells about stages with bytes, each from its beginning.
func showProgress(io stdio) func(stage string, done, total int64) {
	p := newProgress(io)
	var stage string
	var over bool // the stage's last line is out
	return func(s string, done, total int64) {
		if s != stage {
			p.end()
			stage, over, p.last = s, false, time.Time{}
		}
		ended := total > 0 && done >= total
		if over || !p.due(time.Now()) && !ended {
			return
		}
		over = ended
		switch {
		case total > 0:
			p.tell(fmt.Sprintf("%s: %d of %d MB", s, done/1e6, total/1e6))
		case done > 0:
			p.tell(fmt.Sprintf("%s: %d MB", s, done/1e6))
		default:
			p.tell(s)
		}
		if ended {
			p.end()
		}
	}
}

// countProgress tells about a count, once it has taken a while.
func countProgress(io stdio, what string) func(done, total uint64) {
	p := newProgress(io)
	return func(done, total uint64) {
		now := time.Now()
		if now.Sub(p.begun) < progressAfter || !p.due(now) && done != total {
			return
		}
		p.tell(fmt.Sprintf("%s: %d of %d records", what, done, total))
		if done == total {
			p.end()
		}
	}
}
