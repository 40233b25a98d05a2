// Command countersign is the operator's tool: it runs the whole pipeline on one machine, asks for
// admission, follows decisions, and reads, verifies and exports evidence. internal/cli/commands.go
// lists the commands.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/cli"
	"github.com/countersign-dev/countersign/internal/pipeline/child"
)

func main() {
	child.RunIfAsked()
	os.Exit(cli.Program().Main())
}
