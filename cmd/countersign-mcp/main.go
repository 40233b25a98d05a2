// Command countersign-mcp is `countersign mcp` in a program of its own: a client starts it once for each
// server and keeps it, and countersign links the whole pipeline. See package internal/mcpgate.
package main

import (
	"os"

	"github.com/countersign-dev/countersign/internal/cli/mcpcmd"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// commands is the command line.
type commands struct {
	Version ui.VersionFlag `help:"Print the version and exit."`
	mcpcmd.Cmd
}

func main() {
	program := ui.Program{Name: "countersign-mcp", About: "The gate in front of servers of the Model Context Protocol.", Commands: &commands{}}
	os.Exit(program.Main())
}
