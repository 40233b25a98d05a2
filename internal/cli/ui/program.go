package ui

import (
	"context"
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
		fmt.Fprintf(io.Err, "%s: %s (see %[1]s --help)\n", p.Name, CleanLines(err.Error()))
		return ExitUsage
	}
	return report(p.Name, io, kctx.Run())
}

// Main runs the program with the process's arguments and standard streams until SIGTERM or
// SIGINT, and returns the exit code.
func (p Program) Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
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
