package ui

import (
	"context"
	"errors"
	"fmt"
)

// Exit codes.
const (
	ExitOK      = 0
	ExitFailed  = 1
	ExitUsage   = 2
	ExitPending = 3 // admit: ask or defer
	ExitDenied  = 4 // admit: deny

	ExitUnconfirmed = 5 // a change is stored, but an admitter may still use the previous state
)

// ExitCode is an error that only carries an exit code; the command has already printed
// everything.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// UsageError is an error in the call of a command.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// exitCoder is an error with a message and an exit code of its own. The method is not named
// ExitCode because exec.ExitError has one, and the exit code of another program is not the
// command's.
type exitCoder interface {
	error
	CommandExitCode() int
}

// report prints an error, in one line unless it is a list, and returns the exit code. An error
// may quote text of a server or a file, so it is cleaned.
func report(program string, io Stdio, err error) int {
	var code ExitCode
	var usage UsageError
	var coded exitCoder
	said := ExitFailed
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		said = ExitUsage
	case errors.As(err, &coded):
		said = coded.CommandExitCode()
	case errors.Is(err, context.Canceled):
		return ExitFailed
	}
	fmt.Fprintf(io.Err, "%s: %s\n", program, CleanLines(err.Error()))
	return said
}
