package ui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/internal/buildinfo"
)

// Program is a command line: its name, its description, and its commands, a pointer to a struct
// that kong reads.
type Program struct {
	Name, About string
	Commands    any
	Options     []kong.Option
}

// Model is the command line as kong reads it: commands, arguments and flags.
func (p Program) Model() (*kong.Application, error) {
	parser, err := kong.New(p.Commands, append([]kong.Option{kong.Name(p.Name), kong.Description(p.About)}, p.Options...)...)
	if err != nil {
		return nil, err
	}
	return parser.Model, nil
}

// Run parses and executes one command and returns the exit code.
func (p Program) Run(ctx context.Context, args []string, io Stdio) int {
	exited := -1
	parser, err := kong.New(p.Commands, append([]kong.Option{
		kong.Name(p.Name),
		kong.Description(p.About),
		kong.Writers(io.Out, io.Err),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(io),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	}, p.Options...)...)
	if err != nil {
		fmt.Fprintf(io.Err, "%s: %v\n", p.Name, err)
		return ExitUsage
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if exited >= 0 { // --help or --version was handled
		return exited
	}
	if err != nil {
		fmt.Fprintf(io.Err, "%s: %s (see %s --help)\n", p.Name, CleanLines(err.Error()), helpOf(p.Name, err))
		return ExitUsage
	}
	return report(p.Name, io, kctx.Run())
}

// helpOf is the command whose help explains an error of parsing: the one that was named, as far as it was.
func helpOf(name string, err error) string {
	var parsing *kong.ParseError
	if !errors.As(err, &parsing) {
		return name
	}
	for _, step := range parsing.Context.Path {
		if step.Command != nil {
			name += " " + step.Command.Name
		}
	}
	return name
}

// Main runs the program with the process's arguments and standard streams until SIGTERM, SIGINT
// or SIGHUP (unless the process was started to ignore that one, as by nohup), and returns the exit
// code.
func (p Program) Main() int {
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return p.Run(ctx, os.Args[1:], Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}

// VersionFlag is the type of --version.
type VersionFlag bool

// BeforeReset prints the version before other flags are evaluated.
func (VersionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, app.Model.Name, buildinfo.Version())
	app.Exit(ExitOK)
	return nil
}

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
