package main

import (
	"context"
	"errors"
	"fmt"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitPending = 3 // admit: ask or defer
	exitDenied  = 4 // admit: deny

	exitUnconfirmed = 5 // a change is stored, and an admitter may still decide by what was before
)

// exitCode is an error that only carries an exit code; what there was to say
// has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// usageError is a mistake in how a command was called.
type usageError struct{ Err error }

func (e usageError) Error() string { return e.Err.Error() }

// exitCoder is an error with an exit code of its own. Unlike an exitCode it has
// something to say.
type exitCoder interface {
	error
	ExitCode() int
}

// report says what went wrong, in one line unless it is a list, and gives the
// exit code. An error may quote what a server or a file says.
func report(program string, io stdio, err error) int {
	var code exitCode
	var usage usageError
	var coded exitCoder
	said := exitFailed
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		said = exitUsage
	case errors.As(err, &coded):
		said = coded.ExitCode()
	case errors.Is(err, context.Canceled):
		return exitFailed
	}
	fmt.Fprintf(io.err, "%s: %s\n", program, cleanLines(err.Error()))
	return said
}
