package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// program is a command line: its name, what it is for, and its commands, a pointer to
// a struct that kong reads.
type program struct {
	Name, About string
	Commands    any
	Options     []kong.Option
}

// run parses and executes one command and returns the exit code.
func (p program) run(ctx context.Context, args []string, io stdio) int {
	exited := -1
	parser, err := kong.New(p.Commands, append([]kong.Option{
		kong.Name(p.Name),
		kong.Description(p.About),
		kong.Writers(io.out, io.err),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(io),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	}, p.Options...)...)
	if err != nil {
		fmt.Fprintf(io.err, "%s: %v\n", p.Name, err)
		return exitUsage
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if exited >= 0 { // --help or --version has been answered
		return exited
	}
	if err != nil {
		fmt.Fprintf(io.err, "%s: %s (see %[1]s --help)\n", p.Name, cleanLines(err.Error()))
		return exitUsage
	}
	return report(p.Name, io, kctx.Run())
}

// main runs the program in its process, which SIGTERM and SIGINT end, and gives the
// exit code.
func (p program) main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return p.run(ctx, os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}

type versionFlag bool

// BeforeReset prints the version before anything else is looked at.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	fmt.Fprintln(app.Stdout, app.Model.Name, version)
	app.Exit(exitOK)
	return nil
}
