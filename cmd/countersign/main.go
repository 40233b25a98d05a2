// Command countersign is the operator's tool: it runs the whole pipeline on one
// machine, asks for admission, follows decisions, and reads, verifies and
// exports evidence.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/internal/service/admitter"
	"github.com/countersign-dev/countersign/internal/service/auditor"
	"github.com/countersign-dev/countersign/internal/service/correlator"
	"github.com/countersign-dev/countersign/storage"
)

// Exit codes (architecture section 7).
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitPending = 3 // admit: ask or defer
	exitDenied  = 4 // admit: deny

	exitUnconfirmed = 5 // a change is stored, and an admitter may still decide by what was before
)

// stdio is where a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// exitCode is an error that only carries an exit code; what there was to say
// has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// usageError is a mistake in how a command was called.
type usageError struct{ error }

func main() {
	storage.RunEngineChildIfAsked()
	if len(os.Args) > 2 && os.Args[1] == serviceArg {
		os.Exit(runService(os.Args[2], os.Args[3:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}

// serviceArg is the hidden first argument under which `up` starts this program
// again as one of its own children.
const serviceArg = "__service"

var services = map[string]func(args []string) int{
	"admitter":   admitter.Main,
	"correlator": correlator.Main,
	"auditor":    auditor.Main,
	"nats":       natsMain,
}

func runService(name string, args []string) int {
	if f, known := services[name]; known {
		return f(args)
	}
	fmt.Fprintf(os.Stderr, "countersign: no service %q\n", name)
	return exitUsage
}

// run parses and executes one command and returns the exit code.
func run(ctx context.Context, args []string, io stdio) int {
	var cli commands
	exited := -1
	parser, err := kong.New(&cli,
		kong.Name("countersign"),
		kong.Description("Proves what AI agents were allowed to do, what they did, and that the two match."),
		kong.Writers(io.out, io.err),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(io),
		kong.NamedMapper("session", sessionName{}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		fmt.Fprintln(io.err, "countersign:", err)
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
		fmt.Fprintf(io.err, "countersign: %s (see countersign --help)\n", cleanLines(err.Error()))
		return exitUsage
	}
	return report(io, kctx.Run())
}

// report says what went wrong, in one line unless it is a list, and gives the
// exit code. An error may quote what a server or a file says.
func report(io stdio, err error) int {
	var code exitCode
	var usage usageError
	var unconfirmed unconfirmedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintln(io.err, "countersign:", cleanLines(err.Error()))
		return exitUsage
	case errors.As(err, &unconfirmed):
		fmt.Fprintln(io.err, "countersign:", cleanLines(err.Error()))
		return exitUnconfirmed
	case errors.Is(err, context.Canceled):
		return exitFailed
	default:
		fmt.Fprintln(io.err, "countersign:", cleanLines(err.Error()))
		return exitFailed
	}
}
