package storage

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/countersign-dev/countersign/storage/internal/chdb"
)

// engineArg as the first argument turns this program into an engine's process.
const engineArg = "__clickhouse-engine"

// What an engine's process may be asked to do (its second argument).
const (
	childEmbedded = "embedded" // LIBRARY ARGS...: run the embedded engine
	childExec     = "exec"     // PROGRAM ARGS...: become the program
)

// RunEngineChildIfAsked must be the first thing that every main and TestMain of
// a program that calls StartEngine does. In the process that StartEngine starts
// from the program's own executable it runs the engine and never returns; in
// any other it does nothing.
func RunEngineChildIfAsked() {
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
// The process ignores the polite signals: a supervisor that signals a whole
// control group must not take the engine away from services that still have
// evidence to write. It ends when its owner stops it, or with its owner: then
// its stdin closes. It takes no heed of the engine's state in that case, as a
// crash would not either.
func runEmbedded(path string, args []string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGXFSZ) // that a file may not grow further is seen where it is written
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
