// Command countersign is the operator's tool: it runs the whole pipeline on one machine, asks for
// admission, follows decisions, and reads, verifies and exports evidence. commands.go lists the
// commands; they are in internal/cli.
package main

import (
	"os"

	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline/child"
)

func main() {
	child.RunIfAsked()
	os.Exit(newProgram().Main())
}

// newProgram is the command line of the operator's tool.
func newProgram() ui.Program {
	return ui.Program{
		Name:     "countersign",
		About:    "Proves what AI agents were allowed to do, what they did, and that the two match.",
		Commands: &commands{},
		Options:  []kong.Option{system.SessionNames},
	}
}
