package engine

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/countersign-dev/countersign/storage/engine/internal/chdb"
)

// engineArg, as the first argument, makes this program run an engine.
const engineArg = "__clickhouse-engine"

// Tasks of an engine's process (its second argument).
const (
	childEmbedded = "embedded" // LIBRARY ARGS...: run the embedded engine
	childExec     = "exec"     // PROGRAM ARGS...: become the program
)

// RunChildIfAsked must be the first call in main and TestMain of every program that
// calls Start. In the process that Start starts from the program's own
// executable it runs the engine and never returns; in any other process it does nothing.
func RunChildIfAsked() {
	if len(os.Args) < 2 || os.Args[1] != engineArg {
		return
	}
	if len(os.Args) < 5 {
		fmt.Fprintf(os.Stderr, "%s is for internal use\n", engineArg)
		os.Exit(2)
	}
	if err := runChild(os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runChild(what, path string, args []string) error {
	switch what {
	case childEmbedded:
		return runEmbedded(path, args)
	case childExec:
		return execWithoutPrivileges(path, args)
	default:
		return fmt.Errorf("%s: unknown task %q", engineArg, what)
	}
}

// runEmbedded runs the engine until its blocking query ends.
//
// The process ignores SIGINT, SIGTERM and SIGHUP: a supervisor that signals a whole control
// group must not end the engine while services still have evidence to write. The process
// ends when its owner stops it, or when its owner dies: then its stdin closes, and it exits
// without a clean shutdown, as in a crash.
func runEmbedded(path string, args []string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGXFSZ) // the write that exceeds a file size limit reports the error instead
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	lib, err := chdb.Load(path)
	if err != nil {
		return err
	}
	return lib.Run(args...)
}
