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

	ExitUnconfirmed = 5 // a change is stored, and an admitter may still decide by what was before
)

// ExitCode is an error that only carries an exit code; what there was to say
// has been said.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// UsageError is a mistake in how a command was called.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// exitCoder is an error with an exit code of its own. Unlike an ExitCode it has
// something to say. The method is not named ExitCode: exec.ExitError has one, and the
// code of another program is not the command's.
type exitCoder interface {
	error
	CommandExitCode() int
}

// report says what went wrong, in one line unless it is a list, and gives the
// exit code. An error may quote what a server or a file says.
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
